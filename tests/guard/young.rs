//! What is told of nodes that are too young to vote, and what waits for them.

use std::time::{Duration, Instant};

use leasehold::testing::LocalMasters;
use leasehold::{AcquireError, NodeErrorKind, NodeState, Redlock};

use super::scene::SHORT;
use crate::common::{ms, raw, secs, throughout, until};
use crate::views::{builder, is_young, masters, meet, until_node, until_up};

/// All that is added to `max_ttl` for clocks of other rates.
fn with_allowance(max_ttl: Duration) -> Duration {
    max_ttl + max_ttl / 100
}

/// Three old masters, two of which restart empty; and a client.
async fn two_of_three_young(max_ttl: Duration) -> (LocalMasters, Redlock) {
    let masters = masters(3).persistent(false).start().await.expect("local masters");
    meet(masters.urls(), max_ttl).await;
    for index in [1, 2] {
        masters.restart(index).await.expect("restart");
    }
    let redlock = builder(masters.urls()).max_ttl(max_ttl).connect().await.expect("connect");
    (masters, redlock)
}

#[tokio::test]
async fn the_error_says_which_nodes_are_young_and_for_how_many_seconds() {
    let max_ttl = secs(60);
    let (masters, redlock) = two_of_three_young(max_ttl).await;
    let error = redlock.lease("job").try_acquire().await.expect_err("one of three can vote");
    let AcquireError::NoQuorum(too_few) = &error else { panic!("{error:?}") };
    assert_eq!((too_few.nodes, too_few.needed, too_few.failed.len()), (3, 2, 2));
    for (node, index) in too_few.failed.iter().zip([1, 2]) {
        assert_eq!(node.kind(), NodeErrorKind::Young);
        assert_eq!(node.address(), masters.addr(index).to_string());
        let ready_in = node.ready_in().expect("it is known when");
        assert!(ready_in > secs(20) && ready_in <= with_allowance(max_ttl), "{ready_in:?}");
        let seconds = format!("votes in {} s", ready_in.as_secs() + 1);
        let text = error.to_string();
        assert!(node.to_string().contains(&seconds) && text.contains(&seconds), "{text}");
        assert!(text.contains(node.address()), "{text}");
    }
    let ready_in = too_few.ready_in().expect("nothing else is missing");
    assert!(too_few.failed.iter().any(|node| node.ready_in() == Some(ready_in)));
}

#[tokio::test]
async fn nodes_says_for_how_long_a_node_is_young() {
    let max_ttl = secs(60);
    let (_masters, redlock) = two_of_three_young(max_ttl).await;
    assert_eq!(redlock.nodes()[0].state, NodeState::Up);
    let young = until_node(&redlock, 1, "young", is_young).await;
    let NodeState::Young(left) = young.state else { unreachable!() };
    assert!(left > secs(20) && left <= with_allowance(max_ttl), "{left:?}");
    until_node(
        &redlock,
        1,
        "nearer to voting",
        |node| matches!(node.state, NodeState::Young(later) if later < left),
    )
    .await;
}

#[tokio::test]
async fn acquire_waits_for_nodes_that_grow_old_enough_within_its_wait() {
    let (_masters, redlock) = two_of_three_young(SHORT).await;
    let begun = Instant::now();
    assert!(is_young(&redlock.nodes()[1]), "this took too long to show anything");
    let lease = redlock.lease("job").ttl(secs(1)).wait(secs(30)).acquire().await.expect("they grow old");
    assert!(lease.is_valid());
    assert!(begun.elapsed() > ms(500), "it waited");
}

#[tokio::test]
async fn a_request_that_names_no_ttl_asks_for_no_more_than_max_ttl() {
    let masters = masters(1).start().await.expect("a master");
    let redlock = builder(masters.urls()).max_ttl(SHORT).connect().await.expect("connect");
    let lease = redlock.lease("job").acquire().await.expect("a TTL that is allowed");
    assert!(lease.remaining() <= SHORT);
    let worked = redlock.with_lease("another", async |lease| lease.is_valid()).await;
    assert!(worked.expect("a TTL that is allowed"));
}

#[tokio::test]
async fn acquire_does_not_wait_for_nodes_that_stay_young_for_longer() {
    let (_masters, redlock) = two_of_three_young(secs(120)).await;
    let begun = Instant::now();
    let error = redlock.lease("job").wait(secs(30)).acquire().await.expect_err("young for two minutes");
    assert!(matches!(error, AcquireError::NoQuorum(_)), "{error:?}");
    assert!(begun.elapsed() < secs(15), "waiting cannot help: {:?}", begun.elapsed());
}

#[tokio::test]
async fn a_young_node_votes_when_its_time_has_come_and_not_before() {
    let restarted = Instant::now();
    let (_masters, redlock) = two_of_three_young(SHORT).await;
    until_up(&redlock, 1).await;
    assert!(restarted.elapsed() >= SHORT, "{:?}", restarted.elapsed());
    until_up(&redlock, 2).await;
    assert!(redlock.lease("job").ttl(secs(1)).try_acquire().await.expect("all are old").is_some());
}

#[tokio::test]
async fn a_held_lease_is_put_on_young_nodes_and_renewed_there() {
    let max_ttl = secs(60);
    let masters = masters(3).persistent(false).start().await.expect("local masters");
    meet(masters.urls(), max_ttl).await;
    let redlock =
        builder(masters.urls()).max_ttl(max_ttl).node_timeout(ms(500)).connect().await.expect("connect");
    let lease = redlock.lease("job").ttl(secs(6)).acquire().await.expect("acquire");
    masters.restart(1).await.expect("restart");
    let healed = raw(&masters, 1);
    until("the key should be put back", async || healed.get("job").await.is_some()).await;
    assert!(is_young(&redlock.nodes()[1]), "it may not vote on a new lease yet");
    // Now it is needed: two of three, of which one is young.
    masters.kill(2).await.expect("kill");
    let what = "it lives on an old node and a young one that has the key";
    throughout(secs(10), what, async || lease.is_valid()).await;
    assert!(is_young(&redlock.nodes()[1]), "this took too long to show anything");
}
