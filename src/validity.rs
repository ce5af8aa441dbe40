//! Time → validity: what is left of a TTL for the holder. Pure.
//!
//! The rule is that of the Redlock specification, "Safety arguments": the TTL less the time that the
//! round took less an allowance for clocks that run at other rates.

use std::time::Duration;

use crate::clock::Timestamp;
use crate::error::InvalidRequest;
use crate::sabotage::{self, Sabotage};

/// The least validity that a TTL must leave before anything is sent.
const LEAST_VALIDITY: Duration = Duration::from_millis(1);

/// A TTL in whole milliseconds, as the nodes take it, that leaves validity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Ttl(Duration);

impl Ttl {
    /// Takes `asked`, cut to whole milliseconds, or says why it cannot be a TTL.
    pub(crate) fn new(asked: Duration, max_ttl: Duration) -> Result<Self, InvalidRequest> {
        if asked > max_ttl {
            return Err(InvalidRequest::TtlTooLong { ttl: asked, max_ttl });
        }
        let whole = u64::try_from(asked.as_millis()).unwrap_or(u64::MAX);
        let ttl = Duration::from_millis(whole);
        if ttl < drift(ttl) + LEAST_VALIDITY {
            return Err(InvalidRequest::TtlTooShort { ttl: asked });
        }
        Ok(Self(ttl))
    }

    pub(crate) fn duration(self) -> Duration {
        self.0
    }

    pub(crate) fn millis(self) -> u64 {
        u64::try_from(self.0.as_millis()).unwrap_or(u64::MAX)
    }

    /// The end of the validity of a lease whose TTL was asked of the nodes from `sent` on.
    pub(crate) fn deadline(self, sent: Timestamp) -> Timestamp {
        if sabotage::has(Sabotage::NoDrift) {
            return sent.after(self.0);
        }
        sent.after(self.0.saturating_sub(drift(self.0)))
    }

    /// How long a round with this TTL waits for a node.
    pub(crate) fn round_timeout(self, node_timeout: Duration) -> Duration {
        node_timeout.min(self.0 / 5)
    }

    /// How often a heartbeat renews a lease of this TTL unless told otherwise.
    pub(crate) fn renewal_interval(self) -> Duration {
        self.0 / 3
    }
}

/// The allowance for clocks that run at other rates, and for the nodes' expiry in whole milliseconds.
pub(crate) fn drift(ttl: Duration) -> Duration {
    ttl / 100 + Duration::from_millis(2)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Clock;
    use proptest::prelude::*;

    const MAX: Duration = Duration::from_secs(60);

    #[test]
    fn a_ttl_that_leaves_no_validity_is_refused() {
        for micros in [0, 1, 999, 1_000, 3_000, 3_999] {
            let asked = Duration::from_micros(micros);
            assert!(matches!(Ttl::new(asked, MAX), Err(InvalidRequest::TtlTooShort { .. })), "{asked:?}");
        }
        assert!(Ttl::new(Duration::from_millis(4), MAX).is_ok());
    }

    #[test]
    fn a_ttl_above_the_longest_is_refused() {
        assert!(Ttl::new(MAX, MAX).is_ok());
        for asked in [MAX + Duration::from_nanos(1), Duration::MAX] {
            assert!(matches!(Ttl::new(asked, MAX), Err(InvalidRequest::TtlTooLong { .. })));
        }
    }

    #[test]
    fn drift_is_one_percent_and_two_milliseconds() {
        assert_eq!(drift(Duration::from_secs(10)), Duration::from_millis(102));
        assert_eq!(drift(Duration::ZERO), Duration::from_millis(2));
    }

    #[test]
    fn rounds_last_a_fifth_of_the_ttl_at_most_and_a_heartbeat_comes_every_third() {
        let ttl = Ttl::new(Duration::from_secs(3), MAX).unwrap();
        assert_eq!(ttl.round_timeout(MAX), Duration::from_millis(600));
        assert_eq!(ttl.round_timeout(Duration::from_millis(500)), Duration::from_millis(500));
        assert_eq!(ttl.renewal_interval(), Duration::from_secs(1));
    }

    #[test]
    fn a_fraction_of_a_millisecond_is_cut() {
        let ttl = Ttl::new(Duration::from_micros(10_900), MAX).unwrap();
        assert_eq!(ttl.millis(), 10);
        assert_eq!(ttl.duration(), Duration::from_millis(10));
    }

    proptest! {
        #[test]
        fn validity_is_positive_at_the_send_and_below_the_ttl(millis in 4u64..60_000, ago in 0u64..100_000) {
            let ttl = Ttl::new(Duration::from_millis(millis), MAX).unwrap();
            let sent = Clock::System(None).now();
            let validity = ttl.deadline(sent).since(sent);
            prop_assert!(validity > Duration::ZERO);
            prop_assert!(validity < ttl.duration());
            let later = sent.after(Duration::from_millis(ago));
            prop_assert_eq!(
                ttl.deadline(sent).since(later),
                validity.saturating_sub(Duration::from_millis(ago))
            );
        }

        #[test]
        fn rounds_are_short_beside_the_ttl(millis in 4u64..60_000, timeout in 1u64..10_000) {
            let ttl = Ttl::new(Duration::from_millis(millis), MAX).unwrap();
            let round = ttl.round_timeout(Duration::from_millis(timeout));
            prop_assert!(round <= ttl.duration() / 5);
            prop_assert!(round <= Duration::from_millis(timeout));
            prop_assert!(round < ttl.renewal_interval());
        }
    }
}
