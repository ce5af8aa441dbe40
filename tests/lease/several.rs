use leasehold::testing::LocalMasters;
use leasehold::{AcquireError, InvalidRequest, Redlock};

use crate::common::*;

async fn world() -> (LocalMasters, Redlock) {
    let masters = five().await;
    let redlock = client(&masters).await;
    (masters, redlock)
}

#[tokio::test]
async fn all_keys_are_held_sorted_and_once_each_and_all_are_given_back() {
    let (masters, redlock) = world().await;
    let lease = redlock.lease_all(["c", "a", "b", "a"]).ttl(secs(60)).acquire().await.unwrap();
    let keys: Vec<&[u8]> = lease.keys().iter().map(|key| key.as_bytes()).collect();
    assert_eq!(keys, [b"a", b"b", b"c"]);
    for key in ["a", "b", "c"] {
        until_held_by_all(&masters, key, lease.token().as_str()).await;
        assert!((1..=60_000).contains(&raw(&masters, 0).pttl(key).await));
        assert!(redlock.lease(key).try_acquire().await.unwrap().is_none());
    }
    lease.release().await.unwrap();
    for key in ["a", "b", "c"] {
        until_free(&masters, key).await;
    }
}

#[tokio::test]
async fn all_keys_are_extended() {
    let (masters, redlock) = world().await;
    let request = redlock.lease_all(["a", "b"]).ttl(secs(10)).without_heartbeat();
    let lease = request.acquire().await.unwrap();
    for key in ["a", "b"] {
        until_held_by_all(&masters, key, lease.token().as_str()).await;
    }
    lease.extend(secs(50)).await.unwrap();
    for raw in raws(&masters) {
        for key in ["a", "b"] {
            until("each key should have the later expiry", async || raw.pttl(key).await > 30_000).await;
        }
    }
}

#[tokio::test]
async fn one_key_that_is_held_keeps_all_from_being_set() {
    let (masters, redlock) = world().await;
    let lease = hold(&redlock, "b").await;
    until_held_by_all(&masters, "b", lease.token().as_str()).await;
    assert!(redlock.lease_all(["a", "b", "c"]).try_acquire().await.unwrap().is_none());
    for key in ["a", "c"] {
        assert!(holders(&masters, key).await.iter().all(Option::is_none), "{key}");
    }
    assert!(key_is(&masters, "b", lease.token().as_str()).await);
}

#[tokio::test]
async fn a_key_that_is_held_on_a_quorum_rolls_the_others_back_everywhere() {
    let (masters, redlock) = world().await;
    for index in 0..3 {
        raw(&masters, index).tell(&["SET", "b", "another", "PX", "60000"]).await;
    }
    for _ in 0..10 {
        assert!(redlock.lease_all(["a", "b", "c"]).try_acquire().await.unwrap().is_none());
    }
    until_free(&masters, "a").await;
    until_free(&masters, "c").await;
    let another = Some("another".to_owned());
    let undone = async || {
        let stands = holders(&masters, "b").await;
        stands == [another.clone(), another.clone(), another.clone(), None, None]
    };
    until("what was set is undone, what is another's stays", undone).await;
}

#[tokio::test]
async fn a_key_that_is_held_on_a_minority_is_left_alone() {
    let (masters, redlock) = world().await;
    for index in 0..2 {
        raw(&masters, index).tell(&["SET", "b", "another", "PX", "60000"]).await;
    }
    let lease = redlock.lease_all(["a", "b", "c"]).ttl(secs(60)).acquire().await.unwrap();
    lease.extend(secs(60)).await.unwrap();
    lease.release().await.unwrap();
    let left_alone = async || {
        let held = holders(&masters, "b").await;
        held.iter().map(Option::as_deref).eq([Some("another"), Some("another"), None, None, None])
    };
    until("only the other's keys should be left", left_alone).await;
    until_free(&masters, "a").await;
    until_free(&masters, "c").await;
}

#[tokio::test]
async fn two_that_want_the_same_keys_in_other_orders_both_get_them() {
    let (masters, redlock) = world().await;
    let other = client(&masters).await;
    let work = async |redlock: &Redlock, keys: [&str; 3]| {
        for _ in 0..5 {
            let lease = redlock.lease_all(keys).ttl(secs(60)).wait(secs(60)).acquire().await.unwrap();
            lease.release().await.unwrap();
        }
    };
    let both = async {
        tokio::join!(work(&redlock, ["a", "b", "c"]), work(&other, ["c", "b", "a"]));
    };
    within(secs(60), "no deadlock", both).await;
    for key in ["a", "b", "c"] {
        until_free(&masters, key).await;
    }
}

#[tokio::test]
async fn one_key_asked_as_a_list_is_the_same_key() {
    let (masters, redlock) = world().await;
    let lease = redlock.lease_all(["job"]).ttl(secs(60)).acquire().await.unwrap();
    until_held_by_all(&masters, "job", lease.token().as_str()).await;
    assert!(redlock.lease("job").try_acquire().await.unwrap().is_none());
    lease.release().await.unwrap();
    until_free(&masters, "job").await;
}

#[tokio::test]
async fn an_empty_list_and_a_bad_key_in_it_are_refused_before_anything_is_sent() {
    let (masters, redlock) = world().await;
    let before = writes(&masters).await;
    let refused = redlock.lease_all(Vec::<String>::new()).acquire().await.unwrap_err();
    assert!(matches!(refused, AcquireError::InvalidRequest(InvalidRequest::NoKeys)), "{refused:?}");
    let refused = redlock.lease_all(["a", ""]).acquire().await.unwrap_err();
    assert!(matches!(refused, AcquireError::InvalidRequest(InvalidRequest::EmptyKey)), "{refused:?}");
    let refused = redlock.lease_all(["a", "leasehold:x"]).try_acquire().await.unwrap_err();
    assert!(
        matches!(refused, AcquireError::InvalidRequest(InvalidRequest::ReservedKey { .. })),
        "{refused:?}"
    );
    assert_eq!(writes(&masters).await, before);
}

#[tokio::test]
async fn a_namespace_stands_before_each_key() {
    let masters = five().await;
    let redlock = connect(Redlock::builder().nodes(masters.urls()).namespace("ns:")).await;
    let lease = redlock.lease_all(["a", "b"]).ttl(secs(60)).acquire().await.unwrap();
    for key in ["ns:a", "ns:b"] {
        until_held_by_all(&masters, key, lease.token().as_str()).await;
    }
    lease.release().await.unwrap();
    for key in ["ns:a", "ns:b"] {
        until_free(&masters, key).await;
    }
}
