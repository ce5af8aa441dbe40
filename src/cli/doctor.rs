//! `leasehold doctor`: whether the nodes are fit to be a fleet, and what mends them.
//!
//! - `facts.rs`: what is known of each node
//! - `finding.rs`: what follows from it, in order: `voting.rs` who can vote, `memory.rs` what they remember,
//!   `timing.rs` clocks and round trips
//! - `table.rs`, `json.rs`: how it is shown; `redis_cli.rs`: commands that mend

mod facts;
mod finding;
mod json;
mod memory;
mod redis_cli;
mod table;
mod timing;
mod voting;

use std::time::{Duration, Instant};

use clap::Args;
use leasehold::Redlock;

use super::exit::{Code, Failure, deliver};
use super::nodes::NodeArgs;
use facts::{Facts, Fleet};
use finding::{Finding, Weight, findings, heaviest};

/// How many round trips are measured to each node.
const ROUND_TRIPS: usize = 200;
/// How many in a row, before it is seen whether time is left.
const AT_ONCE: usize = 10;
/// How long they may take.
const PATIENCE: Duration = Duration::from_secs(5);

const MORE: &str = "\
It looks only: nothing is written to the nodes, and no lease is taken. Give it the nodes, the namespace and
the longest TTL that the clients use, or it will say that they differ.

Exit codes:
  0    leases can be had; warnings were said
  1    clients cannot be started with these nodes: one of them may not vote (a replica, the same server as
       another, a cluster node, a sentinel); or, with --strict, there is a warning
  2    wrong usage: an option, an address
  69   no lease can be had now: fewer than a majority of the nodes can vote";

/// Check the nodes: whether they may vote, what they remember, how fast they are
///
/// Shows each node, then what was found, the heaviest first, with the command or setting that mends it.
#[derive(Debug, Args)]
#[command(after_long_help = MORE, after_help = "See --help for more: exit codes.")]
pub(crate) struct DoctorArgs {
    #[command(flatten)]
    nodes: NodeArgs,

    /// Print one JSON object
    #[arg(long)]
    json: bool,

    /// End with 1 if there is a warning
    #[arg(long)]
    strict: bool,
}

pub(crate) fn main(args: &DoctorArgs) -> Code {
    doctor(args).unwrap_or_else(Failure::report)
}

fn doctor(args: &DoctorArgs) -> Result<Code, Failure> {
    let runtime = super::runtime()?;
    let fleet = runtime.block_on(examine(&args.nodes))?;
    // Names that are still being resolved.
    runtime.shutdown_background();
    let findings = findings(&fleet);
    deliver(&if args.json {
        json::text(&fleet, &findings)
    } else {
        table::text(&fleet, &findings, table::colours_are_welcome())
    })?;
    Ok(code(&fleet, &findings, args.strict))
}

async fn examine(args: &NodeArgs) -> Result<Fleet, Failure> {
    let redlock = args.observe().await?;
    let times = round_trips(&redlock).await;
    let nodes = redlock.nodes().into_iter().zip(times).zip(args.addresses());
    Ok(Fleet {
        nodes: nodes.map(|((status, times), url)| Facts::new(status, &times, url)).collect(),
        node_timeout: args.node_timeout,
        max_ttl: args.max_ttl,
    })
}

/// Round trips to each node, few or none to one that does not answer.
async fn round_trips(redlock: &Redlock) -> Vec<Vec<Duration>> {
    let begun = Instant::now();
    let mut all: Vec<Vec<Duration>> = vec![Vec::new(); redlock.nodes().len()];
    for _ in 0..ROUND_TRIPS / AT_ONCE {
        for (known, times) in all.iter_mut().zip(redlock.round_trips(AT_ONCE).await) {
            known.extend(times.into_iter().flatten());
        }
        if begun.elapsed() > PATIENCE {
            break;
        }
    }
    all
}

fn code(fleet: &Fleet, findings: &[Finding], strict: bool) -> Code {
    match heaviest(findings) {
        _ if !fleet.has_quorum() => Code::TOO_FEW_NODES,
        Weight::Error => Code::FAILURE,
        Weight::Warning if strict => Code::FAILURE,
        Weight::Warning | Weight::Note => Code::SUCCESS,
    }
}

#[cfg(test)]
mod tests;
