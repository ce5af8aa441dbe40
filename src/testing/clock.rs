//! The clock of a machine in tokio's time, which tests pause.

use std::fmt;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::future::BoxFuture;
use tokio::time::Instant;

/// What Unix time it is where a virtual clock begins, in microseconds.
pub(crate) const EPOCH: u64 = 1_700_000_000_000_000;

const MILLION: u64 = 1_000_000;

/// How the tasks of a machine are started.
type Spawn = Arc<dyn Fn(BoxFuture<'static, ()>) + Send + Sync>;

/// One machine's clock, timers and tasks.
pub(crate) struct VirtualClock {
    origin: Instant,
    /// By how many millionths it runs fast.
    rate: i32,
    /// By how many microseconds its Unix time is off.
    wall_off: AtomicI64,
    /// By how much suspends have moved it ahead of its timers.
    ahead: Mutex<Duration>,
    spawn: Option<Spawn>,
}

impl VirtualClock {
    /// A clock that shows true time.
    pub(crate) fn new() -> Self {
        let (wall_off, ahead) = (AtomicI64::new(0), Mutex::default());
        Self { origin: Instant::now(), rate: 0, wall_off, ahead, spawn: None }
    }

    /// A clock that runs fast by `rate` millionths and is wrong by `wall_off` microseconds, of a machine that
    /// runs its tasks by `spawn`.
    #[cfg(test)]
    pub(crate) fn of_machine(
        rate: i32,
        wall_off: i64,
        spawn: impl Fn(BoxFuture<'static, ()>) + Send + Sync + 'static,
    ) -> Self {
        Self { rate, wall_off: wall_off.into(), spawn: Some(Arc::new(spawn)), ..Self::new() }
    }

    /// A clock that began with this one, whose Unix time is wrong by `wall_off` microseconds.
    pub(crate) fn of_another(&self, wall_off: i64) -> Self {
        Self { origin: self.origin, wall_off: wall_off.into(), ..Self::new() }
    }

    /// The time since it began.
    pub(crate) fn now(&self) -> Duration {
        let ahead = *self.ahead.lock().unwrap_or_else(PoisonError::into_inner);
        scale(self.origin.elapsed(), MILLION.saturating_add_signed(self.rate.into()), MILLION) + ahead
    }

    /// Unix time in microseconds.
    pub(crate) fn wall(&self) -> u64 {
        let micros = u64::try_from(self.now().as_micros()).unwrap_or(u64::MAX);
        (EPOCH + micros).saturating_add_signed(self.wall_off.load(Ordering::Relaxed))
    }

    /// Lets its Unix time be wrong by `wall_off` microseconds from now on.
    pub(crate) fn set_wall(&self, wall_off: i64) {
        self.wall_off.store(wall_off, Ordering::Relaxed);
    }

    /// The true time in which it shows `span` more.
    pub(crate) fn truly(&self, span: Duration) -> Duration {
        scale(span, MILLION, MILLION.saturating_add_signed(self.rate.into()))
    }

    /// Lets it jump while its timers stand still.
    pub(crate) fn suspend(&self, time: Duration) {
        *self.ahead.lock().unwrap_or_else(PoisonError::into_inner) += time;
    }

    pub(crate) fn spawn(&self, task: BoxFuture<'static, ()>) {
        match &self.spawn {
            Some(spawn) => spawn(task),
            None => drop(tokio::spawn(task)),
        }
    }
}

impl fmt::Debug for VirtualClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("VirtualClock").field("now", &self.now()).finish_non_exhaustive()
    }
}

/// `span` × `by` / `over`, rounded up; of what is longer than some hours, the seconds alone.
fn scale(span: Duration, by: u64, over: u64) -> Duration {
    if by == over {
        return span;
    }
    let nanos = u64::try_from(span.as_nanos()).ok().and_then(|nanos| nanos.checked_mul(by));
    match nanos {
        Some(nanos) => Duration::from_nanos(nanos.div_ceil(over)),
        None => Duration::from_secs((span.as_secs() + 1).saturating_mul(by).div_ceil(over)),
    }
}
