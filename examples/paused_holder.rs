//! The damage that no TTL prevents: a holder is paused beyond its validity and writes all the same. Starts three
//! masters and the two holders, each a process of its own, itself.
//!
//!     cargo run --example paused_holder
//!
//! `fenced_writes` is the same with the remedy.

#[path = "common/process.rs"]
mod process;
#[path = "common/timeline.rs"]
mod timeline;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use leasehold::testing::LocalMasters;
use leasehold::{Lease, Redlock};
use process::{Process, answer, orders};
use rustix::process::Signal;
use timeline::{Result, Timeline};

const KEY: &str = "account:7";
const TTL: Duration = Duration::from_secs(1);

#[tokio::main]
async fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    timeline::exit(match args.split_first() {
        Some((worker, [account, nodes @ ..])) if worker == "worker" => work(account.into(), nodes).await,
        _ => run().await,
    })
}

async fn run() -> Result<()> {
    let masters = LocalMasters::start(3).await?;
    let folder = tempfile::tempdir()?;
    let account = folder.path().join("account");
    write(&account, 100)?;
    let mut args = vec![account.display().to_string()];
    args.extend(masters.urls());
    let (mut first, mut second) = (Process::start(&args)?, Process::start(&args)?);
    let line = Timeline::start();
    line.say(
        "",
        "three masters run; the account (a file) holds 100; two workers add to it under a lease of 1 s",
    );

    let held = first.ask("hold").await?;
    line.say("worker 1", format!("{held}; will add 30"));
    let checked = first.ask("check").await?;
    line.say("worker 1", format!("looks once more before it writes: the lease is {checked}"));
    first.signal(Signal::STOP)?;
    line.say("worker 1", "is paused right there (SIGSTOP), and so is its heartbeat");
    let held = second.ask("hold").await?;
    line.say("worker 2", format!("waited, and now {held}"));
    line.say("worker 2", second.ask("add 50").await?);
    second.ask("release").await?;
    line.say("worker 2", "has released the lease");
    // In this order: it finds the order when it wakes, before it can hear of anything else.
    first.send("add 30").await?;
    first.signal(Signal::CONT)?;
    let wrote = first.answer().await?;
    line.say("worker 1", format!("goes on (SIGCONT) where it was, and {wrote}"));
    let checked = first.ask("check").await?;
    line.say("worker 1", format!("looks again: the lease is {checked}; too late"));

    let balance = read(&account)?;
    line.say("", format!("the account holds {balance}"));
    match 180 - balance {
        0 => line.say("", "nothing was lost"),
        lost => line.say(
            "",
            format!("DAMAGE: it should hold 180; {lost} are lost, both workers were told that all is well"),
        ),
    }
    Ok(())
}

/// One worker, careful as can be: it asks its lease right before it writes. The pause comes after that.
async fn work(account: PathBuf, nodes: &[String]) -> Result<()> {
    let redlock = Redlock::connect(nodes).await?;
    let mut held: Option<(Lease, i64)> = None;
    for order in orders() {
        match (order.split_once(' '), held.take()) {
            (Some((_, amount)), Some((lease, balance))) => {
                let sum = balance + amount.parse::<i64>()?;
                write(&account, sum)?;
                answer(format!("writes {balance} + {amount} = {sum}"))?;
                held = Some((lease, sum));
            }
            (None, Some((lease, _))) if order == "release" => {
                lease.release().await?;
                answer("released")?;
            }
            (None, Some((lease, balance))) => {
                answer(if lease.is_valid() { "valid" } else { "lost" })?;
                held = Some((lease, balance));
            }
            (_, None) => {
                let lease = redlock.lease(KEY).ttl(TTL).acquire().await?;
                let balance = read(&account)?;
                answer(format!("has the lease, reads {balance}"))?;
                held = Some((lease, balance));
            }
        }
    }
    Ok(())
}

fn read(account: &Path) -> Result<i64> {
    Ok(std::fs::read_to_string(account)?.trim().parse()?)
}

fn write(account: &Path, balance: i64) -> Result<()> {
    Ok(std::fs::write(account, format!("{balance}\n"))?)
}
