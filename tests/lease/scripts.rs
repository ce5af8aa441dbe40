use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use leasehold::testing::LocalMasters;

use crate::common::*;

/// Makes all masters forget their scripts, again and again, until the value is dropped.
struct Flushing {
    stop: Arc<AtomicBool>,
    tasks: Vec<tokio::task::JoinHandle<u64>>,
}

impl Flushing {
    fn start(masters: &LocalMasters) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let flush = |raw: Raw| {
            let stop = stop.clone();
            tokio::spawn(async move {
                let mut times = 0;
                while !stop.load(Ordering::SeqCst) {
                    raw.tell(&["SCRIPT", "FLUSH"]).await;
                    times += 1;
                }
                times
            })
        };
        let tasks = raws(masters).into_iter().map(flush).collect();
        Self { stop, tasks }
    }

    /// Ends it; how often each master was made to forget.
    async fn stop(self) -> Vec<u64> {
        self.stop.store(true, Ordering::SeqCst);
        let times = futures::future::join_all(self.tasks).await;
        times.into_iter().map(Result::unwrap).collect()
    }
}

#[tokio::test]
async fn flushing_the_scripts_at_any_moment_is_harmless() {
    let masters = five().await;
    let redlock = client(&masters).await;
    let flushing = Flushing::start(&masters);
    for _ in 0..60 {
        let one = hold(&redlock, "job").await;
        let two = redlock.lease_all(["a", "b"]).ttl(secs(60)).acquire().await.unwrap();
        one.extend(secs(60)).await.unwrap();
        two.extend(secs(60)).await.unwrap();
        assert!(redlock.lease_all(["b", "c"]).try_acquire().await.unwrap().is_none());
        two.release().await.unwrap();
        one.release().await.unwrap();
    }
    for key in ["job", "a", "b", "c"] {
        until_free(&masters, key).await;
    }
    assert!(flushing.stop().await.iter().all(|times| *times > 0));
}

#[tokio::test]
async fn a_dropped_lease_is_deleted_although_the_scripts_are_gone() {
    let masters = five().await;
    let redlock = client(&masters).await;
    let lease = redlock.lease_all(["a", "b"]).ttl(secs(60)).acquire().await.unwrap();
    until_held_by_all(&masters, "b", lease.token().as_str()).await;
    for raw in raws(&masters) {
        raw.tell(&["SCRIPT", "FLUSH"]).await;
    }
    drop(lease);
    for key in ["a", "b"] {
        until_free(&masters, key).await;
    }
}

#[tokio::test]
async fn the_first_deletion_on_a_server_keeps_its_place_before_what_is_asked_next() {
    let masters = five().await;
    let redlock = client(&masters).await;
    for round in 0..3 {
        let lease = hold(&redlock, "job").await;
        until_held_by_all(&masters, "job", lease.token().as_str()).await;
        drop(lease);
        let next = redlock.lease("job").ttl(secs(60)).try_acquire().await.unwrap();
        assert!(next.is_some(), "round {round}: refused by its own old key");
    }
}

#[tokio::test]
async fn the_first_deletion_on_a_server_takes_no_longer_than_others() {
    let masters = five().await;
    let mut fastest = std::time::Duration::MAX;
    for _ in 0..5 {
        for raw in raws(&masters) {
            raw.tell(&["SCRIPT", "FLUSH"]).await;
        }
        let redlock = client(&masters).await;
        let lease = hold(&redlock, "job").await;
        until_held_by_all(&masters, "job", lease.token().as_str()).await;
        drop(lease);
        let free = async || holders(&masters, "job").await.iter().all(Option::is_none);
        fastest = fastest.min(until_within(PATIENCE, "it should be deleted", free).await);
    }
    assert!(fastest < ms(100), "{fastest:?}");
}
