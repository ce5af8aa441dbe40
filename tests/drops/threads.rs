//! A drop on whatever thread, with whatever runtime: released where a runtime is there to do it.

use std::time::Duration;

use leasehold::testing::LocalMasters;
use leasehold::{Lease, Redlock};
use tokio::runtime::{Builder, Runtime};

use crate::common::*;

fn current_thread() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

fn multi_thread() -> Runtime {
    Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}

/// Runs `work` on a plain thread, which has to end in time and without a panic.
fn on_a_thread<T: Send + 'static>(what: &str, work: impl FnOnce() -> T + Send + 'static) -> T {
    let thread = std::thread::spawn(work);
    let started = std::time::Instant::now();
    while !thread.is_finished() {
        assert!(started.elapsed() < PATIENCE, "{what} should not hang");
        std::thread::sleep(ms(5));
    }
    thread.join().unwrap_or_else(|_| panic!("{what} should not panic"))
}

/// Masters in a runtime of their own, so that they outlive the client's.
fn masters() -> (Runtime, LocalMasters) {
    let runtime = multi_thread();
    let masters = runtime.block_on(five());
    (runtime, masters)
}

async fn held(urls: Vec<String>) -> (Redlock, Lease) {
    let redlock = connect(Redlock::builder().nodes(urls).node_timeout(secs(2))).await;
    let lease = hold(&redlock, "job").await;
    (redlock, lease)
}

#[test]
fn within_a_current_thread_runtime() {
    current_thread().block_on(async {
        let masters = five().await;
        let (_redlock, lease) = held(masters.urls()).await;
        drop(lease);
        until_free(&masters, "job").await;
    });
}

#[test]
fn within_a_multi_thread_runtime() {
    multi_thread().block_on(async {
        let masters = five().await;
        let (_redlock, lease) = held(masters.urls()).await;
        tokio::spawn(async move { drop(lease) }).await.unwrap();
        until_free(&masters, "job").await;
    });
}

#[test]
fn in_a_blocking_task() {
    multi_thread().block_on(async {
        let masters = five().await;
        let (_redlock, lease) = held(masters.urls()).await;
        tokio::task::spawn_blocking(move || drop(lease)).await.unwrap();
        until_free(&masters, "job").await;
    });
}

#[test]
fn on_a_plain_thread_while_the_runtime_goes_on() {
    for runtime in [current_thread(), multi_thread()] {
        runtime.block_on(async {
            let masters = five().await;
            let (redlock, lease) = held(masters.urls()).await;
            on_a_thread("the drop", move || drop((lease, redlock)));
            until_free(&masters, "job").await;
        });
    }
}

#[test]
fn within_another_runtime_than_its_own() {
    let (masters_runtime, masters) = masters();
    let own = multi_thread();
    let (redlock, lease) = own.block_on(held(masters.urls()));
    let other = current_thread();
    other.block_on(async {
        lease.extend(secs(60)).await.unwrap();
        drop(lease);
    });
    masters_runtime.block_on(until_free(&masters, "job"));
    let lease = other.block_on(hold(&redlock, "job"));
    other.block_on(lease.release()).unwrap();
    masters_runtime.block_on(until_free(&masters, "job"));
}

#[test]
fn after_the_runtime_is_gone() {
    let (masters_runtime, masters) = masters();
    for own in [current_thread(), multi_thread()] {
        let (redlock, lease) = own.block_on(held(masters.urls()));
        let lost = lease.lost();
        drop(own);
        on_a_thread("the drop", move || {
            assert!(format!("{lease:?} {redlock:?}").contains("job"));
            assert!(lease.remaining() > Duration::ZERO, "the nodes keep the key all the same");
            drop(lease);
            drop(redlock);
        });
        drop(lost);
        // Nobody was there to release it.
        for raw in raws(&masters) {
            masters_runtime.block_on(raw.tell(&["DEL", "job"]));
        }
    }
}

#[test]
fn a_lease_whose_runtime_is_gone_gives_errors_and_does_not_hang() {
    let (_masters_runtime, masters) = masters();
    let own = multi_thread();
    let (redlock, lease) = own.block_on(held(masters.urls()));
    drop(own);
    on_a_thread("what is asked of it", move || {
        current_thread().block_on(async {
            let refused = within(secs(5), "acquire should end", redlock.lease("other").try_acquire()).await;
            assert!(refused.is_err(), "{refused:?}");
            let released = within(secs(5), "release should end", lease.release()).await;
            assert!(released.is_err());
            within(secs(5), "close should end", redlock.close()).await;
        });
    });
}

#[test]
fn with_the_runtime_in_the_same_moment() {
    let (masters_runtime, masters) = masters();
    for _ in 0..5 {
        let own = multi_thread();
        let (redlock, lease) = own.block_on(held(masters.urls()));
        own.spawn(async move {
            let _kept = redlock;
            let _held = lease;
            std::future::pending::<()>().await;
        });
        on_a_thread("the end of the runtime", move || drop(own));
        for raw in raws(&masters) {
            masters_runtime.block_on(raw.tell(&["DEL", "job"]));
        }
    }
}

#[test]
fn in_a_task_that_panics() {
    multi_thread().block_on(async {
        let masters = five().await;
        let (_redlock, lease) = held(masters.urls()).await;
        let panicking = tokio::spawn(async move {
            let _lease = lease;
            panic!("the work failed");
        });
        assert!(panicking.await.unwrap_err().is_panic());
        until_free(&masters, "job").await;
    });
}

#[test]
fn a_hundred_at_once_from_many_threads() {
    multi_thread().block_on(async {
        let masters = five().await;
        let redlock = client(&masters).await;
        let mut leases = Vec::new();
        for number in 0..100 {
            leases.push(hold(&redlock, &format!("job {number}")).await);
        }
        let threads = leases.into_iter().map(|lease| std::thread::spawn(move || drop(lease)));
        for thread in threads.collect::<Vec<_>>() {
            thread.join().unwrap();
        }
        until_empty(&masters).await;
    });
}
