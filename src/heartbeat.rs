//! The task of one lease: renews it, fills it in, heals it, and announces its loss.

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;

use crate::clock::Timestamp;
use crate::error::LossReason;
use crate::fanout::Fanout;
use crate::fleet::in_order;
use crate::hold::{ExtendRequest, Hold, Renewal};
use crate::node::{Answer, Command, NodeError, Vote};
use crate::quorum::{Tally, Verdict, quorum};
use crate::sabotage::{self, Sabotage};
use crate::seats::Seat;
use crate::validity::Ttl;

/// A loss is announced so much before the end of validity: timers tick in milliseconds, and late.
const TIMER_SLACK: Duration = Duration::from_millis(2);
/// Bounds of the pause after a renewal that failed.
const RETRY_MIN: Duration = Duration::from_millis(10);
const RETRY_MAX: Duration = Duration::from_millis(500);

/// What was last sent to a node, and is not answered yet.
#[derive(Clone, Copy)]
enum Sent {
    Extend {
        at: Timestamp,
        ttl: Ttl,
    },
    /// A SET on a node that did not hold the key, and its seat before.
    Heal {
        before: Seat,
    },
}

/// A renewal under way.
struct Beat {
    begun: Timestamp,
    until: Timestamp,
    ttl: Ttl,
    /// Which nodes said yes since it began, also to what they were asked before.
    yes: Vec<bool>,
    request: Option<ExtendRequest>,
}

pub(crate) struct Heartbeat {
    hold: Arc<Hold>,
    answers: Fanout,
    sent: Vec<Option<Sent>>,
    /// When each node was last asked for its TTL.
    asked: Vec<Timestamp>,
    /// When each node's last yes was sent, and to which TTL.
    yes: Vec<Option<(Timestamp, Ttl)>>,
    /// What each node said last, if it failed.
    failed: Vec<Option<NodeError>>,
    beat: Option<Beat>,
    next_beat: Timestamp,
}

impl Heartbeat {
    pub(crate) fn new(hold: Arc<Hold>) -> Self {
        let nodes = hold.fleet.nodes.len();
        let ttl = hold.lock().ttl;
        Self {
            answers: Fanout::empty(nodes),
            sent: vec![None; nodes],
            asked: vec![hold.since; nodes],
            yes: vec![None; nodes],
            failed: vec![None; nodes],
            beat: None,
            next_beat: hold.since.after(hold.interval(ttl)),
            hold,
        }
    }

    /// Ends with the hold, however that ends.
    pub(crate) async fn run(mut self) {
        let hold = self.hold.clone();
        let clock = &hold.fleet.clock;
        // It may have been long until this was run at all.
        if self.is_expired() {
            return;
        }
        self.fill_in();
        while self.takes_late() || !self.is_expired() {
            self.begin_request();
            let mut deadline = hold.lock().deadline.before(TIMER_SLACK);
            let beat_ends = self.beat.as_ref().map(|beat| beat.until);
            if sabotage::has(Sabotage::LossAfterRetry) {
                deadline = beat_ends.map_or(deadline, |ends| ends.after(Duration::from_secs(60)));
            }
            tokio::select! {
                biased;
                () = hold.ended.cancelled(), if !sabotage::has(Sabotage::ZombieHeartbeat) => return,
                () = clock.sleep_until(deadline) => {}
                () = hold.nudge.notified() => {}
                (node, answer) = self.answers.next() => self.take(node, answer),
                () = clock.sleep_until(beat_ends.unwrap_or(deadline)), if beat_ends.is_some() => self.fail_beat(),
                () = clock.sleep_until(self.next_beat), if beat_ends.is_none() => self.begin_beat(),
            }
        }
    }

    /// Wrong: an answer is looked at before the deadline is. Here for tests to show it.
    fn takes_late(&mut self) -> bool {
        let ready =
            if sabotage::has(Sabotage::LateExtend) { self.answers.next().now_or_never() } else { None };
        ready.map(|(node, answer)| self.take(node, answer)).is_some()
    }

    /// Announces the end of validity, by the local clock alone.
    fn is_expired(&self) -> bool {
        let deadline = self.hold.lock().deadline;
        if self.hold.fleet.clock.now() < deadline.before(TIMER_SLACK) {
            return false;
        }
        if sabotage::has(Sabotage::LossAfterRetry) && self.beat.is_some() {
            return false;
        }
        let failed = in_order(self.failures(true));
        self.hold.lose(LossReason::Expired { failed });
        true
    }

    /// The nodes that failed since the last beat began; once time is up, also those that are open.
    fn failures(&self, time_is_up: bool) -> impl Iterator<Item = (usize, NodeError)> {
        let open = self.answers.open().filter(move |_| time_is_up);
        let overdue = open.map(|(node, reply)| (node, reply.overdue()));
        let failed = self.failed.iter().enumerate();
        failed.filter_map(|(node, error)| Some((node, error.clone()?))).chain(overdue)
    }

    /// Begins what a caller of `Lease::extend` asked for, once the beat before it is over.
    fn begin_request(&mut self) {
        while self.beat.is_none() {
            let request = {
                let mut state = self.hold.lock();
                if state.requests.is_empty() {
                    return;
                }
                let request = state.requests.remove(0);
                if request.ttl > state.ttl || sabotage::has(Sabotage::ShorterExtend) {
                    state.ttl = request.ttl;
                    state.grown = self.hold.fleet.clock.now();
                }
                request
            };
            self.ask_all(Some(request));
        }
    }

    /// The heartbeat's own beat; leases that are not renewed are only filled in.
    fn begin_beat(&mut self) {
        let held_for = self.hold.fleet.clock.now().since(self.hold.since);
        let kept = self.hold.upkeep.max_hold.is_none_or(|limit| held_for < limit);
        if self.hold.upkeep.renewal == Renewal::Never || !kept {
            let ttl = self.hold.lock().ttl;
            self.next_beat = self.hold.fleet.clock.now().after(self.hold.interval(ttl));
            self.fill_in();
        } else {
            self.ask_all(None);
        }
    }

    /// Asks all nodes to renew, but those that still owe the answer to the same question.
    fn ask_all(&mut self, request: Option<ExtendRequest>) {
        let hold = self.hold.clone();
        let (ttl, grown) = {
            let state = hold.lock();
            (state.ttl, state.grown)
        };
        let now = hold.fleet.clock.now();
        self.failed.fill(None);
        let nodes = hold.fleet.nodes.len();
        for node in 0..nodes {
            match self.sent[node] {
                Some(Sent::Extend { ttl: asked, .. }) if asked >= ttl && self.answers.is_open(node) => {}
                _ => self.extend(node, ttl, grown, now),
            }
        }
        let until = now.after(ttl.round_timeout(hold.fleet.node_timeout));
        self.beat = Some(Beat { begun: now, until, ttl, yes: vec![false; nodes], request });
    }

    fn extend(&mut self, node: usize, ttl: Ttl, grown: Timestamp, now: Timestamp) {
        let since = std::mem::replace(&mut self.asked[node], now);
        let command = Command::Extend { target: self.hold.target.clone(), ttl, grown, since };
        self.answers.put(node, self.hold.fleet.nodes[node].vote(&command));
        self.sent[node] = Some(Sent::Extend { at: now, ttl });
    }

    /// Takes an answer in, early or late.
    fn take(&mut self, node: usize, answer: Answer) {
        let Some(sent) = self.sent[node].take() else { return };
        self.failed[node] = answer.as_ref().err().cloned();
        match sent {
            Sent::Heal { before } => self.hold.lock().seats.set_answered(node, before, &answer),
            Sent::Extend { at, ttl } => {
                let lost = {
                    let mut state = self.hold.lock();
                    state.seats.extend_answered(node, &answer);
                    (!state.seats.may_hold_quorum()).then(|| state.seats.without())
                };
                if let Some(denied) = lost {
                    let nodes = self.hold.fleet.nodes.len();
                    self.hold.lose(LossReason::Denied { denied, nodes });
                    return;
                }
                match answer {
                    Ok(Vote::Yes) => {
                        let from_end = sabotage::has(Sabotage::FromRenewalEnd);
                        let at = if from_end { self.hold.fleet.clock.now() } else { at };
                        self.yes[node] = Some((at, ttl));
                        if let Some(beat) = self.beat.as_mut().filter(|beat| ttl >= beat.ttl) {
                            beat.yes[node] = true;
                        }
                        self.prolong();
                    }
                    Ok(Vote::No) => {
                        self.yes[node] = None;
                        if self.beat.is_none() {
                            self.heal(node);
                        }
                    }
                    Ok(Vote::Unfit(_)) | Err(_) => {}
                }
            }
        }
        self.decide_beat();
    }

    /// Moves the deadline to what a quorum of yes allows: that of the oldest among the newest of them.
    fn prolong(&mut self) {
        let deadline = |(sent, ttl): &(Timestamp, Ttl)| ttl.deadline(*sent);
        let mut deadlines: Vec<Timestamp> = self.yes.iter().flatten().map(deadline).collect();
        deadlines.sort_by(|a, b| b.cmp(a));
        if let Some(later) = deadlines.get(quorum(self.yes.len()) - 1) {
            self.hold.prolong(*later);
        }
    }

    /// Ends the beat as soon as its outcome is certain.
    fn decide_beat(&mut self) {
        let Some(beat) = &self.beat else { return };
        let mut tally = Tally::new(self.yes.len());
        for node in 0..self.yes.len() {
            if beat.yes[node] {
                tally.yes();
            } else if !self.answers.is_open(node) {
                tally.failed();
            }
        }
        match tally.verdict() {
            Verdict::Won => self.pass_beat(),
            Verdict::Open => {}
            Verdict::Refused | Verdict::NoQuorum => self.fail_beat(),
        }
    }

    /// A quorum still holds the key: what is missing elsewhere is put back.
    fn pass_beat(&mut self) {
        let Some(beat) = self.beat.take() else { return };
        // At a pace, whatever the interval and however late this is: a beat that begins at once never yields.
        let now = self.hold.fleet.clock.now();
        self.next_beat = beat.begun.after(self.hold.interval(beat.ttl)).max(now.after(RETRY_MIN));
        if let Some(request) = beat.request {
            // The caller may be gone; the renewal stands all the same.
            let _ = request.outcome.send(Ok(()));
        }
        let state = self.hold.lock();
        let gone: Vec<usize> = state.seats.not_held();
        drop(state);
        for node in gone {
            if !self.answers.is_open(node) {
                self.heal(node);
            }
        }
    }

    /// Nothing has changed: the old deadline stands, and answers that are outstanding still count.
    fn fail_beat(&mut self) {
        let Some(beat) = self.beat.take() else { return };
        let time_is_up = self.hold.fleet.clock.now() >= beat.until;
        let pause = (beat.ttl.duration() / 20).clamp(RETRY_MIN, RETRY_MAX);
        self.next_beat = self.hold.fleet.clock.now().after(pause);
        let Some(request) = beat.request else { return };
        let answered = beat.yes.iter().filter(|yes| **yes).count();
        let too_few = self.hold.fleet.too_few(answered, self.failures(time_is_up));
        // The caller may be gone; that is no matter.
        let _ = request.outcome.send(Err(too_few.into()));
    }

    /// Puts the key on the nodes that are not known to hold it. Where an earlier SET has no answer, the
    /// node is asked first: a SET that finds our own token would look refused.
    fn fill_in(&mut self) {
        let (missing, ttl, grown) = {
            let state = self.hold.lock();
            let missing = state.seats.not_held().into_iter().map(|node| (node, state.seats.get(node)));
            (missing.collect::<Vec<_>>(), state.ttl, state.grown)
        };
        let now = self.hold.fleet.clock.now();
        for (node, seat) in missing {
            if self.answers.is_open(node) {
                continue;
            }
            match seat {
                Seat::Maybe => self.extend(node, ttl, grown, now),
                Seat::Never | Seat::Gone | Seat::Held => self.heal(node),
            }
        }
    }

    /// Puts the key back where it is missing, for as long as a quorum holds it. Counts from the next
    /// renewal on.
    fn heal(&mut self, node: usize) {
        let hold = &self.hold;
        let (before, ttl) = {
            let mut state = hold.lock();
            let before = state.seats.get(node);
            state.seats.set_sent(node);
            (before, state.ttl)
        };
        self.asked[node] = hold.fleet.clock.now();
        let command = Command::Heal { target: hold.target.clone(), ttl, fence: hold.fence.map(u64::from) };
        self.answers.put(node, hold.fleet.nodes[node].vote(&command));
        self.sent[node] = Some(Sent::Heal { before });
    }
}
