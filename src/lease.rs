//! The guard of a key that is held.

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use crate::error::{ExtendError, LeaseLost, ReleaseError};
use crate::fence::Fence;
use crate::hold::{End, ExtendRequest, Hold};
use crate::key::Key;
use crate::release;
use crate::token::Token;
use crate::validity::Ttl;

/// A key held on a quorum of the nodes, with validity left: a promise for a time, not a mutex.
///
/// The heartbeat keeps it for as long as a quorum of the nodes that hold it stays up. Its loss is
/// announced no later than the end of its validity ([`lost`](Self::lost),
/// [`cancellation_token`](Self::cancellation_token), [`protect`](Self::protect)). A process that is
/// paused acts on after its validity has ended and cannot know; where that is damage, the resource must
/// refuse it.
///
/// Heartbeats run on the runtime: code that blocks its threads starves them, so put blocking work into
/// `tokio::task::spawn_blocking`.
///
/// Dropping it releases it in the background; [`release`](Self::release) waits for the outcome;
/// [`detach`](Self::detach) lets the key run out by itself.
#[must_use = "a lease is released as soon as it is dropped"]
pub struct Lease {
    pub(crate) hold: Arc<Hold>,
}

impl Lease {
    pub(crate) fn new(hold: Arc<Hold>) -> Self {
        Self { hold }
    }

    /// The key, without the namespace; the first of them for `lease_all`.
    pub fn key(&self) -> &Key {
        &self.hold.keys[0]
    }

    /// All keys of the lease, sorted, without the namespace.
    pub fn keys(&self) -> &[Key] {
        &self.hold.keys
    }

    /// The value that stands at the key. Whoever has it can release the lease.
    pub fn token(&self) -> &Token {
        &self.hold.target.token
    }

    /// The fencing token of a [`fenced`](crate::LeaseRequest::fenced) lease: greater than that of every
    /// earlier holder. Pass it along with each write, for the resource to refuse older ones.
    pub fn fence(&self) -> Option<Fence> {
        self.hold.fence
    }

    /// What is left of the validity; zero when none is.
    pub fn remaining(&self) -> Duration {
        self.hold.remaining()
    }

    /// Whether any validity is left.
    pub fn is_valid(&self) -> bool {
        !self.remaining().is_zero()
    }

    /// Resolves when the lease is lost, no later than the end of its validity; pending for ever once it
    /// was released, detached or dropped. The future does not borrow the lease.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: a loss stays announced.
    pub fn lost(&self) -> impl Future<Output = LeaseLost> + Send + use<> {
        // Holds nothing that would keep the nodes connected.
        let (lost, loss, expired) = (self.hold.lost.clone(), self.hold.loss.clone(), self.hold.expired());
        async move {
            lost.cancelled().await;
            loss.get().cloned().unwrap_or(expired)
        }
    }

    /// A token that is cancelled when the lease is lost, and only then: not by a release.
    pub fn cancellation_token(&self) -> CancellationToken {
        self.hold.lost.child_token()
    }

    /// Asks every node to keep the key for `ttl` from now; the TTL that the heartbeat uses from then on.
    ///
    /// No node is ever asked for less than before: a shorter `ttl` renews for the longest one so far, so
    /// that the deadline never shrinks. Extends of one lease go one after the other.
    ///
    /// # Errors
    ///
    /// [`ExtendError::InvalidRequest`] before anything is sent; [`ExtendError::NoQuorum`] if no quorum
    /// confirmed within the node timeout: the old deadline stands, and late answers still count before
    /// it; [`ExtendError::Lost`] if the lease is over.
    ///
    /// # Cancel safety
    ///
    /// Once polled, the renewal goes on without its caller.
    pub async fn extend(&self, ttl: Duration) -> Result<(), ExtendError> {
        let ttl = Ttl::new(ttl, self.hold.fleet.max_ttl)?;
        let (outcome, answer) = oneshot::channel();
        if self.is_valid() {
            self.hold.lock().requests.push(ExtendRequest { ttl, outcome });
            self.hold.fleet.registry.start_now(&self.hold);
            self.hold.nudge.notify_one();
            tokio::select! {
                biased;
                Ok(outcome) = answer => return outcome,
                () = self.hold.ended.cancelled() => {}
            }
        }
        Err(self.hold.why_lost().into())
    }

    /// Runs `future` for as long as the lease is valid; drops it on loss.
    ///
    /// # Errors
    ///
    /// [`LeaseLost`] if the lease was lost before `future` was done, or if `future` held up its thread
    /// until the validity had ended: `Ok` means that all of it ran under the lease.
    ///
    /// # Cancel safety
    ///
    /// Dropping it drops `future`; the lease stays.
    pub async fn protect<F: Future>(&self, future: F) -> Result<F::Output, LeaseLost> {
        tokio::select! {
            biased;
            lost = self.lost() => Err(lost),
            output = future => {
                if self.is_valid() {
                    return Ok(output);
                }
                Err(self.hold.why_lost())
            }
        }
    }

    /// Gives the key back: compare-and-delete on every node. Returns as soon as a quorum confirmed it.
    ///
    /// # Errors
    ///
    /// [`ReleaseError::Lost`] if the validity had ended, or if so many nodes no longer held the key that
    /// no quorum did; [`ReleaseError::NoQuorum`] if too few nodes confirmed within the node timeout.
    /// Nodes that did not confirm still owe the deletion and get it as soon as they can be reached.
    ///
    /// # Cancel safety
    ///
    /// Once polled, the release goes on without its caller.
    pub async fn release(self) -> Result<(), ReleaseError> {
        release::release(&self.hold).await
    }

    /// Ends the heartbeat and lets the key run out by itself. Returns what validity is left.
    pub fn detach(self) -> Duration {
        let left = self.remaining();
        drop(self.hold.end(End::Detached));
        left
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        // The deletions go on by themselves.
        drop(self.hold.end(End::Dropped));
    }
}

impl fmt::Debug for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lease")
            .field("keys", &self.hold.keys)
            .field("token", &self.hold.target.token)
            .field("fence", &self.hold.fence)
            .field("remaining", &self.remaining())
            .finish()
    }
}
