//! What the guard does not hinder.

use leasehold::{Lease, NodeState, Redlock};

use super::scene::{LONG, SHORT};
use crate::common::{PATIENCE, raw, secs, until, until_all_up};
use crate::views::{builder, masters, meet, until_node, until_up};

#[tokio::test]
async fn a_node_with_all_its_data_votes_at_once_after_a_restart() {
    let masters = masters(3).start().await.expect("local masters");
    meet(masters.urls(), LONG).await;
    let connected = builder(masters.urls()).max_ttl(LONG).connect().await.expect("connect");
    masters.kill(0).await.expect("kill");
    masters.restart(1).await.expect("restart");
    // Both votes are needed now.
    let new = builder(masters.urls()).max_ttl(LONG).connect().await.expect("connect");
    let node = until_node(&new, 1, "connected", |node| node.server.is_some()).await;
    assert_eq!(node.state, NodeState::Up);
    assert!(new.lease("new").try_acquire().await.expect("a quorum").is_some());
    let again = until_node(&connected, 1, "connected anew", |node| {
        node.last_error.is_some() && node.state != NodeState::Down
    })
    .await;
    assert_eq!(again.state, NodeState::Up);
    assert!(connected.lease("connected").try_acquire().await.expect("a quorum").is_some());
}

#[tokio::test]
async fn a_node_with_all_its_data_still_has_the_key_after_a_restart() {
    let masters = masters(3).start().await.expect("local masters");
    meet(masters.urls(), LONG).await;
    let holder = builder(masters.urls()).max_ttl(LONG).connect().await.expect("connect");
    let lease = holder.lease("job").ttl(LONG).without_heartbeat().acquire().await.expect("acquire");
    for index in 0..3 {
        masters.restart(index).await.expect("restart");
    }
    let rival = builder(masters.urls()).max_ttl(LONG).connect().await.expect("connect");
    until_all_up(&rival).await;
    assert!(rival.lease("job").try_acquire().await.expect("all vote").is_none());
    assert!(lease.is_valid(), "this took too long to show anything");
}

/// A lease that is renewed, and whose loss is seen.
async fn held(redlock: &Redlock) -> Lease {
    redlock.lease("job").ttl(secs(3)).acquire().await.expect("acquire")
}

#[tokio::test]
async fn a_lease_lives_through_restarts_of_all_masters_one_after_the_other() {
    let masters = masters(3).start().await.expect("local masters");
    let redlock = builder(masters.urls()).max_ttl(LONG).connect().await.expect("connect");
    let lease = held(&redlock).await;
    for index in 0..3 {
        masters.restart(index).await.expect("restart");
        until_node(&redlock, index, "connected anew", |node| {
            node.last_error.is_some() && node.state == NodeState::Up
        })
        .await;
    }
    assert!(lease.is_valid());
    // And it is renewed as before.
    lease.extend(secs(4)).await.expect("all three hold it");
    lease.release().await.expect("release");
}

#[tokio::test]
async fn a_lease_lives_through_restarts_of_all_masters_without_their_data_with_time_between() {
    let masters = masters(3).persistent(false).start().await.expect("local masters");
    let redlock = builder(masters.urls()).max_ttl(SHORT).connect().await.expect("connect");
    let lease = held(&redlock).await;
    for index in 0..3 {
        masters.restart(index).await.expect("restart");
        let healed = raw(&masters, index);
        until("the key should be put back", async || healed.get("job").await.is_some()).await;
        until_up(&redlock, index).await;
    }
    assert!(lease.is_valid());
    lease.extend(secs(4)).await.expect("all three hold it again");
    lease.release().await.expect("release");
}

#[tokio::test]
async fn a_lease_is_lost_when_all_masters_lose_their_data_at_once() {
    let masters = masters(3).persistent(false).start().await.expect("local masters");
    let redlock = builder(masters.urls()).max_ttl(SHORT).connect().await.expect("connect");
    let lease = held(&redlock).await;
    let restarts = (0..3).map(|index| masters.restart(index));
    futures::future::try_join_all(restarts).await.expect("restart");
    let lost = tokio::time::timeout(PATIENCE, lease.lost()).await.expect("it is lost");
    assert_eq!(lost.key.to_string(), "job");
}
