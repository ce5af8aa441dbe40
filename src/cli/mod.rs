//! The command line: what can be said, and who does it.
//!
//! - `run.rs`: `leasehold run`: wait for the lease, start CMD, give the lease back
//! - `supervise.rs`: the time in which CMD runs; `watch.rs` looks after the lease, `limits.rs` says when
//!   CMD must go, `group.rs` is its process group, `terminal.rs` its terminal
//! - `signals.rs`: signals that are passed on, or end the wait
//! - `doctor.rs`: `leasehold doctor`; `adopt.rs`: `leasehold adopt`
//! - `demo.rs`: `leasehold demo`
//! - `nodes.rs`, `duration.rs`, `exit.rs`: options that all commands share, exit codes

mod adopt;
mod demo;
mod doctor;
mod duration;
mod exit;
mod group;
mod limits;
mod nodes;
mod run;
mod signals;
mod supervise;
mod terminal;
mod watch;

use clap::{Parser, Subcommand};

use exit::{Code, Failure};

const EXIT_CODES: &str = "\
Exit codes:
  2    wrong usage: an option, an address, the key
  69   too few nodes answered
  75   the key is held by another
  76   the lease was lost, and CMD was ended for it
  else see the command";

/// One of many machines does the work: leases on a majority of independent Redis masters.
#[derive(Debug, Parser)]
#[command(name = "leasehold", version, after_help = EXIT_CODES, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    Run(run::RunArgs),
    Doctor(doctor::DoctorArgs),
    Adopt(adopt::AdoptArgs),
    Demo(demo::DemoArgs),
    #[command(hide = true)]
    DemoWorker(demo::WorkerArgs),
}

/// Reads the arguments and does what they say.
pub(crate) fn main() -> Code {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return refuse(&error),
    };
    match cli.action {
        Action::Run(args) => run::main(args),
        Action::Doctor(args) => doctor::main(&args),
        Action::Adopt(args) => adopt::main(&args),
        Action::Demo(args) => demo::main(&args),
        Action::DemoWorker(args) => demo::worker_main(&args),
    }
}

/// What a command runs on that has no processes to look after.
fn runtime() -> Result<tokio::runtime::Runtime, Failure> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.map_err(|error| Failure::system("start the runtime", error))
}

/// Help and version, or what is wrong with the arguments.
fn refuse(error: &clap::Error) -> Code {
    if error.use_stderr() {
        // clap repeats arguments, and an address among them may hold a password.
        exit::write_error(&exit::without_secrets(&error.render().to_string()));
        return Code::USAGE;
    }
    // A reader that went away has seen enough.
    let _ = error.print();
    Code::SUCCESS
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    #[test]
    fn the_arguments_make_sense_to_clap() {
        super::Cli::command().debug_assert();
    }
}
