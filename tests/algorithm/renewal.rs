//! When a lease is renewed, for how long, and when not.

use leasehold::{ExtendError, NodeErrorKind};
use tokio::time::Instant;

use super::*;

fn renewals(nodes: &MemoryNodes, node: usize) -> usize {
    nodes.requests(node).iter().filter(|request| *request == "extend k").count()
}

#[tokio::test(start_paused = true)]
async fn an_extend_right_after_the_acquire_waits_for_no_heartbeat() {
    let (_nodes, redlock) = nodes(3).await;
    let lease = redlock.lease("k").acquire().await.unwrap();
    let begun = Instant::now();
    lease.extend(TTL).await.unwrap();
    assert_eq!(begun.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn a_node_that_owes_an_answer_is_asked_again_for_a_longer_ttl() {
    let (nodes, redlock) = nodes(3).await;
    let lease = redlock.lease("k").without_heartbeat().acquire().await.unwrap();
    nodes.gate(0, Gate::Late(millis(300)));
    lease.extend(TTL).await.unwrap();
    lease.extend(TTL).await.unwrap();
    tokio::time::sleep(millis(1)).await;
    assert_eq!(renewals(&nodes, 0), 1, "the same question is open");
    lease.extend(TTL * 3).await.unwrap();
    tokio::time::sleep(millis(1)).await;
    assert_eq!(renewals(&nodes, 0), 2);
    assert!(nodes.expiry(0, "k").unwrap() > TTL * 2);
}

#[tokio::test(start_paused = true)]
async fn an_extend_that_fails_names_the_nodes_that_had_their_time_and_no_others() {
    let (nodes, redlock) = nodes(5).await;
    let lease = redlock.lease("k").without_heartbeat().acquire().await.unwrap();
    tokio::time::sleep(millis(1)).await;
    gate_all(&nodes, &[Gate::Error, Gate::Error, Gate::Error, Gate::Never, Gate::Grant]);
    let Err(ExtendError::NoQuorum(too_few)) = lease.extend(TTL).await else { panic!("it has a quorum") };
    let failed: Vec<&str> = too_few.failed.iter().map(|node| node.address()).collect();
    assert_eq!(failed, ["memory:0", "memory:1", "memory:2"], "the fourth could still answer");

    gate_all(&nodes, &[Gate::Grant; 5]);
    tokio::time::sleep(millis(1)).await;
    (0..3).for_each(|node| nodes.gate(node, Gate::Never));
    let Err(ExtendError::NoQuorum(too_few)) = lease.extend(TTL).await else { panic!("it has a quorum") };
    assert_eq!(too_few.failed.len(), 3, "{too_few}");
    assert!(too_few.failed.iter().all(|node| node.kind() == NodeErrorKind::TimedOut), "{too_few}");
}

#[tokio::test(start_paused = true)]
async fn a_short_lease_is_tried_again_soon_after_a_renewal_that_failed() {
    let (nodes, redlock) = nodes(3).await;
    let lease = redlock.lease("k").ttl(Duration::from_secs(2)).acquire().await.unwrap();
    tokio::time::sleep(millis(1)).await;
    gate_all(&nodes, &[Gate::Error; 3]);
    lease.lost().await;
    let tries = renewals(&nodes, 0);
    assert!((10..=15).contains(&tries), "{tries} in 1.3 s at a twentieth of the TTL");
}

#[tokio::test(start_paused = true)]
async fn a_lease_is_not_renewed_once_it_was_held_for_its_limit() {
    let (nodes, redlock) = nodes(1).await;
    let request = redlock.lease("k").renew_every(Duration::from_secs(1));
    let lease = request.max_hold(Duration::from_secs(5)).acquire().await.unwrap();
    lease.lost().await;
    assert_eq!(renewals(&nodes, 0), 4, "after one to four seconds");
}

#[tokio::test(start_paused = true)]
async fn a_renewal_that_is_answered_after_the_validity_has_ended_revives_nothing() {
    // One node, so that its answer is the first to be looked at after the suspend.
    let (nodes, redlock) = nodes(1).await;
    let lease = redlock.lease("k").acquire().await.unwrap();
    let (lost, begun) = (lease.cancellation_token(), Instant::now());
    tokio::time::sleep(millis(3_300)).await;
    nodes.gate(0, Gate::Late(millis(200)));
    // The clocks are compared at 3.5 s and at 4.5 s.
    tokio::time::sleep(millis(210)).await;
    assert_eq!(renewals(&nodes, 0), 1, "it is under way");
    // Beyond the deadline, but not beyond the one that the answer would give.
    nodes.suspend(TTL * 7 / 10);
    tokio::time::sleep(millis(40)).await;
    assert!(begun.elapsed() < millis(3_600));
    assert!(lost.is_cancelled(), "{lease:?}");
    assert!(!lease.is_valid());
}

#[tokio::test(start_paused = true)]
async fn no_node_is_asked_again_before_its_first_answer_is_due() {
    let (nodes, redlock) = nodes(5).await;
    nodes.gate(4, Gate::Slow(millis(100)));
    let lease = redlock.lease("k").acquire().await.unwrap();
    tokio::time::sleep(NODE_TIMEOUT - millis(1)).await;
    assert_eq!(nodes.requests(4), ["acquire k"]);
    nodes.gate(4, Gate::Grant);
    tokio::time::sleep(millis(2)).await;
    assert_eq!(nodes.requests(4), ["acquire k", "extend k"], "its answer was not waited for");
    drop(lease);
}

#[tokio::test(start_paused = true)]
async fn a_second_lease_is_filled_in_as_soon_as_the_first() {
    let (nodes, redlock) = nodes(5).await;
    let _first = redlock.lease("first").acquire().await.unwrap();
    tokio::time::sleep(millis(1_600)).await;
    gate_all(&nodes, &[Gate::Grant, Gate::Grant, Gate::Grant, Gate::Error, Gate::Never]);
    let _second = redlock.lease("second").acquire().await.unwrap();
    assert_eq!(holders(&nodes, 5, "second"), [0, 1, 2]);
    gate_all(&nodes, &[Gate::Grant; 5]);
    tokio::time::sleep(NODE_TIMEOUT + millis(1)).await;
    assert_eq!(holders(&nodes, 5, "second"), [0, 1, 2, 3, 4]);
}

#[tokio::test(start_paused = true)]
async fn no_task_goes_on_after_the_last_clone_is_gone() {
    let tasks = || tokio::runtime::Handle::current().metrics().num_alive_tasks();
    let before = tasks();
    let (nodes, redlock) = nodes(3).await;
    let lease = redlock.lease("k").acquire().await.unwrap();
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert!(tasks() > before);
    drop((lease, redlock));
    tokio::time::sleep(Duration::from_secs(5)).await;
    // The servers' own.
    (0..3).for_each(|node| nodes.kill(node));
    tokio::time::sleep(millis(1)).await;
    assert_eq!(tasks(), before);
}
