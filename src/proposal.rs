//! Which number a fenced round proposes. Pure but for the wall clock that is passed in.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use crate::sabotage::{self, Sabotage};

/// A node grants numbers within so many microseconds of its clock.
const NEAR: u64 = 1_000_000;
/// Time that may pass until a second proposal is there.
const MARGIN: u64 = 100_000;

/// What a node said of a number that did not fit, in microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Unfit {
    /// The node's TIME.
    pub(crate) time: u64,
    /// The highest fence that it has granted for the key.
    pub(crate) highest: u64,
}

/// What one client knows of the nodes' clocks and of fences.
#[derive(Debug)]
pub(crate) struct Proposer {
    /// How far the nodes' clocks are ahead of ours, in microseconds; `UNKNOWN` at first.
    ahead: AtomicI64,
    /// The highest number proposed or seen.
    highest: AtomicU64,
}

const UNKNOWN: i64 = i64::MIN;

impl Default for Proposer {
    fn default() -> Self {
        Self { ahead: AtomicI64::new(UNKNOWN), highest: AtomicU64::new(0) }
    }
}

impl Proposer {
    /// The number for a first round at wall clock `now`; `ahead` is asked for the nodes' clocks until an
    /// answer taught us better.
    pub(crate) fn first(&self, now: u64, ahead: impl FnOnce() -> Option<i64>) -> u64 {
        let mut learned = self.ahead.load(Ordering::Relaxed);
        if learned == UNKNOWN {
            learned = ahead().unwrap_or(0);
            self.ahead.store(learned, Ordering::Relaxed);
        }
        if sabotage::has(Sabotage::FenceByClientClock) {
            return now;
        }
        let estimate = now.saturating_add_signed(learned);
        let step = if sabotage::has(Sabotage::FenceAheadOfHighest) { NEAR } else { 1 };
        let next = |highest: u64| Some(estimate.max(highest.saturating_add(step)));
        let before = self.highest.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next).unwrap_or(0);
        estimate.max(before.saturating_add(step))
    }

    /// The number for a second round, after nodes said that `first` did not fit and others granted it.
    /// `None` if no number fits all.
    pub(crate) fn second(&self, now: u64, first: Option<u64>, answers: &[Unfit]) -> Option<u64> {
        let number = fit(first, answers)?;
        // Of a clock that had jumped ahead there is nothing to remember: each later number would not fit either.
        let known = |highest: u64| Some(if highest > number + NEAR { number } else { highest.max(number) });
        let _ = self.highest.fetch_update(Ordering::Relaxed, Ordering::Relaxed, known);
        let ahead = i128::from(number) - i128::from(now);
        self.ahead.store(i64::try_from(ahead).unwrap_or(0), Ordering::Relaxed);
        Some(number)
    }
}

/// A number that fits every answer, as near to the nodes' clocks as can be. `granted` is a number that some
/// of them have granted meanwhile.
fn fit(granted: Option<u64>, answers: &[Unfit]) -> Option<u64> {
    let mut times: Vec<u64> = answers.iter().map(|answer| answer.time).collect();
    times.sort_unstable();
    let middle = *times.get(times.len() / 2)?;
    let highest = answers.iter().map(|answer| answer.highest).chain(granted).max()?;
    let latest = *times.last()?;
    let least = (highest + 1).max((latest + MARGIN).saturating_sub(NEAR));
    let most = answers.iter().map(|answer| (answer.time + NEAR).max(answer.highest + 1)).min()?;
    if sabotage::has(Sabotage::FenceAheadOfHighest) {
        return Some(highest + NEAR);
    }
    (least <= most).then(|| middle.clamp(least, most))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const HOUR: i64 = 3_600_000_000;
    const NOW: u64 = 1_796_065_102_989_667;

    /// What a node does with a number, in one line.
    fn grants(node: &Unfit, number: u64) -> bool {
        number > node.highest
            && number >= node.time - NEAR
            && number <= (node.time + NEAR).max(node.highest + 1)
    }

    #[test]
    fn proposals_of_one_client_grow_and_follow_the_nodes_clocks() {
        let proposer = Proposer::default();
        let first = proposer.first(NOW, || Some(-HOUR));
        assert_eq!(first, NOW - HOUR as u64);
        assert_eq!(proposer.first(NOW, || None), first + 1);
        assert_eq!(proposer.first(NOW + 50, || None), first + 50);
    }

    #[test]
    fn a_number_of_a_clock_that_had_jumped_ahead_is_forgotten_and_no_other() {
        let (proposer, later) = (Proposer::default(), NOW + HOUR as u64);
        assert_eq!(proposer.first(later, || Some(0)), later);
        let second = proposer.second(later, None, &[Unfit { time: NOW, highest: 0 }]).unwrap();
        assert_eq!(proposer.first(later, || None), second + 1);
        let near = proposer.first(later + NEAR, || None);
        let lower = proposer.second(later, None, &[Unfit { time: NOW + 1, highest: 0 }]).unwrap();
        assert_eq!((lower, proposer.first(later, || None)), (near - NEAR + 1, near + 1));
    }

    #[test]
    fn an_answer_teaches_the_offset() {
        let proposer = Proposer::default();
        let wrong = proposer.first(NOW, || None);
        let node = Unfit { time: NOW - HOUR as u64, highest: 0 };
        let second = proposer.second(NOW, Some(wrong - 2 * HOUR as u64), &[node]).unwrap();
        assert!(grants(&node, second));
        let third = proposer.second(NOW + 10, None, &[Unfit { time: node.time + 10, highest: second }]);
        assert!(third.is_some_and(|third| third > second));
        let later = proposer.first(NOW + HOUR as u64, || None);
        assert!(grants(&Unfit { time: node.time + HOUR as u64, highest: second }, later), "{later}");
    }

    #[test]
    fn a_number_that_runs_ahead_of_time_climbs_by_one() {
        let node = Unfit { time: NOW, highest: NOW + 5 * NEAR };
        assert_eq!(fit(None, &[node]), Some(node.highest + 1));
    }

    #[test]
    fn nodes_whose_clocks_are_too_far_apart_have_no_number_in_common() {
        let (slow, fast) = (Unfit { time: NOW, highest: 0 }, Unfit { time: NOW + 3 * NEAR, highest: 0 });
        assert_eq!(fit(None, &[slow, fast]), None);
        assert_eq!(fit(None, &[]), None);
    }

    proptest! {
        #[test]
        fn a_number_that_fits_is_granted_by_all(
            nodes in prop::collection::vec((0u64..2_500_000, -3_000_000i64..3_000_000), 1..6),
            granted in prop::option::of(0i64..1_000_000),
        ) {
            let nodes: Vec<Unfit> = nodes.into_iter().map(|(later, highest)| {
                Unfit { time: NOW + later, highest: NOW.saturating_add_signed(highest) }
            }).collect();
            let granted = granted.map(|number| NOW.saturating_add_signed(number));
            if let Some(number) = fit(granted, &nodes) {
                prop_assert!(granted.is_none_or(|granted| number > granted));
                for node in &nodes {
                    prop_assert!(grants(node, number), "{} at {:?}", number, node);
                }
            }
        }
    }
}
