//! What is known of the nodes: plain values, so that what follows from them is a pure function.

use std::time::Duration;

use leasehold::{NodeErrorKind, NodeState, NodeStatus, NodeWarning, Refusal};

use super::redis_cli::RedisCli;

/// All nodes, and how they are used.
#[derive(Clone, Debug)]
pub(super) struct Fleet {
    pub(super) nodes: Vec<Facts>,
    pub(super) node_timeout: Duration,
    pub(super) max_ttl: Duration,
}

/// One node. What it does not tell is `None`.
#[derive(Clone, Debug, Default)]
pub(super) struct Facts {
    /// Without user and password.
    pub(super) address: String,
    pub(super) cli: RedisCli,
    pub(super) state: State,
    /// The last thing that went wrong with its connection.
    pub(super) error: Option<(NodeErrorKind, String)>,
    pub(super) warnings: Vec<NodeWarning>,
    pub(super) owed: usize,
    pub(super) server: Option<String>,
    pub(super) native_commands: Vec<&'static str>,
    pub(super) round_trips: Option<RoundTrips>,
    pub(super) clock_ahead_micros: Option<i64>,
    pub(super) replicas: Option<u64>,
    pub(super) appendonly: Option<bool>,
    pub(super) appendfsync: Option<String>,
    pub(super) synced: bool,
    pub(super) eviction_policy: Option<String>,
}

/// Whether a node can vote now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum State {
    Up,
    Young(Duration),
    Slow,
    Connecting,
    Refused(Refusal),
    #[default]
    Down,
}

/// Of many round trips, sorted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RoundTrips {
    pub(super) count: usize,
    pub(super) p50: Duration,
    pub(super) p99: Duration,
}

impl Fleet {
    pub(super) fn quorum(&self) -> usize {
        self.nodes.len() / 2 + 1
    }

    /// How many nodes can vote now.
    pub(super) fn able(&self) -> usize {
        self.nodes.iter().filter(|node| node.state == State::Up).count()
    }

    pub(super) fn has_quorum(&self) -> bool {
        self.able() >= self.quorum()
    }

    /// How long until enough nodes are old enough, if that is all that is missing.
    pub(super) fn ready_in(&self) -> Option<Duration> {
        let missing = self.quorum().checked_sub(self.able())?;
        let mut young: Vec<Duration> = self.nodes.iter().filter_map(Facts::young).collect();
        young.sort_unstable();
        young.get(missing.checked_sub(1)?).copied()
    }

    /// The nodes that have said something of themselves.
    pub(super) fn connected(&self) -> impl Iterator<Item = &Facts> {
        self.nodes.iter().filter(|node| matches!(node.state, State::Up | State::Young(_) | State::Slow))
    }

    /// The greatest p99 of a node.
    pub(super) fn p99(&self) -> Option<Duration> {
        self.nodes.iter().filter_map(|node| node.round_trips).map(|times| times.p99).max()
    }
}

impl Facts {
    /// What `status` says, with the round trips that were measured, and `url` as it was given.
    pub(super) fn new(status: NodeStatus, times: &[Duration], url: &str) -> Self {
        Self {
            cli: RedisCli::new(url, &status.address),
            address: status.address,
            state: State::from(status.state),
            error: status.last_error.map(|error| (error.kind(), error.reason().to_owned())),
            warnings: status.warnings,
            owed: status.owed,
            server: status.server,
            native_commands: status.native_commands,
            round_trips: RoundTrips::of(times),
            clock_ahead_micros: status.clock_ahead_micros,
            replicas: status.replicas,
            appendonly: status.appendonly,
            appendfsync: status.appendfsync,
            synced: status.synced,
            eviction_policy: status.eviction_policy,
        }
    }

    pub(super) fn young(&self) -> Option<Duration> {
        match self.state {
            State::Young(left) => Some(left),
            _ => None,
        }
    }

    /// Why there is no connection, in words.
    pub(super) fn trouble(&self) -> &str {
        self.error.as_ref().map_or("not connected", |(_, reason)| reason)
    }
}

impl From<NodeState> for State {
    fn from(state: NodeState) -> Self {
        match state {
            NodeState::Up => State::Up,
            NodeState::Young(left) => State::Young(left),
            NodeState::Slow => State::Slow,
            NodeState::Connecting => State::Connecting,
            NodeState::Refused(refusal) => State::Refused(refusal),
            _ => State::Down,
        }
    }
}

impl RoundTrips {
    /// `None` of no round trips.
    pub(super) fn of(times: &[Duration]) -> Option<Self> {
        let mut times = times.to_vec();
        times.sort_unstable();
        // The nearest rank.
        let percentile = |percent: usize| times.get((times.len() * percent).div_ceil(100).checked_sub(1)?);
        Some(Self { count: times.len(), p50: *percentile(50)?, p99: *percentile(99)? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_of_the_nearest_rank() {
        let times: Vec<Duration> = (1..=200).rev().map(Duration::from_millis).collect();
        let of = |count, p50, p99| {
            let (p50, p99) = (Duration::from_millis(p50), Duration::from_millis(p99));
            Some(RoundTrips { count, p50, p99 })
        };
        assert_eq!(RoundTrips::of(&times), of(200, 100, 198));
        assert_eq!(RoundTrips::of(&times[..1]), of(1, 200, 200));
        assert_eq!(RoundTrips::of(&[]), None);
    }

    #[test]
    fn enough_nodes_are_old_enough_when_the_last_one_that_is_needed_is() {
        let young = |seconds| State::Young(Duration::from_secs(seconds));
        let ready_in = |states: Vec<State>| {
            let nodes = states.into_iter().map(|state| Facts { state, ..Facts::default() }).collect();
            let (node_timeout, max_ttl) = (Duration::from_millis(500), Duration::from_secs(60));
            Fleet { nodes, node_timeout, max_ttl }.ready_in()
        };
        let seconds = |seconds| Some(Duration::from_secs(seconds));
        assert_eq!(ready_in(vec![State::Up, young(9), young(5)]), seconds(5));
        assert_eq!(ready_in(vec![State::Down, young(9), young(5)]), seconds(9));
        assert_eq!(ready_in(vec![State::Down, State::Slow, young(5)]), None);
        assert_eq!(ready_in(vec![State::Up, State::Up, young(5)]), None, "there are enough");
    }
}
