//! Looks after a lease while a command runs under it: says when the command must go.

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use leasehold::{Lease, LeaseLost};

use super::limits::Limits;

/// How often validity is looked at. Timers stand still while the machine is suspended, validity does not.
const LOOK: Duration = Duration::from_millis(250);

/// A lease, and the end of its validity as last seen: a lease that is lost no longer tells.
pub(crate) struct Watch<'a> {
    lease: &'a Lease,
    limits: Limits,
    end: Duration,
    lost: Pin<Box<dyn Future<Output = LeaseLost> + Send>>,
}

impl<'a> Watch<'a> {
    pub(crate) fn new(lease: &'a Lease, limits: Limits) -> Self {
        Self { lease, limits, end: now() + lease.remaining(), lost: Box::pin(lease.lost()) }
    }

    /// What is left of the validity; of a lost lease, until it would have ended.
    pub(crate) fn left(&mut self) -> Duration {
        let left = self.lease.remaining();
        if !left.is_zero() {
            self.end = now() + left;
        }
        self.end.saturating_sub(now())
    }

    /// Resolves when the command must go: the loss, or `None` while the lease is still valid but was not
    /// renewed for so long that nothing else is left.
    pub(crate) async fn trouble(&mut self) -> Option<LeaseLost> {
        loop {
            // Announces a loss that was not noticed yet.
            let spare = self.left().saturating_sub(self.limits.term_at());
            tokio::select! {
                biased;
                lost = &mut self.lost => {
                    // It can be asked again.
                    self.lost = Box::pin(self.lease.lost());
                    return Some(lost);
                }
                () = std::future::ready(()), if spare.is_zero() => return None,
                () = tokio::time::sleep(spare.min(LOOK)) => {}
            }
        }
    }

    /// How long until KILL is due, if TERM was sent so long ago.
    pub(crate) fn kill_in(&mut self, since_term: Duration) -> Duration {
        let left = self.left();
        self.limits.kill_in(since_term, left)
    }
}

/// A clock that goes on while the machine is suspended, as validity does.
pub(crate) fn now() -> Duration {
    #[cfg(any(target_os = "linux", target_os = "android"))]
    const CLOCK: rustix::time::ClockId = rustix::time::ClockId::Boottime;
    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    const CLOCK: rustix::time::ClockId = rustix::time::ClockId::Monotonic;
    let reading = rustix::time::clock_gettime(CLOCK);
    // Never negative.
    Duration::new(u64::try_from(reading.tv_sec).unwrap_or(0), u32::try_from(reading.tv_nsec).unwrap_or(0))
}
