//! A key held: what a lease, its heartbeat and the watchdog share.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::time::Duration;

use tokio::sync::{Notify, oneshot};
use tokio_util::sync::CancellationToken;

use crate::clock::Timestamp;
use crate::error::{ExtendError, LeaseLost, LossReason, NodeErrors};
use crate::fanout::Fanout;
use crate::fence::Fence;
use crate::fleet::Fleet;
use crate::key::Key;
use crate::metrics;
use crate::node::{Deletion, Target};
use crate::sabotage::{self, Sabotage};
use crate::seats::Seats;
use crate::validity::Ttl;

/// A key that runs out within its TTL is on no node any more after this much longer.
const EXPIRY_SLACK: Duration = Duration::from_secs(1);

/// How a hold is kept.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Upkeep {
    /// How it is renewed.
    pub(crate) renewal: Renewal,
    /// No renewal by the heartbeat once it was held so long.
    pub(crate) max_hold: Option<Duration>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Renewal {
    Never,
    /// Every third of the TTL.
    Thirds,
    Every(Duration),
}

/// How a hold ended.
#[derive(Clone, Debug)]
pub(crate) enum End {
    Released,
    Dropped,
    Detached,
    Lost(LossReason),
}

/// A caller of `Lease::extend` who waits for the heartbeat.
pub(crate) struct ExtendRequest {
    pub(crate) ttl: Ttl,
    pub(crate) outcome: oneshot::Sender<Result<(), ExtendError>>,
}

pub(crate) struct HoldState {
    pub(crate) deadline: Timestamp,
    /// The longest TTL asked of any node so far: none is ever asked for less.
    pub(crate) ttl: Ttl,
    /// When a TTL this long was first asked.
    pub(crate) grown: Timestamp,
    pub(crate) seats: Seats,
    pub(crate) requests: Vec<ExtendRequest>,
    ended: bool,
}

pub(crate) struct Hold {
    pub(crate) id: u64,
    pub(crate) fleet: Arc<Fleet>,
    pub(crate) keys: Vec<Key>,
    pub(crate) target: Arc<Target>,
    pub(crate) fence: Option<Fence>,
    pub(crate) upkeep: Upkeep,
    /// When the first SETs were sent.
    begun: Timestamp,
    /// When the winning SETs were sent.
    pub(crate) since: Timestamp,
    /// Cancelled when the lease is lost, and only then.
    pub(crate) lost: CancellationToken,
    /// Set before `lost` is cancelled.
    pub(crate) loss: Arc<OnceLock<LeaseLost>>,
    /// Cancelled when the hold ends in any way.
    pub(crate) ended: CancellationToken,
    /// Makes the heartbeat look again: a request, or clocks that moved apart.
    pub(crate) nudge: Notify,
    state: Mutex<HoldState>,
}

impl Hold {
    pub(crate) fn new(
        fleet: Arc<Fleet>,
        keys: Vec<Key>,
        target: Arc<Target>,
        fence: Option<Fence>,
        upkeep: Upkeep,
        (begun, sent, ttl): (Timestamp, Timestamp, Ttl),
        seats: Seats,
    ) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let state = HoldState {
            deadline: ttl.deadline(sent),
            ttl,
            grown: sent,
            seats,
            requests: Vec::new(),
            ended: false,
        };
        Self {
            id: NEXT.fetch_add(1, Ordering::Relaxed),
            fleet,
            keys,
            target,
            fence,
            upkeep,
            begun,
            since: sent,
            lost: CancellationToken::new(),
            loss: Arc::default(),
            ended: CancellationToken::new(),
            nudge: Notify::new(),
            state: Mutex::new(state),
        }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, HoldState> {
        // Nothing panics while it holds the lock; if it did, the state would still be whole.
        self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// How often the heartbeat looks after the lease while its TTL is `ttl`.
    pub(crate) fn interval(&self, ttl: Ttl) -> Duration {
        match self.upkeep.renewal {
            Renewal::Every(interval) => interval,
            Renewal::Thirds | Renewal::Never => ttl.renewal_interval(),
        }
    }

    /// What is left of the validity; announces the loss if it is over.
    pub(crate) fn remaining(&self) -> Duration {
        let left = {
            let state = self.lock();
            if state.ended {
                return Duration::ZERO;
            }
            state.deadline.since(self.fleet.clock.now())
        };
        if left.is_zero() {
            self.lose(LossReason::Expired { failed: NodeErrors::default() });
        }
        left
    }

    /// Whether validity is left, without a look at what follows if not.
    #[cfg(test)]
    pub(crate) fn promises(&self) -> bool {
        let state = self.lock();
        !state.ended && self.fleet.clock.now() < state.deadline
    }

    #[cfg(test)]
    pub(crate) fn is_ended(&self) -> bool {
        self.lock().ended
    }

    /// Moves the deadline to `later`, unless the hold is over: a lease is never revived.
    pub(crate) fn prolong(&self, later: Timestamp) -> bool {
        let now = self.fleet.clock.now();
        let mut state = self.lock();
        let late = now >= state.deadline && !sabotage::has(Sabotage::LateExtend);
        if state.ended || late || later <= now {
            return false;
        }
        state.deadline = state.deadline.max(later);
        true
    }

    /// Why the lease is over for one who still uses it.
    pub(crate) fn why_lost(&self) -> LeaseLost {
        self.loss.get().cloned().unwrap_or_else(|| self.expired())
    }

    /// The loss of a lease whose validity ended without a renewal that failed.
    pub(crate) fn expired(&self) -> LeaseLost {
        self.lost_for(LossReason::Expired { failed: NodeErrors::default() })
    }

    pub(crate) fn lost_for(&self, reason: LossReason) -> LeaseLost {
        LeaseLost { key: self.keys[0].clone(), reason }
    }

    /// The lease is lost: says so, and gives the key back.
    pub(crate) fn lose(&self, reason: LossReason) {
        // The deletions go on by themselves.
        drop(self.end(End::Lost(reason)));
    }

    /// Ends the hold, once: returns the answers to its deletions, `None` if it had ended before. From
    /// here on nothing of it is sent but deletions.
    pub(crate) fn end(&self, how: End) -> Option<Fanout> {
        let deletes = !matches!(how, End::Detached);
        let lost = match &how {
            End::Lost(reason) => Some(self.lost_for(reason.clone())),
            End::Released | End::Dropped | End::Detached => None,
        };
        let (touched, past) = {
            let mut state = self.lock();
            if state.ended {
                return None;
            }
            state.ended = true;
            let until = self.fleet.clock.now().after(state.ttl.duration()).after(EXPIRY_SLACK);
            (state.seats.touched(), Deletion { sent: self.begun, until })
        };
        self.target.end();
        if let Some(lost) = lost {
            metrics::lost(&lost.reason);
            // Set once: a hold ends once.
            let _ = self.loss.set(lost);
            self.lost.cancel();
        }
        self.ended.cancel();
        self.fleet.registry.remove(self.id);
        let mut answers = Fanout::empty(self.fleet.nodes.len());
        if deletes {
            for node in touched {
                answers.put(node, self.fleet.nodes[node].delete(&self.target, past));
            }
        }
        Some(answers)
    }
}
