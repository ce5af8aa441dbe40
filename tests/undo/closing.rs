//! What is owed is paid although the client is done: its last clone dropped, or closed.

use std::time::Instant;

use leasehold::testing::LocalMasters;
use leasehold::{AcquireError, InvalidRequest, LossReason, Redlock};

use crate::common::*;

async fn world() -> (LocalMasters, Redlock) {
    let masters = five().await;
    let redlock = connect(Redlock::builder().nodes(masters.urls()).node_timeout(ms(300))).await;
    (masters, redlock)
}

async fn fails_frozen(masters: &LocalMasters, redlock: &Redlock) {
    for index in 0..3 {
        masters.pause(index).await.unwrap();
    }
    let refused = redlock.lease("job").ttl(secs(60)).try_acquire().await;
    assert!(matches!(refused, Err(AcquireError::NoQuorum(_))), "{refused:?}");
}

fn thaw(masters: &LocalMasters) {
    for index in 0..3 {
        masters.resume(index).unwrap();
    }
}

#[tokio::test]
async fn a_client_dropped_right_after_a_failed_attempt_still_pays() {
    let (masters, redlock) = world().await;
    fails_frozen(&masters, &redlock).await;
    drop(redlock);
    thaw(&masters);
    until_free(&masters, "job").await;
}

#[tokio::test]
async fn a_client_dropped_after_a_failed_attempt_still_pays_when_the_masters_go_on_much_later() {
    let (masters, redlock) = world().await;
    fails_frozen(&masters, &redlock).await;
    drop(redlock);
    tokio::time::sleep(secs(5)).await;
    thaw(&masters);
    until_free(&masters, "job").await;
}

#[tokio::test]
async fn a_client_dropped_with_an_attempt_under_way_still_pays() {
    let (masters, redlock) = world().await;
    for index in 0..3 {
        masters.pause(index).await.unwrap();
    }
    let attempt = redlock.lease("job").ttl(secs(60)).acquire();
    drop(redlock);
    assert!(tokio::time::timeout(ms(50), attempt).await.is_err());
    thaw(&masters);
    until_free(&masters, "job").await;
}

#[tokio::test]
async fn a_client_that_owes_nothing_leaves_its_nodes() {
    let (masters, redlock) = world().await;
    let lease = hold(&redlock, "job").await;
    drop(redlock);
    drop(lease);
    until_free(&masters, "job").await;
    for raw in raws(&masters) {
        // The one who asks is the one that is left.
        let alone = async || raw.info("connected_clients").await == "1";
        until("the client should have left", alone).await;
    }
}

#[tokio::test]
async fn close_pays_what_is_owed_before_it_returns() {
    let (masters, redlock) = world().await;
    fails_frozen(&masters, &redlock).await;
    thaw(&masters);
    within(ms(300) + secs(2), "close should end", redlock.close()).await;
    assert!(holders(&masters, "job").await.iter().all(Option::is_none));
    assert!(redlock.nodes().iter().all(|node| node.owed == 0));
}

#[tokio::test]
async fn close_waits_no_longer_than_its_bound_and_the_rest_is_paid_later() {
    let (masters, redlock) = world().await;
    fails_frozen(&masters, &redlock).await;
    let started = Instant::now();
    redlock.close().await;
    let took = started.elapsed();
    assert!(took < ms(300) + secs(1) + ms(500), "{took:?}");
    assert!(took >= ms(300) + secs(1) - ms(50), "{took:?}: it should have waited");
    thaw(&masters);
    until_free(&masters, "job").await;
}

#[tokio::test]
async fn close_gives_back_what_is_held_and_tells_its_holders() {
    let (masters, redlock) = world().await;
    let leases = [hold(&redlock, "a").await, hold(&redlock, "b").await];
    let both = redlock.lease_all(["c", "d"]).ttl(secs(60)).acquire().await.unwrap();
    until_held_by_all(&masters, "d", both.token().as_str()).await;
    within(ms(300) + secs(2), "close should end", redlock.close()).await;
    for key in ["a", "b", "c", "d"] {
        assert!(holders(&masters, key).await.iter().all(Option::is_none), "{key}");
    }
    for lease in leases.into_iter().chain([both]) {
        let lost = soon("the holder should be told", lease.lost()).await;
        assert!(matches!(lost.reason, LossReason::Closed), "{lost:?}");
        assert!(lease.cancellation_token().is_cancelled());
        assert!(!lease.is_valid());
        assert!(lease.extend(secs(10)).await.is_err());
        assert!(lease.release().await.is_err());
    }
}

/// Acquires `count` keys at once, closes after `pause`, and looks for what is left right then.
async fn closes_while_acquiring(count: usize, pause: std::time::Duration) {
    let (masters, redlock) = world().await;
    let key = |index: usize| format!("job-{index}");
    let attempt = |index| {
        let request = redlock.lease(key(index)).ttl(secs(60));
        tokio::spawn(async move { request.acquire().await })
    };
    let attempts: Vec<_> = (0..count).map(attempt).collect();
    tokio::time::sleep(pause).await;
    within(ms(300) + secs(2), "close should end", redlock.close()).await;
    for raw in raws(&masters) {
        let keys: Vec<String> = raw.ask(&["KEYS", "job-*"]).await;
        assert!(keys.is_empty(), "{keys:?} after {pause:?}");
    }
    for attempt in attempts {
        match soon("an attempt should end", attempt).await.unwrap() {
            // It was won before.
            Ok(lease) => assert!(!lease.is_valid(), "{lease:?}"),
            Err(error) => assert!(
                matches!(error, AcquireError::InvalidRequest(InvalidRequest::Closed)),
                "{error:?} after {pause:?}"
            ),
        }
    }
}

#[tokio::test]
async fn close_ends_what_is_being_acquired_and_leaves_nothing_of_it() {
    for pause in 0..3 {
        closes_while_acquiring(30, ms(pause)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn close_ends_what_other_threads_are_acquiring() {
    for pause in 0..3 {
        closes_while_acquiring(30, ms(pause)).await;
    }
}

#[tokio::test]
async fn close_ends_a_wait_for_a_key_that_another_holds() {
    let (masters, redlock) = world().await;
    let other = client(&masters).await;
    let held = hold(&other, "job").await;
    let request = redlock.lease("job").wait(secs(60));
    let waiting = tokio::spawn(async move { request.acquire().await });
    tokio::time::sleep(ms(50)).await;
    redlock.close().await;
    let refused = soon("the wait should end", waiting).await.unwrap();
    assert!(matches!(refused, Err(AcquireError::InvalidRequest(InvalidRequest::Closed))), "{refused:?}");
    assert!(held.is_valid());
}

#[tokio::test]
async fn a_runtime_that_ends_takes_its_debts_with_it_and_ends() {
    let (masters, redlock) = world().await;
    let urls = masters.urls();
    drop(redlock);
    for index in 0..3 {
        masters.pause(index).await.unwrap();
    }
    let other = std::thread::spawn(move || {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        runtime.block_on(async {
            let redlock = Redlock::builder().nodes(urls).node_timeout(ms(300)).connect().await.unwrap();
            let refused = redlock.lease("job").ttl(secs(60)).try_acquire().await;
            assert!(matches!(refused, Err(AcquireError::NoQuorum(_))), "{refused:?}");
        });
        // Dropped here, with what is owed.
        drop(runtime);
    });
    until("the runtime should end", async || other.is_finished()).await;
    other.join().unwrap();
    thaw(&masters);
}
