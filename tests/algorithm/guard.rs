use leasehold::{AcquireError, NodeErrorKind, NodeState};
use tokio::time::Instant;

use super::*;

const MAX_TTL: Duration = Duration::from_secs(60);

/// Two leases on one key at once: what the guard is for.
#[tokio::test(start_paused = true)]
async fn a_node_that_forgot_a_lease_does_not_give_it_twice() {
    for guard in [true, false] {
        let (nodes, holder) = nodes(5).await;
        let rival = nodes.redlock(Redlock::builder().restart_guard(guard)).await;
        // The holder has nodes 0, 1 and 2 alone, and the rival cannot reach 0 and 1.
        [3, 4].iter().for_each(|node| nodes.set(*node, "k", "stale", millis(5)));
        let lease = holder.lease("k").acquire().await.unwrap();
        nodes.restart(2, false);
        [0, 1].iter().for_each(|node| nodes.gate(*node, Gate::Never));
        // Before the lease is filled in.
        tokio::time::sleep(millis(200)).await;
        let outcome = rival.lease("k").ttl(Duration::from_secs(3)).try_acquire().await;
        assert!(lease.is_valid());
        if guard {
            let Err(AcquireError::NoQuorum(too_few)) = outcome else { panic!("{outcome:?}") };
            let young = too_few.failed.iter().find(|node| node.kind() == NodeErrorKind::Young);
            let young = young.expect("the node that restarted is named");
            assert_eq!(young.address(), "memory:2");
            assert!(young.reason().contains("votes in 6"), "{young}");
        } else {
            assert!(outcome.unwrap().is_some(), "without the guard there are two holders");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_young_node_votes_when_no_lease_that_it_forgot_can_be_valid() {
    let (nodes, redlock) = nodes(3).await;
    nodes.kill(0);
    nodes.restart(1, false);
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(matches!(redlock.nodes()[1].state, NodeState::Young(_)), "{:?}", redlock.nodes());
    let begun = Instant::now();
    let error = redlock.lease("k").acquire().await.unwrap_err();
    assert!(matches!(error, AcquireError::NoQuorum(_)), "it would take longer than the wait: {error}");
    assert!(begun.elapsed() < Duration::from_secs(2));
    let lease = redlock.lease("k").wait(Duration::from_secs(90)).acquire().await.unwrap();
    assert!(begun.elapsed() > MAX_TTL - Duration::from_secs(2), "{:?}", begun.elapsed());
    assert!(begun.elapsed() < MAX_TTL + Duration::from_secs(3), "{:?}", begun.elapsed());
    drop(lease);
}

#[tokio::test(start_paused = true)]
async fn a_node_that_synced_always_votes_at_once_after_a_restart() {
    let (nodes, redlock) = nodes(3).await;
    nodes.kill(0);
    nodes.restart(1, true);
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(redlock.lease("k").try_acquire().await.unwrap().is_some());
}

#[tokio::test(start_paused = true)]
async fn a_new_fleet_votes_at_once_for_two_clients_that_come_together() {
    for _ in 0..100 {
        let nodes = MemoryNodes::new(5);
        let (a, b) = tokio::join!(nodes.redlock(Redlock::builder()), nodes.redlock(Redlock::builder()));
        assert!(a.lease("a").try_acquire().await.unwrap().is_some());
        assert!(b.lease("b").try_acquire().await.unwrap().is_some());
        assert!(a.nodes().iter().chain(&b.nodes()).all(|node| node.state == NodeState::Up));
    }
}

#[tokio::test(start_paused = true)]
async fn a_fleet_with_a_node_missing_is_not_found_new_but_can_be_adopted() {
    let nodes = MemoryNodes::new(3);
    nodes.kill(2);
    let first = nodes.redlock(Redlock::builder()).await;
    let second = nodes.redlock(Redlock::builder()).await;
    assert!(first.lease("k").try_acquire().await.is_err());
    nodes.restart(2, false);
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert!(first.lease("k").try_acquire().await.is_err(), "two are young, and one has lost its memory");
    let adopted = first.adopt().await;
    assert!(adopted.iter().all(Result::is_ok), "{adopted:?}");
    assert!(first.lease("k").try_acquire().await.unwrap().is_some());
    tokio::time::sleep(millis(1_100)).await;
    assert!(second.lease("k").try_acquire().await.unwrap().is_some(), "the others learn it within a second");
}

#[tokio::test(start_paused = true)]
async fn a_held_lease_lives_through_empty_restarts_one_after_the_other() {
    let (nodes, redlock) = nodes(5).await;
    let lease = redlock.lease("k").acquire().await.unwrap();
    for node in 0..5 {
        nodes.restart(node, false);
        tokio::time::sleep(MAX_TTL + Duration::from_secs(5)).await;
        assert!(lease.is_valid(), "node {node}");
    }
    assert_eq!(holders(&nodes, 5, "k").len(), 5);
}

#[tokio::test(start_paused = true)]
async fn another_set_of_nodes_is_a_warning() {
    let (nodes, first) = nodes(3).await;
    let other = nodes.redlock(Redlock::builder().max_ttl(MAX_TTL * 2)).await;
    assert!(first.nodes().iter().all(|node| node.warnings.is_empty()));
    for node in other.nodes() {
        assert!(node.warnings.iter().any(|warning| warning.to_string().contains("max_ttl")), "{node:?}");
    }
}
