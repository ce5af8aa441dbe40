//! Many want one key: each gets it once, one at a time, and all in the end.

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use common::*;
use leasehold::{LeaseRequest, Redlock};

/// How many hold the key now, by their own word.
#[derive(Default)]
struct Holders(AtomicUsize);

/// Takes the key once, holds it for a moment, and gives it back. Returns from when to when it was held.
async fn take_once(request: LeaseRequest, holders: Arc<Holders>) -> (Instant, Instant) {
    let lease = request.ttl(secs(20)).wait(secs(120)).acquire().await.expect("everybody gets it");
    let acquired = Instant::now();
    assert_eq!(holders.0.fetch_add(1, Ordering::SeqCst), 0, "somebody else holds it");
    tokio::time::sleep(ms(2)).await;
    assert!(lease.is_valid());
    assert_eq!(holders.0.fetch_sub(1, Ordering::SeqCst), 1, "somebody else holds it");
    let released = Instant::now();
    lease.release().await.expect("a valid lease is given back");
    (acquired, released)
}

fn assert_apart(mut held: Vec<(Instant, Instant)>) {
    held.sort_unstable();
    for pair in held.windows(2) {
        assert!(pair[0].1 <= pair[1].0, "two held the key at one time");
    }
}

/// All requests get the key, within `bound`; how long it took.
async fn all_get_it(requests: Vec<LeaseRequest>, bound: Duration) -> Duration {
    let holders = Arc::new(Holders::default());
    let count = requests.len();
    let started = Instant::now();
    let tasks = requests.into_iter().map(|request| tokio::spawn(take_once(request, holders.clone())));
    let tasks = futures::future::join_all(tasks.collect::<Vec<_>>());
    let held = within(bound, "all should have had the key", tasks).await;
    let took = started.elapsed();
    let held: Vec<_> = held.into_iter().map(Result::unwrap).collect();
    assert_eq!(held.len(), count);
    assert_apart(held);
    took
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fifty_get_the_key_once_each_and_one_at_a_time() {
    let masters = five().await;
    let shared = client(&masters).await;
    let mut requests: Vec<LeaseRequest> = (0..25).map(|_| shared.clone().lease("job")).collect();
    let mut own = Vec::new();
    for _ in 0..25 {
        own.push(client(&masters).await);
    }
    requests.extend(own.iter().map(|redlock| redlock.lease("job")));
    let took = all_get_it(requests, secs(90)).await;
    println!("{took:?} for 50 holders");
    until_free(&masters, "job").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn overlapping_sets_of_keys_are_never_held_by_two() {
    let masters = five().await;
    let one = client(&masters).await;
    let two = client(&masters).await;
    let sets = [vec!["a", "b"], vec!["b", "c"], vec!["c", "b", "a"], vec!["b"]];
    let requests = (0..24).map(|number| {
        let redlock = if number % 2 == 0 { &one } else { &two };
        redlock.lease_all(sets[number % sets.len()].clone())
    });
    all_get_it(requests.collect(), secs(90)).await;
    for key in ["a", "b", "c"] {
        until_free(&masters, key).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn contenders_get_it_although_a_node_is_silent() {
    let proxied = Proxied::start().await;
    let mut clients = Vec::new();
    for _ in 0..8 {
        clients.push(proxied.client(ms(500)).await);
    }
    proxied.black_holes(1);
    all_get_it(clients.iter().map(|redlock| redlock.lease("job")).collect(), secs(60)).await;
}

/// `count` waiters, each of its own; the first to get the key keeps it.
async fn waiters(clients: &[Redlock]) -> impl Future<Output = leasehold::Lease> + use<> {
    let waiting = clients.iter().map(|redlock| {
        let acquire = redlock.lease("job").ttl(secs(60)).wait(secs(120)).acquire();
        Box::pin(acquire)
    });
    let waiting = futures::future::select_all(waiting.collect::<Vec<_>>());
    async { waiting.await.0.unwrap() }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn when_a_holder_is_dropped_another_gets_the_key_soon() {
    let masters = five().await;
    let mut clients = Vec::new();
    for _ in 0..10 {
        clients.push(client(&masters).await);
    }
    let lease = hold(&clients[0], "job").await;
    let waiting = tokio::spawn(waiters(&clients).await);
    let asked = async || raw(&masters, 0).calls(&["set"]).await > 60;
    until("the waiters should ask again and again", asked).await;
    assert!(!waiting.is_finished());
    drop(lease);
    let next = within(secs(5), "another should have it", waiting).await.unwrap();
    assert!(next.is_valid());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn when_a_holder_has_crashed_another_gets_the_key_after_the_ttl() {
    let masters = five().await;
    let clients = [client(&masters).await, client(&masters).await];
    let lease = clients[0].lease("job").ttl(secs(3)).acquire().await.unwrap();
    let (started, left) = (Instant::now(), lease.remaining());
    // As a crash does, it leaves the key alone.
    lease.detach();
    let next = within(secs(8), "another should have it", waiters(&clients).await).await;
    assert!(started.elapsed() >= left, "not before the validity of the first was over");
    assert!(next.is_valid());
}
