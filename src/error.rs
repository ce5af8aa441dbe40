//! What can go wrong, one enum an operation.
//!
//! *Held by another* and *too few nodes answered* are never one error: the first is an ordinary answer,
//! the second says that nobody can tell.

use std::fmt;
use std::time::Duration;

use crate::key::Key;
use crate::node::{NodeError, Refusal};
use crate::validity::drift;

/// Why [`connect`](crate::Builder::connect) failed: something that is wrong in itself and that no
/// waiting mends. Nodes that are down are no error.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// The future is not awaited within a tokio runtime.
    #[error("there is no tokio runtime here: await connect() within one, with I/O and time enabled")]
    NoRuntime,
    /// No node was given.
    #[error("no node was given: name at least one address, better three or five")]
    NoNodes,
    /// An address cannot be read or not be used. Passwords are not shown.
    #[error("bad address of node {position} ({address}): {reason}")]
    BadAddress {
        /// Which of the given addresses, counted from 1.
        position: usize,
        /// The address without user and password.
        address: String,
        /// What is wrong with it, and what would be right.
        reason: String,
    },
    /// Two addresses name one server, which would then vote twice.
    #[error("nodes {first} and {second} are one server ({address}): each node must be a master of its own")]
    SameNode {
        /// The first of them, counted from 1.
        first: usize,
        /// The second of them, counted from 1.
        second: usize,
        /// The address without user and password.
        address: String,
    },
    /// A node answered, and may not vote.
    #[error("node {position} ({address}) cannot be used: {refusal}")]
    Refused {
        /// Which of the given addresses, counted from 1.
        position: usize,
        /// The address without user and password.
        address: String,
        /// Why, and what to do.
        refusal: Refusal,
    },
    /// An option makes no sense, or not beside another.
    #[error("{option}: {reason}")]
    InvalidOption {
        /// The name of the builder's method.
        option: &'static str,
        /// What is wrong with it.
        reason: String,
    },
}

/// What is wrong with a request; nothing was sent.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidRequest {
    /// The TTL leaves no validity once the drift allowance (1 % + 2 ms) is taken off.
    #[error(
        "a TTL of {ttl:?} leaves no validity: {:?} of it are taken off for clock drift; use at least 4 ms, \
         better ten times the round trip's p99",
        drift(*ttl)
    )]
    TtlTooShort {
        /// The TTL that was asked.
        ttl: Duration,
    },
    /// The TTL is longer than the nodes' clients have agreed on.
    #[error(
        "a TTL of {ttl:?} is above max_ttl ({max_ttl:?}): use a shorter one (a heartbeat keeps the lease), \
         or raise max_ttl for every client of these nodes"
    )]
    TtlTooLong {
        /// The TTL that was asked.
        ttl: Duration,
        /// The longest that may be asked.
        max_ttl: Duration,
    },
    /// The key has no byte.
    #[error("the key is empty")]
    EmptyKey,
    /// The key is one of the library's own.
    #[error("the key `{key}` is reserved: keys that begin with `leasehold:` belong to the library")]
    ReservedKey {
        /// The key that was asked.
        key: Key,
    },
    /// `lease_all` was given no key.
    #[error("no key was given to lease_all")]
    NoKeys,
    /// The renewal interval leaves no time for a second try.
    #[error(
        "a renewal every {interval:?} is too seldom or too often for a TTL of {ttl:?}: \
         use between 1 ms and half of the TTL (the default is a third)"
    )]
    RenewalInterval {
        /// The interval that was asked.
        interval: Duration,
        /// The TTL that was asked.
        ttl: Duration,
    },
    /// [`Redlock::close`](crate::Redlock::close) was called.
    #[error("this Redlock was closed")]
    Closed,
    /// The client was made by [`Builder::observe_only`](crate::Builder::observe_only).
    #[error("this Redlock only observes its nodes: leases need one that was built without observe_only()")]
    ObserveOnly,
    /// The operating system gave no random bytes for a token.
    #[error("the operating system's random generator failed: {reason}")]
    NoRandomness {
        /// What it said.
        reason: String,
    },
}

/// The nodes that did not vote in a round, each with its address and reason.
#[derive(Clone, Debug, Default)]
pub struct NodeErrors(Vec<NodeError>);

impl NodeErrors {
    /// The failed nodes, in the order of their addresses in the builder.
    pub fn iter(&self) -> std::slice::Iter<'_, NodeError> {
        self.0.iter()
    }

    /// How many nodes failed.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether no node failed.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl FromIterator<NodeError> for NodeErrors {
    fn from_iter<I: IntoIterator<Item = NodeError>>(errors: I) -> Self {
        Self(errors.into_iter().collect())
    }
}

impl<'a> IntoIterator for &'a NodeErrors {
    type Item = &'a NodeError;
    type IntoIter = std::slice::Iter<'a, NodeError>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl fmt::Display for NodeErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, error) in self.0.iter().enumerate() {
            if index > 0 {
                f.write_str("; ")?;
            }
            error.fmt(f)?;
        }
        Ok(())
    }
}

/// Fewer than a quorum of the nodes gave a usable answer: nobody can tell who holds the key.
#[derive(Clone, Debug, thiserror::Error)]
#[error("too few nodes can vote: {} of {nodes} failed, {needed} must vote ({failed})", .failed.len())]
#[non_exhaustive]
pub struct TooFewNodes {
    /// How many nodes are configured.
    pub nodes: usize,
    /// How many answers were needed.
    pub needed: usize,
    /// How many nodes had answered when it was certain that too few would.
    pub answered: usize,
    /// Those that did not, and why.
    pub failed: NodeErrors,
}

impl TooFewNodes {
    /// How long until enough nodes may vote, if all that is missing is that they grow old enough.
    pub fn ready_in(&self) -> Option<Duration> {
        let able = self.nodes - self.failed.len();
        let missing = self.needed.saturating_sub(able);
        let mut young: Vec<Duration> = self.failed.iter().filter_map(NodeError::ready_in).collect();
        young.sort_unstable();
        young.get(missing.checked_sub(1)?).copied()
    }
}

/// Why an `acquire` gave no lease. No key of the attempt stays behind.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AcquireError {
    /// The request is wrong in itself; nothing was sent.
    #[error(transparent)]
    InvalidRequest(#[from] InvalidRequest),
    /// The key was held by others for the whole wait.
    #[error("`{key}` was held by another for the whole wait of {waited:?}")]
    TimedOut {
        /// The (first) key that was asked.
        key: Key,
        /// How long the call waited.
        waited: Duration,
    },
    /// Fewer than a quorum of nodes answered.
    #[error(transparent)]
    NoQuorum(#[from] TooFewNodes),
}

/// Why an `extend` did not move the deadline. The old deadline stands.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ExtendError {
    /// The lease is over.
    #[error(transparent)]
    Lost(#[from] LeaseLost),
    /// Fewer than a quorum of nodes answered in time; what is held stays held until the old deadline.
    #[error(transparent)]
    NoQuorum(#[from] TooFewNodes),
    /// The TTL is wrong in itself; nothing was sent.
    #[error(transparent)]
    InvalidRequest(#[from] InvalidRequest),
}

/// Why a `release` could not be confirmed. The deletions were sent and are still owed by the nodes that
/// did not confirm; the key runs out within the TTL in any case.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReleaseError {
    /// The lease was over before it was released: another may have held the key meanwhile.
    #[error(transparent)]
    Lost(#[from] LeaseLost),
    /// Fewer than a quorum of nodes confirmed the release in time.
    #[error(transparent)]
    NoQuorum(#[from] TooFewNodes),
}

/// Why [`Redlock::with_lease`](crate::Redlock::with_lease) has no result.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WithLeaseError {
    /// There was no lease; the work was not begun.
    #[error(transparent)]
    Acquire(#[from] AcquireError),
    /// The lease was lost while the work ran; the work was dropped where it stood.
    #[error(transparent)]
    Lost(#[from] LeaseLost),
}

/// A lease is over although its holder did not end it.
#[derive(Clone, Debug, thiserror::Error)]
#[error("the lease on `{key}` was lost: {reason}")]
#[non_exhaustive]
pub struct LeaseLost {
    /// The (first) key of the lease.
    pub key: Key,
    /// Why.
    pub reason: LossReason,
}

/// Why a lease was lost.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LossReason {
    /// Its validity ended before it could be renewed.
    #[error("its validity ended{}", after(.failed))]
    Expired {
        /// What the nodes said to the last renewal that failed; empty if none was tried or all answered.
        failed: NodeErrors,
    },
    /// So many nodes no longer have the key that no quorum holds it.
    #[error("too many nodes no longer hold it ({denied} of {nodes})")]
    Denied {
        /// How many nodes hold it no more, or never did.
        denied: usize,
        /// How many nodes are configured.
        nodes: usize,
    },
    /// [`Redlock::close`](crate::Redlock::close) gave it back.
    #[error("the Redlock was closed")]
    Closed,
}

fn after(failed: &NodeErrors) -> String {
    if failed.is_empty() { String::new() } else { format!(" before it could be renewed ({failed})") }
}
