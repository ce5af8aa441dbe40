//! Moments on the clock that all processes of a machine share, and that leases are measured on.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

#[cfg(any(target_os = "linux", target_os = "android"))]
const CLOCK: ClockId = ClockId::Boottime;
#[cfg(not(any(target_os = "linux", target_os = "android")))]
const CLOCK: ClockId = ClockId::Monotonic;

/// Microseconds since the test began. What is cut off lies far below the drift (8 ms at the least) that the
/// library takes off each validity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Moment(u64);

impl Moment {
    pub(super) fn after(self, span: Duration) -> Self {
        Self(self.0 + u64::try_from(span.as_micros()).expect("a span of this test"))
    }

    pub(super) fn before(self, span: Duration) -> Self {
        Self(self.0.saturating_sub(u64::try_from(span.as_micros()).expect("a span of this test")))
    }

    /// Zero if `earlier` is later.
    pub(super) fn since(self, earlier: Self) -> Duration {
        Duration::from_micros(self.0.saturating_sub(earlier.0))
    }
}

/// Seconds, as `12.345678`.
impl fmt::Display for Moment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:06}", self.0 / 1_000_000, self.0 % 1_000_000)
    }
}

impl FromStr for Moment {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let read = || {
            let (seconds, micros) = text.split_once('.').filter(|(_, micros)| micros.len() == 6)?;
            Some(Self(seconds.parse::<u64>().ok()? * 1_000_000 + micros.parse::<u64>().ok()?))
        };
        read().ok_or_else(|| format!("`{text}` is no moment"))
    }
}

/// Reads moments; made in one process and passed on to the others by its origin.
#[derive(Clone, Copy, Debug)]
pub(super) struct Clock {
    origin: u64,
}

impl Clock {
    pub(super) fn start() -> Self {
        Self { origin: micros() }
    }

    pub(super) fn since(origin: u64) -> Self {
        Self { origin }
    }

    pub(super) fn origin(self) -> u64 {
        self.origin
    }

    pub(super) fn now(self) -> Moment {
        Moment(micros() - self.origin)
    }

    pub(super) async fn sleep_until(self, moment: Moment) {
        tokio::time::sleep(moment.since(self.now())).await;
    }
}

fn micros() -> u64 {
    let reading = clock_gettime(CLOCK);
    let micros = reading.tv_sec * 1_000_000 + reading.tv_nsec / 1_000;
    u64::try_from(micros).expect("the machine has been started")
}

#[test]
fn a_moment_reads_back_as_it_was_written() {
    for text in ["0.000000", "12.000345", "100.999999"] {
        assert_eq!(text.parse::<Moment>().unwrap().to_string(), text);
    }
    for text in ["", "12", "12.5", "x.000000"] {
        assert!(text.parse::<Moment>().is_err(), "{text}");
    }
}
