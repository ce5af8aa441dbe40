//! Why a node gave no vote.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// Why one node gave no vote: its address, a kind for programs and a reason for people.
///
/// Never shows a password, nor a whole token.
#[derive(Clone, Debug)]
pub struct NodeError {
    address: Arc<str>,
    kind: NodeErrorKind,
    reason: Arc<str>,
    /// Whether the command may have been run all the same.
    maybe_applied: bool,
    /// When the node may vote, if that is known.
    ready_in: Option<Duration>,
}

/// What kept a node from voting.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum NodeErrorKind {
    /// No connection could be made.
    Unreachable,
    /// The first connection is still being made.
    Connecting,
    /// The connection broke before the answer came.
    ConnectionLost,
    /// No answer within the node timeout.
    TimedOut,
    /// Not asked: earlier answers are overdue.
    Slow,
    /// It restarted or is new, and may have forgotten leases that are still valid.
    Young,
    /// Not counted: its memory was emptied since it was checked.
    Emptied,
    /// It may not vote at all, see [`Refusal`](crate::Refusal).
    Refused,
    /// Not counted: its clock was stepped forward since it was last asked.
    ClockStepped,
    /// Not counted: something older may still be under way on a broken connection.
    Unsettled,
    /// User name or password missing or wrong (`NOAUTH`, `WRONGPASS`).
    Authentication,
    /// The user may not run the command or touch the key (`NOPERM`).
    NoPermission,
    /// The key holds another type of value (`WRONGTYPE`); it was left as it is.
    WrongType,
    /// The server is a replica (`READONLY`).
    ReadOnly,
    /// The server is loading its data (`LOADING`).
    Loading,
    /// The server refuses writes because it cannot persist them (`MISCONF`).
    CannotPersist,
    /// The server is out of memory (`OOM`).
    OutOfMemory,
    /// The server is part of a cluster (`MOVED`, `CROSSSLOT`, `CLUSTERDOWN`).
    Cluster,
    /// The server does not know a script by its hash.
    NoScript,
    /// Any other error of the server.
    Server,
    /// An answer that makes no sense for the command.
    Unexpected,
    /// The lease or round is over; nothing was sent.
    Over,
}

impl NodeError {
    pub(crate) fn new(address: &Arc<str>, kind: NodeErrorKind, reason: impl Into<Arc<str>>) -> Self {
        Self { address: address.clone(), kind, reason: reason.into(), maybe_applied: false, ready_in: None }
    }

    /// A node that may have forgotten leases, for so much longer.
    pub(crate) fn young(address: &Arc<str>, ready_in: Duration) -> Self {
        let seconds = ready_in.as_secs() + 1;
        let reason = format!("new or restarted: it may have forgotten leases and votes in {seconds} s");
        Self { ready_in: Some(ready_in), ..Self::new(address, NodeErrorKind::Young, reason) }
    }

    /// The same error of a command that may have been run all the same.
    pub(crate) fn after_sending(mut self) -> Self {
        self.maybe_applied = true;
        self
    }

    /// The same error of a command that was not even sent.
    pub(crate) fn unsent(mut self) -> Self {
        self.maybe_applied = false;
        self
    }

    /// The same error of a command of which `other` is the outcome.
    pub(crate) fn sent_as(self, other: &Self) -> Self {
        Self { maybe_applied: other.maybe_applied, ..self }
    }

    pub(crate) fn maybe_applied(&self) -> bool {
        self.maybe_applied
    }

    /// The node's address, without user and password.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// What kept the node from voting.
    pub fn kind(&self) -> NodeErrorKind {
        self.kind
    }

    /// How long until the node may vote, where that is known: of a node that is young.
    pub fn ready_in(&self) -> Option<Duration> {
        self.ready_in
    }

    /// The reason in words.
    pub fn reason(&self) -> &str {
        &self.reason
    }
}

impl fmt::Display for NodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.address, self.reason)
    }
}

impl std::error::Error for NodeError {}
