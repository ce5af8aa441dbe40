//! What is on its way, and when it arrives.

use std::fmt;

use tokio::sync::oneshot;

use super::ledger::short;
use super::nemesis::Event as Scheduled;
use crate::node::{Command, Marker, NodeError, Report, Target, Vote};

/// What a client asks of a node.
#[derive(Clone, Debug)]
pub(crate) enum Ask {
    /// INFO and the like: the greeting of a new connection, and every later look.
    Report,
    Mark(Box<Marker>),
    Kill(u64),
    Command(Command),
}

/// What the node tells.
#[derive(Clone, Debug)]
pub(crate) enum Told {
    Report(Box<Report>),
    Marker(Box<Marker>),
    Done,
    Vote(Vote, u64),
    Error(NodeError),
}

impl fmt::Display for Told {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Report(report) => match &report.marker {
                Some(Some(marker)) => write!(f, "marker {marker}"),
                Some(None) | None => f.write_str("no marker"),
            },
            Self::Marker(marker) => write!(f, "marker {marker}"),
            Self::Done => f.write_str("done"),
            Self::Vote(vote, _) => write!(f, "{vote:?}"),
            Self::Error(error) => write!(f, "{error}"),
        }
    }
}

pub(crate) type Answer = oneshot::Sender<Told>;

/// On its way to a node.
pub(crate) struct Request {
    pub(crate) ask: Ask,
    pub(crate) answer: Answer,
    pub(crate) sent: u64,
}

/// The longest that a single message takes, in microseconds.
pub(crate) const LONGEST: u64 = 2_000_000;

pub(crate) enum What {
    Arrive {
        link: usize,
        request: Request,
    },
    /// `None` says that the server has closed the connection.
    Return {
        link: usize,
        told: Told,
        answer: Option<Answer>,
    },
    Scheduled(Scheduled),
}

pub(crate) struct Event {
    pub(crate) at: u64,
    pub(crate) serial: u64,
    pub(crate) what: What,
}

impl PartialEq for Event {
    fn eq(&self, other: &Self) -> bool {
        (self.at, self.serial) == (other.at, other.serial)
    }
}

impl Eq for Event {}

impl PartialOrd for Event {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Event {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at, self.serial).cmp(&(other.at, other.serial))
    }
}

/// A command as a line of history.
pub(crate) fn shown(ask: &Ask) -> String {
    let command = match ask {
        Ask::Report => return "looks".to_owned(),
        Ask::Mark(marker) => return format!("marks {marker}"),
        Ask::Kill(number) => return format!("kills connection {number}"),
        Ask::Command(command) => command,
    };
    let of = |target: &Target| {
        let keys: Vec<String> = target.keys.iter().map(|key| key.escape_ascii().to_string()).collect();
        format!("{} {}", keys.join("+"), short(target.token.as_str()))
    };
    match command {
        Command::Acquire { target, ttl } => format!("acquire {} for {} ms", of(target), ttl.millis()),
        Command::Grant { target, ttl, fence } => {
            format!("grant {} for {} ms, fence {fence}", of(target), ttl.millis())
        }
        Command::Heal { target, ttl, .. } => format!("heal {} for {} ms", of(target), ttl.millis()),
        Command::Extend { target, ttl, .. } => format!("extend {} to {} ms", of(target), ttl.millis()),
        Command::Delete { target } => format!("delete {}", of(target)),
        Command::Ping => "ping".to_owned(),
    }
}
