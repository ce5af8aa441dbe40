//! Whatever happens to two of five nodes at a time, two leases on one key never overlap.

mod common;

mod chaos {
    mod checker;
    mod history;
    mod line;
    mod moment;
}

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use common::*;
use leasehold::testing::Direction;
use leasehold::{AcquireError, Lease, Redlock};
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};

/// The shortest that is possible, so that nodes without memory are back soon.
const MAX_TTL: Duration = secs(3);
const TTL: Duration = ms(1_500);
const SPAN: Duration = secs(25);

/// From when to when somebody was promised the key.
type Promise = (Instant, Instant);

#[derive(Clone, Default)]
struct Promises(Arc<Mutex<Vec<Promise>>>);

impl Promises {
    fn add(&self, promise: Promise) {
        self.0.lock().unwrap().push(promise);
    }

    fn assert_apart(&self) -> usize {
        let mut promises = self.0.lock().unwrap().clone();
        promises.sort_unstable();
        for pair in promises.windows(2) {
            let overlap = pair[0].1.saturating_duration_since(pair[1].0);
            assert!(overlap.is_zero(), "two were promised the key at one time, for {overlap:?}");
        }
        promises.len()
    }
}

/// Takes the key again and again, and ends each lease in one of the ways there are.
async fn contend(redlock: Redlock, mut dice: StdRng, promises: Promises, end: Instant) {
    while Instant::now() < end {
        let request = redlock.lease("job").ttl(TTL).wait(secs(2));
        match request.acquire().await {
            Ok(lease) => promises.add(use_up(lease, &mut dice).await),
            Err(AcquireError::TimedOut { .. } | AcquireError::NoQuorum(_)) => {}
            Err(other) => panic!("{other:?}"),
        }
        tokio::time::sleep(ms(dice.random_range(0..30))).await;
    }
}

async fn use_up(lease: Lease, dice: &mut StdRng) -> Promise {
    let begun = Instant::now();
    // What is said last counts: the deadline only moves away.
    let mut promised = begun + lease.remaining();
    let kept = ms(dice.random_range(0..800));
    while begun.elapsed() < kept && lease.is_valid() {
        tokio::time::sleep(ms(5)).await;
        if dice.random_range(0..20) == 0 {
            let _ = lease.extend(TTL).await;
        }
        let (now, left) = (Instant::now(), lease.remaining());
        if left.is_zero() {
            return (begun, promised.min(now));
        }
        promised = now + left;
    }
    let given_back = Instant::now();
    match dice.random_range(0..6) {
        0 => promised = given_back + lease.detach(),
        1 => {
            promised = promised.min(given_back);
            drop(lease);
        }
        _ => {
            promised = promised.min(given_back);
            let _ = lease.release().await;
        }
    }
    (begun, promised)
}

/// Does something bad to two nodes, and soon after to two others.
async fn trouble(proxied: &Proxied, mut dice: StdRng, end: Instant) {
    while Instant::now() < end {
        let first = dice.random_range(0..5);
        let second = (first + dice.random_range(1..5)) % 5;
        for node in [first, second] {
            let (proxy, masters) = (&proxied.proxies[node], &proxied.masters);
            match dice.random_range(0..16) {
                0..2 => proxy.black_hole(),
                2..4 => proxy.lose_replies(),
                4..6 => proxy.hold(Direction::ToServer),
                6..8 => proxy.hold(Direction::ToClient),
                8..10 => proxy.latency(Direction::ToServer, ms(dice.random_range(1..400))),
                10..12 => {
                    proxy.refuse(true);
                    proxy.cut();
                }
                12..14 => masters.restart(node).await.unwrap(),
                14 => masters.restart_empty(node).await.unwrap(),
                _ => masters.pause(node).await.unwrap(),
            }
        }
        tokio::time::sleep(ms(dice.random_range(50..1_500))).await;
        for node in [first, second] {
            if dice.random() {
                proxied.proxies[node].cut();
            }
            proxied.proxies[node].heal();
            proxied.masters.resume(node).unwrap();
        }
        tokio::time::sleep(ms(dice.random_range(0..600))).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_leases_never_overlap() {
    let named = std::env::var("LEASEHOLD_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed: u64 = named.unwrap_or_else(|| rand::rng().random());
    println!("LEASEHOLD_SEED={seed}");
    let mut dice = StdRng::seed_from_u64(seed);
    let proxied = Proxied::start().await;
    let promises = Promises::default();
    let end = Instant::now() + SPAN;
    let mut tasks = Vec::new();
    for number in 0..8 {
        // Half of them go another way to the nodes, which is not in trouble. They find the same markers, as
        // those of other addresses, so that they take each restart for a loss of memory.
        let urls = if number % 2 == 0 { proxied.urls() } else { proxied.masters.urls() };
        let builder = Redlock::builder().nodes(urls).node_timeout(ms(250)).max_ttl(MAX_TTL);
        let redlock = connect(builder).await;
        let dice = StdRng::seed_from_u64(dice.random());
        tasks.push(tokio::spawn(contend(redlock, dice, promises.clone(), end)));
    }
    trouble(&proxied, dice, end).await;
    for task in tasks {
        soon("all should end", task).await.unwrap();
    }
    let count = promises.assert_apart();
    println!("{count} leases");
    assert!(count >= 20, "{count} leases: too few to show anything");
    proxied.heal();
    until_free(&proxied.masters, "job").await;
}
