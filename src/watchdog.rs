//! One task a `Redlock`: starts the heartbeats of leases that outlive their first round, and notices
//! when the clocks move apart.
//!
//! A lease that is given back within its first moments never costs a task. Timers stand still while the
//! machine is suspended and the lease clock does not, so once a second the two are compared; when they
//! differ, every lease looks at its deadline.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::Duration;

use tokio::sync::Notify;

use crate::clock::{Clock, Timestamp};
use crate::heartbeat::Heartbeat;
use crate::hold::Hold;

/// How often the clocks are compared while a lease is held.
const LOOK: Duration = Duration::from_secs(1);
/// Clocks that differ by more moved apart.
const APART: Duration = Duration::from_millis(50);

#[derive(Default)]
struct Leases {
    /// Held leases, and when the heartbeat of each starts; `None` if it runs.
    held: BTreeMap<u64, (Weak<Hold>, Option<Timestamp>)>,
    /// The starts in order.
    starts: BTreeMap<(Timestamp, u64), ()>,
    /// When the watchdog wakes by itself.
    wakes: Option<Timestamp>,
    stopped: bool,
}

/// The leases that are held.
pub(crate) struct Registry {
    leases: Mutex<Leases>,
    wake: Notify,
}

impl Registry {
    /// Starts the watchdog. Must be called within a runtime.
    pub(crate) fn start(clock: &Clock) -> Arc<Self> {
        let registry = Arc::new(Self { leases: Mutex::default(), wake: Notify::new() });
        clock.spawn(Watchdog { registry: registry.clone(), clock: clock.clone() }.run());
        registry
    }

    fn lock(&self) -> MutexGuard<'_, Leases> {
        // Nothing panics while it holds the lock; if it did, the state would still be whole.
        self.leases.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Takes `hold` in; its heartbeat starts at `start`.
    pub(crate) fn add(&self, start: Timestamp, hold: &Arc<Hold>) {
        let mut leases = self.lock();
        leases.held.insert(hold.id, (Arc::downgrade(hold), Some(start)));
        leases.starts.insert((start, hold.id), ());
        if leases.wakes.is_none_or(|wakes| start < wakes) {
            leases.wakes = Some(start);
            self.wake.notify_one();
        }
    }

    /// Starts the heartbeat of `hold` without delay, if it does not run yet.
    pub(crate) fn start_now(&self, hold: &Hold) {
        let mut leases = self.lock();
        let Some((_, start)) = leases.held.get_mut(&hold.id) else { return };
        if let Some(start) = start.take() {
            let at_once = start.before(Duration::MAX);
            leases.starts.remove(&(start, hold.id));
            leases.starts.insert((at_once, hold.id), ());
            self.wake.notify_one();
        }
    }

    pub(crate) fn remove(&self, id: u64) {
        let mut leases = self.lock();
        if let Some((_, Some(start))) = leases.held.remove(&id) {
            leases.starts.remove(&(start, id));
        }
    }

    /// All leases that are held.
    pub(crate) fn held(&self) -> Vec<Arc<Hold>> {
        self.lock().held.values().filter_map(|(hold, _)| hold.upgrade()).collect()
    }

    /// Ends the watchdog.
    pub(crate) fn stop(&self) {
        self.lock().stopped = true;
        self.wake.notify_one();
    }

    /// Takes out the leases whose heartbeats are to start, and says when to look next; `None` if stopped.
    fn take_due(&self, now: Timestamp) -> Option<(Vec<Arc<Hold>>, Option<Timestamp>)> {
        let mut leases = self.lock();
        if leases.stopped {
            return None;
        }
        let mut due = Vec::new();
        while let Some(entry) = leases.starts.first_entry() {
            let (start, id) = *entry.key();
            if start > now {
                break;
            }
            entry.remove();
            if let Some((hold, start)) = leases.held.get_mut(&id) {
                *start = None;
                due.extend(hold.upgrade());
            }
        }
        let first = leases.starts.first_key_value().map(|((start, _), ())| *start);
        let look = (!leases.held.is_empty()).then(|| now.after(LOOK));
        leases.wakes = first.into_iter().chain(look).min();
        Some((due, leases.wakes))
    }
}

struct Watchdog {
    registry: Arc<Registry>,
    clock: Clock,
}

impl Watchdog {
    async fn run(self) {
        let mut lease_clock = self.clock.now();
        let mut timers = tokio::time::Instant::now();
        while let Some((due, wakes)) = self.registry.take_due(self.clock.now()) {
            for hold in due {
                self.clock.spawn(Heartbeat::new(hold).run());
            }
            match wakes {
                Some(at) => tokio::select! {
                    biased;
                    () = self.clock.sleep_until(at) => {}
                    () = self.registry.wake.notified() => {}
                },
                None => self.registry.wake.notified().await,
            }
            let moved = self.clock.now().since(lease_clock);
            if moved.abs_diff(timers.elapsed()) > APART {
                for hold in self.registry.held() {
                    hold.nudge.notify_one();
                    hold.remaining();
                }
            }
            lease_clock = self.clock.now();
            timers = tokio::time::Instant::now();
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::Redlock;
    use crate::testing::MemoryNodes;

    #[tokio::test(start_paused = true)]
    async fn a_lease_that_is_over_leaves_the_list() {
        let redlock = MemoryNodes::new(3).redlock(Redlock::builder()).await;
        let known = || {
            let leases = redlock.fleet.registry.lock();
            (leases.held.len(), leases.starts.len())
        };
        let lease = redlock.lease("k").acquire().await.unwrap();
        assert_eq!(known(), (1, 1));
        lease.release().await.unwrap();
        assert_eq!(known(), (0, 0));
        let lease = redlock.lease("k").acquire().await.unwrap();
        lease.extend(lease.remaining()).await.unwrap();
        assert_eq!(known(), (1, 0), "its heartbeat runs");
        drop(lease);
        assert_eq!(known(), (0, 0));
    }
}
