use leasehold::{AcquireError, Lease, LossReason, Redlock, ReleaseError};

use crate::common::*;

#[tokio::test]
async fn the_token_stands_at_the_key_on_all_masters_and_runs_out_within_the_ttl() {
    let masters = five().await;
    let lease = client(&masters).await.lease("job").ttl(secs(20)).acquire().await.unwrap();
    until_held_by_all(&masters, "job", lease.token().as_str()).await;
    for raw in raws(&masters) {
        let left = raw.pttl("job").await;
        assert!((1..=20_000).contains(&left), "{left} ms");
    }
    assert!(lease.is_valid());
    assert!(lease.remaining() < secs(20) - ms(202), "drift is taken off: {:?}", lease.remaining());
    assert_eq!(lease.key().as_bytes(), b"job");
}

#[tokio::test]
async fn a_held_key_is_none_for_others_and_its_holder_keeps_it() {
    let masters = five().await;
    let (one, two) = (client(&masters).await, client(&masters).await);
    let lease = hold(&one, "job").await;
    until_held_by_all(&masters, "job", lease.token().as_str()).await;
    for (rival, other) in [(&one, "other"), (&two, "another")] {
        assert!(rival.lease("job").try_acquire().await.unwrap().is_none());
        assert!(rival.lease(other).try_acquire().await.unwrap().is_some());
    }
    let refused = two.lease("job").wait(ms(200)).acquire().await.unwrap_err();
    assert!(
        matches!(&refused, AcquireError::TimedOut { key, waited } if key.as_bytes() == b"job" && *waited >= ms(200))
    );
    assert!(lease.is_valid());
    assert!(key_is(&masters, "job", lease.token().as_str()).await);
}

#[tokio::test]
async fn a_waiter_gets_the_key_when_it_is_released() {
    let masters = five().await;
    let redlock = client(&masters).await;
    let lease = hold(&redlock, "job").await;
    let waiter = tokio::spawn(redlock.lease("job").wait(PATIENCE).acquire());
    lease.release().await.unwrap();
    let next = soon("the waiter should have it", waiter).await.unwrap().unwrap();
    assert!(next.is_valid());
}

#[tokio::test]
async fn each_round_has_a_token_of_its_own() {
    let masters = five().await;
    let redlock = client(&masters).await;
    let first = hold(&redlock, "job").await;
    let token = *first.token();
    first.release().await.unwrap();
    let second = hold(&redlock, "job").await;
    assert_ne!(*second.token(), token);
}

#[tokio::test]
async fn a_release_empties_all_masters() {
    let masters = five().await;
    let redlock = client(&masters).await;
    let lease = hold(&redlock, "job").await;
    let (lost, token) = (lease.lost(), lease.cancellation_token());
    lease.release().await.unwrap();
    until_free(&masters, "job").await;
    assert!(tokio::time::timeout(ms(100), lost).await.is_err(), "a release is no loss");
    assert!(!token.is_cancelled());
    let paid = async || redlock.nodes().iter().all(|node| node.owed == 0);
    until("nothing should be owed", paid).await;
}

#[tokio::test]
async fn a_drop_empties_all_masters() {
    let masters = five().await;
    let redlock = client(&masters).await;
    let lease = hold(&redlock, "job").await;
    let lost = lease.lost();
    drop(lease);
    until_free(&masters, "job").await;
    assert!(tokio::time::timeout(ms(100), lost).await.is_err(), "a drop is no loss");
}

#[tokio::test]
async fn a_lease_outlives_the_redlock_that_it_came_from() {
    let masters = five().await;
    let redlock = client(&masters).await;
    let lease = redlock.lease("job").ttl(secs(3)).acquire().await.unwrap();
    drop(redlock);
    lease.extend(secs(20)).await.unwrap();
    lease.release().await.unwrap();
    until_free(&masters, "job").await;
}

#[tokio::test]
async fn a_detached_lease_runs_out_by_itself_and_is_not_renewed() {
    let masters = five().await;
    let redlock = client(&masters).await;
    let lease = redlock.lease("job").ttl(secs(2)).acquire().await.unwrap();
    let token = lease.token().to_string();
    until_held_by_all(&masters, "job", &token).await;
    let lost = lease.lost();
    let left = lease.detach();
    assert!(left > ms(0) && left < secs(2), "{left:?}");
    assert!(holders(&masters, "job").await.iter().flatten().count() >= 3, "detached, not deleted");
    let gone = until_within(PATIENCE, "the key should run out", async || {
        holders(&masters, "job").await.iter().all(Option::is_none)
    });
    let gone = gone.await;
    assert!(gone >= left.saturating_sub(ms(500)), "gone after {gone:?} of {left:?}: by itself");
    assert!(tokio::time::timeout(ms(100), lost).await.is_err(), "the end of a detached lease is no loss");
}

#[tokio::test]
async fn an_extend_moves_the_expiry_on_all_masters_and_the_deadline() {
    let masters = five().await;
    let redlock = client(&masters).await;
    let lease = redlock.lease("job").ttl(secs(10)).without_heartbeat().acquire().await.unwrap();
    until_held_by_all(&masters, "job", lease.token().as_str()).await;
    lease.extend(secs(40)).await.unwrap();
    assert!(lease.remaining() > secs(30), "{:?}", lease.remaining());
    assert!(lease.remaining() < secs(40));
    let renewed = async || {
        let left = futures::future::join_all(raws(&masters).iter().map(|raw| raw.pttl("job"))).await;
        left.iter().all(|left| (20_000..=40_000).contains(left))
    };
    until("all masters should have the later expiry", renewed).await;
    assert!(key_is(&masters, "job", lease.token().as_str()).await);
}

#[tokio::test]
async fn a_shorter_extend_shrinks_neither_deadline_nor_expiry() {
    let masters = five().await;
    let redlock = client(&masters).await;
    let lease = redlock.lease("job").ttl(secs(40)).without_heartbeat().acquire().await.unwrap();
    until_held_by_all(&masters, "job", lease.token().as_str()).await;
    let before = lease.remaining();
    lease.extend(secs(1)).await.unwrap();
    assert!(lease.remaining() > before - secs(10), "{:?} after {before:?}", lease.remaining());
    for raw in raws(&masters) {
        let left = raw.pttl("job").await;
        assert!(left > 25_000, "{left} ms");
    }
}

#[tokio::test]
async fn extends_of_one_lease_at_once_all_succeed() {
    let masters = five().await;
    let lease = hold(&client(&masters).await, "job").await;
    let extends = (0..20).map(|more| lease.extend(secs(20 + more)));
    for outcome in futures::future::join_all(extends).await {
        outcome.unwrap();
    }
    lease.release().await.unwrap();
    until_free(&masters, "job").await;
}

#[tokio::test]
async fn a_release_beside_an_extend_is_no_loss_and_leaves_nothing() {
    let masters = five().await;
    let redlock = client(&masters).await;
    for _ in 0..50 {
        let lease = hold(&redlock, "job").await;
        let lost = lease.lost();
        {
            let mut extend = std::pin::pin!(lease.extend(secs(30)));
            // Sent, and not awaited.
            let _ = futures::poll!(&mut extend);
            tokio::task::yield_now().await;
        }
        lease.release().await.unwrap();
        assert!(futures::FutureExt::now_or_never(lost).is_none());
    }
    until_free(&masters, "job").await;
}

#[tokio::test]
async fn after_another_took_over_the_old_holder_changes_nothing() {
    let masters = five().await;
    let redlock = client(&masters).await;
    let lease = redlock.lease("job").ttl(secs(60)).without_heartbeat().acquire().await.unwrap();
    until_held_by_all(&masters, "job", lease.token().as_str()).await;
    for raw in raws(&masters) {
        raw.tell(&["SET", "job", "another", "PX", "60000"]).await;
    }
    let lost = lease.release().await.unwrap_err();
    let ReleaseError::Lost(lost) = lost else { panic!("{lost:?}") };
    assert!(matches!(lost.reason, LossReason::Denied { nodes: 5, .. }), "{lost}");
    assert!(key_is(&masters, "job", "another").await);
}

#[tokio::test]
async fn with_lease_runs_the_work_under_a_lease_and_gives_it_back() {
    let masters = five().await;
    let redlock = client(&masters).await;
    let work = async |lease: &Lease| {
        until_held_by_all(&masters, "job", lease.token().as_str()).await;
        assert!(redlock.lease("job").try_acquire().await.unwrap().is_none());
        "done"
    };
    assert_eq!(redlock.with_lease("job", work).await.unwrap(), "done");
    until_free(&masters, "job").await;
}

#[tokio::test]
async fn with_lease_keeps_the_value_although_the_release_fails() {
    let masters = five().await;
    let redlock = client(&masters).await;
    let work = async |lease: &Lease| {
        for index in 0..3 {
            masters.kill(index).await.unwrap();
        }
        assert!(lease.is_valid());
        42
    };
    assert_eq!(redlock.with_lease("job", work).await.unwrap(), 42);
}

#[tokio::test]
async fn a_namespace_stands_before_the_key_and_is_a_world_of_its_own() {
    let masters = five().await;
    let billing = connect(leasehold::Redlock::builder().nodes(masters.urls()).namespace("billing:")).await;
    let plain = client(&masters).await;
    let lease = hold(&billing, "job").await;
    assert_eq!(lease.key().as_bytes(), b"job");
    until_held_by_all(&masters, "billing:job", lease.token().as_str()).await;
    assert!(plain.lease("job").try_acquire().await.unwrap().is_some());
    assert!(plain.lease("billing:job").try_acquire().await.unwrap().is_none());
    lease.release().await.unwrap();
    until_free(&masters, "billing:job").await;
}

#[tokio::test]
async fn namespaces_are_any_bytes() {
    let masters = five().await;
    for namespace in [b"\xff\r\n:".as_slice(), b"\x00", "\u{fc}:".as_bytes()] {
        let redlock = connect(Redlock::builder().nodes(masters.urls()).namespace(namespace)).await;
        let lease = redlock.lease("job").ttl(secs(60)).acquire().await.unwrap();
        until_held_by_all(&masters, [namespace, b"job"].concat(), lease.token().as_str()).await;
        lease.extend(secs(60)).await.unwrap();
        lease.release().await.unwrap();
        until_free(&masters, [namespace, b"job"].concat()).await;
    }
}

#[tokio::test]
async fn keys_are_any_bytes() {
    let masters = five().await;
    let redlock = client(&masters).await;
    let all_bytes: Vec<u8> = (0..=255).collect();
    let long = vec![b'x'; 10_000];
    let keys: [&[u8]; 9] = [
        b"two words",
        b"{tag}:{a}{b}",
        b"line\nbreak\r\n",
        b"\x00",
        b"\xff\xfe not utf-8 \xc3\x28",
        "schl\u{fc}ssel \u{1f511}".as_bytes(),
        b"$6\r\nSET",
        &all_bytes,
        &long,
    ];
    for key in keys {
        let lease = redlock.lease(key).ttl(secs(60)).acquire().await.unwrap();
        assert_eq!(lease.key().as_bytes(), key);
        until_held_by_all(&masters, key, lease.token().as_str()).await;
        lease.extend(secs(60)).await.unwrap();
        assert!(redlock.lease(key).try_acquire().await.unwrap().is_none());
        lease.release().await.unwrap();
        until_free(&masters, key).await;
    }
}

#[tokio::test]
async fn a_lease_shows_neither_its_token_nor_a_password() {
    let masters = five().await;
    let lease = hold(&client(&masters).await, "job").await;
    let shown = format!("{lease:?}");
    assert!(shown.contains("job"), "{shown}");
    assert!(!shown.contains(lease.token().as_str()), "{shown}");
}
