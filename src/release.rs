//! Giving a lease back: compare-and-delete on every node that has or may have it.

use crate::error::{LossReason, ReleaseError};
use crate::fanout::Fanout;
use crate::hold::{End, Hold};
use crate::node::{Answer, NodeError, Vote};
use crate::quorum::quorum;
use crate::seats::Seats;

/// Deletes, and waits until a quorum confirmed it or no longer can. What is left goes on by itself.
pub(crate) async fn release(hold: &Hold) -> Result<(), ReleaseError> {
    // Announces a loss that was not noticed yet.
    hold.remaining();
    let Some(answers) = hold.end(End::Released) else {
        return Err(hold.why_lost().into());
    };
    let (seats, ttl) = {
        let state = hold.lock();
        (state.seats.clone(), state.ttl)
    };
    let fleet = &hold.fleet;
    let limit = fleet.clock.now().after(ttl.round_timeout(fleet.node_timeout));
    let mut count = Count { answers, seats, deleted: 0, answered: 0, errors: Vec::new() };
    let overdue = fleet.clock.sleep_until(limit);
    tokio::pin!(overdue);
    while !count.is_certain() {
        tokio::select! {
            biased;
            (node, answer) = count.answers.next() => count.take(node, answer),
            () = &mut overdue => break,
        }
    }
    count.outcome(hold)
}

struct Count {
    answers: Fanout,
    seats: Seats,
    deleted: usize,
    answered: usize,
    errors: Vec<(usize, NodeError)>,
}

impl Count {
    fn take(&mut self, node: usize, answer: Answer) {
        self.seats.extend_answered(node, &answer);
        match answer {
            Ok(vote) => {
                self.answered += 1;
                self.deleted += usize::from(vote == Vote::Yes);
            }
            Err(error) => self.errors.push((node, error)),
        }
    }

    fn is_certain(&self) -> bool {
        self.deleted >= quorum(self.seats.len())
            || !self.seats.may_hold_quorum()
            || self.answers.open().next().is_none()
    }

    fn outcome(mut self, hold: &Hold) -> Result<(), ReleaseError> {
        let nodes = self.seats.len();
        if self.deleted >= quorum(nodes) {
            return Ok(());
        }
        if !self.seats.may_hold_quorum() {
            let reason = LossReason::Denied { denied: self.seats.without(), nodes };
            return Err(hold.lost_for(reason).into());
        }
        self.errors.extend(self.answers.open().map(|(node, reply)| (node, reply.overdue())));
        Err(hold.fleet.too_few(self.answered, self.errors).into())
    }
}
