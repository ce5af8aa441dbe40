//! The acquire round: sent to all nodes at once, decided at the quorum, undone where it was not won.

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;

use crate::clock::Timestamp;
use crate::error::{AcquireError, InvalidRequest, TooFewNodes};
use crate::fanout::Fanout;
use crate::fence::Fence;
use crate::fleet::{Fleet, Underway};
use crate::hold::Hold;
use crate::lease::Lease;
use crate::metrics;
use crate::node::{Answer, Command, Deletion, NodeError, Target, Vote};
use crate::proposal::Unfit;
use crate::quorum::{Tally, Verdict, quorum};
use crate::request::Plan;
use crate::retry::Backoff;
use crate::sabotage::{self, Sabotage};
use crate::seats::{Seat, Seats};
use crate::token::Token;
use crate::validity::Ttl;

/// `acquire` goes on for so long while too few nodes answer.
const NO_QUORUM_PATIENCE: Duration = Duration::from_secs(1);

/// How a round ended.
pub(crate) enum Outcome {
    Won(Lease),
    /// A quorum answered, and the key was not won.
    Held,
    NoQuorum(TooFewNodes),
}

/// Rounds until one is won, with jitter between them, for at most `plan.wait`.
pub(crate) async fn acquire(fleet: &Arc<Fleet>, plan: &Plan) -> Result<Lease, AcquireError> {
    let clock = &fleet.clock;
    let begun = clock.now();
    let end = begun.after(plan.wait);
    let mut no_quorum_since = None;
    let mut backoff = Backoff::contention();
    loop {
        let round_begun = clock.now();
        let too_few = match round(fleet, plan).await? {
            Outcome::Won(lease) => return Ok(lease),
            Outcome::Held => {
                no_quorum_since = None;
                None
            }
            Outcome::NoQuorum(too_few) => Some(too_few),
        };
        let now = clock.now();
        let mut until = end;
        if let Some(too_few) = too_few {
            let since = *no_quorum_since.get_or_insert(round_begun);
            until = end.min(since.after(NO_QUORUM_PATIENCE));
            let ready = too_few.ready_in().map(|ready_in| now.after(ready_in));
            if ready.is_some_and(|ready| ready < end) {
                until = end;
            }
            if now >= until {
                return Err(too_few.into());
            }
        } else if now >= until {
            return Err(AcquireError::TimedOut { key: plan.keys[0].clone(), waited: now.since(begun) });
        }
        tokio::select! {
            biased;
            () = fleet.closed() => return Err(InvalidRequest::Closed.into()),
            () = clock.sleep(backoff.delay().min(until.since(now))) => {}
        }
    }
}

/// One round, as in the Redlock specification.
pub(crate) async fn round(fleet: &Arc<Fleet>, plan: &Plan) -> Result<Outcome, AcquireError> {
    let token =
        Token::random().map_err(|error| InvalidRequest::NoRandomness { reason: error.to_string() })?;
    let underway = fleet.begin_round().ok_or(InvalidRequest::Closed)?;
    let mut round = Round::send(fleet.clone(), underway, plan, token);
    let verdict = tokio::select! {
        biased;
        () = fleet.closed() => return Err(InvalidRequest::Closed.into()),
        verdict = round.run(plan.ttl) => verdict,
    };
    let deadline = plan.ttl.deadline(round.sent);
    metrics::round(verdict);
    Ok(match verdict {
        Verdict::Won if fleet.clock.now() < deadline => Outcome::Won(round.into_lease(plan)),
        Verdict::Refused => Outcome::Held,
        Verdict::Won | Verdict::NoQuorum | Verdict::Open => {
            Outcome::NoQuorum(fleet.too_few(round.tally.answered(), round.errors.drain(..)))
        }
    })
}

/// A round that is sent. Dropping it undoes it, unless it became a lease.
struct Round {
    fleet: Arc<Fleet>,
    target: Arc<Target>,
    /// The clock before the first send.
    begun: Timestamp,
    /// The clock before the send whose votes are counted.
    sent: Timestamp,
    /// A vote counts only up to this.
    limit: Timestamp,
    /// When the keys have run out by themselves, counted from the send.
    lifetime: Duration,
    votes: Fanout,
    tally: Tally,
    seats: Seats,
    errors: Vec<(usize, NodeError)>,
    fencing: Option<Fencing>,
    won: bool,
    /// Ends after all else of the round.
    _underway: Underway,
}

/// The fence of a round.
struct Fencing {
    number: u64,
    /// What the nodes said of a number that did not fit.
    unfit: Vec<Option<Unfit>>,
    /// The nodes on which another holds the key, or that failed: not asked again.
    out: Vec<bool>,
    /// The second number is asked for.
    again: bool,
}

impl Round {
    fn send(fleet: Arc<Fleet>, underway: Underway, plan: &Plan, token: Token) -> Self {
        let nodes = fleet.nodes.len();
        let target = Target::new(plan.names.clone(), token);
        let target = Arc::new(target.fenced(plan.records.clone(), fleet.fence_ttl));
        let fencing = (!plan.records.is_empty()).then(|| Fencing {
            number: fleet.proposer.first(fleet.clock.wall(), || fleet.clock_ahead()),
            unfit: vec![None; nodes],
            out: vec![false; nodes],
            again: false,
        });
        let sent = fleet.clock.now();
        let command = command(&target, plan.ttl, fencing.as_ref());
        let votes = Fanout::ask(&fleet.nodes, &command);
        Self {
            target,
            begun: sent,
            sent,
            limit: limit(&fleet, plan.ttl, sent),
            lifetime: plan.ttl.duration() + Duration::from_secs(1),
            votes,
            tally: Tally::new(nodes),
            seats: Seats::new(nodes),
            errors: Vec::new(),
            fencing,
            won: false,
            _underway: underway,
            fleet,
        }
    }

    /// One send, or two where a fence needs it.
    async fn run(&mut self, ttl: Ttl) -> Verdict {
        let verdict = self.decide().await;
        if verdict != Verdict::Won && self.send_again(ttl) {
            return self.decide().await;
        }
        verdict
    }

    /// Counts votes as they come, until the outcome is certain or no more votes count.
    async fn decide(&mut self) -> Verdict {
        let clock = self.fleet.clock.clone();
        let overdue = clock.sleep_until(self.limit);
        tokio::pin!(overdue);
        loop {
            match self.tally.verdict() {
                Verdict::Open => {}
                certain => {
                    self.count_ready();
                    return certain;
                }
            }
            tokio::select! {
                biased;
                (node, answer) = self.votes.next() => {
                    // A forgotten grant of a slower round could meet a node that is no longer young.
                    if clock.now() > self.limit {
                        self.count_late(node, &answer);
                        break;
                    }
                    self.count(node, answer);
                }
                () = &mut overdue => break,
            }
        }
        self.errors.extend(self.votes.open().map(|(node, reply)| (node, reply.overdue())));
        self.tally.close()
    }

    /// Takes in what is there already: it changes no outcome, but what is owed and what is told.
    fn count_ready(&mut self) {
        while let Some((node, answer)) = self.votes.next().now_or_never() {
            self.count(node, answer);
        }
    }

    /// A fenced round that was not won because its number did not fit goes on with another, the same token,
    /// and validity from this send. False if it cannot be won.
    fn send_again(&mut self, ttl: Ttl) -> bool {
        let Some(fencing) = &mut self.fencing else { return false };
        let nodes = fencing.out.len();
        let able = fencing.out.iter().filter(|out| !**out).count();
        if fencing.again || able < quorum(nodes) || fencing.unfit.iter().all(Option::is_none) {
            return false;
        }
        let granted = self.seats.holds_any().then_some(fencing.number);
        let unfit: Vec<Unfit> = fencing.unfit.iter().flatten().copied().collect();
        let Some(number) = self.fleet.proposer.second(self.fleet.clock.wall(), granted, &unfit) else {
            return false;
        };
        (fencing.number, fencing.again) = (number, true);
        let asked: Vec<usize> = (0..nodes).filter(|node| !fencing.out[*node]).collect();
        self.stop_counting();
        self.sent = self.fleet.clock.now();
        self.limit = limit(&self.fleet, ttl, self.sent);
        let command = command(&self.target, ttl, self.fencing.as_ref());
        self.tally = Tally::new(nodes);
        self.errors.iter().for_each(|_| self.tally.failed());
        (asked.len() + self.errors.len()..nodes).for_each(|_| self.tally.no());
        for node in asked {
            self.votes.put(node, self.fleet.nodes[node].vote(&command));
        }
        true
    }

    fn count(&mut self, node: usize, answer: Answer) {
        match &self.fencing {
            Some(Fencing { again: true, .. }) => self.seats.set_again_answered(node, &answer),
            _ => self.seats.set_answered(node, Seat::Never, &answer),
        }
        if let Some(fencing) = &mut self.fencing {
            match &answer {
                Ok(Vote::Unfit(unfit)) => fencing.unfit[node] = Some(*unfit),
                Ok(Vote::No) | Err(_) => fencing.out[node] = true,
                Ok(Vote::Yes) => {}
            }
        }
        if sabotage::has(Sabotage::FromFirstReply) && self.tally.answered() == 0 {
            self.sent = self.fleet.clock.now();
        }
        match answer {
            Ok(Vote::Yes) => self.tally.yes(),
            Ok(Vote::No | Vote::Unfit(_)) => self.tally.no(),
            Err(error) => {
                self.tally.failed();
                self.errors.push((node, error));
            }
        }
    }

    /// An answer that came too late is no vote, but tells what is to be undone.
    fn count_late(&mut self, node: usize, answer: &Answer) {
        self.seats.set_answered(node, Seat::Never, answer);
        self.tally.failed();
        self.errors.push((node, self.fleet.nodes[node].overdue()));
    }

    /// No more votes: what is open now was perhaps set.
    fn stop_counting(&mut self) {
        for node in 0..self.fleet.nodes.len() {
            if self.votes.abandon(node) && !sabotage::has(Sabotage::LostReplyKept) {
                self.seats.set_sent(node);
            }
        }
    }

    fn into_lease(mut self, plan: &Plan) -> Lease {
        self.won = true;
        self.stop_counting();
        let hold = Arc::new(Hold::new(
            self.fleet.clone(),
            plan.keys.clone(),
            self.target.clone(),
            self.fencing.as_ref().map(|fencing| Fence::from(fencing.number)),
            plan.upkeep,
            (self.begun, self.sent, plan.ttl),
            self.seats.clone(),
        ));
        // What is not on all nodes is filled in once the answers that were not waited for are due.
        let start = self.limit.min(self.sent.after(hold.interval(plan.ttl)));
        self.fleet.registry.add(start, &hold);
        Lease::new(hold)
    }
}

/// A vote on what was sent then counts only up to this.
fn limit(fleet: &Fleet, ttl: Ttl, sent: Timestamp) -> Timestamp {
    if sabotage::has(Sabotage::SlowRound) {
        return ttl.deadline(sent);
    }
    sent.after(ttl.round_timeout(fleet.node_timeout))
}

fn command(target: &Arc<Target>, ttl: Ttl, fencing: Option<&Fencing>) -> Command {
    let target = target.clone();
    match fencing {
        Some(fencing) => Command::Grant { target, ttl, fence: fencing.number },
        None => Command::Acquire { target, ttl },
    }
}

impl Drop for Round {
    /// Undoes the round on every node on which something was or may have been set.
    fn drop(&mut self) {
        if self.won && !sabotage::has(Sabotage::DebtOfWonToken) {
            return;
        }
        self.stop_counting();
        let until = self.fleet.clock.now().after(self.lifetime);
        for node in self.seats.touched() {
            // The deletion goes on without its reply.
            drop(self.fleet.nodes[node].delete(&self.target, Deletion { sent: self.begun, until }));
        }
    }
}
