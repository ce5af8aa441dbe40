//! What can go wrong with local servers and proxies.

use std::path::PathBuf;
use std::process::ExitStatus;
use std::time::Duration;

/// Why a local server or a proxy could not do what was asked of it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TestingError {
    /// There is no server to start.
    #[error(
        "no `redis-server` and no `valkey-server` on PATH: install one (`apt-get install redis-server`, \
         `brew install redis`) or set LEASEHOLD_SERVER to the path of one"
    )]
    NoServer,

    /// The server program that was named is not there or may not be run.
    #[error("the server `{path}` is no program that can be run: look at LEASEHOLD_SERVER", path = path.display())]
    NotAProgram {
        /// The path that was tried.
        path: PathBuf,
    },

    /// The server ended before it answered.
    #[error("the server on port {port} ended ({status}) before it answered; its log ends with:\n{log}")]
    Exited {
        /// The port it was to listen on.
        port: u16,
        /// How it ended.
        status: ExitStatus,
        /// The last lines of its log.
        log: String,
    },

    /// Another process listens on the port that the server had.
    #[error("port {port} was taken by another process while the server was down")]
    PortTaken {
        /// The port.
        port: u16,
    },

    /// The server runs but does not answer.
    #[error("the server on port {port} did not answer within {within:?}; its log ends with:\n{log}")]
    NotReady {
        /// The port it listens on.
        port: u16,
        /// How long it was waited for.
        within: Duration,
        /// The last lines of its log.
        log: String,
    },

    /// The server did not obey a signal in time.
    #[error("the server on port {port} did not obey SIG{signal} within {within:?}")]
    NotObeyed {
        /// The port it listens on.
        port: u16,
        /// The signal's name without `SIG`.
        signal: &'static str,
        /// How long it was waited for.
        within: Duration,
    },

    /// The server was asked for something that only a running one can do.
    #[error("master {index} is not running")]
    NotRunning {
        /// Which master, from 0.
        index: usize,
    },

    /// There are fewer masters than that.
    #[error("there is no master {index}: {count} were started, counted from 0")]
    NoSuchMaster {
        /// The index that was asked for.
        index: usize,
        /// How many there are.
        count: usize,
    },

    /// The operating system refused something.
    #[error("cannot {what}")]
    Io {
        /// What was being done.
        what: &'static str,
        /// The system's own error.
        source: std::io::Error,
    },
}

impl TestingError {
    /// For `map_err`: an I/O error with what was being done.
    pub(super) fn io(what: &'static str) -> impl FnOnce(std::io::Error) -> TestingError {
        move |source| TestingError::Io { what, source }
    }
}
