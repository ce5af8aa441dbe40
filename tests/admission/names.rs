//! Host names that lead to several addresses, or to another one later. They are looked up in a file of the
//! test's own, by a library that the C library's look-ups go through, in a process of the test's own.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, SystemTime};

use leasehold::testing::LocalMasters;
use leasehold::{ConnectError, NodeState, NodeWarning, Redlock, Refusal};

use crate::common::connect;
use crate::views::forward::Forward;
use crate::views::{builder, is_young, masters, until_node, until_up};

const HOSTS: &str = "NSS_WRAPPER_HOSTS";

/// The file of names, in the process that looks names up there; elsewhere runs the test in such a process,
/// and fails if it fails there.
fn hosts(test: &str) -> Option<PathBuf> {
    if let Some(file) = std::env::var_os(HOSTS) {
        return Some(file.into());
    }
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("hosts");
    std::fs::write(&file, "127.0.0.1 localhost\n").expect("write");
    let output = Command::new(std::env::current_exe().expect("this program"))
        .args([&format!("admission::names::{test}"), "--exact", "--nocapture"])
        .env("LD_PRELOAD", "libnss_wrapper.so")
        .env(HOSTS, &file)
        .output()
        .expect("run this program");
    let text = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    let [stdout, stderr] = text;
    assert!(
        !stderr.contains("cannot be preloaded"),
        "the library libnss_wrapper.so is missing: install the package `libnss-wrapper`\n{stderr}"
    );
    assert!(output.status.success() && stdout.contains("1 passed"), "{stdout}\n{stderr}");
    None
}

/// Lets `node.test` lead to `addresses`, in their order.
fn name(hosts: &Path, addresses: &[&str]) {
    let lines: Vec<_> = addresses.iter().map(|address| format!("{address} node.test\n")).collect();
    std::fs::write(hosts, format!("127.0.0.1 localhost\n{}", lines.concat())).expect("write");
    // It is read again when its time has changed, in whole seconds.
    static LATER: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(2);
    let later = Duration::from_secs(LATER.fetch_add(2, std::sync::atomic::Ordering::SeqCst));
    let file = std::fs::File::options().write(true).open(hosts).expect("open");
    file.set_modified(SystemTime::now() + later).expect("its time");
}

/// Two masters; the first is what the name leads to, for most tests.
async fn two() -> LocalMasters {
    masters(2).start().await.expect("local masters")
}

fn at(address: [u8; 4], port: u16) -> SocketAddr {
    (address, port).into()
}

async fn client(masters: &LocalMasters) -> Redlock {
    let url = format!("redis://node.test:{}", masters.port(0));
    builder([url]).connect().await.expect("nothing is wrong in itself")
}

#[tokio::test]
async fn a_name_with_several_addresses_leads_to_the_one_that_answers() {
    let Some(hosts) = hosts("a_name_with_several_addresses_leads_to_the_one_that_answers") else { return };
    let masters = two().await;
    name(&hosts, &["127.0.0.7", "127.0.0.1", "127.0.0.8"]);
    let redlock = client(&masters).await;
    until_up(&redlock, 0).await;
    assert!(redlock.lease("job").try_acquire().await.expect("it votes").is_some());
}

#[tokio::test]
async fn a_name_that_leads_to_another_address_later_is_followed() {
    let Some(hosts) = hosts("a_name_that_leads_to_another_address_later_is_followed") else { return };
    let masters = two().await;
    let port = masters.port(0);
    name(&hosts, &["127.0.0.7"]);
    let before = Forward::start(at([127, 0, 0, 7], port), masters.addr(0)).await.expect("an address");
    let redlock = client(&masters).await;
    until_up(&redlock, 0).await;
    // As a container that comes back elsewhere.
    before.end().await;
    let _after = Forward::start(at([127, 0, 0, 8], port), masters.addr(0)).await.expect("an address");
    until_node(&redlock, 0, "down", |node| node.state == NodeState::Down).await;
    name(&hosts, &["127.0.0.8"]);
    until_up(&redlock, 0).await;
    assert!(redlock.lease("job").try_acquire().await.expect("it votes").is_some());
}

#[tokio::test]
async fn a_name_that_nobody_knows_yet_is_asked_for_again() {
    let Some(hosts) = hosts("a_name_that_nobody_knows_yet_is_asked_for_again") else { return };
    let masters = two().await;
    let redlock = client(&masters).await;
    let node = until_node(&redlock, 0, "down", |node| node.state == NodeState::Down).await;
    assert!(node.last_error.is_some());
    name(&hosts, &["127.0.0.1"]);
    until_up(&redlock, 0).await;
}

/// Lets the name lead to another server, and returns the client when it is connected to that.
async fn led_elsewhere(hosts: &Path, masters: &LocalMasters) -> (Redlock, Forward) {
    name(hosts, &["127.0.0.1"]);
    let redlock = client(masters).await;
    until_up(&redlock, 0).await;
    let other = Forward::start(at([127, 0, 0, 9], masters.port(0)), masters.addr(1)).await;
    name(hosts, &["127.0.0.9"]);
    masters.kill(0).await.expect("kill");
    until_node(&redlock, 0, "connected to another", |node| {
        matches!(node.state, NodeState::Young(_) | NodeState::Up) && node.last_error.is_some()
    })
    .await;
    (redlock, other.expect("an address"))
}

#[tokio::test]
async fn a_name_that_comes_to_lead_to_a_new_server_finds_it_young() {
    let Some(hosts) = hosts("a_name_that_comes_to_lead_to_a_new_server_finds_it_young") else { return };
    let masters = two().await;
    let (redlock, _other) = led_elsewhere(&hosts, &masters).await;
    assert!(is_young(&redlock.nodes()[0]), "it never granted what the first did: {:?}", redlock.nodes());
}

#[tokio::test]
async fn a_name_that_comes_to_lead_to_the_server_of_another_fleet_is_told() {
    let Some(hosts) = hosts("a_name_that_comes_to_lead_to_the_server_of_another_fleet_is_told") else {
        return;
    };
    let masters = two().await;
    connect(builder([masters.url(1)])).await.close().await;
    let (redlock, _other) = led_elsewhere(&hosts, &masters).await;
    assert_eq!(redlock.nodes()[0].warnings, [NodeWarning::OtherFleet]);
}

#[tokio::test]
async fn a_server_under_two_names_is_refused() {
    let Some(hosts) = hosts("a_server_under_two_names_is_refused") else { return };
    let masters = two().await;
    name(&hosts, &["127.0.0.1"]);
    let urls = [masters.url(0), format!("redis://node.test:{}", masters.port(0))];
    let connected = builder(urls).connect().await.map(drop);
    let refused = matches!(connected, Err(ConnectError::Refused { refusal: Refusal::SameServer { .. }, .. }));
    assert!(refused, "{connected:?}");
}
