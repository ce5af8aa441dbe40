//! What `nodes()` says of each node.

use leasehold::testing::{Direction, FaultProxy};
use leasehold::{NodeErrorKind, NodeState};

use crate::common::{Raw, ms, raw, secs};
use crate::views::replication::follow;
use crate::views::{builder, masters, until_node, until_up};

#[tokio::test]
async fn nodes_are_told_in_the_order_of_the_builder_without_passwords() {
    let masters = masters(3).arg("--requirepass", "hush").start().await.expect("local masters");
    let urls: Vec<_> = masters.urls().iter().map(|url| url.replace("redis://", "redis://:hush@")).collect();
    let redlock = builder([&urls[2], &urls[0], &urls[1]]).connect().await.expect("connect");
    let addresses: Vec<_> = redlock.nodes().into_iter().map(|node| node.address).collect();
    assert_eq!(addresses, [2, 0, 1].map(|index| masters.addr(index).to_string()));
    assert!(!format!("{redlock:?}").contains("hush"));
}

#[tokio::test]
async fn a_node_that_is_well_is_up_with_all_that_it_told() {
    let masters = masters(1).start().await.expect("a master");
    let redlock = builder(masters.urls()).connect().await.expect("connect");
    let node = redlock.nodes().remove(0);
    assert_eq!(node.state, NodeState::Up);
    assert!(node.last_error.is_none(), "{:?}", node.last_error);
    assert_eq!((node.warnings.as_slice(), node.owed), (&[][..], 0));
    assert_eq!(node.server, Some(server_of(&raw(&masters, 0)).await));
    assert_eq!((node.replicas, node.appendonly, node.synced), (Some(0), Some(true), true));
    assert_eq!(node.appendfsync.as_deref(), Some("always"));
    assert_eq!(node.eviction_policy.as_deref(), Some("noeviction"));
    assert!(node.since < secs(30), "{:?}", node.since);
    let later = until_node(&redlock, 0, "connected for longer", |later| later.since > node.since).await;
    assert_eq!(later.state, NodeState::Up);
}

/// By what it says of itself.
async fn server_of(raw: &Raw) -> String {
    let info: String = raw.ask(&["INFO", "server"]).await;
    if info.contains("valkey_version:") {
        return format!("Valkey {}", raw.info("valkey_version").await);
    }
    format!("Redis {}", raw.info("redis_version").await)
}

#[tokio::test]
async fn the_native_commands_in_use_are_those_that_the_server_has() {
    let masters = masters(1).start().await.expect("a master");
    let server = raw(&masters, 0);
    let has = async |words: &[&str]| server.say(words).await.is_ok();
    let mut wanted = Vec::new();
    if has(&["SET", "none", "v", "IFEQ", "x", "PX", "1"]).await {
        wanted.push("SET IFEQ");
    }
    if has(&["DELEX", "none", "IFEQ", "x"]).await {
        wanted.push("DELEX");
    } else if has(&["DELIFEQ", "none", "x"]).await {
        wanted.push("DELIFEQ");
    }
    let redlock = builder(masters.urls()).connect().await.expect("connect");
    assert_eq!(redlock.nodes()[0].native_commands, wanted);
}

#[tokio::test]
async fn a_round_trip_is_measured_from_the_start() {
    let masters = masters(1).start().await.expect("a master");
    let proxy = FaultProxy::start(masters.addr(0)).await.expect("a proxy");
    proxy.latency(Direction::ToServer, ms(30));
    let redlock = builder([proxy.url()]).connect().await.expect("connect");
    let node = until_up(&redlock, 0).await;
    let round_trip = node.round_trip.expect("it has answered questions by now");
    assert!(round_trip >= ms(30) && round_trip < secs(5), "{round_trip:?}");
}

#[tokio::test]
async fn a_round_trip_is_measured_again_and_again() {
    let masters = masters(1).start().await.expect("a master");
    let proxy = FaultProxy::start(masters.addr(0)).await.expect("a proxy");
    let redlock = builder([proxy.url()]).connect().await.expect("connect");
    proxy.latency(Direction::ToClient, ms(200));
    let far = |trip: Option<std::time::Duration>| trip.is_some_and(|trip| trip >= ms(200));
    until_node(&redlock, 0, "far away", |node| far(node.round_trip)).await;
    proxy.latency(Direction::ToClient, ms(0));
    until_node(&redlock, 0, "near again", |node| node.round_trip.is_some() && !far(node.round_trip)).await;
}

#[tokio::test]
async fn round_trips_can_be_measured_on_demand() {
    let masters = masters(2).start().await.expect("local masters");
    let proxy = FaultProxy::start(masters.addr(0)).await.expect("a proxy");
    let redlock = builder([proxy.url(), masters.url(1)]).connect().await.expect("connect");
    proxy.latency(Direction::ToClient, ms(20));
    masters.kill(1).await.expect("kill");
    let mut measured = redlock.round_trips(5).await;
    assert!(measured.remove(1).is_err(), "it is down");
    let times = measured.remove(0).expect("it answers");
    assert_eq!(times.len(), 5);
    assert!(times.iter().all(|time| *time >= ms(20)), "{times:?}");
}

#[tokio::test]
async fn the_clock_of_a_node_on_this_machine_is_ours() {
    let masters = masters(1).start().await.expect("a master");
    let redlock = builder(masters.urls()).connect().await.expect("connect");
    let node = until_node(&redlock, 0, "known by its clock", |node| node.clock_ahead_micros.is_some()).await;
    let ahead = node.clock_ahead_micros.expect("it is there");
    assert!(ahead.abs() < 1_000_000, "{ahead} µs");
}

#[tokio::test]
async fn a_node_that_goes_down_is_down_with_the_reason_and_up_again_with_the_same_reason() {
    let masters = masters(1).start().await.expect("a master");
    let redlock = builder(masters.urls()).connect().await.expect("connect");
    masters.kill(0).await.expect("kill");
    let down = until_node(&redlock, 0, "down", |node| node.state == NodeState::Down).await;
    let error = down.last_error.expect("it is known why");
    assert_eq!(error.address(), masters.addr(0).to_string());
    assert!(matches!(error.kind(), NodeErrorKind::ConnectionLost | NodeErrorKind::Unreachable));
    masters.restart(0).await.expect("restart");
    let up = until_up(&redlock, 0).await;
    assert!(up.last_error.is_some(), "what went wrong last can still be read");
    assert!(up.since < secs(30));
}

#[tokio::test]
async fn a_node_that_hangs_is_slow_and_up_again_when_it_answers() {
    let masters = masters(1).start().await.expect("a master");
    let redlock = builder(masters.urls()).node_timeout(ms(300)).connect().await.expect("connect");
    masters.pause(0).await.expect("pause");
    let _ = redlock.lease("job").try_acquire().await;
    until_node(&redlock, 0, "not up", |node| node.state != NodeState::Up).await;
    masters.resume(0).expect("resume");
    until_up(&redlock, 0).await;
}

#[tokio::test]
async fn the_replicas_of_a_node_are_counted_when_they_come() {
    let (masters, replica) = (
        masters(1).start().await.expect("a master"),
        crate::views::masters(1).start().await.expect("a replica"),
    );
    let redlock = builder(masters.urls()).connect().await.expect("connect");
    follow(&raw(&replica, 0), masters.addr(0)).await;
    let node = until_node(&redlock, 0, "one with a replica", |node| node.replicas == Some(1)).await;
    assert_eq!(node.state, NodeState::Up, "it lost nothing");
    assert!(redlock.lease("job").try_acquire().await.expect("it votes").is_some());
}
