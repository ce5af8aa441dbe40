//! `leasehold run`: a command under a lease.

use std::ffi::OsString;
use std::io::ErrorKind;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::process::Command;
use std::time::Duration;

use clap::Args;
use leasehold::{Lease, NodeStatus, NodeWarning, Redlock};

use super::duration;
use super::exit::{Code, Failure, say};
use super::limits::Limits;
use super::nodes::NodeArgs;
use super::signals::Signals;
use super::supervise::{Outcome, Supervisor};
use super::terminal::Terminal;

/// How long the end waits until nodes have confirmed deletions. A node that is down would hold it up for
/// nothing: its key runs out by itself.
const CLOSE_PATIENCE: Duration = Duration::from_millis(300);

const MORE: &str = "\
What happens:
  CMD is started once the lease is held, as a process group of its own, with LEASEHOLD_KEY and
  LEASEHOLD_TOKEN in its environment, and LEASEHOLD_FENCE with --fenced. The lease is renewed for as long as CMD runs, then released.

  When the lease is lost or cannot be renewed, the whole group gets TERM, and KILL after the grace, so
  that it is gone before the validity ends; the exit code is 76 then, whatever CMD says. What leaves the
  group (setsid, daemons) is not ended. Processes that CMD leaves behind in its group when it ends have a
  second to finish, then they are ended in the same way, before the lease is released.

  HUP, INT, QUIT, TERM, USR1, USR2 and WINCH are passed on to the group. While the lease is waited for,
  HUP, INT, QUIT and TERM end the wait, and CMD is never started. Ctrl-Z stops CMD and leasehold: if the
  lease is lost by the time they go on, CMD is killed.

What it cannot do:
  A leasehold that is killed with KILL or stopped with STOP looks after nothing: CMD runs on, and the lease
  ends within the TTL. The same is true of a CMD that it may not signal, as with sudo.

  LEASEHOLD_NODES is passed on to CMD, so that it can ask for leases itself; what --nodes names is not. Where
  it holds passwords that CMD should not see: leasehold run KEY -- env -u LEASEHOLD_NODES CMD…

Exit codes:
  CMD's own; 128 + n if CMD died of signal n, or if the wait was ended by signal n
  2    wrong usage: an option, an address, the key
  69   too few nodes answered
  75   the key was held by another for the whole wait
  76   the lease was lost, and CMD was ended for it
  126  CMD could not be started
  127  CMD was not found";

/// Run a command under a lease: one machine at a time
///
/// Waits for the lease on KEY, runs CMD, and gives the lease back.
#[derive(Debug, Args)]
#[command(after_long_help = MORE, after_help = "See --help for more: signals, what is ended when, exit codes.")]
pub(crate) struct RunArgs {
    /// What is to be held by one at a time
    #[arg(value_name = "KEY")]
    key: OsString,

    /// The command and its arguments, after `--`
    #[arg(value_name = "CMD", last = true, required = true)]
    command: Vec<OsString>,

    #[command(flatten)]
    nodes: NodeArgs,

    /// How soon another may start if this machine dies; the lease is renewed at a third of it
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = duration::parse)]
    ttl: Duration,

    /// Pass a fencing token on in LEASEHOLD_FENCE: a number greater than that of every earlier holder
    #[arg(long)]
    fenced: bool,

    /// How long to wait while others hold the lease: 0 tries once, `forever` never gives up
    ///
    /// Where too few nodes answer, nobody can tell who holds it: that is waited for a second only.
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = duration::parse_wait)]
    wait: Duration,

    /// Time between TERM and KILL for a command that must end; at most a third of the TTL [default: a
    /// quarter of the TTL, at most 5s]
    #[arg(long, value_name = "TIME", value_parser = duration::parse)]
    grace: Option<Duration>,
}

pub(crate) fn main(args: RunArgs) -> Code {
    // Before the runtime starts its threads.
    Terminal::prepare();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let runtime = match runtime {
        Ok(runtime) => runtime,
        Err(error) => return Failure::system("start the runtime", error).report(),
    };
    let code = runtime.block_on(run(args)).unwrap_or_else(Failure::report);
    // Names that are still being resolved, messages that nobody reads.
    runtime.shutdown_background();
    code
}

async fn run(args: RunArgs) -> Result<Code, Failure> {
    let limits = Limits::new(args.ttl, args.grace).map_err(Failure::usage)?;
    let mut signals = Signals::listen().map_err(|error| Failure::system("listen to signals", error))?;
    let redlock = tokio::select! {
        biased;
        signal = signals.ending() => return Ok(Code::of_signal(signal.as_raw())),
        redlock = args.nodes.connect() => redlock?,
    };
    let result = with_nodes(&redlock, args, limits, &mut signals).await;
    // What is still owed then runs out by itself.
    let _ = tokio::time::timeout(CLOSE_PATIENCE, redlock.close()).await;
    result
}

async fn with_nodes(
    redlock: &Redlock,
    args: RunArgs,
    limits: Limits,
    signals: &mut Signals,
) -> Result<Code, Failure> {
    let lease = tokio::select! {
        biased;
        signal = signals.ending() => return Ok(Code::of_signal(signal.as_raw())),
        lease = obtain(redlock, &args) => lease?,
    };
    warn_of_others(redlock);
    let result = if let Some(signal) = signals.arrived() {
        // It came just as the lease was won.
        Ok(Code::of_signal(signal.as_raw()))
    } else {
        under_lease(redlock, &lease, &args, limits, signals).await
    };
    let released = lease.release().await;
    match (&result, released) {
        (Ok(code), Err(error)) if *code != Code::LOST => {
            say(&format!("warning: the lease was not released, it runs out by itself: {error}"));
        }
        // That it could not be kept was said.
        _ => {}
    }
    result
}

/// A lease that does not exclude those whom it should is worth a word.
fn warn_of_others(redlock: &Redlock) {
    let nodes = redlock.nodes();
    let warned = |node: &&NodeStatus| node.warnings.contains(&NodeWarning::OtherFleet);
    if let Some(node) = nodes.iter().find(warned) {
        say(&format!("warning: {}: {}", node.address, NodeWarning::OtherFleet));
    }
}

async fn obtain(redlock: &Redlock, args: &RunArgs) -> Result<Lease, Failure> {
    let mut request = redlock.lease(args.key.clone().into_vec()).ttl(args.ttl).wait(args.wait);
    if args.fenced {
        request = request.fenced();
    }
    if !args.wait.is_zero() {
        return Ok(request.acquire().await?);
    }
    let held = || {
        let key = args.key.as_bytes().escape_ascii();
        Failure::new(Code::HELD, format!("`{key}` is held by another, and --wait 0 tries once"))
    };
    request.try_acquire().await?.ok_or_else(held)
}

/// Runs the command; says what its end means.
async fn under_lease(
    redlock: &Redlock,
    lease: &Lease,
    args: &RunArgs,
    limits: Limits,
    signals: &mut Signals,
) -> Result<Code, Failure> {
    let Some((program, arguments)) = args.command.split_first() else {
        return Err(Failure::usage("no command: name it after `--`"));
    };
    if lease.remaining() <= limits.term_at() {
        let message = format!("too little is left of the lease on `{}`: CMD was not started", lease.key());
        return Err(Failure::new(Code::LOST, message));
    }
    let mut command = Command::new(program);
    command.args(arguments).env("LEASEHOLD_KEY", &args.key).env("LEASEHOLD_TOKEN", lease.token().as_str());
    match lease.fence() {
        Some(fence) => command.env("LEASEHOLD_FENCE", fence.to_string()),
        // That of a lease around this one is not of this one.
        None => command.env_remove("LEASEHOLD_FENCE"),
    };
    let supervisor = Supervisor::start(&mut command, redlock, lease, limits, signals).map_err(|error| {
        let code = if error.kind() == ErrorKind::NotFound { Code::NOT_FOUND } else { Code::NOT_EXECUTABLE };
        Failure::new(code, format!("cannot run `{}`: {error}", program.to_string_lossy()))
    })?;
    Ok(match supervisor.run().await {
        Outcome::Ended(exit) => exit.code(),
        Outcome::Lost => Code::LOST,
    })
}
