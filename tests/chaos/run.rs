//! The long run, within what the library assumes.

use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};

use super::arena::Arena;
use super::checker::problems;
use super::crew::Worker;
use super::line::Line;
use super::nemesis::{FAULTS, trouble_nodes, trouble_workers};
use super::summary::Summary;
use super::worker::LONGEST_TTL;
use crate::common::{secs, until_empty, within};

const WORKERS: usize = 8;
const KEYS: usize = 3;
const DEFAULT_SECONDS: u64 = 60;
/// Each key changes hands far more often, also on a loaded machine.
const SECONDS_FOR_A_WIN: u64 = 6;

fn from_environment(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|value| value.parse().expect("a number"))
}

/// The dice of this run, which a failure has to name.
pub(super) fn seed() -> u64 {
    let seed = from_environment("LEASEHOLD_SEED").unwrap_or_else(|| rand::rng().random());
    println!("LEASEHOLD_SEED={seed}");
    seed
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_leases_never_overlap_whatever_happens_to_a_minority() {
    let seconds = from_environment("LEASEHOLD_CHAOS_SECONDS").unwrap_or(DEFAULT_SECONDS);
    let mut dice = StdRng::seed_from_u64(seed());
    let arena = Arc::new(Arena::start().await);
    let (lines, looked) = play(&arena, &mut dice, secs(seconds)).await;
    let summary = Summary::of(&lines);
    println!("{summary}\n{looked} looks at nodes for what dead holders have left");
    assert_kept(&lines);
    for number in 1..=KEYS {
        let wins = summary.wins.get(&format!("job-{number}")).copied().unwrap_or_default() as u64;
        assert!(wins >= seconds / SECONDS_FOR_A_WIN, "job-{number} was won {wins} times in {seconds} s");
    }
    if seconds >= DEFAULT_SECONDS {
        assert_all_was_done(&summary);
        assert!(looked > 0, "no holder was killed");
    }
    arena.tidy_up();
}

/// Each kind of fault, and enough of what is done to workers: the decks see to it.
fn assert_all_was_done(summary: &Summary) {
    let never: Vec<_> = FAULTS.iter().filter(|fault| summary.faults(&format!("{fault:?}")) == 0).collect();
    assert!(never.is_empty(), "no node had {never:?}");
    for blow in ["killed", "stopped", "continued"] {
        let count = summary.count(blow);
        assert!(count >= 3, "workers were {blow} {count} times");
    }
}

/// Has the workers contend under all troubles for `span`. Returns what was written and how often it was
/// looked at what the dead have left.
async fn play(arena: &Arc<Arena>, dice: &mut StdRng, span: Duration) -> (Vec<Line>, usize) {
    let end = arena.journal.clock.now().after(span);
    let mut next = || StdRng::seed_from_u64(dice.random());
    let (first, second, third, fourth) = (next(), next(), next(), next());
    let start = |index| {
        let orders = arena.orders(dice.random(), end, KEYS, true);
        Worker::start(format!("w{index}"), &orders, &arena.journal)
    };
    let mut workers: Vec<Worker> = (0..WORKERS).map(start).collect();
    let (here, there) = workers.split_at_mut(WORKERS / 2);
    // Two of each: a minority of the nodes is in trouble at a time.
    let (graves, more_graves, (), ()) = tokio::join!(
        trouble_workers(arena, here, first, end),
        trouble_workers(arena, there, second, end),
        trouble_nodes(arena, third, end),
        trouble_nodes(arena, fourth, end),
    );
    let ended = join_all(workers.into_iter().map(Worker::end)).await;
    let quiet = arena.journal.clock.now();
    let mut looked = 0;
    for graves in [graves, more_graves] {
        looked += graves.join_all().await.into_iter().sum::<usize>();
    }
    arena.journal.clock.sleep_until(quiet.after(LONGEST_TTL)).await;
    within(secs(2), "no key should be left one TTL later", until_empty(&arena.proxied.masters)).await;
    let lines = arena.lines().into_iter().chain(ended.into_iter().flatten());
    (lines.collect(), looked)
}

/// Fails if anything in `lines` breaks a promise.
fn assert_kept(lines: &[Line]) {
    let problems = problems(lines);
    problems.iter().for_each(|problem| println!("{problem}"));
    assert!(problems.is_empty(), "{} promises were broken", problems.len());
}
