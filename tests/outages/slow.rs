//! One bad node among five does not change the time of acquire, extend and release by more than noise.
//!
//! A client of five good nodes and one with a bad node among them take turns, so that both see the
//! same machine; their medians are compared.

use std::time::{Duration, Instant};

use leasehold::Redlock;
use leasehold::testing::{Direction, FaultProxy, LocalMasters};

use crate::common::*;

/// More than noise makes of medians that were measured in turns; a wait for the bad node makes far more.
const FACTOR: u32 = 4;
const TURNS: usize = 60;

#[derive(Default)]
struct Times {
    acquire: Vec<Duration>,
    extend: Vec<Duration>,
    release: Vec<Duration>,
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}

impl Times {
    async fn take(&mut self, redlock: &Redlock, key: &str) {
        let started = Instant::now();
        let lease = redlock.lease(key).ttl(secs(30)).without_heartbeat().acquire().await.unwrap();
        let acquired = Instant::now();
        lease.extend(secs(30)).await.unwrap();
        let extended = Instant::now();
        lease.release().await.unwrap();
        self.acquire.push(acquired - started);
        self.extend.push(extended - acquired);
        self.release.push(extended.elapsed());
    }

    fn medians(self) -> [(&'static str, Duration); 3] {
        [
            ("acquire", median(self.acquire)),
            ("extend", median(self.extend)),
            ("release", median(self.release)),
        ]
    }
}

/// Masters, a proxy before the first of them, and clients of all, one of which goes through the proxy.
struct Pair {
    masters: LocalMasters,
    proxy: FaultProxy,
    good: Redlock,
    bad: Redlock,
}

impl Pair {
    async fn start() -> Self {
        let masters = five().await;
        let proxy = FaultProxy::start(masters.addr(0)).await.unwrap();
        let good = client(&masters).await;
        let mut urls = masters.urls();
        urls[0] = proxy.url();
        let bad = connect(Redlock::builder().nodes(urls)).await;
        Self { masters, proxy, good, bad }
    }

    async fn compare(&self) {
        let (mut good, mut bad) = (Times::default(), Times::default());
        for turn in 0..TURNS {
            good.take(&self.good, &format!("good {turn}")).await;
            bad.take(&self.bad, &format!("bad {turn}")).await;
        }
        for ((what, good), (_, bad)) in good.medians().into_iter().zip(bad.medians()) {
            println!("{what}: {good:?} with five good nodes, {bad:?} with a bad one");
            assert!(bad < good * FACTOR, "{what}: {bad:?} with a bad node, {good:?} without");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_with_latency_costs_no_time() {
    let pair = Pair::start().await;
    pair.proxy.latency(Direction::ToServer, ms(100));
    pair.proxy.latency(Direction::ToClient, ms(100));
    pair.compare().await;
    // The slow node has all of it all the same.
    for turn in 0..TURNS {
        until_free(&pair.masters, format!("bad {turn}")).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_with_more_latency_than_the_node_timeout_costs_no_time() {
    let pair = Pair::start().await;
    pair.proxy.latency(Direction::ToServer, ms(900));
    pair.compare().await;
    for turn in 0..TURNS {
        until_free(&pair.masters, format!("bad {turn}")).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_black_hole_costs_no_time() {
    let pair = Pair::start().await;
    pair.proxy.black_hole();
    pair.compare().await;
    pair.proxy.heal();
    for turn in 0..TURNS {
        until_free(&pair.masters, format!("bad {turn}")).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_closed_port_costs_no_time() {
    let pair = Pair::start().await;
    pair.proxy.refuse(true);
    pair.proxy.cut();
    until_first_known_down(&pair.bad, 1).await;
    pair.compare().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_goes_up_and_down_costs_no_time() {
    let pair = Pair::start().await;
    let cutting = async {
        loop {
            pair.proxy.cut();
            tokio::time::sleep(ms(20)).await;
        }
    };
    tokio::select! {
        () = pair.compare() => {}
        () = cutting => {}
    }
    for turn in 0..TURNS {
        until_free(&pair.masters, format!("bad {turn}")).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sixteen_tasks_get_as_much_done_with_a_black_hole_as_without() {
    let pair = Pair::start().await;
    pair.proxy.black_hole();
    let (mut good, mut bad) = (0, 0);
    for turn in 0..3 {
        good += work_of_sixteen(&pair.good, &format!("good {turn}")).await;
        bad += work_of_sixteen(&pair.bad, &format!("bad {turn}")).await;
    }
    println!("{good} leases with five good nodes, {bad} with a black hole among them");
    assert!(bad * 2 > good, "{bad} leases with a black hole, {good} without");
}

/// How many leases sixteen tasks, each on a key of its own, take and give back within a time.
async fn work_of_sixteen(redlock: &Redlock, name: &str) -> usize {
    let end = Instant::now() + ms(700);
    let tasks = (0..16).map(|task| {
        let (redlock, key) = (redlock.clone(), format!("{name} {task}"));
        tokio::spawn(async move {
            let mut done = 0;
            while Instant::now() < end {
                redlock.lease(&key).ttl(secs(30)).acquire().await.unwrap().release().await.unwrap();
                done += 1;
            }
            done
        })
    });
    let done = futures::future::join_all(tasks).await;
    done.into_iter().map(Result::unwrap).sum()
}
