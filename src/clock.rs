//! The lease clock: one that goes on while the machine is suspended.
//!
//! The nodes' expiries go on through a suspend of this machine, so validity must too. Timers do not:
//! who sleeps on this clock looks again at every wake (see `watchdog.rs`).

#[cfg(feature = "testing")]
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::runtime::Handle;

#[cfg(feature = "testing")]
use crate::testing::VirtualClock;

/// A reading of the lease clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Timestamp(Duration);

impl Timestamp {
    /// This moment and `span` more; stays at the end of time instead of overflowing.
    pub(crate) fn after(self, span: Duration) -> Self {
        Self(self.0.saturating_add(span))
    }

    /// How long after `earlier` this is; zero if it is not.
    pub(crate) fn since(self, earlier: Self) -> Duration {
        self.0.saturating_sub(earlier.0)
    }

    /// This moment less `span`; stays at the origin instead of underflowing.
    pub(crate) fn before(self, span: Duration) -> Self {
        Self(self.0.saturating_sub(span))
    }
}

/// Where timestamps come from.
#[derive(Clone, Debug)]
pub(crate) enum Clock {
    /// The machine's suspend-aware clock, and the runtime whose timers serve where there is no other.
    System(Option<Handle>),
    /// In tokio's time, for tests that pause it.
    #[cfg(feature = "testing")]
    Virtual(Arc<VirtualClock>),
}

impl Clock {
    pub(crate) fn now(&self) -> Timestamp {
        match self {
            Self::System(_) => Timestamp(system_now()),
            #[cfg(feature = "testing")]
            Self::Virtual(clock) => Timestamp(clock.now()),
        }
    }

    /// Unix time in microseconds. It may jump.
    pub(crate) fn wall(&self) -> u64 {
        match self {
            Self::System(_) => {
                let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
                u64::try_from(now.as_micros()).unwrap_or(u64::MAX)
            }
            #[cfg(feature = "testing")]
            Self::Virtual(clock) => clock.wall(),
        }
    }

    /// Runs `task` in the background, on the machine that the clock is of. Must be called within a runtime.
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        match self {
            Self::System(_) => drop(tokio::spawn(task)),
            #[cfg(feature = "testing")]
            Self::Virtual(clock) => clock.spawn(Box::pin(task)),
        }
    }

    /// Sleeps until the clock reads `at` or later.
    ///
    /// The timer stands still in a suspend, so this may come late by as long as the suspend took;
    /// whoever needs to know at once also listens to the watchdog.
    pub(crate) async fn sleep_until(&self, at: Timestamp) {
        loop {
            let left = at.since(self.now());
            if left.is_zero() {
                return;
            }
            self.sleep(left).await;
        }
    }

    /// Sleeps for `time` by a timer, which stands still in a suspend.
    pub(crate) fn sleep(&self, time: Duration) -> tokio::time::Sleep {
        let elsewhere = match self {
            // Leases may be used from threads and executors that have no timers.
            Self::System(Some(runtime)) if Handle::try_current().is_err() => Some(runtime.enter()),
            _ => None,
        };
        #[cfg(feature = "testing")]
        let time = match self {
            Self::Virtual(clock) => clock.truly(time),
            Self::System(_) => time,
        };
        let sleep = tokio::time::sleep(time);
        drop(elsewhere);
        sleep
    }

    /// What `future` comes to within `limit`; `None` if it takes longer.
    pub(crate) async fn within<F: Future>(&self, limit: Duration, future: F) -> Option<F::Output> {
        tokio::select! {
            biased;
            output = future => Some(output),
            () = self.sleep(limit) => None,
        }
    }
}

#[cfg(any(target_os = "linux", target_os = "android"))]
const SYSTEM_CLOCK: rustix::time::ClockId = rustix::time::ClockId::Boottime;
// The BSDs and macOS count suspended time in CLOCK_MONOTONIC.
#[cfg(all(unix, not(any(target_os = "linux", target_os = "android"))))]
const SYSTEM_CLOCK: rustix::time::ClockId = rustix::time::ClockId::Monotonic;

#[cfg(unix)]
fn system_now() -> Duration {
    let reading = rustix::time::clock_gettime(SYSTEM_CLOCK);
    // Time since boot is never negative; a kernel that says otherwise reads as boot.
    Duration::new(u64::try_from(reading.tv_sec).unwrap_or(0), u32::try_from(reading.tv_nsec).unwrap_or(0))
}

#[cfg(not(unix))]
fn system_now() -> Duration {
    static ORIGIN: std::sync::OnceLock<std::time::Instant> = std::sync::OnceLock::new();
    ORIGIN.get_or_init(std::time::Instant::now).elapsed()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_system_clock_does_not_go_back() {
        let first = Clock::System(None).now();
        assert!(Clock::System(None).now() >= first);
    }

    #[test]
    fn differences_of_times_never_underflow() {
        let early = Timestamp(Duration::from_secs(1));
        let late = early.after(Duration::from_secs(2));
        assert_eq!(late.since(early), Duration::from_secs(2));
        assert_eq!(early.since(late), Duration::ZERO);
        assert_eq!(late.after(Duration::MAX).since(late), Duration::MAX - Duration::from_secs(3));
        assert_eq!(early.before(Duration::MAX), Timestamp(Duration::ZERO));
    }

    #[tokio::test(start_paused = true)]
    async fn a_sleep_ends_at_its_moment() {
        let clock = Clock::Virtual(Arc::new(VirtualClock::new()));
        let at = clock.now().after(Duration::from_secs(3));
        clock.sleep_until(at).await;
        assert!(clock.now() >= at);
        assert!(clock.now().since(at) < Duration::from_millis(2));
    }
}
