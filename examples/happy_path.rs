//! Several workers want one job, and it is done once. Starts three masters itself.
//!
//!     cargo run --example happy_path

#[path = "common/timeline.rs"]
mod timeline;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use leasehold::testing::LocalMasters;
use leasehold::{Lease, Redlock, ReleaseError};
use timeline::{Result, Timeline};
use tokio::time::sleep;

const JOB: &str = "nightly-report";

#[tokio::main]
async fn main() -> ExitCode {
    timeline::exit(run().await)
}

async fn run() -> Result<()> {
    let masters = LocalMasters::start(3).await?;
    let folder = tempfile::tempdir()?;
    let (line, report) = (Timeline::start(), folder.path().join("report"));
    line.say("", "three masters run; four workers want the job \"nightly-report\"");

    let (first, second, third) = (client(&masters).await?, client(&masters).await?, client(&masters).await?);
    let lease = first.lease(JOB).acquire().await?;
    line.say("worker 1", format!("has the lease, valid for {:.1?} and renewed meanwhile", lease.remaining()));
    // Both come while worker 1 is at work: one goes, one waits.
    tokio::try_join!(
        work(line, lease, report.clone()),
        goes(line, second, &report),
        waits(line, third, &report)
    )?;

    let late = client(&masters).await?.lease(JOB).acquire().await?;
    let what = if report.exists() { "finds the report: nothing to do" } else { "finds no report" };
    line.say("worker 4", format!("comes after all of them, has the lease, and {what}"));
    late.release().await?;
    let reports = std::fs::read_to_string(&report)?.lines().count();
    line.say("", format!("the report was written {reports} time"));
    compare_and_delete(line, &masters).await
}

async fn client(masters: &LocalMasters) -> Result<Redlock> {
    Ok(Redlock::builder().nodes(masters.urls()).connect().await?)
}

/// The job: dropped if the lease is lost, so that two never work at once.
async fn work(line: Timeline, lease: Lease, report: PathBuf) -> Result<()> {
    let writing = async {
        sleep(Duration::from_millis(500)).await;
        append(&report)
    };
    lease.protect(writing).await??;
    line.say("worker 1", "has written the report");
    lease.release().await?;
    line.say("worker 1", "has released the lease");
    Ok(())
}

/// For work that another does just as well.
async fn goes(line: Timeline, redlock: Redlock, report: &Path) -> Result<()> {
    match redlock.lease(JOB).try_acquire().await? {
        Some(_) => append(report),
        None => {
            line.say("worker 2", "another has the lease: goes");
            Ok(())
        }
    }
}

/// For who needs the result.
async fn waits(line: Timeline, redlock: Redlock, report: &Path) -> Result<()> {
    line.say("worker 3", "waits for the lease, for 10 s at most");
    let lease = redlock.lease(JOB).wait(Duration::from_secs(10)).acquire().await?;
    // Only who has the lease may look: nobody writes the report now.
    if report.exists() {
        line.say("worker 3", "has the lease, finds the report: nothing to do");
    } else {
        append(report)?;
    }
    lease.release().await?;
    Ok(())
}

fn append(report: &Path) -> Result<()> {
    let mut file = std::fs::File::options().create(true).append(true).open(report)?;
    Ok(std::io::Write::write_all(&mut file, b"the report\n")?)
}

/// Why a release is no plain DEL: who comes too late must not take away what is another's.
async fn compare_and_delete(line: Timeline, masters: &LocalMasters) -> Result<()> {
    let (first, second) = (client(masters).await?, client(masters).await?);
    let request = first.lease(JOB).ttl(Duration::from_millis(500)).without_heartbeat();
    let late = request.acquire().await?;
    line.say("worker 1", "has the lease for 0.5 s, does not renew it, and works on for longer");
    let current = second.lease(JOB).acquire().await?;
    line.say("worker 2", "has the lease now");
    match late.release().await {
        Err(ReleaseError::Lost(lost)) => {
            line.say("worker 1", format!("releases too late, and is told: {lost}"))
        }
        outcome => line.say("worker 1", format!("releases: {outcome:?}")),
    }
    let connection = redis::Client::open(masters.url(0))?.get_multiplexed_async_connection().await;
    let value: Option<String> = redis::cmd("GET").arg(JOB).query_async(&mut connection?).await?;
    let whose =
        if value == Some(current.token().to_string()) { "worker 2's token still" } else { "something else" };
    line.say("", format!("the key on the first master holds {whose}: compare-and-delete"));
    current.release().await?;
    Ok(())
}
