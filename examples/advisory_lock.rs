//! One job, guarded by a lock of PostgreSQL and by a lease: what each does when its holder dies or is paused, and
//! what each costs. Starts three masters, PostgreSQL (or takes the one in `DATABASE_URL`) and the holders itself.
//!
//!     cargo run --example advisory_lock

#[path = "common/postgres.rs"]
mod postgres;
#[path = "common/process.rs"]
mod process;
#[path = "common/timeline.rs"]
mod timeline;

use std::process::ExitCode;
use std::time::{Duration, Instant};

use leasehold::testing::LocalMasters;
use leasehold::{Lease, Redlock};
use postgres::{Database, Postgres};
use process::{Process, answer, orders};
use rustix::process::Signal;
use timeline::{Result, Timeline};
use tokio::time::sleep;
use tokio_postgres::Client;

const JOB: &str = "nightly-report";
const TTL: Duration = Duration::from_secs(1);
/// How long a holder is paused.
const PAUSE: Duration = Duration::from_secs(2);
/// How long the lock of a dead session may take to be free.
const PATIENCE: Duration = Duration::from_secs(30);
/// How many turns are measured of each.
const TURNS: usize = 300;

const CREATE: &str = "CREATE TABLE report (line text NOT NULL)";
/// Held until the transaction ends, whatever way it ends. The number is the key: 64 bits, one set a database.
const TRY_LOCK: &str = "SELECT pg_try_advisory_xact_lock(hashtextextended('nightly-report', 0))";
const WRITE: &str = "INSERT INTO report VALUES ('half of the report')";

#[tokio::main]
async fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    timeline::exit(match args.split_first() {
        Some((first, rest)) if first == "worker" => work(rest).await,
        _ => run().await,
    })
}

async fn run() -> Result<()> {
    let masters = LocalMasters::start(3).await?;
    let postgres = Postgres::start().await?;
    let mut args = vec![postgres.database.url.clone(), postgres.database.schema.clone()];
    args.extend(masters.urls());
    let sql = postgres.database.connect().await?;
    sql.batch_execute(CREATE).await?;
    let redlock = Redlock::connect(masters.urls()).await?;
    let line = Timeline::start();
    line.say("", format!("three masters run, and {}; the lease has a TTL of 1 s", postgres.told));
    advisory(line, &args, &sql).await?;
    lease(line, &args, &sql, &redlock).await?;
    costs(line, &sql, &redlock).await?;
    line.say("", "who has PostgreSQL and works in it: take its lock, or no lock but a constraint");
    line.say(
        "",
        "who works elsewhere, or cannot wait for a holder that hangs: a lease, with a fence where it matters",
    );
    Ok(())
}

async fn advisory(line: Timeline, args: &[String], sql: &Client) -> Result<()> {
    let mut first = Process::start(args)?;
    first.ask("advisory").await?;
    line.say("worker 1", "has PostgreSQL's lock and wrote half of its report, in one transaction");
    let got = try_advisory(sql).await?;
    line.say("worker 2", if got { "has the lock too" } else { "is told that another has it: goes" });
    first.signal(Signal::KILL)?;
    line.say("worker 1", "is killed");
    let waited = until_advisory(sql, PATIENCE).await?.ok_or("the lock of a dead session is not free")?;
    let lines = lines(sql).await?;
    line.say(
        "worker 2",
        format!("has the lock {waited:.1?} later, and finds {lines} lines: the half went with the lock"),
    );

    let mut first = Process::start(args)?;
    first.ask("advisory").await?;
    first.signal(Signal::STOP)?;
    line.say("worker 1", "has the lock again, and is paused for 2 s (SIGSTOP)");
    let got = until_advisory(sql, PAUSE).await?;
    let what = if got.is_some() { "has the lock too" } else { "waits all the time: the lock has no TTL" };
    first.send("commit").await?;
    first.signal(Signal::CONT)?;
    line.say("worker 2", what);
    line.say("worker 1", format!("goes on (SIGCONT) and has {}: nobody came between", first.answer().await?));
    Ok(())
}

async fn lease(line: Timeline, args: &[String], sql: &Client, redlock: &Redlock) -> Result<()> {
    sql.batch_execute("DELETE FROM report").await?;
    let mut first = Process::start(args)?;
    first.ask("lease").await?;
    line.say("worker 1", "has the lease and wrote half of its report");
    let got = redlock.lease(JOB).ttl(TTL).try_acquire().await?;
    line.say(
        "worker 2",
        if got.is_some() { "has the lease too" } else { "is told that another has it: goes" },
    );
    first.signal(Signal::KILL)?;
    line.say("worker 1", "is killed");
    let (lease, waited) = until_lease(redlock).await?;
    let lines = lines(sql).await?;
    line.say(
        "worker 2",
        format!("has the lease {waited:.1?} later (the TTL), and finds {lines} line: the half stayed"),
    );
    lease.release().await?;

    let mut first = Process::start(args)?;
    first.ask("lease").await?;
    first.signal(Signal::STOP)?;
    line.say("worker 1", "has the lease again, and is paused (SIGSTOP)");
    let (lease, waited) = until_lease(redlock).await?;
    line.say("worker 2", format!("has the lease {waited:.1?} later: a holder that hangs holds up nobody"));
    first.send("commit").await?;
    first.signal(Signal::CONT)?;
    line.say(
        "worker 1",
        format!("goes on (SIGCONT) and has {}: two at work, unless a fence stops it", first.answer().await?),
    );
    lease.release().await?;
    Ok(())
}

/// Both from the same place: lock, do nothing, unlock.
async fn costs(line: Timeline, sql: &Client, redlock: &Redlock) -> Result<()> {
    let (mut advisory, mut leases) = (Vec::new(), Vec::new());
    for _ in 0..TURNS {
        let begun = Instant::now();
        if !try_advisory(sql).await? {
            return Err("the lock of PostgreSQL is not free".into());
        }
        advisory.push(begun.elapsed());
        let begun = Instant::now();
        redlock.lease(JOB).ttl(TTL).acquire().await?.release().await?;
        leases.push(begun.elapsed());
    }
    for (what, mut times) in [("lock and unlock", advisory), ("acquire and release", leases)] {
        times.sort();
        let (p50, p99) = (times[TURNS / 2], times[TURNS * 99 / 100]);
        line.say("", format!("{what:19} p50 {p50:.1?}, p99 {p99:.1?} ({TURNS} turns)"));
    }
    line.say("", "all servers are on this machine, the masters sync each write to disk; over a network count 3 round trips to PostgreSQL, and 2 to the quicker half of the masters");
    Ok(())
}

/// Whether the lock was free; it is free again after this.
async fn try_advisory(sql: &Client) -> Result<bool> {
    sql.batch_execute("BEGIN").await?;
    let got = sql.query_one(TRY_LOCK, &[]).await?.get(0);
    sql.batch_execute("COMMIT").await?;
    Ok(got)
}

/// How long it took to get the lock; none if it took longer than `limit`.
async fn until_advisory(sql: &Client, limit: Duration) -> Result<Option<Duration>> {
    let begun = Instant::now();
    while !try_advisory(sql).await? {
        if begun.elapsed() > limit {
            return Ok(None);
        }
        sleep(Duration::from_millis(5)).await;
    }
    Ok(Some(begun.elapsed()))
}

async fn until_lease(redlock: &Redlock) -> Result<(Lease, Duration)> {
    let begun = Instant::now();
    let lease = redlock.lease(JOB).ttl(TTL).acquire().await?;
    Ok((lease, begun.elapsed()))
}

async fn lines(sql: &Client) -> Result<i64> {
    Ok(sql.query_one("SELECT count(*) FROM report", &[]).await?.get(0))
}

/// A holder, a process: takes what it is told, writes, and waits for the order to go on.
async fn work(args: &[String]) -> Result<()> {
    let [url, schema, nodes @ ..] = args else { return Err("too few arguments".into()) };
    let sql = Database { url: url.clone(), schema: schema.clone() }.connect().await?;
    let redlock = Redlock::connect(nodes).await?;
    let (mut held, mut in_transaction) = (None, false);
    for order in orders() {
        match order.as_str() {
            "advisory" => {
                sql.batch_execute("BEGIN").await?;
                if !sql.query_one(TRY_LOCK, &[]).await?.get::<_, bool>(0) {
                    return Err("the lock is not free".into());
                }
                sql.batch_execute(WRITE).await?;
                in_transaction = true;
                answer("held")?;
            }
            "lease" => {
                held = Some(redlock.lease(JOB).ttl(TTL).acquire().await?);
                sql.batch_execute(WRITE).await?;
                answer("held")?;
            }
            _ => {
                sql.batch_execute(WRITE).await?;
                if in_transaction {
                    sql.batch_execute("COMMIT").await?;
                }
                drop(held.take());
                answer("written the other half")?;
            }
        }
    }
    Ok(())
}
