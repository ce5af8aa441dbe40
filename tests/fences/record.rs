//! What stands on the nodes: one record a key, a plain integer, kept for the time that was set.

use std::time::Duration;

use leasehold::testing::LocalMasters;
use leasehold::{Fence, Redlock};

use super::support::{KEY, MAX_TTL, RECORD, ask, builder, client, next_fence, three, until};

/// The record on one master.
async fn record(masters: &LocalMasters, index: usize, name: &str) -> Option<String> {
    ask(masters, index, &["GET", name]).await
}

async fn on_all(masters: &LocalMasters, name: &str, value: &str) -> bool {
    for index in 0..masters.len() {
        if record(masters, index, name).await.as_deref() != Some(value) {
            return false;
        }
    }
    true
}

#[tokio::test]
async fn the_record_is_a_plain_integer_that_a_double_can_hold() {
    let masters = three().await;
    let redlock = client(&masters).await;
    for _ in 0..20 {
        let lease = redlock.lease(KEY).ttl(MAX_TTL).fenced().acquire().await.unwrap();
        let fence = lease.fence().unwrap();
        until(async || on_all(&masters, RECORD, &fence.to_string()).await).await;
        let stored = record(&masters, 0, RECORD).await.unwrap();
        assert!(stored.bytes().all(|byte| byte.is_ascii_digit()), "{stored}");
        assert_eq!(stored.parse::<u64>().map(Fence::from), Ok(fence));
        assert!(fence.get() < 1 << 53, "{fence}");
        assert_eq!(i64::from(fence), fence.get() as i64);
        lease.release().await.unwrap();
    }
}

#[tokio::test]
async fn the_record_outlives_the_lease_for_the_time_that_was_set() {
    let masters = three().await;
    let day = Duration::from_secs(24 * 3600);
    for (builder, kept) in [
        (builder(masters.urls()), day),
        (builder(masters.urls()).namespace("billing:").fence_ttl(Duration::from_secs(600)), day / 144),
    ] {
        let name = if kept == day { RECORD.to_owned() } else { format!("billing:{RECORD}") };
        let fence = next_fence(&builder.connect().await.unwrap()).await.to_string();
        until(async || on_all(&masters, &name, &fence).await).await;
        let left: i64 = ask(&masters, 1, &["PTTL", &name]).await;
        let kept = kept.as_millis() as i64;
        assert!((kept - 30_000..=kept).contains(&left), "{left} ms left of {kept}");
    }
    until(async || !ask::<bool>(&masters, 1, &["EXISTS", KEY]).await).await;
}

#[tokio::test]
async fn a_grant_renews_the_record_and_a_plain_lease_leaves_it_alone() {
    let masters = three().await;
    let redlock = client(&masters).await;
    let fence = next_fence(&redlock).await.to_string();
    until(async || on_all(&masters, RECORD, &fence).await).await;
    redlock.lease(KEY).ttl(MAX_TTL).acquire().await.unwrap().release().await.unwrap();
    assert!(on_all(&masters, RECORD, &fence).await);
    for index in 0..3 {
        assert!(ask::<bool>(&masters, index, &["PEXPIRE", RECORD, "60000"]).await);
    }
    let fence = next_fence(&redlock).await.to_string();
    until(async || on_all(&masters, RECORD, &fence).await).await;
    assert!(ask::<i64>(&masters, 0, &["PTTL", RECORD]).await > 60_000);
}

#[tokio::test]
async fn a_value_of_another_type_is_somebody_elses_and_no_fence_is_granted_over_it() {
    let masters = three().await;
    let redlock = client(&masters).await;
    for index in 0..3 {
        assert_eq!(ask::<u32>(&masters, index, &["HSET", KEY, "field", "untouched"]).await, 1);
    }
    for keys in [&[KEY][..], &["account:6", KEY]] {
        let request = redlock.lease_all(keys.iter().copied()).ttl(MAX_TTL).fenced();
        assert!(request.try_acquire().await.unwrap().is_none());
    }
    for index in 0..3 {
        assert_eq!(ask::<String>(&masters, index, &["HGET", KEY, "field"]).await, "untouched");
        let left = ["account:6", "leasehold:fence:account:6", RECORD];
        assert_eq!(ask::<u32>(&masters, index, &[&["EXISTS"], &left[..]].concat()).await, 0);
    }
}

#[tokio::test]
async fn healing_brings_the_record_back_with_the_key() {
    let masters = three().await;
    let redlock = builder(masters.urls()).namespace("billing:").connect().await.unwrap();
    let (key, record_name) = (format!("billing:{KEY}"), format!("billing:{RECORD}"));
    let request = redlock.lease(KEY).ttl(MAX_TTL).renew_every(Duration::from_millis(200)).fenced();
    let lease = request.acquire().await.unwrap();
    let (token, fence) = (lease.token().to_string(), lease.fence().unwrap().to_string());
    until(async || on_all(&masters, &key, &token).await && on_all(&masters, &record_name, &fence).await)
        .await;
    for index in 0..3 {
        assert_eq!(ask::<u32>(&masters, index, &["DEL", &key, &record_name]).await, 2);
        until(async || on_all(&masters, &key, &token).await).await;
        assert!(on_all(&masters, &record_name, &fence).await, "both at once");
        assert!(ask::<i64>(&masters, index, &["PTTL", &record_name]).await > 3_600_000);
    }
    assert!(lease.is_valid());
    lease.release().await.unwrap();
}

#[tokio::test]
async fn healing_never_sets_a_record_back() {
    let masters = three().await;
    let redlock = client(&masters).await;
    let request = redlock.lease(KEY).ttl(MAX_TTL).renew_every(Duration::from_millis(200)).fenced();
    let lease = request.acquire().await.unwrap();
    let (token, fence) = (lease.token().to_string(), lease.fence().unwrap().get());
    until(async || on_all(&masters, KEY, &token).await).await;
    let higher = (fence + 5).to_string();
    assert_eq!(ask::<String>(&masters, 2, &["SET", RECORD, &higher]).await, "OK");
    assert_eq!(ask::<u32>(&masters, 2, &["DEL", KEY]).await, 1);
    until(async || on_all(&masters, KEY, &token).await).await;
    assert_eq!(record(&masters, 2, RECORD).await, Some(higher));
    lease.release().await.unwrap();
}

#[tokio::test]
async fn the_longest_ttl_needs_no_word_on_the_record() {
    let year = Duration::from_secs(365 * 86_400);
    let builder = || Redlock::builder().nodes(["redis://127.0.0.1:1"]).max_ttl(year);
    builder().connect().await.expect("the record is kept as long as the longest lease");
    let refused = builder().fence_ttl(year / 2).connect().await.expect_err("shorter than a lease");
    assert!(refused.to_string().contains("fence_ttl"), "{refused}");
}
