//! How a node is doing, for people and monitoring.

use std::sync::Arc;
use std::time::Duration;

use super::state::{Link, Phase, State};
use super::{NodeError, NodeWarning, Refusal};
use crate::clock::Clock;

/// How a node is doing, see [`Redlock::nodes`](crate::Redlock::nodes). What a node does not tell is `None`.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct NodeStatus {
    /// Its address, without user and password.
    pub address: String,
    /// Whether it can vote now.
    pub state: NodeState,
    /// How long it has been connected, or not.
    pub since: Duration,
    /// The last thing that went wrong with its connection; stays after it is well again.
    pub last_error: Option<NodeError>,
    /// What weakens its vote.
    pub warnings: Vec<NodeWarning>,
    /// Deletions that it has not confirmed yet.
    pub owed: usize,
    /// Such as `Redis 7.0.15`.
    pub server: Option<String>,
    /// The native commands in use instead of scripts: `SET IFEQ`, `DELEX`, `DELIFEQ`.
    pub native_commands: Vec<&'static str>,
    /// The round trip of the last look at the node.
    pub round_trip: Option<Duration>,
    /// How far its clock is ahead of this machine's, in microseconds, give or take a round trip.
    pub clock_ahead_micros: Option<i64>,
    /// How many replicas it has: a failover to one would forget leases.
    pub replicas: Option<u64>,
    /// `appendonly`.
    pub appendonly: Option<bool>,
    /// `appendfsync`.
    pub appendfsync: Option<String>,
    /// Whether every write is on disk before it is answered: such a node votes at once after a restart.
    pub synced: bool,
    /// `maxmemory-policy`.
    pub eviction_policy: Option<String>,
}

/// Whether a node can vote now.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum NodeState {
    /// The first connection is being made.
    Connecting,
    /// It votes.
    Up,
    /// Connected, but it restarted or is new and may have forgotten leases: it votes when this has passed.
    Young(Duration),
    /// An answer is overdue: not asked for votes until one comes.
    Slow,
    /// It may not vote; tried again at least every second or so.
    Refused(Refusal),
    /// Not connected; tried again at least every second or so.
    Down,
}

impl NodeStatus {
    pub(super) fn of(address: &Arc<str>, state: &State, node_timeout: Duration, clock: &Clock) -> Self {
        let (now, wall) = (clock.now(), clock.wall());
        let report = &state.report;
        let overdue = |link: &Link| link.silence(now).is_some_and(|silence| silence >= node_timeout);
        Self {
            address: address.to_string(),
            state: match (&state.phase, &state.refusal) {
                (Phase::First { .. }, _) => NodeState::Connecting,
                (Phase::Linked(link), _) if link.slow || overdue(link) => NodeState::Slow,
                (Phase::Linked(link), _) if now < link.standing.votes => {
                    NodeState::Young(link.standing.votes.since(now))
                }
                (Phase::Linked(_), _) => NodeState::Up,
                (Phase::Down, Some(refusal)) => NodeState::Refused(refusal.clone()),
                (Phase::Down, None) => NodeState::Down,
            },
            since: now.since(state.since),
            last_error: state.last_error.clone(),
            warnings: state.warnings.clone(),
            owed: state.debts.len(),
            server: report.server.clone(),
            native_commands: state.native.clone(),
            round_trip: state.round_trip,
            clock_ahead_micros: state
                .clock
                .newest()
                .and_then(|(time, taken)| ahead(time, wall, now.since(taken))),
            replicas: report.replicas,
            appendonly: report.appendonly,
            appendfsync: report.fsync.clone(),
            synced: report.synced(),
            eviction_policy: report.eviction.clone(),
        }
    }
}

/// How far a clock that showed `time` so long ago is ahead of this machine's, which shows `wall` now.
fn ahead(time: u64, wall: u64, ago: Duration) -> Option<i64> {
    let then = wall.checked_sub(u64::try_from(ago.as_micros()).ok()?)?;
    i64::try_from(time).ok()?.checked_sub(i64::try_from(then).ok()?)
}
