use futures::FutureExt as _;
use leasehold::testing::LocalMasters;
use leasehold::{Lease, LossReason, Redlock};

use crate::common::*;

async fn world() -> (LocalMasters, Redlock, Lease) {
    let masters = five().await;
    let redlock = client(&masters).await;
    let lease = redlock.lease("job").ttl(secs(3)).acquire().await.unwrap();
    until_held_by_all(&masters, "job", lease.token().as_str()).await;
    (masters, redlock, lease)
}

async fn tell(masters: &LocalMasters, nodes: std::ops::Range<usize>, words: &[&str]) {
    for index in nodes {
        raw(masters, index).tell(words).await;
    }
}

#[tokio::test]
async fn a_key_that_vanished_from_two_masters_comes_back() {
    let (masters, _redlock, lease) = world().await;
    let lost = lease.lost();
    for _ in 0..2 {
        tell(&masters, 1..3, &["DEL", "job"]).await;
        until_held_by_all(&masters, "job", lease.token().as_str()).await;
    }
    throughout(secs(4), "the lease should be kept", async || lease.is_valid()).await;
    assert!(lost.now_or_never().is_none());
    lease.release().await.unwrap();
    until_free(&masters, "job").await;
}

#[tokio::test]
async fn a_key_that_vanished_from_three_masters_is_a_loss_at_the_next_beat() {
    let masters = five().await;
    let redlock = client(&masters).await;
    let lease = redlock.lease("job").ttl(secs(30)).renew_every(secs(1)).acquire().await.unwrap();
    until_all_have_said_so(&masters, &lease).await;
    let mut monitors = monitors(&masters).await;
    tell(&masters, 0..3, &["DEL", "job"]).await;
    let lost = within(secs(10), "the loss should be announced", lease.lost()).await;
    assert!(matches!(lost.reason, LossReason::Denied { denied: 3, nodes: 5 }), "{lost:?}");
    assert!(!lease.is_valid());
    // What is left is given back long before it would run out.
    until_free(&masters, "job").await;
    for (index, monitor) in monitors.iter_mut().enumerate() {
        assert!(monitor.deletions(lease.token().as_str()).await > 0, "master {index}");
    }
}

#[tokio::test]
async fn keys_that_vanish_one_after_the_other_are_no_loss() {
    let (masters, _redlock, lease) = world().await;
    let lost = lease.lost();
    for index in (0..5).chain(0..5) {
        tell(&masters, index..index + 1, &["DEL", "job"]).await;
        until_held_by_all(&masters, "job", lease.token().as_str()).await;
        // A key that was put back counts from the next renewal on.
        lease.extend(secs(3)).await.unwrap();
    }
    assert!(lost.now_or_never().is_none());
}

#[tokio::test]
async fn a_foreign_value_on_a_minority_is_left_alone_and_no_loss() {
    let (masters, _redlock, lease) = world().await;
    let lost = lease.lost();
    tell(&masters, 0..2, &["SET", "job", "another"]).await;
    throughout(secs(5), "the other's value should stay, and the lease", async || {
        let stands = holders(&masters, "job").await;
        stands[..2].iter().all(|value| value.as_deref() == Some("another")) && lease.is_valid()
    })
    .await;
    assert!(lost.now_or_never().is_none());
    lease.release().await.unwrap();
    let left = async || {
        let stands = holders(&masters, "job").await;
        stands.iter().map(Option::as_deref).eq([Some("another"), Some("another"), None, None, None])
    };
    until("only the other's value should be left", left).await;
}

#[tokio::test]
async fn a_lease_won_while_two_masters_were_down_is_filled_in_when_they_return() {
    let masters = five().await;
    let redlock = client(&masters).await;
    masters.kill(0).await.unwrap();
    masters.kill(1).await.unwrap();
    until_first_known_down(&redlock, 2).await;
    let lease = redlock.lease("job").ttl(secs(3)).acquire().await.unwrap();
    let lost = lease.lost();
    masters.restart(0).await.unwrap();
    masters.restart(1).await.unwrap();
    until_held_by_all(&masters, "job", lease.token().as_str()).await;
    // Now two others may go.
    lease.extend(secs(3)).await.unwrap();
    until("all should be renewed once", async || {
        let left = futures::future::join_all(raws(&masters)[..2].iter().map(|raw| raw.pttl("job"))).await;
        left.iter().all(|left| *left > 1_000)
    })
    .await;
    masters.kill(3).await.unwrap();
    masters.kill(4).await.unwrap();
    throughout(secs(5), "the lease should be kept", async || lease.is_valid()).await;
    assert!(lost.now_or_never().is_none());
}

#[tokio::test]
async fn a_lease_without_a_heartbeat_is_filled_in_too() {
    let proxied = Proxied::start().await;
    let redlock = proxied.client(ms(500)).await;
    proxied.proxies[..2].iter().for_each(|proxy| {
        proxy.refuse(true);
        proxy.cut();
    });
    until_first_known_down(&redlock, 2).await;
    let request = redlock.lease("job").ttl(secs(9)).without_heartbeat();
    let lease = request.acquire().await.unwrap();
    proxied.heal();
    until_within(secs(8), "the two should get the key", async || {
        key_is(&proxied.masters, "job", lease.token().as_str()).await
    })
    .await;
    assert!(lease.is_valid());
}

#[tokio::test]
async fn a_lease_on_several_keys_heals_too() {
    let masters = five().await;
    let redlock = client(&masters).await;
    let lease = redlock.lease_all(["a", "b"]).ttl(secs(3)).acquire().await.unwrap();
    for key in ["a", "b"] {
        until_held_by_all(&masters, key, lease.token().as_str()).await;
    }
    // On one both are gone, on the other one of them.
    tell(&masters, 0..1, &["DEL", "a", "b"]).await;
    tell(&masters, 1..2, &["DEL", "b"]).await;
    for key in ["a", "b"] {
        until_held_by_all(&masters, key, lease.token().as_str()).await;
    }
    assert!(lease.is_valid());
    lease.release().await.unwrap();
    for key in ["a", "b"] {
        until_free(&masters, key).await;
    }
}
