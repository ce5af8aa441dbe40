//! A dropped `acquire()` future leaves no key behind, whenever it is dropped.

use std::time::Duration;

use leasehold::Redlock;
use leasehold::testing::Direction;
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};

use crate::common::*;

/// Dice from `LEASEHOLD_SEED` where a run is to be repeated; shown by tests that fail.
fn dice() -> StdRng {
    let named = std::env::var("LEASEHOLD_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed = named.unwrap_or_else(|| rand::rng().random());
    println!("LEASEHOLD_SEED={seed}");
    StdRng::seed_from_u64(seed)
}

async fn until_nothing_owed(redlock: &Redlock) {
    until("nothing should be owed", async || redlock.nodes().iter().all(|node| node.owed == 0)).await;
}

/// Drops an acquire of `key` after `moment`. True if it was under way by then.
async fn dropped(redlock: &Redlock, key: &str, moment: Duration) -> bool {
    let acquire = redlock.lease(key).ttl(secs(60)).wait(secs(60)).acquire();
    tokio::time::timeout(moment, acquire).await.is_err()
}

#[tokio::test]
async fn a_future_dropped_at_200_random_moments_leaves_no_key() {
    let proxied = Proxied::start().await;
    let redlock = proxied.client(secs(2)).await;
    let mut dice = dice();
    let mut under_way = 0;
    for number in 0..200 {
        for proxy in &proxied.proxies {
            proxy.latency(Direction::ToServer, ms(dice.random_range(0..8)));
            proxy.latency(Direction::ToClient, ms(dice.random_range(0..8)));
        }
        let moment = Duration::from_micros(dice.random_range(0..16_000));
        under_way += usize::from(dropped(&redlock, &format!("job {number}"), moment).await);
    }
    println!("{under_way} of 200 were under way");
    assert!(under_way >= 50, "{under_way}: the moments were too late to show anything");
    until_empty(&proxied.masters).await;
    proxied.heal();
    until_nothing_owed(&redlock).await;
    until_empty(&proxied.masters).await;
}

#[tokio::test]
async fn a_future_dropped_after_each_number_of_polls_leaves_no_key() {
    let masters = five().await;
    let redlock = client(&masters).await;
    let mut under_way = 0;
    for polls in 0..40 {
        let mut acquire = Box::pin(redlock.lease("job").ttl(secs(60)).acquire());
        let mut won = false;
        for _ in 0..polls {
            won = futures::poll!(&mut acquire).is_ready();
            if won {
                break;
            }
            tokio::task::yield_now().await;
        }
        under_way += usize::from(!won);
        drop(acquire);
        until_empty(&masters).await;
    }
    assert!(under_way >= 3, "{under_way}");
    until_nothing_owed(&redlock).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn futures_dropped_while_they_contend_leave_no_key() {
    let masters = five().await;
    let redlock = client(&masters).await;
    let mut dice = dice();
    let tasks = (0..8).map(|_| {
        let redlock = redlock.clone();
        let moments: Vec<u64> = (0..25).map(|_| dice.random_range(0..40_000)).collect();
        tokio::spawn(async move {
            for moment in moments {
                dropped(&redlock, "job", Duration::from_micros(moment)).await;
            }
        })
    });
    for task in tasks.collect::<Vec<_>>() {
        task.await.unwrap();
    }
    until_empty(&masters).await;
    until_nothing_owed(&redlock).await;
    hold(&redlock, "job").await.release().await.unwrap();
}

#[tokio::test]
async fn a_future_dropped_before_its_nodes_are_connected_leaves_no_key() {
    let proxied = Proxied::start().await;
    proxied.black_holes(5);
    let redlock = Redlock::builder().nodes(proxied.urls()).node_timeout(ms(300)).connect().await.unwrap();
    for number in 0..10 {
        let key = format!("job {number}");
        assert!(dropped(&redlock, &key, ms(20)).await);
    }
    proxied.heal();
    until_all_up(&redlock).await;
    until_nothing_owed(&redlock).await;
    until_empty(&proxied.masters).await;
}

#[tokio::test]
async fn a_dropped_future_for_several_keys_leaves_none() {
    let proxied = Proxied::start().await;
    let redlock = proxied.client(secs(2)).await;
    let mut dice = dice();
    for proxy in &proxied.proxies {
        proxy.latency(Direction::ToClient, ms(3));
    }
    for _ in 0..50 {
        let acquire = redlock.lease_all(["a", "b", "c"]).ttl(secs(60)).acquire();
        let _ = tokio::time::timeout(Duration::from_micros(dice.random_range(0..6_000)), acquire).await;
    }
    until_empty(&proxied.masters).await;
}
