//! Which nodes hold our token, as far as we know. Pure.

use crate::node::{Answer, Vote};
use crate::quorum::quorum;

/// What we know of our token at one node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Seat {
    /// It was never there.
    Never,
    /// It was put on its way there; what became of it is not known.
    Maybe,
    /// The node said that it holds it.
    Held,
    /// It was or may have been there, and the node said that it is not any more.
    Gone,
}

/// One seat a node, in the order of the nodes.
#[derive(Clone, Debug)]
pub(crate) struct Seats(Vec<Seat>);

impl Seats {
    pub(crate) fn new(nodes: usize) -> Self {
        Self(vec![Seat::Never; nodes])
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn get(&self, node: usize) -> Seat {
        self.0[node]
    }

    /// A SET is sent to `node`.
    pub(crate) fn set_sent(&mut self, node: usize) {
        if self.0[node] != Seat::Held {
            self.0[node] = Seat::Maybe;
        }
    }

    /// `node` answered a SET that was sent when its seat was `before`.
    pub(crate) fn set_answered(&mut self, node: usize, before: Seat, answer: &Answer) {
        self.0[node] = match answer {
            Ok(Vote::Yes) => Seat::Held,
            Ok(Vote::No | Vote::Unfit(_)) => before,
            Err(error) if error.maybe_applied() => Seat::Maybe,
            Err(_) => before,
        };
    }

    /// `node` answered a renewal.
    pub(crate) fn extend_answered(&mut self, node: usize, answer: &Answer) {
        match (answer, self.0[node]) {
            (Ok(Vote::Yes), _) => self.0[node] = Seat::Held,
            (Ok(Vote::No), Seat::Never) => {}
            (Ok(Vote::No), _) => self.0[node] = Seat::Gone,
            (Ok(Vote::Unfit(_)) | Err(_), _) => {}
        }
    }

    /// `node` answered a SET that was sent once more: where it finds our own token it says yes.
    pub(crate) fn set_again_answered(&mut self, node: usize, answer: &Answer) {
        match (answer, self.0[node]) {
            (Err(error), Seat::Never) if error.maybe_applied() => self.0[node] = Seat::Maybe,
            _ => self.extend_answered(node, answer),
        }
    }

    /// Whether a quorum holds the token, as far as can be known.
    pub(crate) fn may_hold_quorum(&self) -> bool {
        let holders = self.0.iter().filter(|seat| matches!(seat, Seat::Held | Seat::Maybe));
        holders.count() >= quorum(self.0.len())
    }

    /// Whether any node holds or may hold it.
    pub(crate) fn holds_any(&self) -> bool {
        self.0.iter().any(|seat| matches!(seat, Seat::Held | Seat::Maybe))
    }

    /// How many nodes do not hold it.
    pub(crate) fn without(&self) -> usize {
        self.0.iter().filter(|seat| matches!(seat, Seat::Never | Seat::Gone)).count()
    }

    /// The nodes that are not known to hold it.
    pub(crate) fn not_held(&self) -> Vec<usize> {
        (0..self.0.len()).filter(|node| self.0[*node] != Seat::Held).collect()
    }

    /// The nodes on which the token was or may have been: these owe a deletion.
    pub(crate) fn touched(&self) -> Vec<usize> {
        (0..self.0.len()).filter(|node| self.0[*node] != Seat::Never).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::{NodeError, NodeErrorKind};

    fn error(maybe_applied: bool) -> Answer {
        let error = NodeError::new(&"node".into(), NodeErrorKind::ConnectionLost, "gone");
        Err(if maybe_applied { error.after_sending() } else { error })
    }

    #[test]
    fn a_set_that_may_have_been_run_owes_a_deletion_and_a_refused_one_does_not() {
        let answers = [Ok(Vote::Yes), Ok(Vote::No), error(true), error(false)];
        let mut seats = Seats::new(4);
        for (node, answer) in answers.iter().enumerate() {
            seats.set_sent(node);
            seats.set_answered(node, Seat::Never, answer);
        }
        assert_eq!(seats.touched(), [0, 2]);
        assert_eq!(seats.not_held(), [1, 2, 3]);
    }

    #[test]
    fn a_node_that_never_held_denies_nothing() {
        let mut seats = Seats::new(5);
        for node in 0..3 {
            seats.set_sent(node);
            seats.set_answered(node, Seat::Never, &Ok(Vote::Yes));
        }
        seats.extend_answered(3, &Ok(Vote::No));
        seats.extend_answered(4, &Ok(Vote::No));
        assert!(seats.may_hold_quorum());
        seats.extend_answered(0, &error(true));
        assert!(seats.may_hold_quorum(), "an error denies nothing either");
        seats.extend_answered(0, &Ok(Vote::No));
        assert!(!seats.may_hold_quorum());
        assert_eq!(seats.touched(), [0, 1, 2], "what was there is deleted with care");
    }

    #[test]
    fn a_healed_node_holds_again() {
        let mut seats = Seats::new(1);
        seats.set_sent(0);
        assert_eq!(seats.get(0), Seat::Maybe);
        seats.extend_answered(0, &Ok(Vote::No));
        assert_eq!(seats.get(0), Seat::Gone);
        seats.set_sent(0);
        seats.set_answered(0, Seat::Gone, &Ok(Vote::Yes));
        assert_eq!(seats.get(0), Seat::Held);
    }

    #[test]
    fn a_set_that_is_sent_once_more_never_forgets_an_earlier_one() {
        let mut seats = Seats::new(5);
        for node in 0..2 {
            seats.set_answered(node, Seat::Never, &Ok(Vote::Yes));
        }
        let answers = [error(true), Ok(Vote::No), error(true), error(false), Ok(Vote::Yes)];
        for (node, answer) in answers.iter().enumerate() {
            seats.set_again_answered(node, answer);
        }
        let expected = [Seat::Held, Seat::Gone, Seat::Maybe, Seat::Never, Seat::Held];
        assert_eq!((0..5).map(|node| seats.get(node)).collect::<Vec<_>>(), expected);
    }

    #[test]
    fn what_may_be_held_counts_as_held_and_only_what_is_known_to_be_missing_as_missing() {
        let mut seats = Seats::new(5);
        assert_eq!((seats.len(), seats.without(), seats.holds_any()), (5, 5, false));
        seats.set_sent(0);
        assert_eq!((seats.without(), seats.holds_any()), (4, true));
        seats.extend_answered(0, &Ok(Vote::No));
        assert_eq!((seats.without(), seats.holds_any()), (5, false), "gone is not there");
        seats.set_answered(3, Seat::Never, &Ok(Vote::Yes));
        assert_eq!((seats.without(), seats.holds_any()), (4, true));
    }
}
