//! What happened, a line each, with the time since the beginning.

use std::error::Error;
use std::io::Write as _;
use std::process::ExitCode;
use std::time::Instant;

pub(crate) type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

#[derive(Clone, Copy)]
pub(crate) struct Timeline {
    begun: Instant,
}

impl Timeline {
    pub(crate) fn start() -> Self {
        Self { begun: Instant::now() }
    }

    pub(crate) fn say(&self, who: &str, what: impl std::fmt::Display) {
        let seconds = self.begun.elapsed().as_secs_f64();
        // Nobody may read it any more.
        let _ = writeln!(std::io::stdout(), "{seconds:7.3} s  {who:<9}  {what}");
    }
}

/// What `main` returns: an error is told in a sentence, not as a value of Rust.
pub(crate) fn exit(result: Result<()>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}
