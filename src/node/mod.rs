//! One independent master, as the algorithm sees it. The only rooms that name the redis crate are here.
//!
//! [`Node`] is what the algorithm calls. Below it lies the one seam between algorithm and network:
//! [`Connector`] and [`Connection`], of which `connection.rs` has the real one and the testing room one
//! in memory. What is between (the phases of a node, the order of its queue, what it owes) is the same
//! for both.
//!
//! - `handle.rs`: submitting votes and deletions, in call order
//! - `reply.rs`: awaiting an answer, and what becomes of one that nobody awaits
//! - `state.rs`: phases, the connection in use, answers outstanding
//! - `debts.rs`: deletions that are not confirmed yet
//! - `supervisor.rs`: the task that connects, watches and pays
//! - `entry.rs`: what a new connection goes through before it may vote; `report.rs`, `marker.rs`,
//!   `admission.rs`: who the node is, and since when it remembers (pure); `clock_watch.rs`: whether its
//!   clock was stepped (pure); `roster.rs`: all nodes together
//! - `alarm.rs`: what the server tells without being asked
//! - `connection.rs`, `interview.rs`, `command.rs`, `address.rs`, `failure.rs`, `tls.rs`: Redis

pub(crate) mod address;
mod admission;
mod alarm;
mod clock_watch;
mod command;
pub(crate) mod connection;
mod debts;
mod entry;
mod failure;
mod handle;
mod interview;
mod marker;
mod reply;
mod report;
mod roster;
mod state;
mod status;
mod supervisor;
#[cfg(feature = "tls")]
pub(crate) mod tls;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures::future::BoxFuture;

use crate::clock::Timestamp;
use crate::proposal::Unfit;
use crate::sabotage::{self, Sabotage};
use crate::token::Token;
use crate::validity::Ttl;

pub use admission::{NodeWarning, Refusal};
pub(crate) use alarm::Alarm;
pub use failure::{NodeError, NodeErrorKind};
pub(crate) use handle::{Deletion, Node, Timing};
pub(crate) use marker::Marker;
pub(crate) use reply::Reply;
pub(crate) use report::Report;
#[cfg(feature = "testing")]
pub(crate) use report::Role;
pub(crate) use roster::Roster;
pub use status::{NodeState, NodeStatus};

/// The keys of one attempt and the token that marks them.
#[derive(Debug)]
pub(crate) struct Target {
    /// Full names on the nodes; one, or several sorted ones for `lease_all`.
    pub(crate) keys: Vec<Vec<u8>>,
    pub(crate) token: Token,
    /// Where the highest fence of each key is kept; none if the lease is not fenced.
    pub(crate) records: Vec<Vec<u8>>,
    /// How long the records are kept.
    pub(crate) record_ttl: Duration,
    /// Set when release, drop or loss has begun: from then on nothing is sent but deletions.
    over: AtomicBool,
}

impl Target {
    pub(crate) fn new(keys: Vec<Vec<u8>>, token: Token) -> Self {
        Self { keys, token, records: Vec::new(), record_ttl: Duration::ZERO, over: AtomicBool::new(false) }
    }

    /// The same with a fence.
    pub(crate) fn fenced(mut self, records: Vec<Vec<u8>>, record_ttl: Duration) -> Self {
        self.records = records;
        self.record_ttl = record_ttl;
        self
    }

    /// No vote is sent for this target any more.
    pub(crate) fn end(&self) {
        if sabotage::has(Sabotage::NeverOver) {
            return;
        }
        self.over.store(true, Ordering::SeqCst);
    }

    pub(crate) fn is_over(&self) -> bool {
        self.over.load(Ordering::SeqCst)
    }
}

/// What a node is asked.
#[derive(Clone, Debug)]
pub(crate) enum Command {
    /// Set the keys if they are free: `SET key token NX PX ttl`.
    Acquire { target: Arc<Target>, ttl: Ttl },
    /// The same with a fence, which is granted with the keys or not at all.
    Grant { target: Arc<Target>, ttl: Ttl, fence: u64 },
    /// The same on a node that lost or never had what a quorum holds; its fence goes along.
    Heal { target: Arc<Target>, ttl: Ttl, fence: Option<u64> },
    /// Renew the TTL if the keys hold the token.
    Extend {
        target: Arc<Target>,
        ttl: Ttl,
        /// When a TTL this long was first asked.
        grown: Timestamp,
        /// When this node was last asked for it: its clock must not have been stepped since.
        since: Timestamp,
    },
    /// Delete the keys that hold the token.
    Delete { target: Arc<Target> },
    /// Say anything.
    Ping,
}

impl Command {
    /// Whether a yes says that the node now holds the keys.
    fn sets(&self) -> bool {
        matches!(self, Self::Acquire { .. } | Self::Grant { .. } | Self::Heal { .. } | Self::Extend { .. })
    }

    /// Whether the command is a vote of a target that is over and must not be sent.
    fn is_over(&self) -> bool {
        if sabotage::has(Sabotage::ZombieHeartbeat) {
            return false;
        }
        match self {
            Self::Acquire { target, .. }
            | Self::Grant { target, .. }
            | Self::Heal { target, .. }
            | Self::Extend { target, .. } => target.is_over(),
            Self::Delete { .. } | Self::Ping => false,
        }
    }
}

/// A node's word on a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Vote {
    /// Done: set, renewed, deleted.
    Yes,
    /// Not done: held by another, not held by us, not there.
    No,
    /// Not done: the fence that was proposed does not fit.
    Unfit(Unfit),
}

/// A vote, or why there is none.
pub(crate) type Answer = Result<Vote, NodeError>;

/// An answer, and the node's TIME just before it where that was asked along.
#[derive(Clone, Debug)]
pub(crate) struct Heard {
    pub(crate) answer: Answer,
    /// In microseconds.
    pub(crate) time: Option<u64>,
}

impl From<Answer> for Heard {
    fn from(answer: Answer) -> Self {
        Self { answer, time: None }
    }
}

/// How a command is put to a server that may lack what is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// The shortest that the connection is known to understand.
    Best,
    /// A script by its hash, although there would be a command.
    Script,
    /// A script by its text.
    ScriptText,
}

/// How a connection to one node is made.
pub(crate) trait Connector: Send + Sync + 'static {
    fn connect(&self) -> BoxFuture<'_, Result<Arc<dyn Connection>, NodeError>>;
}

/// One connection to one node: answers come in the order of submission.
pub(crate) trait Connection: Send + Sync + 'static {
    /// Sends `command` before it returns, behind all that was submitted before; dropping the future
    /// does not take the command back. After [`close`](Self::close) it resolves to an error. A renewal asks
    /// for the node's TIME along.
    fn submit(&self, command: &Command, form: Form) -> BoxFuture<'static, Heard>;

    /// The form to put `command` in after `form` failed with `error`, if there is one.
    fn next_form(&self, _command: &Command, _form: Form, _error: &NodeError) -> Option<Form> {
        None
    }

    /// What the node said of itself when the connection was made.
    fn report(&self) -> &Report;

    /// What the server tells without being asked.
    fn alarm(&self) -> &Arc<Alarm>;

    /// The native commands in use on it.
    fn native(&self) -> Vec<&'static str> {
        Vec::new()
    }

    /// Asks for what may have changed of it.
    fn look(&self) -> BoxFuture<'static, Result<Report, NodeError>>;

    /// Writes the node's marker, unless one of the same run remembers longer. Returns what stands.
    fn mark(&self, marker: &Marker) -> BoxFuture<'static, Result<Marker, NodeError>>;

    /// Makes the server forget another of its connections, and what it has not yet run of it.
    fn kill(&self, client: u64) -> BoxFuture<'static, Result<(), NodeError>>;

    /// Resolves when the connection is gone.
    fn closed(&self) -> BoxFuture<'static, ()>;

    /// Ends the connection; outstanding futures resolve to errors.
    fn close(&self);
}
