//! The façade.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::config::Builder;
use crate::error::{ConnectError, LossReason, WithLeaseError};
use crate::fleet::Fleet;
use crate::key::Key;
use crate::lease::Lease;
use crate::node::{Node, NodeError, NodeStatus};
use crate::request::LeaseRequest;

/// A client of a set of independent masters. Cheap to clone; all clones share their connections.
///
/// Nodes stay connected until the last clone and the last [`Lease`] are gone. What is still owed to nodes
/// then (deletions that were not confirmed) is paid as long as the runtime runs: returning from `main`
/// drops it, so call [`close`](Self::close) before.
#[derive(Clone)]
pub struct Redlock {
    pub(crate) fleet: Arc<Fleet>,
}

impl Redlock {
    pub(crate) fn new(fleet: Fleet) -> Self {
        Self { fleet: Arc::new(fleet) }
    }

    /// Options, then [`connect`](Builder::connect).
    pub fn builder() -> Builder {
        Builder::new()
    }

    /// Connects with the defaults. See [`Builder::connect`].
    ///
    /// # Errors
    ///
    /// As [`Builder::connect`].
    ///
    /// # Cancel safety
    ///
    /// As [`Builder::connect`].
    pub async fn connect<I>(addresses: I) -> Result<Self, ConnectError>
    where
        I: IntoIterator,
        I::Item: Into<String>,
    {
        Self::builder().nodes(addresses).connect().await
    }

    /// A lease on `key`, to be asked for with [`acquire`](LeaseRequest::acquire) or
    /// [`try_acquire`](LeaseRequest::try_acquire).
    pub fn lease(&self, key: impl Into<Key>) -> LeaseRequest {
        LeaseRequest::new(self.fleet.clone(), vec![key.into()])
    }

    /// One lease on all of `keys` or none, in one round trip a node. Keys are sorted and deduplicated; an
    /// empty list is refused when it is asked for.
    pub fn lease_all<I>(&self, keys: I) -> LeaseRequest
    where
        I: IntoIterator,
        I::Item: Into<Key>,
    {
        LeaseRequest::new(self.fleet.clone(), keys.into_iter().map(Into::into).collect())
    }

    /// Runs `work` under a lease on `key` with the default TTL and wait: acquires, protects, releases.
    ///
    /// A result is not lost if the release fails: the key then runs out by itself.
    ///
    /// # Errors
    ///
    /// [`WithLeaseError::Acquire`] if there was no lease, [`WithLeaseError::Lost`] if it was lost before
    /// the work was done.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future drops the work and releases the lease in the background.
    pub async fn with_lease<F, T>(&self, key: impl Into<Key>, work: F) -> Result<T, WithLeaseError>
    where
        F: AsyncFnOnce(&Lease) -> T,
    {
        let lease = self.lease(key).acquire().await?;
        let output = lease.protect(work(&lease)).await?;
        // The work is done; an unconfirmed release only keeps the key for the rest of its TTL.
        let _ = lease.release().await;
        Ok(output)
    }

    /// How each node is doing, in the order of the builder.
    pub fn nodes(&self) -> Vec<NodeStatus> {
        self.fleet.nodes.iter().map(Node::status).collect()
    }

    /// Declares the fleet new: every node that is connected is taken to remember all that it ever granted,
    /// and votes at once. For a new fleet of which a node is missing, whose others would else wait for
    /// `max_ttl`; also writes this client's set of nodes into the markers.
    ///
    /// **Only where no lease can be held.** A lease that a node has forgotten can then be given twice.
    ///
    /// Returns an outcome for each node, in the order of the builder.
    ///
    /// # Cancel safety
    ///
    /// Once polled, the markers are on their way; dropping the future only ends the wait.
    pub async fn adopt(&self) -> Vec<Result<(), NodeError>> {
        futures::future::join_all(self.fleet.nodes.iter().map(Node::adopt)).await
    }

    /// Measures `count` round trips to each node, one after the other, to all nodes at once. Ends early for
    /// a node that fails.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe.
    pub async fn round_trips(&self, count: usize) -> Vec<Result<Vec<Duration>, NodeError>> {
        let timeout = self.fleet.node_timeout;
        futures::future::join_all(self.fleet.nodes.iter().map(|node| node.round_trips(count, timeout))).await
    }

    /// Releases what is held (its holders are told that it is lost), ends every `acquire` under way with
    /// [`InvalidRequest::Closed`](crate::InvalidRequest::Closed), and waits until nodes have confirmed all
    /// deletions, for at most the node timeout and a second. No lease is given after this.
    ///
    /// # Cancel safety
    ///
    /// Once polled, leases are given back; dropping the future only ends the wait.
    pub async fn close(&self) {
        let fleet = &self.fleet;
        fleet.close();
        let give_back = || fleet.registry.held().iter().for_each(|hold| hold.lose(LossReason::Closed));
        give_back();
        let settled = async {
            fleet.rounds_ended().await;
            // A round may just have been won.
            give_back();
            futures::future::join_all(fleet.nodes.iter().map(Node::settled)).await;
        };
        // What is owed after that goes on in the background.
        fleet.clock.within(fleet.node_timeout + Duration::from_secs(1), settled).await;
    }
}

impl fmt::Debug for Redlock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Redlock").field("nodes", &self.nodes()).finish()
    }
}
