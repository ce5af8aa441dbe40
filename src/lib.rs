//! A Redlock client: a lease held on a quorum of independent Redis (or Valkey) masters.
//!
//! ```no_run
//! use leasehold::Redlock;
//! use std::time::Duration;
//!
//! # async fn nightly_report() {}
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let redlock = Redlock::builder()
//!     .nodes(["redis://10.0.0.1:6379", "redis://10.0.0.2:6379", "redis://10.0.0.3:6379"])
//!     .namespace("billing:")
//!     .connect()
//!     .await?;
//!
//! let lease = redlock.lease("nightly-report").ttl(Duration::from_secs(10)).acquire().await?;
//! lease.protect(nightly_report()).await?; // dropped if the lease is lost
//! lease.release().await?;
//! # Ok(())
//! # }
//! ```
//!
//! # What it does not promise
//!
//! A lease is a promise for a time, not a mutex. It suits work where a rare double run is a nuisance
//! (*performance*: a report computed twice). Where a double run is damage (*correctness*: money moved
//! twice), the resource itself must refuse the second, because
//!
//! - a process that is paused acts on after its validity has ended, and nothing on its side can prevent it;
//! - nodes that lose keys while they run (FLUSHALL, eviction, a failover to a replica) can grant one key
//!   twice, if enough of them do so at once;
//! - clocks that jump, here or on the nodes, break the measure of time that all of this stands on;
//! - clients that were given different sets of nodes do not exclude each other.
//!
//! Often no lock is needed at all: a local transaction, a unique constraint or an idempotent handler does
//! more with less. [Which lock?](which_lock) helps to choose.
//!
//! # What it promises
//!
//! Assumed: at most a minority of the nodes fails at a time; a node loses keys only by a restart; clocks run
//! within 0.5 % of each other; all clients of a key use the same nodes. Then
//!
//! - two leases on one key never have overlapping validity;
//! - a holder is told of a loss no later than the end of its validity ([`Lease::lost`]), also when every
//!   node hangs; after a suspend within a second of waking;
//! - the key of a holder that died is free within the TTL; a live one keeps it while a quorum of the nodes
//!   that hold it stays up;
//! - an attempt that failed or was dropped leaves no key behind on any node that can be reached again.
//!
//! With [`fenced`](LeaseRequest::fenced) each later holder's [`fence`](Lease::fence) is greater than every
//! earlier one's, for the resource to check: see [`fence`](mod@fence).
//!
//! # How it works
//!
//! *Acquire* sends `SET key token NX PX ttl` to all nodes at once and decides at the quorum of the
//! configured nodes, for or against. Validity is TTL − elapsed − (TTL × 1 % + 2 ms), measured from before
//! the first send, on a clock that goes on while the machine is suspended. A round that is lost, dropped or
//! late is undone on every node that did not answer "held by another"; a deletion is owed until the node
//! confirms it. *Extend* renews on every node and counts those that still hold the token; it is decided
//! before the previous deadline or not at all, and no node is ever asked for a shorter time than before.
//! Nodes that lost the key get it back while a quorum holds it. *Release* compares and deletes on every
//! node. The rules are those of the [Redlock specification]; where this crate is stricter, the rooms of the
//! source say why.
//!
//! [Redlock specification]: https://redis.io/docs/latest/develop/clients/patterns/distributed-locks/
//!
//! # Which nodes may vote
//!
//! Each new connection is checked: no replica, no cluster, no sentinel, no server twice. A node that
//! restarted and may have forgotten leases does not vote on an acquire for
//! [`max_ttl`](Builder::max_ttl); its answers to renewals count again after the node timeout and a second.
//! A marker at each node (`leasehold:node`, behind the namespace) says since when it remembers; it outlives a
//! restart only with the memory that it vouches for. See [`Builder::restart_guard`], [`Redlock::adopt`] and
//! [`Redlock::nodes`]. With each renewal a node's TIME is compared with the local clock: a node whose clock
//! was stepped forward is not counted, because its keys run out early.
//!
//! # Why two leases never overlap
//!
//! For a lease with deadline D, at any time before D there is a quorum whose nodes each hold its token with
//! an expiry at or after D, or lost it in a restart and count for nobody. Winning makes it so: the voters were asked at s, so that each expires at s + TTL
//! or later, and D is earlier than that by the drift. An extend that is decided before D makes it so for the
//! new deadline with its own voters. A rival's quorum shares a node with this one, which would have to hold
//! two tokens. So nothing may shorten an expiry (TTLs of one lease only grow, commands to one node keep
//! their order) and nothing may delete a token that may still be counted (a debt falls due only when its
//! round or lease is over).
//!
//! # The rooms of the source
//!
//! `redlock` and `config` are the façade; `request`, `acquire`, `lease`, `heartbeat` and `release` go the way
//! of a lease; `fanout` carries each command to all nodes; `quorum`, `validity`, `seats`, `retry` and `token`
//! are pure; `watchdog` starts heartbeats; below `node` is Redis. `sabotage` switches off one rule at a time, in
//! tests alone, for the simulation to find.
#![warn(missing_docs)]

mod acquire;
mod clock;
mod config;
mod dice;
mod error;
mod fanout;
pub mod fence;
mod fleet;
mod heartbeat;
mod hold;
mod key;
mod lease;
pub mod metrics;
mod node;
mod proposal;
mod quorum;
mod redlock;
mod release;
mod request;
mod retry;
mod sabotage;
#[cfg(test)]
#[path = "../tests/scripts/mod.rs"]
mod scripts;
mod seats;
#[cfg(test)]
#[path = "../tests/simulation/mod.rs"]
mod simulation;
#[cfg(feature = "testing")]
pub mod testing;
mod token;
mod validity;
mod watchdog;
#[doc = include_str!("../docs/which-lock.md")]
pub mod which_lock {}

pub use config::Builder;
pub use error::{
    AcquireError, ConnectError, ExtendError, InvalidRequest, LeaseLost, LossReason, NodeErrors, ReleaseError,
    TooFewNodes, WithLeaseError,
};
pub use fence::Fence;
pub use key::Key;
pub use lease::Lease;
pub use node::{NodeError, NodeErrorKind, NodeState, NodeStatus, NodeWarning, Refusal};
pub use redlock::Redlock;
pub use request::LeaseRequest;
pub use token::Token;

/// The examples of the README compile.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
