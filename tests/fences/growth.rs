//! Each later holder's fence is greater, whoever it is and whatever happened to the nodes.

use std::time::Duration;

use leasehold::Fence;
use leasehold::testing::{Direction, FaultProxy};

use super::support::{KEY, MAX_TTL, all_vote, ask, builder, client, next_fence, three};
use super::support::{RECORD, connection};

/// That each is greater than the one before.
fn assert_grow(fences: &[Fence]) {
    for (index, pair) in fences.windows(2).enumerate() {
        assert!(pair[0] < pair[1], "{} came after {} (number {index})", pair[1], pair[0]);
    }
}

#[tokio::test]
async fn fences_grow_over_rival_clients_in_the_order_of_holding() {
    let masters = three().await;
    let seen = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
    let mut rivals = tokio::task::JoinSet::new();
    for _ in 0..4 {
        let (redlock, seen) = (client(&masters).await, seen.clone());
        rivals.spawn(async move {
            for _ in 0..25 {
                let lease = redlock.lease(KEY).ttl(MAX_TTL).fenced().acquire().await.unwrap();
                seen.lock().unwrap().push(lease.fence().unwrap());
                lease.release().await.unwrap();
            }
        });
    }
    while let Some(rival) = rivals.join_next().await {
        rival.unwrap();
    }
    let seen = seen.lock().unwrap();
    assert_eq!(seen.len(), 100);
    assert_grow(&seen);
}

#[tokio::test]
async fn fences_grow_over_a_client_that_is_made_anew() {
    let masters = three().await;
    let mut fences = Vec::new();
    for _ in 0..20 {
        let redlock = client(&masters).await;
        fences.push(next_fence(&redlock).await);
        fences.push(next_fence(&redlock).await);
        redlock.close().await;
    }
    assert_grow(&fences);
}

#[tokio::test]
async fn fences_grow_though_every_node_loses_its_data_in_turn() {
    let masters = three().await;
    let redlock = client(&masters).await;
    let mut fences = vec![next_fence(&redlock).await];
    for index in 0..3 {
        masters.restart_empty(index).await.unwrap();
        fences.push(next_fence(&redlock).await);
        all_vote(&redlock).await;
        assert!(ask::<bool>(&masters, index, &["EXISTS", "leasehold:node"]).await, "it has a marker again");
        // Now it is needed: another one is away.
        masters.pause((index + 1) % 3).await.unwrap();
        fences.push(next_fence(&redlock).await);
        masters.resume((index + 1) % 3).unwrap();
        all_vote(&redlock).await;
        fences.push(next_fence(&client(&masters).await).await);
    }
    assert_grow(&fences);
}

#[tokio::test]
async fn fences_grow_though_nodes_are_slow_each_in_its_turn() {
    let masters = three().await;
    let mut proxies = Vec::new();
    for index in 0..3 {
        proxies.push(FaultProxy::start(masters.addr(index)).await.unwrap());
    }
    let urls = proxies.iter().map(FaultProxy::url).collect();
    let (slow, quick) = (builder(urls).connect().await.unwrap(), client(&masters).await);
    let mut fences = Vec::new();
    for round in 0_u64..30 {
        for (index, proxy) in proxies.iter().enumerate() {
            let latency = Duration::from_millis((round * 7 + index as u64 * 13) % 40);
            let direction = if round % 2 == 0 { Direction::ToServer } else { Direction::ToClient };
            proxy.latency(direction, latency);
        }
        fences.push(next_fence(if round % 3 == 0 { &quick } else { &slow }).await);
    }
    assert_grow(&fences);
}

#[tokio::test]
async fn fences_grow_though_the_nodes_clocks_were_set_back_by_an_hour() {
    let masters = three().await;
    let redlock = client(&masters).await;
    let before = next_fence(&redlock).await;
    // What the nodes would remember then: a number that is an hour ahead of their clocks.
    let ahead = u64::from(before) + 3_600_000_000;
    for index in 0..3 {
        let mut connection = connection(&masters, index).await;
        let set = redis::cmd("SET").arg(RECORD).arg(ahead).query_async::<String>(&mut connection).await;
        assert_eq!(set.unwrap(), "OK");
    }
    let fences: Vec<u64> =
        [next_fence(&redlock).await, next_fence(&client(&masters).await).await].map(u64::from).into();
    // By one, not by time: they do not run away.
    assert_eq!(fences, [ahead + 1, ahead + 2]);
}

#[tokio::test]
async fn fenced_and_plain_leases_on_one_key_exclude_each_other() {
    let masters = three().await;
    let (one, other) = (client(&masters).await, client(&masters).await);
    let fenced = one.lease(KEY).ttl(MAX_TTL).fenced().acquire().await.unwrap();
    assert!(other.lease(KEY).ttl(MAX_TTL).try_acquire().await.unwrap().is_none());
    fenced.release().await.unwrap();
    // The deletion on the third node may still be under way, a plain lease is won without it.
    let plain = other.lease(KEY).ttl(MAX_TTL).acquire().await.unwrap();
    assert_eq!(plain.fence(), None);
    assert!(one.lease(KEY).ttl(MAX_TTL).fenced().try_acquire().await.unwrap().is_none());
    plain.release().await.unwrap();
    assert!(one.lease(KEY).ttl(MAX_TTL).fenced().acquire().await.unwrap().fence().is_some());
}

#[tokio::test]
async fn one_fence_stands_for_all_keys_of_a_lease() {
    let masters = three().await;
    let redlock = client(&masters).await;
    let (first, second) = (next_fence(&redlock).await, async |keys: &[&str]| {
        let request = redlock.lease_all(keys.iter().copied()).ttl(MAX_TTL).fenced();
        let lease = request.acquire().await.unwrap();
        let fence = lease.fence().unwrap();
        lease.release().await.unwrap();
        fence
    });
    let both = second(&["account:8", KEY]).await;
    let alone = second(&["account:8"]).await;
    let last = next_fence(&redlock).await;
    assert_grow(&[first, both, alone, last]);
    // A key that another holds keeps all of them from being granted, and leaves no record behind.
    let held = redlock.lease(KEY).ttl(MAX_TTL).acquire().await.unwrap();
    let request = redlock.lease_all([KEY, "account:9"]).ttl(MAX_TTL).fenced();
    assert!(request.try_acquire().await.unwrap().is_none());
    for index in 0..3 {
        assert!(!ask::<bool>(&masters, index, &["EXISTS", "leasehold:fence:account:9"]).await);
    }
    drop(held);
}
