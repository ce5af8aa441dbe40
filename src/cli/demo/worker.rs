//! A worker of the demo: told of a night, it wants the job, and says what it does, a line each.
//!
//! In: `NIGHT MILLISECONDS`. Out: `NANOSECONDS WORD [REST]`, see [`News`].

use std::io::Write as _;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use leasehold::{AcquireError, LeaseLost, Redlock};
use tokio::io::{AsyncBufReadExt as _, BufReader};

use super::crew::News;
use super::{KEY, TTL};
use crate::cli::exit::{Code, Failure};
use crate::cli::watch::now;

/// A worker of the demo
#[derive(Debug, Args)]
pub(crate) struct WorkerArgs {
    /// Where the reports are
    folder: PathBuf,
    /// The nodes
    nodes: Vec<String>,
}

pub(crate) fn main(args: &WorkerArgs) -> Code {
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return Failure::system("start the runtime", error).report(),
    };
    let worked = runtime.block_on(work(args));
    // Standard input is read by a thread that does not end.
    runtime.shutdown_background();
    match worked {
        Ok(()) => Code::SUCCESS,
        Err(failure) => failure.report(),
    }
}

/// Until nobody says anything any more.
async fn work(args: &WorkerArgs) -> Result<(), Failure> {
    let redlock =
        Redlock::builder().nodes(args.nodes.clone()).max_ttl(Duration::from_secs(3)).connect().await?;
    say(&News::Ready);
    let mut orders = BufReader::new(tokio::io::stdin()).lines();
    while let Ok(Some(order)) = orders.next_line().await {
        let mut numbers = order.split(' ').filter_map(|number| number.parse::<u64>().ok());
        let (Some(night), Some(millis)) = (numbers.next(), numbers.next()) else { break };
        let report = args.folder.join(format!("report-{night}"));
        if let Err(error) = want(&redlock, &report, Duration::from_millis(millis)).await {
            say(&News::Failed(error));
        }
    }
    redlock.close().await;
    Ok(())
}

/// Wants the job of one night.
async fn want(redlock: &Redlock, report: &PathBuf, millis: Duration) -> Result<(), String> {
    let lease = redlock.lease(KEY).ttl(TTL).acquire().await;
    let lease = lease.map_err(|error: AcquireError| format!("got no lease: {error}"))?;
    say(&News::Held { validity: lease.remaining() });
    // Only who has the lease may look: the report is not there and will not be until it is written here.
    if report.exists() {
        say(&News::Nothing);
    } else {
        say(&News::Begun);
        let written = lease.protect(async {
            tokio::time::sleep(millis).await;
            std::fs::File::create_new(report)
        });
        let written = written.await.map_err(|lost: LeaseLost| lost.to_string())?;
        written.map_err(|error| format!("cannot write the report: {error}"))?;
        say(&News::Done);
    }
    // Before the first master can hear of it.
    say(&News::Over);
    // One that is not confirmed runs out by itself.
    let _ = lease.release().await;
    Ok(())
}

fn say(news: &News) {
    let mut stdout = std::io::stdout().lock();
    // Who started this process may be gone; it will be told by the end of its standard input.
    let _ = writeln!(stdout, "{} {news}", now().as_nanos());
    let _ = stdout.flush();
}
