//! What a user is not allowed to ask does not keep a node from voting, but weakens it, and is told.

use leasehold::testing::LocalMasters;
use leasehold::{Builder, ConnectError, NodeErrorKind, NodeState, NodeStatus, NodeWarning, Redlock, Refusal};

use crate::common::{PATIENCE, raw, secs};
use crate::views::replication::follow_nobody;
use crate::views::{builder, masters, meet, until_up};

const ALL: &[&str] = &["~*", "&*", "+@all"];

/// Masters that have served before, and the same addresses for a user with these rules besides all rights.
async fn restricted(count: usize, rules: &[&str]) -> (LocalMasters, Vec<String>) {
    let masters = masters(count).start().await.expect("local masters");
    meet(masters.urls(), secs(60)).await;
    let urls = users(&masters, &[ALL, rules].concat()).await;
    (masters, urls)
}

async fn users(masters: &LocalMasters, rules: &[&str]) -> Vec<String> {
    for index in 0..masters.len() {
        let user = [&["ACL", "SETUSER", "app", "on", ">secret"], rules].concat();
        raw(masters, index).tell(&user).await;
    }
    masters.urls().iter().map(|url| url.replace("redis://", "redis://app:secret@")).collect()
}

/// One master and a user who may do all but this: what is said of the node, once it has voted.
async fn without(rules: &[&str]) -> NodeStatus {
    let (_masters, urls) = restricted(1, rules).await;
    let redlock = builder(urls).connect().await.expect("connect");
    let node = until_up(&redlock, 0).await;
    let lease = redlock.lease("job").try_acquire().await.expect("it votes").expect("nobody has it");
    assert!(lease.is_valid());
    assert_eq!(redlock.nodes()[0].state, NodeState::Up);
    node
}

#[tokio::test]
async fn a_user_who_may_do_all_is_warned_of_nothing() {
    let node = without(&[]).await;
    assert_eq!(node.warnings, []);
    assert!(node.synced);
}

#[tokio::test]
async fn without_info_restarts_cannot_be_seen_and_that_is_told() {
    let node = without(&["-info"]).await;
    assert_eq!(node.warnings, [NodeWarning::NoInfo]);
    assert_eq!(node.server, None);
    assert!(node.warnings[0].to_string().contains("`+info`"));
}

#[tokio::test]
async fn without_role_the_role_is_known_from_info() {
    assert_eq!(without(&["-role"]).await.warnings, []);
    is_refused_without(&["-role"]).await;
}

#[tokio::test]
async fn without_info_the_role_is_known_from_role() {
    is_refused_without(&["-info"]).await;
}

async fn is_refused_without(rules: &[&str]) {
    let (masters, urls) = restricted(1, rules).await;
    follow_nobody(&raw(&masters, 0)).await;
    let connected = builder(urls).connect().await.map(drop);
    assert!(
        matches!(connected, Err(ConnectError::Refused { refusal: Refusal::Replica, .. })),
        "{connected:?}"
    );
}

#[tokio::test]
async fn without_config_nobody_knows_how_the_node_syncs_and_that_is_told() {
    let node = without(&["-config"]).await;
    assert!(!node.synced);
    assert_eq!(node.warnings.len(), 1, "{:?}", node.warnings);
    assert!(node.warnings[0].to_string().contains("+config"), "{}", node.warnings[0]);
}

#[tokio::test]
async fn without_a_right_to_the_marker_the_uptime_serves_and_that_is_told() {
    // Old enough by its uptime: less a second, because INFO counts whole ones.
    let (masters, urls) = restricted(1, &["resetkeys", "~job"]).await;
    let redlock = connect_young(builder(&urls)).await;
    let node = until_up(&redlock, 0).await;
    assert_eq!(node.warnings, [NodeWarning::NoMarker]);
    let text = node.warnings[0].to_string();
    assert!(text.contains("leasehold:node") && text.contains("GET"), "{text}");
    assert!(redlock.lease("job").ttl(secs(1)).try_acquire().await.expect("it votes").is_some());
    drop(masters);
}

/// With the least `max_ttl`: a node that was just started has to grow as old as that.
async fn connect_young(builder: Builder) -> Redlock {
    builder.max_ttl(secs(3)).connect().await.expect("connect")
}

#[tokio::test]
async fn without_eval_a_node_that_has_a_marker_of_this_run_needs_none() {
    let node = without(&["-eval", "-evalsha"]).await;
    assert_eq!(node.warnings, []);
}

#[tokio::test]
async fn without_eval_a_new_node_is_as_old_as_its_uptime_and_that_is_told() {
    let masters = masters(1).start().await.expect("a master");
    let urls = users(&masters, &[ALL, &["-eval", "-evalsha"]].concat()).await;
    let redlock = connect_young(builder(urls)).await;
    let node = until_up(&redlock, 0).await;
    assert_eq!(node.warnings, [NodeWarning::NoMarker]);
    assert!(node.warnings[0].to_string().contains("EVAL"));
    assert_eq!(raw(&masters, 0).get("leasehold:node").await, None);
    assert!(redlock.lease("job").ttl(secs(1)).try_acquire().await.expect("it votes").is_some());
}

#[tokio::test]
async fn without_time_the_uptime_serves_and_that_is_told() {
    let (_masters, urls) = restricted(1, &["-time"]).await;
    let redlock = connect_young(builder(urls)).await;
    let node = until_up(&redlock, 0).await;
    assert_eq!(node.warnings, [NodeWarning::NoMarker]);
    assert!(node.warnings[0].to_string().contains("TIME"), "{}", node.warnings[0]);
    assert!(redlock.lease("job").ttl(secs(1)).try_acquire().await.expect("it votes").is_some());
}

#[tokio::test]
async fn without_client_an_emptied_memory_is_seen_late_and_that_is_told() {
    let node = without(&["-client"]).await;
    assert_eq!(node.warnings, [NodeWarning::NoTracking]);
    assert!(node.warnings[0].to_string().contains("+client"));
}

#[tokio::test]
async fn a_user_who_may_do_little_more_than_set_keys_has_votes() {
    // What a managed server may leave of the rights.
    let rules = ["-@admin", "-@dangerous", "-info", "-role", "-config", "-client", "-hello", "-time"];
    let (_masters, urls) = restricted(3, &rules).await;
    let redlock = builder(urls).connect().await.expect("connect");
    for index in 0..3 {
        let node = until_up(&redlock, index).await;
        assert_eq!(node.warnings, [NodeWarning::NoInfo, NodeWarning::NoTracking]);
    }
    let lease = redlock.lease("job").ttl(secs(3)).try_acquire().await.expect("they vote").expect("free");
    lease.extend(secs(4)).await.expect("extend");
    lease.release().await.expect("release");
    assert!(redlock.lease("job").try_acquire().await.expect("they vote").is_some());
}

#[tokio::test]
async fn a_warning_stays_visible_on_a_node_among_others() {
    let masters = masters(3).start().await.expect("local masters");
    meet(masters.urls(), secs(60)).await;
    let urls = users(&masters, &[ALL, &["-info"]].concat()).await;
    let mixed = [urls[0].clone(), masters.url(1), masters.url(2)];
    let redlock = builder(mixed).connect().await.expect("connect");
    let warnings: Vec<_> = redlock.nodes().into_iter().map(|node| node.warnings).collect();
    assert_eq!(warnings, [vec![NodeWarning::NoInfo], vec![], vec![]]);
    masters.kill(1).await.expect("kill");
    let lease = redlock.lease("job").wait(PATIENCE).acquire().await.expect("its vote counts");
    lease.release().await.expect("release");
}

#[tokio::test]
async fn a_namespace_of_its_own_needs_no_right_to_other_keys() {
    let masters = masters(3).start().await.expect("local masters");
    let urls = users(&masters, &["resetkeys", "~billing:*", "resetchannels", "+@all"]).await;
    let redlock = builder(&urls).namespace("billing:").connect().await.expect("connect");
    for node in redlock.nodes() {
        assert_eq!((node.state, node.warnings), (NodeState::Up, vec![]), "{}", node.address);
    }
    let lease = redlock.lease("job").ttl(secs(3)).fenced().acquire().await.expect("acquire");
    let both = redlock.lease_all(["a", "b"]).try_acquire().await.expect("they vote").expect("free");
    lease.extend(secs(4)).await.expect("extend");
    for index in 0..3 {
        assert_eq!(raw(&masters, index).get("billing:job").await.as_deref(), Some(lease.token().as_str()));
        let keys: Vec<String> = raw(&masters, index).ask(&["KEYS", "*"]).await;
        assert!(keys.iter().all(|key| key.starts_with("billing:")), "{keys:?}");
    }
    both.release().await.expect("release");
    lease.release().await.expect("release");
    redlock.close().await;

    // Outside of its namespace it is nobody, and each node says so.
    let outside = connect_young(builder(&urls)).await;
    for index in 0..3 {
        until_up(&outside, index).await;
    }
    let error = outside.lease("job").ttl(secs(1)).try_acquire().await.expect_err("no right to the key");
    let leasehold::AcquireError::NoQuorum(too_few) = &error else { panic!("{error:?}") };
    assert!(too_few.failed.iter().all(|node| node.kind() == NodeErrorKind::NoPermission), "{error:?}");
}

#[tokio::test]
async fn two_namespaces_are_two_worlds() {
    let masters = masters(3).start().await.expect("local masters");
    let client = async |namespace: &str, max_ttl| {
        let builder = builder(masters.urls()).namespace(namespace).max_ttl(secs(max_ttl));
        builder.connect().await.expect("connect")
    };
    let (billing, other) = (client("billing:", 60).await, client("other:", 30).await);
    let warnings = |redlock: &Redlock| redlock.nodes().into_iter().any(|node| !node.warnings.is_empty());
    assert!(!warnings(&billing) && !warnings(&other), "another max_ttl is another world's business");
    let first = billing.lease("job").try_acquire().await.expect("they vote").expect("free");
    let second = other.lease("job").try_acquire().await.expect("they vote").expect("free");
    assert!(first.is_valid() && second.is_valid());
}
