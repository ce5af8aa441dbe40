//! A clock that is stepped forward lets keys run out early: such a node is not counted in the next renewal.

use std::time::Duration;

use leasehold::{ExtendError, Lease, NodeErrorKind, NodeStatus, NodeWarning, Redlock};

use super::faked::Scene;
use crate::common::{connect, ms, raw, secs, throughout, until};
use crate::views::{builder, until_node};

const TTL: Duration = secs(20);

/// By how much the node's clock is known to have gained.
fn gained(node: &NodeStatus) -> Option<Duration> {
    node.warnings.iter().find_map(|warning| match warning {
        NodeWarning::ClockStepped { gained } => Some(*gained),
        _ => None,
    })
}

async fn client(scene: &Scene) -> Redlock {
    connect(builder(scene.urls())).await
}

/// A lease on three masters, of which the last two are needed now.
async fn held(scene: &Scene, redlock: &Redlock) -> Lease {
    let lease = redlock.lease("job").ttl(TTL).without_heartbeat().acquire().await.expect("acquire");
    let faked = raw(&scene.faked, 0);
    until("it should be on all of them", async || faked.get("job").await.is_some()).await;
    scene.masters.kill(0).await.expect("kill");
    lease
}

/// The renewal fails for the clock of the last node.
async fn fails_for_the_clock(scene: &Scene, redlock: &Redlock, lease: &Lease) {
    let error = lease.extend(TTL).await.expect_err("the clock was stepped");
    let ExtendError::NoQuorum(too_few) = &error else { panic!("{error:?}") };
    let address = scene.faked.addr(0).to_string();
    let node = too_few.failed.iter().find(|node| node.address() == address).expect("it is named");
    assert_eq!(node.kind(), NodeErrorKind::ClockStepped);
    assert!(node.reason().contains("stepped forward"), "{node}");
    assert!(lease.is_valid(), "the old deadline stands");
    let gained = gained(&redlock.nodes()[2]).expect("a warning");
    assert!(gained > ms(4_500) && gained < ms(5_100), "{gained:?}");
}

#[tokio::test]
async fn a_node_whose_clock_was_stepped_forward_is_not_counted_in_the_next_renewal() {
    let scene = Scene::start(3).await;
    let redlock = client(&scene).await;
    let lease = held(&scene, &redlock).await;
    lease.extend(TTL).await.expect("two of three");
    scene.ahead(5_000);
    fails_for_the_clock(&scene, &redlock, &lease).await;
    // Its key has the whole TTL again, by the clock of now.
    lease.extend(TTL).await.expect("counted again");
    lease.release().await.expect("release");
}

#[tokio::test]
async fn a_step_right_after_the_first_round_is_seen() {
    let scene = Scene::start(3).await;
    let redlock = client(&scene).await;
    let lease = held(&scene, &redlock).await;
    scene.ahead(5_000);
    fails_for_the_clock(&scene, &redlock, &lease).await;
}

#[tokio::test]
async fn a_lease_lives_on_the_other_nodes_while_a_clock_is_stepped_forward() {
    let scene = Scene::start(5).await;
    let redlock = client(&scene).await;
    let lease = redlock.lease("job").ttl(secs(6)).acquire().await.expect("acquire");
    scene.ahead(3_000);
    until_node(&redlock, 4, "known to have been stepped", |node| gained(node).is_some()).await;
    throughout(secs(8), "four others hold it", async || lease.is_valid()).await;
    assert!(redlock.nodes()[..4].iter().all(|node| gained(node).is_none()), "only one was stepped");
    // The warning names the mistake and what to do.
    let warning = redlock.nodes()[4].warnings[0].to_string();
    assert!(warning.contains("maxslewrate"), "{warning}");
}

#[tokio::test]
async fn a_step_so_far_that_the_key_is_gone_is_told_too() {
    let scene = Scene::start(5).await;
    let redlock = client(&scene).await;
    let lease = redlock.lease("job").ttl(secs(6)).acquire().await.expect("acquire");
    scene.ahead(3_600_000);
    let faked = raw(&scene.faked, 0);
    until("the key should be put back", async || faked.get("job").await.is_some()).await;
    until_node(&redlock, 4, "known to have been stepped", |node| gained(node).is_some()).await;
    assert!(lease.is_valid());
}

#[tokio::test]
async fn a_step_back_changes_nothing() {
    let scene = Scene::start(3).await;
    let redlock = client(&scene).await;
    let lease = held(&scene, &redlock).await;
    lease.extend(TTL).await.expect("two of three");
    scene.ahead(-3_600_000);
    for _ in 0..3 {
        lease.extend(TTL).await.expect("it is counted");
    }
    assert_eq!(gained(&redlock.nodes()[2]), None);
    lease.release().await.expect("release");
    assert_eq!(raw(&scene.faked, 0).get("job").await, None);
}

#[tokio::test]
async fn a_clock_that_is_a_little_ahead_changes_nothing() {
    let scene = Scene::start(3).await;
    let redlock = client(&scene).await;
    let lease = held(&scene, &redlock).await;
    lease.extend(TTL).await.expect("two of three");
    // Less than the allowance of 1 % and 2 ms.
    scene.ahead(150);
    lease.extend(TTL).await.expect("it is counted");
    assert_eq!(gained(&redlock.nodes()[2]), None);
}

#[tokio::test]
async fn a_clock_that_was_always_ahead_is_no_step() {
    let scene = Scene::start(3).await;
    scene.ahead(86_400_000);
    let redlock = client(&scene).await;
    let lease = held(&scene, &redlock).await;
    lease.extend(TTL).await.expect("it is counted");
    assert_eq!(gained(&redlock.nodes()[2]), None);
    let ahead = until_node(&redlock, 2, "known by its clock", |node| node.clock_ahead_micros.is_some()).await;
    let ahead = ahead.clock_ahead_micros.expect("it is there") / 1_000_000;
    assert!((86_395..=86_405).contains(&ahead), "{ahead} s");
}
