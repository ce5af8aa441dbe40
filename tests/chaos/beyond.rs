//! Outside of what the library assumes, the checker finds what has to happen.

use std::time::Duration;

use futures::future::join_all;

use super::arena::Arena;
use super::checker::{Problem, problems};
use super::crew::Worker;
use super::line::{Event, Line, Step};
use super::moment::Moment;
use super::run::seed;
use super::worker::MAX_TTL;
use crate::common::{ms, secs, until};
use crate::views::until_some;

const WORKERS: u64 = 5;
const TRIES: usize = 5;
/// What a rival needs to reach nodes that were cut off and to win there.
const TIME_TO_WIN: Duration = ms(1_200);

/// Three nodes hold a lease; two of them forget it while its holder is stopped and the other two come back.
/// Returns what is found in `tries` or fewer.
async fn forget(arena: &Arena, guard: bool, tries: usize) -> Vec<Problem> {
    let (seed, end) = (seed(), arena.journal.clock.now().after(secs(60)));
    let start = |index: u64| {
        let orders = arena.orders(seed.wrapping_add(index << 32), end, 1, guard);
        Worker::start(format!("w{index}"), &orders, &arena.journal)
    };
    let workers: Vec<Worker> = (0..WORKERS).map(start).collect();
    for _ in 0..tries {
        forget_once(arena, &workers).await;
        let written = workers.iter().flat_map(Worker::lines);
        let found = problems(&arena.lines().into_iter().chain(written).collect::<Vec<_>>());
        if !found.is_empty() {
            return found;
        }
        // All nodes vote again.
        tokio::time::sleep(MAX_TTL + secs(1)).await;
    }
    Vec::new()
}

async fn forget_once(arena: &Arena, workers: &[Worker<'_>]) {
    let (proxies, masters) = (&arena.proxied.proxies, &arena.proxied.masters);
    for node in [3, 4] {
        arena.tell(node, "Refuse");
        proxies[node].refuse(true);
        proxies[node].cut();
    }
    let cut = arena.journal.clock.now();
    let holder = until_some("somebody should hold a long lease", async || {
        workers.iter().find(|worker| stopped_while_it_holds(arena, worker, cut))
    })
    .await;
    let forget = async |node| {
        arena.tell(node, "Forget");
        masters.restart_empty(node).await.unwrap();
    };
    join_all([0, 1].map(forget)).await;
    for node in [3, 4] {
        proxies[node].heal();
        arena.tell(node, "calm");
    }
    let healed = arena.journal.clock.now();
    let won =
        |line: &Line| line.at > healed && matches!(line.what, Event::Lease { step: Step::Won { .. }, .. });
    until("another should win", async || workers.iter().flat_map(Worker::lines).any(|line| won(&line))).await;
    holder.go_on();
}

/// Stops `worker` if it has just won a lease; only if that was in vain it goes on.
fn stopped_while_it_holds(arena: &Arena, worker: &Worker<'_>, cut: Moment) -> bool {
    if !holds_long(arena, worker, cut) {
        return false;
    }
    worker.stop();
    let holds = holds_long(arena, worker, cut);
    if !holds {
        worker.go_on();
    }
    holds
}

/// Whether `worker` holds a lease that it won after `cut`, with time left for a rival.
fn holds_long(arena: &Arena, worker: &Worker<'_>, cut: Moment) -> bool {
    let enough = arena.journal.clock.now().after(TIME_TO_WIN);
    let last = worker.lines().pop();
    last.is_some_and(|line| {
        let won = matches!(line.what, Event::Lease { step: Step::Won { until, .. }, .. } if until > enough);
        won && line.at > cut
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_the_guard_a_lease_that_two_nodes_forget_is_given_twice_and_found() {
    let arena = Arena::start().await;
    let found = forget(&arena, false, TRIES).await;
    assert!(matches!(found.first(), Some(Problem::Overlap { .. })), "{found:?}");
    arena.tidy_up();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_the_guard_the_same_faults_break_no_promise() {
    let arena = Arena::start().await;
    let found = forget(&arena, true, 2).await;
    assert!(found.is_empty(), "{found:?}");
    arena.tidy_up();
}
