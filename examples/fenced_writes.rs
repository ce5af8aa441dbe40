//! The late write of a paused holder is refused: by PostgreSQL with a `fence` column in the condition of the
//! UPDATE, by Redis with a script. Starts three masters, one more Redis as a store, PostgreSQL (or takes the one in
//! `DATABASE_URL`) and the workers itself.
//!
//!     cargo run --example fenced_writes

#[path = "fenced_writes/accounts.rs"]
mod accounts;
#[path = "common/postgres.rs"]
mod postgres;
#[path = "common/process.rs"]
mod process;
#[path = "common/timeline.rs"]
mod timeline;
#[path = "fenced_writes/worker.rs"]
mod worker;

use std::process::ExitCode;
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use accounts::Accounts;
use leasehold::testing::LocalMasters;
use postgres::Postgres;
use process::Process;
use rand::RngExt as _;
use rustix::process::{Pid, Signal, kill_process};
use timeline::{Result, Timeline};
use tokio::time::sleep;

const ROUNDS: usize = 200;
const WORKERS: usize = 3;

#[tokio::main]
async fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    timeline::exit(match args.split_first() {
        Some((first, rest)) if first == "worker" => worker::work(rest).await,
        _ => run().await,
    })
}

async fn run() -> Result<()> {
    let (masters, store) = (LocalMasters::start(3).await?, LocalMasters::start(1).await?);
    let postgres = Postgres::start().await?;
    let mut args = vec![postgres.database.url.clone(), postgres.database.schema.clone(), store.url(0)];
    args.extend(masters.urls());
    let mut accounts = Accounts::connect(&postgres.database, &store.url(0)).await?;
    accounts.create().await?;
    let line = Timeline::start();
    line.say("", format!("three masters run, a Redis as a store, and {}", postgres.told));
    late_write(line, &args, &mut accounts).await?;
    random_pauses(line, &args, &mut accounts).await
}

/// The story of `paused_holder`, with fences.
async fn late_write(line: Timeline, args: &[String], accounts: &mut Accounts) -> Result<()> {
    line.say("", "an account in each store holds 100; two workers add to both under a lease of 1 s");
    let (mut first, mut second) = (Process::start(args)?, Process::start(args)?);
    let held = first.ask("hold 1000").await?;
    line.say("worker 1", format!("has the lease; fence and balances: {held}; will add 30"));
    first.signal(Signal::STOP)?;
    line.say("worker 1", "is paused (SIGSTOP), and so is its heartbeat");
    let held = second.ask("hold 1000").await?;
    line.say("worker 2", format!("has the lease; fence and balances: {held}; will add 50"));
    line.say("worker 2", format!("writes: {}", told(&second.ask("add 50").await?)));
    second.ask("release").await?;
    first.send("add 30").await?;
    first.signal(Signal::CONT)?;
    let written = first.answer().await?;
    line.say("worker 1", format!("goes on (SIGCONT) and writes too: {}", told(&written)));
    let [sql, stored] = accounts.balances().await?;
    line.say(
        "",
        format!(
            "PostgreSQL holds {sql}, Redis {stored}: the 50 are there, and worker 1 knows that its 30 are not"
        ),
    );
    Ok(())
}

/// `true` or `false` for PostgreSQL and for Redis.
fn told(written: &str) -> String {
    let told = |word| if word == "true" { "took it" } else { "REFUSED it" };
    let (sql, stored) = written.split_once(' ').unwrap_or((written, ""));
    format!("PostgreSQL {}, Redis {}", told(sql), told(stored))
}

#[derive(Default)]
struct Counts {
    rounds: AtomicUsize,
    /// Who got the lease last.
    holder: AtomicUsize,
    /// Rounds in which the account was not even read.
    turned_away: AtomicUsize,
    /// What PostgreSQL and Redis took, and refused.
    taken: [AtomicI64; 2],
    refused: [AtomicI64; 2],
}

async fn random_pauses(line: Timeline, args: &[String], accounts: &mut Accounts) -> Result<()> {
    line.say(
        "",
        format!(
            "{WORKERS} workers add 1 each, {ROUNDS} rounds, under a lease of 100 ms, and are paused at random"
        ),
    );
    let before = accounts.balances().await?;
    let counts = Counts::default();
    let mut workers = (0..WORKERS).map(|_| Process::start(args)).collect::<Result<Vec<_>>>()?;
    let pids = workers.iter().map(Process::pid).collect::<Result<Vec<_>>>()?;
    let rounds = workers.iter_mut().enumerate().map(|(index, worker)| rounds(index, worker, &counts));
    let working = futures::future::try_join_all(rounds);
    let (begun, pauses) = (Instant::now(), AtomicUsize::new(0));
    tokio::select! {
        done = working => drop(done?),
        failed = pause(&pids, &counts, &pauses) => failed?,
    }
    let (after, pauses) = (accounts.balances().await?, pauses.into_inner());
    let turned_away = counts.turned_away.load(Ordering::Relaxed);
    line.say(
        "",
        format!(
            "{ROUNDS} rounds, {pauses} pauses in {:.1?}; {turned_away} came too late to read",
            begun.elapsed()
        ),
    );
    for (index, store) in ["PostgreSQL", "Redis"].iter().enumerate() {
        let count = |counts: &[AtomicI64; 2]| counts[index].load(Ordering::Relaxed);
        let (taken, refused) = (count(&counts.taken), count(&counts.refused));
        // Each write that was taken added 1 to what it had read: a stale one would have undone another.
        let stale = taken - (after[index] - before[index]);
        line.say("", format!("{store}: {taken} writes taken, {refused} late ones refused, {stale} stale"));
    }
    Ok(())
}

/// Stops a worker for a while, again and again: three times in four the one that holds the lease.
async fn pause(pids: &[Pid], counts: &Counts, pauses: &AtomicUsize) -> Result<()> {
    let millis = |range| Duration::from_millis(rand::rng().random_range(range));
    loop {
        sleep(millis(1..30)).await;
        let holder = counts.holder.load(Ordering::Relaxed);
        let any = rand::rng().random_range(0..pids.len());
        let pid = pids[if rand::rng().random_ratio(3, 4) { holder } else { any }];
        kill_process(pid, Signal::STOP)?;
        pauses.fetch_add(1, Ordering::Relaxed);
        sleep(millis(20..400)).await;
        kill_process(pid, Signal::CONT)?;
    }
}

async fn rounds(index: usize, worker: &mut Process, counts: &Counts) -> Result<()> {
    while counts.rounds.fetch_add(1, Ordering::Relaxed) < ROUNDS {
        if worker.ask("hold 100").await? == "refused" {
            counts.turned_away.fetch_add(1, Ordering::Relaxed);
            continue;
        }
        counts.holder.store(index, Ordering::Relaxed);
        sleep(Duration::from_millis(rand::rng().random_range(0..25))).await;
        let written = worker.ask("add 1").await?;
        for (index, written) in written.split(' ').take(2).enumerate() {
            let counts = if written == "true" { &counts.taken } else { &counts.refused };
            counts[index].fetch_add(1, Ordering::Relaxed);
        }
        worker.ask("release").await?;
    }
    Ok(())
}
