//! A master that becomes a replica while a client is connected loses its vote until it is a master again.

use std::time::Duration;

use leasehold::testing::LocalMasters;
use leasehold::{AcquireError, NodeErrorKind, NodeState, Redlock, Refusal};

use crate::common::{PATIENCE, raw, secs};
use crate::views::replication::{follow, follow_nobody, promote};
use crate::views::{builder, is_young, masters, meet, until_node, until_some, until_up};

const MAX_TTL: Duration = secs(4);

/// Three masters, the second of which is down, and a client: the votes of the other two are needed.
async fn scene() -> (LocalMasters, Redlock) {
    let masters = masters(3).start().await.expect("local masters");
    meet(masters.urls(), MAX_TTL).await;
    masters.kill(1).await.expect("kill");
    let redlock = builder(masters.urls()).max_ttl(MAX_TTL).connect().await.expect("connect");
    until_up(&redlock, 0).await;
    until_up(&redlock, 2).await;
    (masters, redlock)
}

async fn is_refused(redlock: &Redlock) {
    let refused = |state: &NodeState| *state == NodeState::Refused(Refusal::Replica);
    until_node(redlock, 2, "refused as a replica", |node| refused(&node.state)).await;
}

#[tokio::test]
async fn a_master_that_becomes_a_replica_loses_its_vote_without_being_asked_for_it() {
    let (masters, redlock) = scene().await;
    follow(&raw(&masters, 2), masters.addr(0)).await;
    is_refused(&redlock).await;
    let error = redlock.lease("job").ttl(secs(2)).try_acquire().await.expect_err("one vote of three");
    let AcquireError::NoQuorum(too_few) = &error else { panic!("{error:?}") };
    let address = masters.addr(2).to_string();
    let node = too_few.failed.iter().find(|node| node.address() == address).expect("it is named");
    assert_eq!(node.kind(), NodeErrorKind::Refused);
    assert!(node.reason().contains("replica"), "{node}");
}

#[tokio::test]
async fn a_master_that_becomes_a_replica_is_found_out_by_the_first_vote_it_refuses() {
    let (masters, redlock) = scene().await;
    // Its master is not there, so that it keeps what it has.
    follow_nobody(&raw(&masters, 2)).await;
    let error = redlock.lease("job").ttl(secs(2)).try_acquire().await.expect_err("one vote of three");
    let AcquireError::NoQuorum(too_few) = &error else { panic!("{error:?}") };
    let address = masters.addr(2).to_string();
    let node = too_few.failed.iter().find(|node| node.address() == address).expect("it is named");
    assert!(matches!(node.kind(), NodeErrorKind::ReadOnly | NodeErrorKind::Refused), "{node:?}");
    is_refused(&redlock).await;
}

#[tokio::test]
async fn a_replica_that_takes_writes_is_found_out_too() {
    let (masters, redlock) = scene().await;
    raw(&masters, 2).tell(&["CONFIG", "SET", "replica-read-only", "no"]).await;
    follow_nobody(&raw(&masters, 2)).await;
    is_refused(&redlock).await;
}

#[tokio::test]
async fn a_replica_that_is_a_master_again_is_young_and_then_votes() {
    let (masters, redlock) = scene().await;
    follow(&raw(&masters, 2), masters.addr(0)).await;
    is_refused(&redlock).await;
    promote(&raw(&masters, 2)).await;
    until_node(&redlock, 2, "young", is_young).await;
    let young = redlock.lease("job").ttl(secs(2)).try_acquire().await;
    assert!(matches!(young, Err(AcquireError::NoQuorum(_))), "{young:?}");
    until_up(&redlock, 2).await;
    assert!(redlock.lease("job").ttl(secs(2)).try_acquire().await.expect("a quorum").is_some());
}

#[tokio::test]
async fn a_lease_lives_through_the_failover_of_one_node_and_is_put_on_it_again() {
    let masters = masters(3).start().await.expect("local masters");
    meet(masters.urls(), MAX_TTL).await;
    let outside = crate::views::masters(1).start().await.expect("an outside server");
    let redlock = builder(masters.urls()).max_ttl(MAX_TTL).connect().await.expect("connect");
    let lease = redlock.lease("job").ttl(secs(3)).acquire().await.expect("acquire");
    let node = raw(&masters, 2);
    follow(&node, outside.addr(0)).await;
    is_refused(&redlock).await;
    assert_eq!(node.get("job").await, None);
    promote(&node).await;
    let again = until_some("the key should be put back", async || node.get("job").await).await;
    assert_eq!(again, lease.token().as_str());
    until_up(&redlock, 2).await;
    assert!(lease.is_valid());
    lease.release().await.expect("release");
}

#[tokio::test]
async fn the_loss_of_too_many_nodes_to_failovers_is_announced() {
    let masters = masters(3).start().await.expect("local masters");
    meet(masters.urls(), MAX_TTL).await;
    let redlock = builder(masters.urls()).max_ttl(MAX_TTL).connect().await.expect("connect");
    let lease = redlock.lease("job").ttl(secs(3)).acquire().await.expect("acquire");
    for index in [1, 2] {
        follow_nobody(&raw(&masters, index)).await;
    }
    let lost = tokio::time::timeout(PATIENCE, lease.lost()).await.expect("two of three renew nothing");
    assert!(lost.to_string().contains(&masters.addr(1).to_string()), "{lost}");
}

#[tokio::test]
async fn a_node_that_was_refused_and_is_then_gone_is_down() {
    let (masters, redlock) = scene().await;
    follow_nobody(&raw(&masters, 2)).await;
    is_refused(&redlock).await;
    masters.kill(2).await.expect("kill");
    let down = until_node(&redlock, 2, "down", |node| node.state == NodeState::Down).await;
    let kind = down.last_error.expect("it is known why").kind();
    assert!(matches!(kind, NodeErrorKind::Unreachable | NodeErrorKind::ConnectionLost), "{kind:?}");
}
