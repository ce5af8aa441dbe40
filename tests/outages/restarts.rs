//! A lease lives through the restart of every master, one after the other.

use futures::FutureExt as _;

use crate::common::*;

#[tokio::test]
async fn a_lease_lives_through_a_crash_of_every_master_one_after_the_other() {
    let masters = five().await;
    let redlock = client(&masters).await;
    let lease = redlock.lease("job").ttl(secs(5)).acquire().await.unwrap();
    let (lost, token) = (lease.lost(), lease.token().to_string());
    until_held_by_all(&masters, "job", &token).await;
    for index in 0..5 {
        masters.kill(index).await.unwrap();
        until("the crash should be noticed", async || {
            redlock.nodes()[index].state != leasehold::NodeState::Up
        })
        .await;
        masters.restart(index).await.unwrap();
        until_all_up(&redlock).await;
        assert!(lease.is_valid());
    }
    until_held_by_all(&masters, "job", &token).await;
    // Past what was promised before the last crash.
    tokio::time::sleep(secs(6)).await;
    assert!(lease.is_valid());
    assert!(lost.now_or_never().is_none(), "it was never lost");
    assert!(key_is(&masters, "job", &token).await);
    lease.release().await.unwrap();
    until_free(&masters, "job").await;
}

#[tokio::test]
async fn a_lease_heals_when_every_master_loses_its_memory_one_after_the_other() {
    let masters = five().await;
    let redlock = client(&masters).await;
    let lease = redlock.lease("job").ttl(secs(3)).acquire().await.unwrap();
    let (lost, token) = (lease.lost(), lease.token().to_string());
    until_held_by_all(&masters, "job", &token).await;
    for index in 0..5 {
        masters.restart_empty(index).await.unwrap();
        until_held_by_all(&masters, "job", &token).await;
        // A key that was put back counts from the next renewal on.
        lease.extend(secs(3)).await.unwrap();
    }
    assert!(lease.is_valid());
    assert!(lost.now_or_never().is_none(), "it was never lost");
    lease.release().await.unwrap();
    until_free(&masters, "job").await;
}

#[tokio::test]
async fn a_lease_on_several_keys_lives_through_a_crash_of_every_master() {
    let masters = five().await;
    let redlock = client(&masters).await;
    let lease = redlock.lease_all(["a", "b"]).ttl(secs(3)).acquire().await.unwrap();
    let lost = lease.lost();
    for index in 0..5 {
        masters.restart(index).await.unwrap();
        until_all_up(&redlock).await;
    }
    for key in ["a", "b"] {
        until_held_by_all(&masters, key, lease.token().as_str()).await;
    }
    assert!(lease.is_valid() && lost.now_or_never().is_none());
}

#[tokio::test]
async fn a_crash_of_two_masters_at_once_and_for_long_is_lived_through() {
    let masters = five().await;
    let redlock = client(&masters).await;
    let lease = redlock.lease("job").ttl(secs(2)).acquire().await.unwrap();
    let lost = lease.lost();
    until_held_by_all(&masters, "job", lease.token().as_str()).await;
    masters.kill(0).await.unwrap();
    masters.kill(4).await.unwrap();
    throughout(secs(5), "the lease should be valid", async || lease.is_valid()).await;
    masters.restart(0).await.unwrap();
    masters.restart_empty(4).await.unwrap();
    until_held_by_all(&masters, "job", lease.token().as_str()).await;
    assert!(lease.is_valid() && lost.now_or_never().is_none());
}
