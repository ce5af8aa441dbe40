//! From lines to leases: from when to when somebody was *known* to be promised a key.
//!
//! Each interval lies within what the library promised, so that an overlap of two is never a false alarm:
//! it begins after `acquire` has returned and ends before the release is called; a deadline is the clock
//! *before* `remaining()` was asked and what it said, which is never later than the true one. It is sharp
//! all the same: what is lost at each end is the time of a few instructions, or what a process that was
//! stopped just there had not written down.

use std::collections::HashMap;
use std::fmt;
use std::time::Duration;

use super::line::{Event, Line, Loss, Step};
use super::moment::Moment;

/// A loss is announced by so much before the end of validity, and the key is given back at once.
const EARLY: Duration = Duration::from_millis(2);

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Lease {
    pub(super) key: String,
    pub(super) token: String,
    pub(super) worker: String,
    pub(super) fence: Option<u64>,
    pub(super) start: Moment,
    /// The end of validity as the worker last knew it.
    pub(super) deadline: Moment,
    /// When the worker ended it or was told that it is lost.
    pub(super) left: Option<Moment>,
    /// The end of the promise.
    pub(super) end: Moment,
    pub(super) loss: Option<Loss>,
    /// When it was seen valid although it had been over before.
    pub(super) revived: Option<Moment>,
    over: bool,
    detached: bool,
}

impl Lease {
    /// One that was over when the worker could look had no time at all, and no place in the order.
    pub(super) fn is_held(&self) -> bool {
        self.start < self.end
    }

    fn won(line: &Line, key: &str, token: &str, until: Moment, fence: Option<u64>) -> Self {
        Self {
            key: key.to_owned(),
            token: token.to_owned(),
            worker: line.who.clone(),
            fence,
            start: line.at,
            deadline: until,
            left: None,
            end: until,
            loss: None,
            revived: None,
            over: false,
            detached: false,
        }
    }

    fn take(&mut self, at: Moment, step: Step) {
        match step {
            Step::Won { .. } => panic!("{} was won twice", self.token),
            Step::Renewed { until } => {
                // Not so for being past the known deadline: one that was renewed in time need not have been seen.
                if self.over || self.left.is_some() {
                    self.revived.get_or_insert(at);
                }
                self.deadline = self.deadline.max(until);
            }
            Step::Over => self.over = true,
            Step::Releasing | Step::Dropping => self.left = Some(at),
            Step::Detached { until } => {
                // Nothing was left of one that ended in the same moment.
                self.deadline = if until > at { until } else { self.deadline.min(at) };
                (self.left, self.detached) = (Some(at), true);
            }
            Step::Lost { why, .. } => (self.left, self.loss) = (Some(at), Some(why)),
        }
        self.end = match step {
            Step::Releasing | Step::Dropping => self.deadline.min(at),
            // It was given back some time after it was last seen valid.
            Step::Lost { valid, why: Loss::Denied } => self.deadline.min(valid),
            Step::Lost { valid, why: Loss::Expired } => {
                self.deadline.min(self.deadline.before(EARLY).max(valid))
            }
            Step::Won { .. } | Step::Renewed { .. } | Step::Over | Step::Detached { .. } => self.deadline,
        };
    }
}

impl fmt::Display for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { key, token, worker, start, end, deadline, .. } = self;
        write!(f, "{worker} held {key} as {token} from {start} to {end}, valid until {deadline}")?;
        self.fence.map_or(Ok(()), |fence| write!(f, ", fence {fence}"))
    }
}

/// The leases of all workers. Lines of one process are in their order; the files may come in any.
pub(super) fn leases(lines: &[Line]) -> Vec<Lease> {
    let mut leases: Vec<Lease> = Vec::new();
    let mut index = HashMap::new();
    for line in lines {
        let Event::Lease { step, key, token } = &line.what else { continue };
        if let Step::Won { until, fence } = *step {
            index.insert((&line.who, token), leases.len());
            leases.push(Lease::won(line, key, token, until, fence));
        } else {
            let lease = index.get(&(&line.who, token)).unwrap_or_else(|| panic!("{line}: it was not won"));
            leases[*lease].take(line.at, *step);
        }
    }
    for killed in lines.iter().filter(|line| line.what == Event::Killed) {
        // The dead promise nothing, but for what runs out without them.
        let of_it = leases.iter_mut().filter(|lease| lease.worker == killed.who && !lease.detached);
        of_it.for_each(|lease| lease.end = lease.end.min(killed.at));
    }
    leases
}

#[cfg(test)]
mod tests {
    use super::super::line::lines;
    use super::*;

    /// From when to when the only lease of this history was held.
    fn held(history: &str) -> (String, String) {
        let leases = leases(&lines(history));
        assert_eq!(leases.len(), 1);
        (leases[0].start.to_string(), leases[0].end.to_string())
    }

    const WON: &str = "1.000000 w1.1 won job-1 aa until 2.000000\n";

    #[test]
    fn a_lease_ends_with_its_last_known_deadline() {
        assert_eq!(held(WON), ("1.000000".into(), "2.000000".into()));
        let renewed = "1.300000 w1.1 renewed job-1 aa until 2.300000\n";
        assert_eq!(held(&format!("{WON}{renewed}")).1, "2.300000");
    }

    #[test]
    fn a_lease_ends_when_it_is_given_back_unless_it_has_ended_before() {
        for verb in ["releasing", "dropping"] {
            assert_eq!(held(&format!("{WON}1.500000 w1.1 {verb} job-1 aa\n")).1, "1.500000");
            assert_eq!(held(&format!("{WON}2.500000 w1.1 {verb} job-1 aa\n")).1, "2.000000");
        }
    }

    #[test]
    fn a_killed_holders_promise_ends_with_it_but_not_a_detached_one() {
        let killed = "1.400000 w1.1 killed\n";
        assert_eq!(held(&format!("{WON}{killed}")).1, "1.400000");
        assert_eq!(held(&format!("{WON}3.000000 w1.1 killed\n")).1, "2.000000");
        assert_eq!(held(&format!("{WON}1.400000 w1.2 killed\n")).1, "2.000000", "that was its next life");
        let detached = "1.300000 w1.1 detached job-1 aa until 2.000000\n";
        assert_eq!(held(&format!("{WON}{detached}{killed}")).1, "2.000000");
    }

    #[test]
    fn one_that_is_detached_too_late_has_ended_before() {
        let late = "2.500000 w1.1 detached job-1 aa until 2.500000\n";
        assert_eq!(held(&format!("{WON}{late}")).1, "2.000000");
    }

    #[test]
    fn a_stopped_holders_promise_ends_with_its_validity() {
        let stopped = "1.400000 w1.1 stopped\n5.000000 w1.1 continued\n";
        let told = "5.000100 w1.1 lost job-1 aa valid 1.390000 expired\n";
        assert_eq!(held(&format!("{WON}{stopped}{told}")).1, "1.998000");
    }

    #[test]
    fn a_denied_lease_ends_when_it_was_last_seen_valid() {
        assert_eq!(held(&format!("{WON}1.500000 w1.1 lost job-1 aa valid 1.495000 denied\n")).1, "1.495000");
    }

    #[test]
    fn a_lease_that_was_over_before_the_worker_could_look_was_not_held() {
        let late = leases(&lines("3.000000 w1.1 won job-1 aa until 3.000000\n"));
        assert!(!late[0].is_held());
    }
}
