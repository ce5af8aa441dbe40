//! The `leasehold` command. Uses the public API of the crate only.

mod cli;

fn main() -> std::process::ExitCode {
    cli::main().into()
}
