//! Reads a history and says what in it breaks a promise.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::time::Duration;

use super::history::{Lease, leases};
use super::line::{Event, Line};
use super::moment::Moment;

/// A loss is told by a timer of a process that shares two cores with a dozen others.
pub(super) const SLACK: Duration = Duration::from_secs(1);

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Problem {
    Overlap { first: Lease, second: Lease, by: Duration },
    FenceWentBack { first: Lease, second: Lease },
    ToldLate { lease: Lease, late: Duration },
    Revived { lease: Lease, at: Moment },
    Failed(Line),
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Overlap { first, second, by } => {
                write!(f, "two were promised one key at a time, for {by:?}:\n  {first}\n  {second}")
            }
            Self::FenceWentBack { first, second } => {
                write!(f, "a later holder's fence is no greater:\n  {first}\n  {second}")
            }
            Self::ToldLate { lease, late } => {
                write!(f, "a loss was told {late:?} after the end of validity:\n  {lease}")
            }
            Self::Revived { lease, at } => {
                write!(f, "a lease that was over was valid again at {at}:\n  {lease}")
            }
            Self::Failed(line) => write!(f, "{line}"),
        }
    }
}

/// What a history breaks.
pub(super) fn problems(lines: &[Line]) -> Vec<Problem> {
    let leases = leases(lines);
    let mut problems = Vec::new();
    for held in by_key(&leases).values() {
        problems.extend(overlaps(held));
        problems.extend(fences_that_went_back(held));
    }
    problems.extend(told_late(&leases, &stops(lines)));
    problems.extend(revived(&leases));
    let failed = lines.iter().filter(|line| matches!(line.what, Event::Failed(_)));
    problems.extend(failed.cloned().map(Problem::Failed));
    problems
}

/// What was held, in the order of holding.
pub(super) fn by_key(leases: &[Lease]) -> BTreeMap<&str, Vec<&Lease>> {
    let mut keys: BTreeMap<&str, Vec<&Lease>> = BTreeMap::new();
    for lease in leases.iter().filter(|lease| lease.is_held()) {
        keys.entry(&lease.key).or_default().push(lease);
    }
    keys.values_mut().for_each(|held| held.sort_by_key(|lease| lease.start));
    keys
}

/// Each lease beside the longest of those that began before it.
fn overlaps(held: &[&Lease]) -> Vec<Problem> {
    let mut found = Vec::new();
    let mut longest: Option<&Lease> = None;
    for lease in held {
        if let Some(first) = longest.filter(|first| lease.start < first.end) {
            let by = first.end.min(lease.end).since(lease.start);
            found.push(Problem::Overlap { first: first.clone(), second: (*lease).clone(), by });
        }
        if longest.is_none_or(|longest| lease.end > longest.end) {
            longest = Some(lease);
        }
    }
    found
}

fn fences_that_went_back(held: &[&Lease]) -> Vec<Problem> {
    let mut found = Vec::new();
    let mut highest: Option<&Lease> = None;
    for lease in held.iter().filter(|lease| lease.fence.is_some()) {
        match highest.filter(|highest| lease.fence <= highest.fence) {
            Some(first) => {
                found.push(Problem::FenceWentBack { first: first.clone(), second: (*lease).clone() });
            }
            None => highest = Some(lease),
        }
    }
    found
}

/// A worker that does anything else with a lease that has ended was not told of its loss either.
fn told_late(leases: &[Lease], stops: &HashMap<&str, Vec<(Moment, Moment)>>) -> Vec<Problem> {
    let mut found = Vec::new();
    for lease in leases {
        let late = lease.left.map_or(Duration::ZERO, |left| left.since(lease.deadline));
        let stopped = |(stopped, continued): &(Moment, Moment)| {
            // Who was stopped meanwhile cannot know, and needs a moment to catch up.
            Some(*stopped) <= lease.left && continued.after(SLACK) >= lease.deadline
        };
        let excused = stops.get(&*lease.worker).is_some_and(|stops| stops.iter().any(stopped));
        if late > SLACK && !excused {
            found.push(Problem::ToldLate { lease: lease.clone(), late });
        }
    }
    found
}

fn revived(leases: &[Lease]) -> impl Iterator<Item = Problem> {
    leases.iter().filter_map(|lease| Some(Problem::Revived { lease: lease.clone(), at: lease.revived? }))
}

/// From when to when each worker was stopped.
fn stops(lines: &[Line]) -> HashMap<&str, Vec<(Moment, Moment)>> {
    let mut stops: HashMap<&str, Vec<(Moment, Moment)>> = HashMap::new();
    for line in lines {
        let of_it = stops.entry(&line.who).or_default();
        match (&line.what, of_it.last_mut()) {
            (Event::Stopped, _) => of_it.push((line.at, line.at)),
            (Event::Continued, Some(last)) => last.1 = line.at,
            _ => {}
        }
    }
    stops
}

#[cfg(test)]
mod tests {
    use super::super::line::lines;
    use super::*;

    fn found(history: &str) -> Vec<Problem> {
        problems(&lines(history))
    }

    fn overlap(history: &str) -> Option<Duration> {
        match &found(history)[..] {
            [] => None,
            [Problem::Overlap { by, .. }] => Some(*by),
            other => panic!("{other:?}"),
        }
    }

    const FIRST: &str = "1.000000 w1.1 won job-1 aa until 2.000000\n";

    #[test]
    fn an_overlap_of_some_milliseconds_is_found() {
        let second = "1.997000 w2.1 won job-1 bb until 3.000000\n";
        assert_eq!(overlap(&format!("{FIRST}{second}")), Some(Duration::from_millis(3)));
        assert_eq!(overlap(&format!("{second}{FIRST}")), Some(Duration::from_millis(3)), "in any order");
        let renewed = "1.300000 w1.1 renewed job-1 aa until 2.300000\n";
        assert_eq!(overlap(&format!("{FIRST}{renewed}{second}")), Some(Duration::from_millis(303)));
    }

    #[test]
    fn an_overlap_with_one_long_before_is_found() {
        let between = "1.200000 w2.1 won job-1 bb until 1.900000\n1.200001 w2.1 releasing job-1 bb\n";
        let after = "1.500000 w3.1 won job-1 cc until 1.900000\n";
        let by: Vec<_> = found(&format!("{FIRST}{between}{after}"))
            .iter()
            .map(|problem| match problem {
                Problem::Overlap { first, second, .. } => (first.token.clone(), second.token.clone()),
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(by, [("aa".into(), "bb".into()), ("aa".into(), "cc".into())]);
    }

    #[test]
    fn touching_intervals_and_other_keys_are_no_overlap() {
        assert_eq!(overlap(&format!("{FIRST}2.000000 w2.1 won job-1 bb until 3.000000\n")), None);
        assert_eq!(overlap(&format!("{FIRST}1.500000 w2.1 won job-2 bb until 3.000000\n")), None);
        let released = "1.400000 w1.1 releasing job-1 aa\n";
        assert_eq!(overlap(&format!("{FIRST}{released}1.400000 w2.1 won job-1 bb until 3.000000\n")), None);
    }

    #[test]
    fn a_killed_holders_promise_ends_with_it() {
        let second = "1.500000 w2.1 won job-1 bb until 3.000000\n";
        assert_eq!(overlap(&format!("{FIRST}1.500000 w1.1 killed\n{second}")), None);
        assert!(overlap(&format!("{FIRST}1.600000 w1.1 killed\n{second}")).is_some());
    }

    #[test]
    fn a_stopped_holders_promise_goes_on() {
        let stopped = "1.100000 w1.1 stopped\n";
        let told = "9.000000 w1.1 lost job-1 aa valid 1.090000 expired\n";
        let second = "1.990000 w2.1 won job-1 bb until 3.000000\n";
        let continued = "8.990000 w1.1 continued\n";
        assert!(overlap(&format!("{FIRST}{stopped}{second}{continued}{told}")).is_some());
    }

    #[test]
    fn a_fence_that_goes_back_or_stays_is_found() {
        let history = |fences: [u64; 3]| {
            let [a, b, c] = fences;
            format!(
                "1.000000 w1.1 won job-1 aa until 2.000000 fence {a}\n\
                 1.500000 w1.1 releasing job-1 aa\n\
                 2.000000 w1.1 won job-1 bb until 3.000000 fence {b}\n\
                 3.000000 w2.1 won job-1 plain until 4.000000\n\
                 4.000000 w3.1 won job-1 cc until 5.000000 fence {c}\n"
            )
        };
        assert_eq!(found(&history([5, 6, 7])), []);
        for fences in [[5, 5, 7], [5, 4, 7], [5, 6, 5], [5, 7, 6]] {
            let found = found(&history(fences));
            assert!(matches!(&found[..], [Problem::FenceWentBack { .. }]), "{fences:?}: {found:?}");
        }
        let other_key = "6.000000 w3.1 won job-2 dd until 7.000000 fence 1\n";
        assert_eq!(found(&format!("{}{other_key}", history([5, 6, 7]))), []);
    }

    #[test]
    fn a_loss_that_is_told_late_is_found_unless_the_process_was_stopped() {
        let late = |told: &str| format!("{FIRST}{told} w1.1 lost job-1 aa valid 1.990000 expired\n");
        assert_eq!(found(&late("2.900000")), []);
        let lost = found(&late("3.100000"));
        assert!(matches!(&lost[..], [Problem::ToldLate { .. }]), "{lost:?}");
        let stopped = |name| format!("1.995000 {name} stopped\n3.050000 {name} continued\n");
        assert_eq!(found(&format!("{}{}", late("3.100000"), stopped("w1.1"))), []);
        assert_eq!(found(&format!("{}{}", late("3.100000"), stopped("w2.1"))).len(), 1);
        let long_before = "0.100000 w1.1 stopped\n0.200000 w1.1 continued\n";
        assert_eq!(found(&format!("{long_before}{}", late("3.100000"))).len(), 1);
    }

    #[test]
    fn a_lease_that_is_used_long_after_its_end_was_not_told_of_its_loss() {
        let late = found(&format!("{FIRST}3.100000 w1.1 releasing job-1 aa\n"));
        assert!(matches!(&late[..], [Problem::ToldLate { .. }]), "{late:?}");
    }

    #[test]
    fn a_lease_that_is_valid_again_is_found() {
        let renewed = "2.100000 w1.1 renewed job-1 aa until 3.100000\n";
        for over in [
            "over job-1 aa",
            "lost job-1 aa valid 1.990000 expired",
            "lost job-1 aa valid 1.990000 denied",
            "releasing job-1 aa",
            "dropping job-1 aa",
        ] {
            let found = found(&format!("{FIRST}2.000500 w1.1 {over}\n{renewed}"));
            assert!(matches!(&found[..], [Problem::Revived { .. }]), "{over}: {found:?}");
        }
        let told = "2.000700 w1.1 lost job-1 aa valid 1.990000 expired\n";
        assert_eq!(found(&format!("{FIRST}2.000500 w1.1 over job-1 aa\n{told}")), []);
        assert_eq!(found(&format!("{FIRST}{renewed}")), [], "renewed in time, for all that is known");
    }

    #[test]
    fn a_failure_is_found() {
        let failed = found("1.000000 w1.1 failed the key is empty\n");
        assert!(matches!(&failed[..], [Problem::Failed(_)]), "{failed:?}");
    }
}
