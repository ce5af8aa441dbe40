//! The nodes of one `Redlock`, and what all rounds on them have in common.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::clock::Clock;
use crate::error::{NodeErrors, TooFewNodes};
use crate::node::{Node, NodeError};
use crate::proposal::Proposer;
use crate::quorum::quorum;
use crate::watchdog::Registry;

pub(crate) struct Fleet {
    pub(crate) nodes: Vec<Node>,
    pub(crate) clock: Clock,
    pub(crate) namespace: Vec<u8>,
    pub(crate) node_timeout: Duration,
    pub(crate) max_ttl: Duration,
    /// How long the record of a key's highest fence is kept.
    pub(crate) fence_ttl: Duration,
    pub(crate) proposer: Proposer,
    /// No leases: the client only looks.
    pub(crate) observe_only: bool,
    /// The leases that are held.
    pub(crate) registry: Arc<Registry>,
    /// Cancelled when no more leases are given.
    closing: CancellationToken,
    /// How many rounds are under way.
    rounds: AtomicUsize,
}

/// A round under way. `close` waits for it, so that what it has set is deleted or is a lease that is known.
pub(crate) struct Underway(Arc<Fleet>);

impl Drop for Underway {
    fn drop(&mut self) {
        self.0.rounds.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Fleet {
    pub(crate) fn new(
        nodes: Vec<Node>,
        clock: Clock,
        namespace: Vec<u8>,
        node_timeout: Duration,
        max_ttl: Duration,
        fence_ttl: Duration,
    ) -> Self {
        let registry = Registry::start(&clock);
        Self {
            nodes,
            clock,
            namespace,
            node_timeout,
            max_ttl,
            fence_ttl,
            proposer: Proposer::default(),
            observe_only: false,
            registry,
            closing: CancellationToken::new(),
            rounds: AtomicUsize::new(0),
        }
    }

    /// How far the nodes' clocks are ahead of ours, in microseconds: the middle of those that are known.
    pub(crate) fn clock_ahead(&self) -> Option<i64> {
        let mut ahead: Vec<i64> = self.nodes.iter().filter_map(Node::clock_ahead).collect();
        ahead.sort_unstable();
        ahead.get(ahead.len() / 2).copied()
    }

    /// No more leases from now on.
    pub(crate) fn close(&self) {
        self.closing.cancel();
    }

    /// Resolves when no more leases are given.
    pub(crate) async fn closed(&self) {
        self.closing.cancelled().await;
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closing.is_cancelled()
    }

    /// Begins a round; `None` if no more leases are given.
    pub(crate) fn begin_round(self: &Arc<Self>) -> Option<Underway> {
        // Counted before the look: who closes either sees it or is seen.
        self.rounds.fetch_add(1, Ordering::SeqCst);
        let underway = Underway(self.clone());
        (!self.is_closed()).then_some(underway)
    }

    /// Resolves when no round is under way.
    pub(crate) async fn rounds_ended(&self) {
        while self.rounds.load(Ordering::SeqCst) > 0 {
            self.clock.sleep(Duration::from_millis(1)).await;
        }
    }

    /// The error of a round in which `answered` nodes answered and `errors` did not, by their numbers.
    pub(crate) fn too_few(
        &self,
        answered: usize,
        errors: impl IntoIterator<Item = (usize, NodeError)>,
    ) -> TooFewNodes {
        let nodes = self.nodes.len();
        TooFewNodes { nodes, needed: quorum(nodes), answered, failed: in_order(errors) }
    }
}

/// Errors in the order of their nodes, whatever order they came in.
pub(crate) fn in_order(errors: impl IntoIterator<Item = (usize, NodeError)>) -> NodeErrors {
    let errors: BTreeMap<usize, NodeError> = errors.into_iter().collect();
    errors.into_values().collect()
}

impl Drop for Fleet {
    fn drop(&mut self) {
        self.registry.stop();
    }
}
