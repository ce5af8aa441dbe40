//! What the workers did, and whether it is as promised. Pure.

use std::time::Duration;

/// The time in which a worker had the lease, by the one clock of the machine: from after it was won to
/// before it was given back.
#[derive(Clone, Debug)]
struct Span {
    worker: String,
    from: Duration,
    until: Option<Duration>,
}

#[derive(Debug, Default)]
pub(super) struct Ledger {
    spans: Vec<Span>,
    /// The nights in which the job was begun and done, each time that it was.
    begun: Vec<usize>,
    done: Vec<usize>,
    deaths: usize,
}

/// A sentence, and whether what it says is as promised.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Finding {
    pub(super) well: bool,
    pub(super) text: String,
}

impl Ledger {
    pub(super) fn held(&mut self, worker: &str, at: Duration) {
        self.spans.push(Span { worker: worker.to_owned(), from: at, until: None });
    }

    pub(super) fn over(&mut self, worker: &str, at: Duration) {
        let open = self.spans.iter_mut().find(|span| span.worker == worker && span.until.is_none());
        if let Some(span) = open {
            span.until = Some(at);
        }
    }

    pub(super) fn died(&mut self, worker: &str, at: Duration) {
        self.deaths += 1;
        self.over(worker, at);
    }

    pub(super) fn begun(&mut self, night: usize) {
        self.begun.push(night);
    }

    pub(super) fn done(&mut self, night: usize) {
        self.done.push(night);
    }

    /// The findings after so many nights.
    pub(super) fn findings(&self, nights: usize) -> Vec<Finding> {
        let once = (1..=nights).all(|night| self.done.iter().filter(|done| **done == night).count() == 1);
        let mut findings = vec![Finding {
            well: once,
            text: match once {
                true => format!("{nights} nights, {nights} reports: each was written once"),
                false => format!("{nights} nights, and reports were written in the nights {:?}", self.done),
            },
        }];
        let interrupted = self.begun.len().saturating_sub(self.done.len());
        findings.push(Finding {
            well: interrupted <= self.deaths,
            text: format!(
                "the job was begun {} times: {interrupted} of them died with its holder and was taken over",
                self.begun.len()
            ),
        });
        let overlap = self.overlap();
        findings.push(Finding {
            well: overlap.is_none(),
            text: match overlap {
                None => format!("the lease was held {} times, never by two at once", self.spans.len()),
                Some((first, second)) => format!("{first} and {second} held the lease at the same time"),
            },
        });
        findings
    }

    /// Two who held the lease at once.
    fn overlap(&self) -> Option<(&str, &str)> {
        let mut spans: Vec<&Span> = self.spans.iter().collect();
        spans.sort_by_key(|span| span.from);
        let mut pairs = spans.windows(2);
        let pair = pairs.find(|pair| pair[0].until.is_none_or(|until| until > pair[1].from))?;
        Some((&pair[0].worker, &pair[1].worker))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    /// One night as it should be: Ann dies, Ben takes over.
    fn good() -> Ledger {
        let mut ledger = Ledger::default();
        ledger.held("Ann", at(0));
        ledger.begun(1);
        ledger.died("Ann", at(5));
        ledger.held("Ben", at(10));
        ledger.begun(1);
        ledger.done(1);
        ledger.over("Ben", at(20));
        ledger
    }

    fn wells(ledger: &Ledger) -> Vec<bool> {
        ledger.findings(1).iter().map(|finding| finding.well).collect()
    }

    #[test]
    fn a_job_that_is_done_once_by_one_at_a_time_is_well() {
        assert_eq!(wells(&good()), [true, true, true]);
    }

    #[test]
    fn a_job_that_is_done_twice_or_never_is_not() {
        let mut twice = good();
        twice.done(1);
        assert!(!wells(&twice)[0]);
        let mut never = good();
        never.done.clear();
        assert_eq!(wells(&never)[..2], [false, false]);
    }

    #[test]
    fn two_at_once_are_not_whatever_the_order_they_are_heard_in() {
        for (from, until) in [(15, 30), (0, 3), (19, 25)] {
            let mut ledger = good();
            ledger.held("Cleo", at(from));
            ledger.over("Cleo", at(until));
            assert!(!wells(&ledger)[2], "{from} to {until}");
        }
        let mut ledger = good();
        ledger.held("Cleo", at(20));
        assert!(wells(&ledger)[2], "it still holds it, and nobody after it");
        ledger.held("Ann", at(30));
        assert!(!wells(&ledger)[2]);
    }
}
