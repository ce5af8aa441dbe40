//! What is asked for: a by-value builder, and what its check makes of it.

use std::sync::Arc;
use std::time::Duration;

use crate::acquire::{self, Outcome};
use crate::config::{DEFAULT_TTL, DEFAULT_WAIT};
use crate::error::{AcquireError, InvalidRequest};
use crate::fleet::Fleet;
use crate::hold::{Renewal, Upkeep};
use crate::key::Key;
use crate::lease::Lease;
use crate::validity::Ttl;

/// The record of a key's highest fence, behind the namespace.
const FENCES: &[u8] = b"leasehold:fence:";

/// A lease to be asked for; made by [`Redlock::lease`](crate::Redlock::lease) and
/// [`Redlock::lease_all`](crate::Redlock::lease_all).
#[must_use = "nothing is asked before `acquire()` or `try_acquire()` is awaited"]
#[derive(Clone)]
pub struct LeaseRequest {
    fleet: Arc<Fleet>,
    keys: Vec<Key>,
    ttl: Duration,
    wait: Duration,
    renewal: Renewal,
    max_hold: Option<Duration>,
    fenced: bool,
}

/// A request that was found right.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) keys: Vec<Key>,
    /// The full names on the nodes.
    pub(crate) names: Vec<Vec<u8>>,
    pub(crate) ttl: Ttl,
    pub(crate) wait: Duration,
    pub(crate) upkeep: Upkeep,
    /// Where the highest fences are kept; none if the lease is not fenced.
    pub(crate) records: Vec<Vec<u8>>,
}

impl LeaseRequest {
    pub(crate) fn new(fleet: Arc<Fleet>, mut keys: Vec<Key>) -> Self {
        // One order for all, so that two that want the same keys meet at the first.
        keys.sort();
        keys.dedup();
        Self {
            ttl: DEFAULT_TTL.min(fleet.max_ttl),
            fleet,
            keys,
            wait: DEFAULT_WAIT,
            renewal: Renewal::Thirds,
            max_hold: None,
            fenced: false,
        }
    }

    /// The expiry asked of the nodes; default 10 s or `max_ttl` if that is
    /// less, cut to whole milliseconds.
    ///
    /// From it drift (1 % + 2 ms) and the time of the round are taken off; what is left is the validity.
    /// A TTL that leaves none, or is above [`max_ttl`](crate::Builder::max_ttl), is
    /// [`InvalidRequest`].
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = ttl;
        self
    }

    /// How long [`acquire`](Self::acquire) waits; default 30 s. `Duration::MAX` waits for ever, zero
    /// tries one round.
    pub fn wait(mut self, wait: Duration) -> Self {
        self.wait = wait;
        self
    }

    /// No heartbeat: the lease ends with its validity unless [`Lease::extend`] is called.
    pub fn without_heartbeat(mut self) -> Self {
        self.renewal = Renewal::Never;
        self
    }

    /// How often the heartbeat renews; default TTL/3. Must be between 1 ms and TTL/2, so that a second
    /// try has time.
    pub fn renew_every(mut self, interval: Duration) -> Self {
        self.renewal = Renewal::Every(interval);
        self
    }

    /// The heartbeat renews no more once the lease was held so long; it then runs out, which is a loss
    /// if the holder has not released it. Default: no limit.
    pub fn max_hold(mut self, limit: Duration) -> Self {
        self.max_hold = Some(limit);
        self
    }

    /// With a fencing token, see [`Lease::fence`]; default without. Fenced and plain requests on one key
    /// exclude each other.
    pub fn fenced(mut self) -> Self {
        self.fenced = true;
        self
    }

    /// Waits until the lease is won, for at most [`wait`](Self::wait).
    ///
    /// Goes on through "held by another" for the whole wait, through "too few nodes answered" for at
    /// most a second.
    ///
    /// # Errors
    ///
    /// [`AcquireError::InvalidRequest`] before anything is sent; [`AcquireError::TimedOut`] if the key
    /// was held by others; [`AcquireError::NoQuorum`] if fewer than a quorum of nodes answered.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves no key behind: what was or may have been set is deleted in the
    /// background.
    pub async fn acquire(self) -> Result<Lease, AcquireError> {
        acquire::acquire(&self.fleet, &self.check()?).await
    }

    /// Tries one round. `None` if a quorum of nodes answered and the key was not won.
    ///
    /// # Errors
    ///
    /// [`AcquireError::InvalidRequest`] before anything is sent; [`AcquireError::NoQuorum`] if fewer
    /// than a quorum of nodes answered.
    ///
    /// # Cancel safety
    ///
    /// As [`acquire`](Self::acquire).
    pub async fn try_acquire(self) -> Result<Option<Lease>, AcquireError> {
        match acquire::round(&self.fleet, &self.check()?).await? {
            Outcome::Won(lease) => Ok(Some(lease)),
            Outcome::Held => Ok(None),
            Outcome::NoQuorum(too_few) => Err(too_few.into()),
        }
    }

    fn check(&self) -> Result<Plan, InvalidRequest> {
        if self.keys.is_empty() {
            return Err(InvalidRequest::NoKeys);
        }
        if self.fleet.observe_only {
            return Err(InvalidRequest::ObserveOnly);
        }
        self.keys.iter().try_for_each(Key::check)?;
        let ttl = Ttl::new(self.ttl, self.fleet.max_ttl)?;
        if let Renewal::Every(interval) = self.renewal
            && (interval < Duration::from_millis(1) || interval > ttl.duration() / 2)
        {
            return Err(InvalidRequest::RenewalInterval { interval, ttl: self.ttl });
        }
        let namespace = &self.fleet.namespace;
        let names = self.keys.iter().map(|key| key.within(namespace));
        let fenced = self.keys.iter().filter(|_| self.fenced);
        let records = fenced.map(|key| [namespace, FENCES, key.as_bytes()].concat());
        Ok(Plan {
            names: names.collect(),
            records: records.collect(),
            keys: self.keys.clone(),
            ttl,
            wait: self.wait,
            upkeep: Upkeep { renewal: self.renewal, max_hold: self.max_hold },
        })
    }
}

impl std::fmt::Debug for LeaseRequest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LeaseRequest")
            .field("keys", &self.keys)
            .field("ttl", &self.ttl)
            .field("wait", &self.wait)
            .finish_non_exhaustive()
    }
}
