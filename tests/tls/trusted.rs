//! Servers that a client believes.

use std::process::Command;

use leasehold::testing::{Direction, FaultProxy};
use leasehold::{NodeState, Redlock};

use super::certificates::Authority;
use super::servers::{TlsMaster, three, urls};
use crate::common::{Raw, connect, ms, secs, until};
use crate::views::{builder, is_young, until_node, until_up};

async fn client(urls: &[String], ca: &str) -> Redlock {
    connect(builder(urls).tls_ca(ca)).await
}

/// A lease goes its whole way.
async fn serves(redlock: &Redlock) {
    let lease = redlock.lease("job").ttl(secs(4)).acquire().await.expect("acquire");
    lease.extend(secs(5)).await.expect("extend");
    lease.release().await.expect("release");
}

#[tokio::test]
async fn masters_with_certificates_of_a_private_authority_serve() {
    let (authority, masters) = three().await;
    let redlock = client(&urls(&masters), &authority.pem).await;
    serves(&redlock).await;
    let shown = redlock.nodes().remove(0);
    assert_eq!(shown.address, masters[0].address.to_string());
    assert_eq!(shown.warnings, []);
}

#[tokio::test]
async fn a_certificate_is_good_for_a_host_name_too() {
    let authority = Authority::new();
    let master = TlsMaster::start(&authority.issue(&["localhost"])).await;
    serves(&client(&[master.url("localhost")], &authority.pem).await).await;
}

#[tokio::test]
async fn several_authorities_may_be_given_at_once() {
    let (first, second) = (Authority::new(), Authority::new());
    let masters = [
        TlsMaster::start(&first.issue(&["127.0.0.1"])).await,
        TlsMaster::start(&second.issue(&["127.0.0.1"])).await,
    ];
    let both = format!("# two of them\n{}\n{}", first.pem, second.pem);
    serves(&client(&urls(&masters), &both).await).await;
}

#[tokio::test]
async fn masters_with_and_without_tls_serve_together() {
    let (authority, masters) = three().await;
    let mut urls = urls(&masters);
    urls[1] = masters[1].plain.url(0);
    serves(&client(&urls, &authority.pem).await).await;
}

#[tokio::test]
async fn the_two_ports_of_a_server_are_one_server() {
    let (authority, masters) = three().await;
    let urls = [masters[0].url("127.0.0.1"), masters[0].plain.url(0), masters[1].url("127.0.0.1")];
    let connected = builder(urls).tls_ca(&authority.pem).connect().await.map(drop);
    let error = connected.expect_err("one server twice").to_string();
    assert!(error.contains("the same server"), "{error}");
}

#[tokio::test]
async fn a_connection_that_breaks_is_made_again_with_tls() {
    let (authority, masters) = three().await;
    let proxy = FaultProxy::start(masters[0].address).await.expect("a proxy");
    let url = proxy.url().replace("redis://", "rediss://");
    let redlock = client(&[url], &authority.pem).await;
    proxy.cut();
    until_node(&redlock, 0, "connected anew", |node| {
        node.state == NodeState::Up && node.last_error.is_some()
    })
    .await;
    serves(&redlock).await;
}

#[tokio::test]
async fn a_handshake_that_takes_its_time_is_waited_for() {
    let (authority, masters) = three().await;
    let proxy = FaultProxy::start(masters[0].address).await.expect("a proxy");
    proxy.latency(Direction::ToClient, ms(150));
    let url = proxy.url().replace("redis://", "rediss://");
    serves(&client(&[url], &authority.pem).await).await;
}

#[tokio::test]
async fn the_restart_guard_works_behind_tls() {
    let (authority, masters) = three().await;
    let redlock = client(&urls(&masters), &authority.pem).await;
    serves(&redlock).await;
    masters[0].plain.restart_empty(0).await.expect("restart");
    until_node(&redlock, 0, "young", is_young).await;
    // And a memory that is emptied under the connection is noticed.
    Raw::new(&masters[1].plain.url(0)).tell(&["FLUSHALL"]).await;
    until_node(&redlock, 1, "young", is_young).await;
    until_up(&redlock, 2).await;
}

#[tokio::test]
async fn a_lease_is_released_over_tls_on_every_node() {
    let (authority, masters) = three().await;
    let redlock = client(&urls(&masters), &authority.pem).await;
    let lease = redlock.lease("job").acquire().await.expect("acquire");
    for master in &masters {
        let raw = Raw::new(&master.plain.url(0));
        until("the key should be there", async || raw.get("job").await.is_some()).await;
    }
    lease.release().await.expect("release");
    for master in &masters {
        let raw = Raw::new(&master.plain.url(0));
        until("the key should be gone", async || raw.get("job").await.is_none()).await;
    }
}

/// The system's authorities, in a process for which a file of the test's own holds them.
#[tokio::test]
async fn without_an_authority_of_its_own_a_client_believes_those_of_the_system() {
    const URL: &str = "LEASEHOLD_TEST_TLS_URL";
    if let Some(url) = std::env::var(URL).ok().filter(|url| !url.is_empty()) {
        return serves(&connect(builder([url])).await).await;
    }
    let authority = Authority::new();
    let master = TlsMaster::start(&authority.issue(&["127.0.0.1"])).await;
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("roots.pem");
    std::fs::write(&file, &authority.pem).expect("write");
    let test = "without_an_authority_of_its_own_a_client_believes_those_of_the_system";
    let child = Command::new(std::env::current_exe().expect("this program"))
        .args([&format!("tls::trusted::{test}"), "--exact"])
        .env("SSL_CERT_FILE", &file)
        .env_remove("SSL_CERT_DIR")
        .env(URL, master.url("127.0.0.1"))
        .output()
        .expect("run this program");
    let text = String::from_utf8_lossy(&child.stdout).into_owned();
    assert!(child.status.success() && text.contains("1 passed"), "{text}");
}
