//! The memory of a node is emptied while clients are connected to it.

use std::task::Poll;

use leasehold::testing::Direction;
use leasehold::{NodeErrorKind, NodeState};

use super::scene::{KEY, LONG, MIDDLE, Scene};
use crate::common::{raw, secs, throughout, until, until_all_up};
use crate::views::{builder, is_young, masters, meet, until_node};

async fn scene() -> Scene {
    Scene::begin(masters(5).start().await.expect("local masters"), LONG).await
}

#[tokio::test]
async fn a_node_that_was_flushed_is_kept_out_by_a_client_that_was_connected() {
    let scene = scene().await;
    let rival = scene.rival().await;
    scene.middle().tell(&["FLUSHALL"]).await;
    scene.middle_has_forgotten().await;
    rival.is_kept_out().await;
}

#[tokio::test]
async fn a_node_that_was_flushed_is_kept_out_by_a_new_client() {
    let scene = scene().await;
    scene.middle().tell(&["FLUSHALL"]).await;
    scene.middle_has_forgotten().await;
    scene.rival().await.is_kept_out().await;
}

#[tokio::test]
async fn without_the_guard_a_node_that_was_flushed_gives_a_second_lease() {
    let scene = scene().await;
    let rival = scene.unguarded_rival().await;
    scene.middle().tell(&["FLUSHALL"]).await;
    rival.wins_while_it_is_held().await;
}

/// The rival's answer is there when it learns that the node has forgotten, and is looked at only then.
#[tokio::test]
async fn a_vote_that_is_counted_late_does_not_count_if_the_node_had_forgotten_before_it() {
    let scene = scene().await;
    let rival = scene.rival().await;
    assert_eq!(rival.redlock.nodes()[MIDDLE].state, NodeState::Up);

    // It hears nothing of the node for a while.
    let proxy = scene.network.proxy(MIDDLE);
    proxy.hold(Direction::ToClient);
    scene.middle().tell(&["FLUSHALL"]).await;
    let asking = rival.redlock.lease(KEY).ttl(LONG).try_acquire();
    tokio::pin!(asking);
    assert!(futures::poll!(asking.as_mut()).is_pending(), "the middle's answer is needed");
    until("the middle should be asked", async || scene.middle().get(KEY).await.is_some()).await;
    proxy.heal();
    until_node(&rival.redlock, MIDDLE, "known to have forgotten", |node| node.state != NodeState::Up).await;
    scene.middle_has_forgotten().await;

    match futures::poll!(asking.as_mut()) {
        Poll::Ready(Ok(Some(lease))) => panic!("two leases on one key: {lease:?}"),
        Poll::Ready(Ok(None)) => panic!("nobody but the middle can have the key"),
        Poll::Ready(Err(_)) => {}
        Poll::Pending => assert!(asking.await.is_err(), "two leases on one key"),
    }
}

#[tokio::test]
async fn what_happens_in_another_database_makes_no_node_young() {
    let masters = masters(3).start().await.expect("local masters");
    let redlock = builder(masters.urls()).connect().await.expect("connect");
    for index in 0..3 {
        raw(&masters, index).tell(&["SWAPDB", "1", "2"]).await;
        let elsewhere = crate::common::Raw::new(&format!("{}/1", masters.url(index)));
        elsewhere.tell(&["SET", "k", "v"]).await;
        elsewhere.tell(&["FLUSHDB"]).await;
    }
    // The server tells only that *something* was flushed.
    let lease = redlock.lease("job").wait(secs(20)).acquire().await.expect("nothing was lost here");
    assert!(lease.is_valid());
    until_all_up(&redlock).await;
}

#[tokio::test]
async fn the_error_says_that_the_memory_of_a_node_was_emptied_and_then_that_it_is_young() {
    let masters = masters(1).start().await.expect("a master");
    meet(masters.urls(), LONG).await;
    let redlock = builder(masters.urls()).max_ttl(LONG).connect().await.expect("connect");
    raw(&masters, 0).tell(&["FLUSHALL"]).await;
    until("it should be young", async || {
        let error = redlock.lease("job").try_acquire().await.expect_err("it may have forgotten leases");
        let leasehold::AcquireError::NoQuorum(too_few) = error else { panic!("{error}") };
        let kind = too_few.failed.iter().next().expect("the node").kind();
        assert_ne!(kind, NodeErrorKind::TimedOut);
        kind == NodeErrorKind::Young
    })
    .await;
    assert!(is_young(&redlock.nodes()[0]));
}

#[tokio::test]
async fn a_lease_lives_through_the_flush_of_one_node() {
    let masters = masters(3).start().await.expect("local masters");
    let redlock = builder(masters.urls()).connect().await.expect("connect");
    let lease = redlock.lease("job").ttl(secs(3)).acquire().await.expect("acquire");
    let flushed = raw(&masters, 0);
    flushed.tell(&["FLUSHALL"]).await;
    until("the key should be put back", async || flushed.get("job").await.is_some()).await;
    masters.kill(1).await.expect("kill");
    throughout(secs(6), "two of three hold it", async || lease.is_valid()).await;
}

#[tokio::test]
async fn clients_that_know_more_and_less_of_a_node_do_not_overwrite_each_other_for_ever() {
    let masters = masters(1).start().await.expect("a master");
    raw(&masters, 0).tell(&["ACL", "SETUSER", "app", "on", ">secret", "~*", "&*", "+@all", "-config"]).await;
    let knowing = builder(masters.urls()).connect().await.expect("connect");
    let url = masters.url(0).replace("redis://", "redis://app:secret@");
    let unknowing = builder([url]).connect().await.expect("connect");
    until_all_up(&knowing).await;
    until_all_up(&unknowing).await;
    let before = raw(&masters, 0).calls(&["eval"]).await;
    // More than one look of each.
    tokio::time::sleep(secs(7)).await;
    let written = raw(&masters, 0).calls(&["eval"]).await - before;
    assert!(written <= 1, "{written} markers were written although nothing has changed");
}
