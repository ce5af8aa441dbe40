use leasehold::testing::LocalMasters;
use leasehold::{AcquireError, NodeErrorKind, NodeState, Redlock};

use crate::common::*;

/// Everything that means something in a URL, and something beyond ASCII.
const SPECIAL: &str = "p:a/s@s?w#o%r&d=+\u{e9} ";

/// `text` as it stands in a URL.
fn percent(text: &str) -> String {
    let encode = |byte: u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' => char::from(byte).to_string(),
        _ => format!("%{byte:02X}"),
    };
    text.bytes().map(encode).collect()
}

fn with_login(url: &str, login: &str) -> String {
    url.replace("redis://", &format!("redis://{login}@"))
}

/// Holds `job`, sees it on each master as `raws` see it, extends it and gives it back.
async fn serves(redlock: &Redlock, raws: &[Raw]) {
    let lease = hold(redlock, "job").await;
    for raw in raws {
        until("each master should hold the token", async || {
            raw.get("job").await.as_deref() == Some(lease.token().as_str())
        })
        .await;
    }
    lease.extend(secs(60)).await.unwrap();
    lease.release().await.unwrap();
    for raw in raws {
        until("each master should be free", async || raw.get("job").await.is_none()).await;
    }
}

#[tokio::test]
async fn unix_sockets_serve() {
    let masters = LocalMasters::builder().unix_sockets(true).start().await.unwrap();
    let urls = (0..5).map(|index| masters.unix_url(index).unwrap());
    let redlock = connect(Redlock::builder().nodes(urls).node_timeout(secs(2))).await;
    assert!(redlock.nodes().iter().all(|node| node.address.starts_with("unix:/")));
    serves(&redlock, &raws(&masters)).await;
}

#[tokio::test]
async fn sockets_and_ports_serve_side_by_side() {
    let masters = LocalMasters::builder().unix_sockets(true).start().await.unwrap();
    let url = |index| if index % 2 == 0 { masters.unix_url(index).unwrap() } else { masters.url(index) };
    let redlock = connect(Redlock::builder().nodes((0..5).map(url)).node_timeout(secs(2))).await;
    serves(&redlock, &raws(&masters)).await;
}

#[tokio::test]
async fn unix_sockets_take_a_password_and_the_number_of_a_database() {
    let builder = LocalMasters::builder().unix_sockets(true).arg("--requirepass", SPECIAL);
    let masters = builder.start().await.unwrap();
    let query = format!("?pass={}&db=3", percent(SPECIAL));
    let urls = (0..5).map(|index| masters.unix_url(index).unwrap() + &query);
    let redlock = connect(Redlock::builder().nodes(urls).node_timeout(secs(2))).await;
    let login = format!(":{}", percent(SPECIAL));
    let raws = masters.urls().into_iter().map(|url| Raw::new(&(with_login(&url, &login) + "/3")));
    serves(&redlock, &raws.collect::<Vec<_>>()).await;
    assert!(!format!("{redlock:?}").contains(SPECIAL));
}

#[tokio::test]
async fn names_of_hosts_are_resolved() {
    let masters = five().await;
    let urls = masters.urls().into_iter().map(|url| url.replace("127.0.0.1", "localhost"));
    let redlock = connect(Redlock::builder().nodes(urls).node_timeout(secs(2))).await;
    serves(&redlock, &raws(&masters)).await;
    assert!(redlock.nodes().iter().all(|node| node.address.starts_with("localhost:")));
}

#[tokio::test]
async fn a_name_that_nobody_knows_and_a_server_that_is_no_redis_do_not_disturb_the_others() {
    let masters = LocalMasters::start(3).await.unwrap();
    let other = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let other_url = format!("redis://{}", other.local_addr().unwrap());
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = other.accept().await {
            let _ =
                tokio::io::AsyncWriteExt::write_all(&mut stream, b"HTTP/1.1 400 Bad Request\r\n\r\n").await;
        }
    });
    let urls = masters.urls().into_iter().chain([other_url, "redis://no-such-host.invalid:6379".to_owned()]);
    // No client has ever met all five.
    let builder = Redlock::builder().nodes(urls).node_timeout(secs(2)).restart_guard(false);
    let redlock = builder.connect().await.unwrap();
    serves(&redlock, &raws(&masters)).await;
    for node in &redlock.nodes()[3..] {
        assert_ne!(node.state, NodeState::Up, "{node:?}");
    }
    let told = async || redlock.nodes()[3..].iter().all(|node| node.last_error.is_some());
    until("both should say what is wrong", told).await;
}

#[tokio::test]
async fn a_password_with_special_characters_is_percent_decoded() {
    let masters = LocalMasters::builder().arg("--requirepass", SPECIAL).start().await.unwrap();
    let login = format!(":{}", percent(SPECIAL));
    let urls: Vec<String> = masters.urls().iter().map(|url| with_login(url, &login)).collect();
    let redlock = connect(Redlock::builder().nodes(&urls).node_timeout(secs(2))).await;
    let raws: Vec<Raw> = urls.iter().map(|url| Raw::new(url)).collect();
    serves(&redlock, &raws).await;
    let shown = format!("{redlock:?}");
    assert!(!shown.contains(SPECIAL) && !shown.contains(&percent(SPECIAL)), "{shown}");
}

#[tokio::test]
async fn an_acl_user_with_special_characters_is_percent_decoded() {
    let masters = five().await;
    let user = SPECIAL.trim();
    for raw in raws(&masters) {
        raw.tell(&["ACL", "SETUSER", user, "on", &format!(">{SPECIAL}"), "~*", "+@all"]).await;
        raw.tell(&["ACL", "SETUSER", "default", "off"]).await;
    }
    let login = format!("{}:{}", percent(user), percent(SPECIAL));
    let urls: Vec<String> = masters.urls().iter().map(|url| with_login(url, &login)).collect();
    let redlock = connect(Redlock::builder().nodes(&urls).node_timeout(secs(2))).await;
    let raws: Vec<Raw> = urls.iter().map(|url| Raw::new(url)).collect();
    serves(&redlock, &raws).await;
}

#[tokio::test]
async fn a_namespace_is_all_that_an_acl_user_needs() {
    let masters = five().await;
    for raw in raws(&masters) {
        raw.tell(&["ACL", "SETUSER", "billing", "on", ">secret", "~billing:*", "+@all"]).await;
    }
    let urls = masters.urls().into_iter().map(|url| with_login(&url, "billing:secret"));
    let builder = Redlock::builder().nodes(urls).namespace("billing:").node_timeout(secs(2));
    let redlock = connect(builder).await;
    let lease = redlock.lease_all(["a", "b"]).ttl(secs(60)).acquire().await.unwrap();
    lease.extend(secs(60)).await.unwrap();
    lease.release().await.unwrap();
    let lease = hold(&redlock, "job").await;
    until_held_by_all(&masters, "billing:job", lease.token().as_str()).await;
    lease.extend(secs(60)).await.unwrap();
    lease.release().await.unwrap();
    until_free(&masters, "billing:job").await;
}

#[tokio::test]
async fn the_number_of_a_database_is_kept_to() {
    let masters = five().await;
    let urls: Vec<String> = masters.urls().iter().map(|url| format!("{url}/7")).collect();
    let redlock = connect(Redlock::builder().nodes(&urls).node_timeout(secs(2))).await;
    let raws: Vec<Raw> = urls.iter().map(|url| Raw::new(url)).collect();
    serves(&redlock, &raws).await;
    let lease = hold(&redlock, "job").await;
    assert!(holders(&masters, "job").await.iter().all(Option::is_none), "database 0 stays empty");
    let zero = client(&masters).await;
    hold(&zero, "job").await.release().await.unwrap();
    lease.release().await.unwrap();
}

/// Urls of `masters`, which want the password `right-one`; the first `wrong` of them with a wrong one.
fn some_wrong(masters: &LocalMasters, wrong: usize) -> Vec<String> {
    let login = |index| if index < wrong { ":wrong-one" } else { ":right-one" };
    masters.urls().iter().enumerate().map(|(index, url)| with_login(url, login(index))).collect()
}

fn shows_no_password(shown: &str) {
    assert!(!shown.contains("wrong-one") && !shown.contains("right-one"), "{shown}");
}

#[tokio::test]
async fn a_wrong_password_for_one_of_five_is_named_and_the_other_four_serve() {
    let masters = LocalMasters::builder().arg("--requirepass", "right-one").start().await.unwrap();
    found(some_wrong(&masters, 0)).await;
    let urls = some_wrong(&masters, 1);
    let builder = Redlock::builder().nodes(&urls).node_timeout(secs(2));
    shows_no_password(&format!("{builder:?}"));
    let redlock = builder.connect().await.unwrap();
    until("four nodes should be up", async || {
        redlock.nodes().iter().filter(|node| node.state == NodeState::Up).count() == 4
    })
    .await;
    let raws: Vec<Raw> = urls[1..].iter().map(|url| Raw::new(url)).collect();
    serves(&redlock, &raws).await;

    let nodes = redlock.nodes();
    assert_eq!(nodes[0].state, NodeState::Down);
    assert_eq!(nodes[0].address, masters.addr(0).to_string());
    let error = nodes[0].last_error.clone().expect("the reason");
    assert_eq!(error.kind(), NodeErrorKind::Authentication, "{error}");
    assert_eq!(error.address(), masters.addr(0).to_string());
    shows_no_password(&format!("{error} {error:?} {redlock:?} {nodes:?}"));
}

#[tokio::test]
async fn wrong_and_missing_passwords_for_a_quorum_are_named_node_by_node() {
    let masters = LocalMasters::builder().arg("--requirepass", "right-one").start().await.unwrap();
    found(some_wrong(&masters, 0)).await;
    let missing = masters.urls().into_iter().take(3).chain(some_wrong(&masters, 3).into_iter().skip(3));
    for urls in [some_wrong(&masters, 3), missing.collect()] {
        let redlock = Redlock::builder().nodes(&urls).node_timeout(secs(2)).connect().await.unwrap();
        let refused = redlock.lease("job").ttl(secs(60)).try_acquire().await.unwrap_err();
        let AcquireError::NoQuorum(too_few) = &refused else { panic!("{refused:?}") };
        assert_eq!((too_few.nodes, too_few.needed), (5, 3));
        let named: Vec<&str> = too_few.failed.iter().map(|error| error.address()).collect();
        let expected: Vec<String> = (0..3).map(|index| masters.addr(index).to_string()).collect();
        assert_eq!(named, expected);
        for error in &too_few.failed {
            assert_eq!(error.kind(), NodeErrorKind::Authentication, "{error}");
            assert!(refused.to_string().contains(error.address()), "{refused}");
        }
        shows_no_password(&format!("{refused} {refused:?}"));
        for index in 3..5 {
            let raw = Raw::new(&with_login(&masters.url(index), ":right-one"));
            until("the undo should come through", async || raw.get("job").await.is_none()).await;
        }
    }
}
