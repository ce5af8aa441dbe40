//! Backoff as an iterator of durations: exponential, capped, with full jitter. Pure but for its dice.

use std::time::Duration;

use crate::dice;

/// Full jitter (Brooker, "Exponential Backoff and Jitter"): each delay is drawn evenly from nothing
/// to an upper bound that doubles up to a cap, so that rivals spread out instead of meeting again.
#[derive(Clone, Debug)]
pub(crate) struct Backoff {
    bound: Duration,
    cap: Duration,
}

impl Backoff {
    pub(crate) const fn new(first: Duration, cap: Duration) -> Self {
        Self { bound: first, cap }
    }

    /// Between two rounds of one waiter for a key.
    pub(crate) const fn contention() -> Self {
        Self::new(Duration::from_millis(16), Duration::from_millis(256))
    }

    /// Between two tries to connect to one node.
    pub(crate) const fn reconnect() -> Self {
        Self::new(Duration::from_millis(50), Duration::from_secs(1))
    }

    /// The next delay; the bound of the one after it is twice as high.
    pub(crate) fn delay(&mut self) -> Duration {
        let bound = self.bound.min(self.cap);
        self.bound = bound.saturating_mul(2);
        bound.mul_f64(dice::fraction())
    }
}

impl Iterator for Backoff {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        Some(self.delay())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn each_delay_stays_below_its_doubling_bound_and_the_cap(first in 1u64..1_000, cap in 1u64..10_000) {
            let (first, cap) = (Duration::from_millis(first), Duration::from_millis(cap));
            let mut bound = first;
            for delay in Backoff::new(first, cap).take(24) {
                prop_assert!(delay <= bound.min(cap), "{:?} above {:?}", delay, bound.min(cap));
                bound = bound.saturating_mul(2);
            }
        }
    }

    #[test]
    fn delays_spread_over_the_whole_bound() {
        let cap = Duration::from_millis(100);
        let delays: Vec<_> = Backoff::new(cap, cap).take(1_000).collect();
        assert!(delays.iter().any(|delay| *delay < cap / 4));
        assert!(delays.iter().any(|delay| *delay > cap * 3 / 4));
    }

    #[test]
    fn the_bound_never_overflows() {
        let mut backoff = Backoff::new(Duration::MAX / 2, Duration::MAX / 2);
        assert!((0..200).all(|_| backoff.delay() <= Duration::MAX / 2));
    }
}
