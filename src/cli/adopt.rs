//! `leasehold adopt`: declares the fleet new.

use std::io::{BufRead as _, IsTerminal as _};

use clap::Args;
use leasehold::NodeStatus;

use super::exit::{Code, Failure, print, say, write_error};
use super::nodes::{NodeArgs, trouble};

const MORE: &str = "\
A node that is new or was restarted may have forgotten leases, and does not vote before all of them must be
over (--max-ttl). Where every node is new, clients see that by themselves. Where one is missing they cannot
know that it is not the only one that remembers: then this says it for them, and the nodes that are
connected vote at once. It also writes this set of nodes into their markers, as a change of the set needs.

Only where no lease can be held: one that a node has forgotten could be given to a second holder. Give it
the nodes, the namespace and the longest TTL that the clients use.

Exit codes:
  0    a majority of the nodes was adopted
  1    the confirmation was not given; nothing was changed
  2    wrong usage: an option, an address, no terminal to ask at and no --yes
  69   fewer than a majority of the nodes was adopted";

/// Declare the nodes new, so that all that are connected vote at once
///
/// For a new fleet of which a node is missing. Only where no lease can be held. Asks for confirmation.
#[derive(Debug, Args)]
#[command(after_long_help = MORE, after_help = "See --help for more: when it is safe, exit codes.")]
pub(crate) struct AdoptArgs {
    #[command(flatten)]
    nodes: NodeArgs,

    /// Do not ask: no lease can be held on these nodes
    #[arg(long)]
    yes: bool,
}

pub(crate) fn main(args: &AdoptArgs) -> Code {
    adopt(args).unwrap_or_else(Failure::report)
}

fn adopt(args: &AdoptArgs) -> Result<Code, Failure> {
    if !args.yes && !std::io::stdin().is_terminal() {
        let why = "adopt asks for confirmation, and standard input is no terminal: give --yes, and only \
                   where no lease can be held on these nodes";
        return Err(Failure::usage(why));
    }
    let runtime = super::runtime()?;
    if !args.yes {
        let nodes = runtime.block_on(look(&args.nodes))?;
        if !confirmed(&nodes)? {
            say("nothing was changed");
            return Ok(Code::FAILURE);
        }
    }
    let code = runtime.block_on(declare(&args.nodes));
    // Names that are still being resolved.
    runtime.shutdown_background();
    code
}

/// The nodes as they are, before anything is written.
async fn look(args: &NodeArgs) -> Result<Vec<NodeStatus>, Failure> {
    let redlock = args.observe().await?;
    Ok(redlock.nodes())
}

/// Asks at the terminal.
fn confirmed(nodes: &[NodeStatus]) -> Result<bool, Failure> {
    write_error(&question(nodes));
    let mut answer = String::new();
    let read = std::io::stdin().lock().read_line(&mut answer);
    read.map_err(|error| Failure::system("read the answer", error))?;
    Ok(answer.trim() == "yes")
}

fn question(nodes: &[NodeStatus]) -> String {
    let line = |node: &NodeStatus| {
        format!("{}: {}\n", node.address, trouble(node).as_deref().unwrap_or("votes already"))
    };
    let lines: String = nodes.iter().map(line).collect();
    format!(
        "{lines}\nAdopting makes all of them that are connected vote at once. A lease that one of them has\n\
         forgotten could then be given twice: go on only where no lease can be held, by any client of these\n\
         nodes. Type yes to go on: "
    )
}

async fn declare(args: &NodeArgs) -> Result<Code, Failure> {
    let redlock = args.connect().await?;
    args.tried(&redlock).await;
    let outcomes = redlock.adopt().await;
    let mut adopted = 0;
    for (node, outcome) in redlock.nodes().iter().zip(&outcomes) {
        let what = match outcome {
            Ok(()) => "adopted".to_owned(),
            Err(error) => format!("not adopted: {}", error.reason()),
        };
        adopted += usize::from(outcome.is_ok());
        print(&format!("{}: {what}\n", node.address));
    }
    let (all, needed) = (outcomes.len(), outcomes.len() / 2 + 1);
    if adopted < needed {
        let message = format!("{adopted} of {all} nodes were adopted, {needed} are needed for a lease");
        return Err(Failure::new(Code::TOO_FEW_NODES, message));
    }
    Ok(Code::SUCCESS)
}
