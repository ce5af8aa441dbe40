//! When a command must go so that it is gone before the validity of its lease ends. Pure.

use std::time::Duration;

/// The least TTL: below it there is no time to end a process.
const LEAST_TTL: Duration = Duration::from_secs(1);
/// The longest grace that is given without being asked for.
const DEFAULT_GRACE: Duration = Duration::from_secs(5);
/// The longest time from KILL to the end of validity.
const LONGEST_MARGIN: Duration = Duration::from_millis(500);

/// The times of an ending: TERM, the grace, KILL, the margin, end of validity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Limits {
    /// From TERM to KILL.
    grace: Duration,
    /// From KILL to the end of validity: the system needs a moment, and timers come late.
    margin: Duration,
}

impl Limits {
    /// The limits under a TTL; refuses those that leave renewals no time to succeed.
    pub(crate) fn new(ttl: Duration, grace: Option<Duration>) -> Result<Self, String> {
        if ttl < LEAST_TTL {
            return Err(format!(
                "--ttl {ttl:?} is too short to end a command in time: use at least {LEAST_TTL:?}"
            ));
        }
        // A renewal begins when two thirds of the TTL are left and may take a fifth of it. A grace of a
        // quarter leaves time for another try, one of a third hardly.
        let grace = grace.unwrap_or(DEFAULT_GRACE.min(ttl / 4));
        if grace > ttl / 3 {
            return Err(format!(
                "--grace {grace:?} is above a third of the TTL ({:?}): use a shorter one or a longer --ttl",
                ttl / 3
            ));
        }
        Ok(Self { grace, margin: LONGEST_MARGIN.min(ttl / 10) })
    }

    /// With no more validity than this left, TERM is due.
    pub(crate) fn term_at(&self) -> Duration {
        self.grace + self.margin
    }

    /// How long until KILL is due: the grace is over, or no more validity than the margin is left.
    pub(crate) fn kill_in(&self, since_term: Duration, validity: Duration) -> Duration {
        self.grace.saturating_sub(since_term).min(validity.saturating_sub(self.margin))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn millis(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    #[test]
    fn the_default_grace_is_five_seconds_or_a_quarter_of_the_ttl() {
        let grace = |seconds| Limits::new(Duration::from_secs(seconds), None).unwrap().grace;
        assert_eq!(grace(60), Duration::from_secs(5));
        assert_eq!(grace(10), millis(2_500));
        assert_eq!(grace(1), millis(250));
    }

    #[test]
    fn a_grace_above_a_third_of_the_ttl_is_refused() {
        assert!(Limits::new(Duration::from_secs(9), Some(Duration::from_secs(3))).is_ok());
        let why = Limits::new(Duration::from_secs(9), Some(millis(3_001))).unwrap_err();
        assert!(why.contains("--grace 3.001s") && why.contains("3s"), "{why}");
        assert!(Limits::new(millis(999), None).unwrap_err().contains("--ttl"));
    }

    #[test]
    fn a_healthy_lease_is_never_ended() {
        for ttl in [1_000, 2_000, 10_000, 60_000].map(millis) {
            for grace in [None, Some(Duration::ZERO), Some(ttl / 3)] {
                let limits = Limits::new(ttl, grace).unwrap();
                let drift = ttl / 100 + millis(2);
                let least = ttl - ttl / 3 - drift - millis(500).min(ttl / 5);
                assert!(limits.term_at() < least, "{ttl:?} {grace:?}");
            }
        }
    }

    #[test]
    fn kill_comes_after_the_grace_and_before_the_end_of_validity() {
        let limits = Limits::new(Duration::from_secs(10), Some(Duration::from_secs(2))).unwrap();
        assert_eq!(limits.term_at(), millis(2_500));
        // Renewals fail: TERM at 2.5 s, KILL with 0.5 s left.
        assert_eq!(limits.kill_in(Duration::ZERO, millis(2_500)), millis(2_000));
        assert_eq!(limits.kill_in(millis(2_000), millis(500)), Duration::ZERO);
        // Denied with much validity left: the grace counts; with little left: the validity.
        assert_eq!(limits.kill_in(Duration::ZERO, millis(9_000)), millis(2_000));
        assert_eq!(limits.kill_in(Duration::ZERO, millis(1_200)), millis(700));
        // Noticed late.
        assert_eq!(limits.kill_in(Duration::ZERO, millis(100)), Duration::ZERO);
        assert_eq!(limits.kill_in(Duration::from_secs(9), Duration::ZERO), Duration::ZERO);
    }
}
