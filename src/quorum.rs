//! Votes → verdict. Pure.

use crate::sabotage::{self, Sabotage};

/// The quorum of `nodes` *configured* nodes: ⌊N/2⌋+1.
pub(crate) fn quorum(nodes: usize) -> usize {
    if sabotage::has(Sabotage::SmallQuorum) {
        return nodes / 2;
    }
    if sabotage::has(Sabotage::AllNeeded) {
        return nodes;
    }
    nodes / 2 + 1
}

/// What a round of votes has come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// More answers are needed to tell.
    Open,
    /// A quorum said yes.
    Won,
    /// A quorum answered, but too many of it said no.
    Refused,
    /// Fewer than a quorum answered.
    NoQuorum,
}

/// The votes of one round, as they come.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tally {
    nodes: usize,
    yes: usize,
    no: usize,
    failed: usize,
}

impl Tally {
    pub(crate) fn new(nodes: usize) -> Self {
        Self { nodes, yes: 0, no: 0, failed: 0 }
    }

    pub(crate) fn yes(&mut self) {
        self.yes += 1;
    }

    pub(crate) fn no(&mut self) {
        self.no += 1;
    }

    pub(crate) fn failed(&mut self) {
        self.failed += 1;
    }

    /// How many nodes said yes or no.
    pub(crate) fn answered(&self) -> usize {
        self.yes + self.no
    }

    /// The outcome, the moment that it is certain: *won* at a quorum of yes; *lost* when yes and open
    /// votes can no longer reach it. A lost round stays open until it is also certain *why*: "held by
    /// another" and "too few nodes answered" are never one answer.
    pub(crate) fn verdict(&self) -> Verdict {
        let quorum = quorum(self.nodes);
        let open = self.nodes - self.answered() - self.failed;
        if self.yes >= quorum {
            Verdict::Won
        } else if self.yes + open >= quorum {
            Verdict::Open
        } else if self.answered() >= quorum {
            Verdict::Refused
        } else if self.answered() + open < quorum {
            Verdict::NoQuorum
        } else {
            Verdict::Open
        }
    }

    /// The outcome when no more votes will be counted.
    pub(crate) fn close(mut self) -> Verdict {
        self.failed = self.nodes - self.answered();
        self.verdict()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Clone, Copy, Debug, PartialEq)]
    enum Vote {
        Yes,
        No,
        Failed,
    }

    fn cast(tally: &mut Tally, vote: Vote) {
        match vote {
            Vote::Yes => tally.yes(),
            Vote::No => tally.no(),
            Vote::Failed => tally.failed(),
        }
    }

    fn all_answers(nodes: u32) -> impl Iterator<Item = Vec<Vote>> {
        let votes = [Vote::Yes, Vote::No, Vote::Failed];
        (0..3usize.pow(nodes))
            .map(move |case| (0..nodes).map(|node| votes[case / 3usize.pow(node) % 3]).collect())
    }

    fn truth(votes: &[Vote]) -> Verdict {
        let count = |vote| votes.iter().filter(|v| **v == vote).count();
        let majority = votes.len() / 2 + 1;
        if count(Vote::Yes) >= majority {
            Verdict::Won
        } else if count(Vote::Yes) + count(Vote::No) >= majority {
            Verdict::Refused
        } else {
            Verdict::NoQuorum
        }
    }

    #[test]
    fn a_quorum_is_more_than_half_of_the_configured_nodes() {
        let expected = [(1, 1), (2, 2), (3, 2), (4, 3), (5, 3), (6, 4), (7, 4)];
        for (nodes, needed) in expected {
            assert_eq!(quorum(nodes), needed);
        }
    }

    #[test]
    fn all_answers_of_one_to_five_nodes_give_the_right_verdict() {
        for nodes in 1..=5 {
            for votes in all_answers(nodes) {
                let mut tally = Tally::new(votes.len());
                votes.iter().for_each(|vote| cast(&mut tally, *vote));
                assert_eq!(tally.verdict(), truth(&votes), "{votes:?}");
                assert_eq!(tally.close(), truth(&votes), "{votes:?}");
            }
        }
    }

    /// Every sequence of five answers is every order of every five answers.
    #[test]
    fn a_verdict_comes_as_soon_as_it_is_certain_and_never_changes() {
        for votes in all_answers(5) {
            let mut tally = Tally::new(5);
            for seen in 0..=5 {
                if seen > 0 {
                    cast(&mut tally, votes[seen - 1]);
                }
                let endings: Vec<Verdict> = all_answers(5 - seen as u32)
                    .map(|rest| truth(&[&votes[..seen], &rest].concat()))
                    .collect();
                let certain = endings.iter().all(|ending| *ending == endings[0]);
                let expected = if certain { endings[0] } else { Verdict::Open };
                assert_eq!(tally.verdict(), expected, "{:?} of {votes:?}", &votes[..seen]);
            }
        }
    }

    #[test]
    fn what_never_came_counts_as_failed_when_the_round_closes() {
        let mut tally = Tally::new(5);
        assert_eq!(tally.close(), Verdict::NoQuorum);
        tally.no();
        tally.no();
        tally.yes();
        assert_eq!(tally.verdict(), Verdict::Open);
        assert_eq!(tally.close(), Verdict::Refused);
    }
}
