//! Masters that stand still (SIGSTOP) under a held lease: connections stay, answers do not come.

use std::time::{Duration, Instant};

use futures::FutureExt as _;
use leasehold::testing::LocalMasters;
use leasehold::{ExtendError, LossReason, Redlock, ReleaseError};

use crate::common::*;

async fn world() -> (LocalMasters, Redlock) {
    let masters = five().await;
    let redlock = connect(Redlock::builder().nodes(masters.urls()).node_timeout(ms(500))).await;
    (masters, redlock)
}

async fn freeze(masters: &LocalMasters, count: usize) {
    for index in 0..count {
        masters.pause(index).await.unwrap();
    }
}

fn thaw(masters: &LocalMasters, count: usize) {
    for index in 0..count {
        masters.resume(index).unwrap();
    }
}

/// A lease of `ttl` lives while `count` masters stand still for several TTLs, and is whole after.
async fn lives(count: usize, ttl: Duration) {
    let (masters, redlock) = world().await;
    let lease = redlock.lease("job").ttl(ttl).acquire().await.unwrap();
    let (lost, token) = (lease.lost(), lease.token().to_string());
    until_held_by_all(&masters, "job", &token).await;
    freeze(&masters, count).await;
    throughout(ttl * 3, "the lease should be valid", async || lease.is_valid()).await;
    lease.extend(ttl).await.unwrap();
    thaw(&masters, count);
    until_held_by_all(&masters, "job", &token).await;
    throughout(ttl * 2, "the lease should be valid", async || lease.is_valid()).await;
    assert!(lost.now_or_never().is_none(), "it was never lost");
    assert!(key_is(&masters, "job", &token).await);
    lease.release().await.unwrap();
    until_free(&masters, "job").await;
}

#[tokio::test]
async fn a_lease_lives_while_one_master_stands_still() {
    lives(1, secs(2)).await;
}

#[tokio::test]
async fn a_lease_lives_while_two_masters_stand_still() {
    lives(2, secs(2)).await;
}

#[tokio::test]
async fn three_masters_that_stand_still_are_a_loss_announced_by_the_end_of_validity() {
    let (masters, redlock) = world().await;
    let lease = redlock.lease("job").ttl(secs(3)).acquire().await.unwrap();
    let token = lease.cancellation_token();
    let (lost, protected) = (lease.lost(), lease.protect(std::future::pending::<()>()));
    until_held_by_all(&masters, "job", lease.token().as_str()).await;
    freeze(&masters, 3).await;
    let mut promised = Instant::now() + lease.remaining();
    let (lost, announced) = within(secs(10), "the loss should be announced", async {
        let mut lost = std::pin::pin!(lost);
        loop {
            tokio::select! {
                biased;
                lost = &mut lost => return (lost, Instant::now()),
                // Answers from before may still move it.
                () = tokio::time::sleep(ms(20)) => {
                    let (now, left) = (Instant::now(), lease.remaining());
                    if !left.is_zero() {
                        promised = now + left;
                    }
                }
            }
        }
    })
    .await;
    let late = announced.saturating_duration_since(promised);
    let early = promised.saturating_duration_since(announced);
    println!("announced {late:?} after or {early:?} before the end");
    assert!(late < ms(100), "announced {late:?} after the end of validity");
    assert!(early < ms(50), "announced {early:?} before the end of validity");
    let LossReason::Expired { failed } = &lost.reason else { panic!("{lost:?}") };
    let mut named: Vec<&str> = failed.iter().map(|error| error.address()).collect();
    let mut expected: Vec<String> = (0..3).map(|index| masters.addr(index).to_string()).collect();
    named.sort_unstable();
    expected.sort_unstable();
    assert_eq!(named, expected, "{lost}");
    assert_eq!(lost.key.as_bytes(), b"job");

    assert!(token.is_cancelled());
    assert!(!lease.is_valid() && lease.remaining().is_zero());
    assert!(protected.await.is_err());
    assert!(matches!(lease.extend(secs(3)).await, Err(ExtendError::Lost(_))));
    assert!(matches!(lease.release().await, Err(ReleaseError::Lost(_))));
    thaw(&masters, 3);
    until_all_up(&redlock).await;
    until_free(&masters, "job").await;
    throughout(secs(2), "nothing of ours should be there", async || {
        holders(&masters, "job").await.iter().all(Option::is_none)
    })
    .await;
}

#[tokio::test]
async fn a_lost_lease_is_given_back_by_the_masters_that_still_answer() {
    let (masters, redlock) = world().await;
    let lease = redlock.lease("job").ttl(secs(2)).acquire().await.unwrap();
    until_held_by_all(&masters, "job", lease.token().as_str()).await;
    freeze(&masters, 3).await;
    within(secs(4), "the loss should be announced", lease.lost()).await;
    for index in 3..5 {
        let raw = raw(&masters, index);
        until_within(ms(1_000), "those that answer are free", async || raw.get("job").await.is_none()).await;
    }
    thaw(&masters, 3);
    hold(&redlock, "job").await.release().await.unwrap();
}

/// Gives a lease back by `give_back` while three masters stand still, for `span`; all of them give the
/// key back soon after they go on, which is long before it would have run out.
async fn given_back<F: AsyncFnOnce(leasehold::Lease)>(span: Duration, give_back: F) {
    let (masters, redlock) = world().await;
    let lease = redlock.lease("job").ttl(secs(60)).acquire().await.unwrap();
    until_held_by_all(&masters, "job", lease.token().as_str()).await;
    freeze(&masters, 3).await;
    give_back(lease).await;
    for index in 3..5 {
        let raw = raw(&masters, index);
        until("those that answer are free", async || raw.get("job").await.is_none()).await;
    }
    tokio::time::sleep(span).await;
    thaw(&masters, 3);
    until_free(&masters, "job").await;
}

async fn release_without_quorum(lease: leasehold::Lease) {
    let refused = lease.release().await.unwrap_err();
    let ReleaseError::NoQuorum(too_few) = refused else { panic!("{refused:?}") };
    assert_eq!(too_few.failed.len(), 3, "{too_few}");
    assert_eq!(too_few.answered, 2);
}

#[tokio::test]
async fn a_release_reaches_masters_that_stand_still_for_a_moment() {
    given_back(ms(100), release_without_quorum).await;
}

#[tokio::test]
async fn a_release_reaches_masters_that_stand_still_for_long() {
    given_back(secs(5), release_without_quorum).await;
}

#[tokio::test]
async fn a_drop_reaches_masters_that_stand_still_for_a_moment() {
    given_back(ms(100), async |lease| drop(lease)).await;
}

#[tokio::test]
async fn a_drop_reaches_masters_that_stand_still_for_long() {
    given_back(secs(5), async |lease| drop(lease)).await;
}

#[tokio::test]
async fn an_extend_that_fails_changes_nothing_and_its_late_answers_still_count() {
    let (masters, redlock) = world().await;
    let lease = redlock.lease("job").ttl(secs(20)).without_heartbeat().acquire().await.unwrap();
    until_held_by_all(&masters, "job", lease.token().as_str()).await;
    freeze(&masters, 3).await;
    let before = lease.remaining();
    let refused = lease.extend(secs(60)).await.unwrap_err();
    let ExtendError::NoQuorum(too_few) = refused else { panic!("{refused:?}") };
    assert_eq!(too_few.failed.len(), 3, "{too_few}");
    assert!(lease.is_valid() && lease.remaining() <= before, "the old deadline stands");
    thaw(&masters, 3);
    until("the late answers should count", async || lease.remaining() > secs(40)).await;
    assert!(key_is(&masters, "job", lease.token().as_str()).await);
}
