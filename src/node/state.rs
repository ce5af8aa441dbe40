//! The phases of a node: first connect, linked (well or slow), down.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;

use super::clock_watch::ClockWatch;
use super::debts::Debts;
use super::reply::Pending;
use super::{Answer, Command, Connection, Form, NodeError, NodeErrorKind, NodeWarning, Refusal, Report};
use crate::clock::Timestamp;
use crate::sabotage::{self, Sabotage};

/// How often a node is looked at: its role may change.
const LOOK: Duration = Duration::from_secs(5);
/// The same while it is young: soon at first, because another client may be about to write that it is not.
const LOOK_YOUNG: Duration = Duration::from_millis(20);
/// The least time between two looks, whatever happens at the node.
const LOOK_APART: Duration = Duration::from_millis(20);
const LOOK_YOUNG_MAX: Duration = Duration::from_secs(1);

/// A vote that waits for the first connection; its answer's future goes through the channel.
pub(super) struct Queued {
    pub(super) command: Command,
    pub(super) submitted: oneshot::Sender<Result<Pending, NodeError>>,
}

pub(super) enum Phase {
    /// The first connection is being made; votes wait for it until `until`.
    First {
        until: Timestamp,
        queue: Vec<Queued>,
    },
    Linked(Link),
    Down,
}

/// The moment at which the node has to be old enough for a command that was sent at `sent`: however short the
/// TTL that is asked for, others may have asked for `max_ttl`.
pub(super) fn guarded(command: &Command, sent: Timestamp, max_ttl: Duration) -> Timestamp {
    match command {
        Command::Acquire { ttl, .. } | Command::Grant { ttl, .. }
            if sabotage::has(Sabotage::GuardByOwnTtl) =>
        {
            sent.after(max_ttl.saturating_sub(ttl.duration()))
        }
        _ => sent,
    }
}

/// From when on a node's answers count.
#[derive(Clone, Copy, Debug)]
pub(super) struct Standing {
    /// Its votes on an acquire: no lease that it may have forgotten is valid any more.
    pub(super) votes: Timestamp,
    /// Its answers to renewals: no grant of a round that it may have forgotten is under way any more.
    pub(super) renews: Timestamp,
    /// A marker stands at the node, so that one that is gone is a sign.
    pub(super) marked: bool,
    /// Since when it remembers, by its marker.
    pub(super) since: Option<u64>,
}

/// The connection in use.
pub(super) struct Link {
    /// Tells the answers of this connection from those of earlier ones.
    pub(super) epoch: u64,
    pub(super) connection: Arc<dyn Connection>,
    /// Commands without an answer.
    outstanding: usize,
    /// The last answer, or when the first of the outstanding commands was sent.
    heard: Timestamp,
    /// An answer is overdue: no votes, but deletions keep their place in the queue.
    pub(super) slow: bool,
    pub(super) standing: Standing,
    /// When the node is looked at again.
    pub(super) look_at: Timestamp,
    looked_at: Timestamp,
    /// The pause after the next look, if it is young.
    young_pause: Duration,
}

impl Link {
    fn new(epoch: u64, connection: Arc<dyn Connection>, standing: Standing, now: Timestamp) -> Self {
        Self {
            epoch,
            connection,
            outstanding: 0,
            heard: now,
            slow: false,
            standing,
            look_at: now.after(LOOK),
            looked_at: now,
            young_pause: LOOK_YOUNG,
        }
    }

    pub(super) fn submit(
        &mut self,
        command: &Command,
        form: Form,
        debt: Option<u64>,
        now: Timestamp,
    ) -> Pending {
        if self.outstanding == 0 {
            self.heard = now;
        }
        self.outstanding += 1;
        let alarm = self.connection.alarm().clone();
        let answer = self.connection.submit(command, form);
        Pending { answer, command: command.clone(), form, alarm, sent: now, epoch: self.epoch, debt }
    }

    /// Why the node's answer to `command` would not count yet.
    pub(super) fn too_young(
        &self,
        command: &Command,
        address: &Arc<str>,
        now: Timestamp,
    ) -> Option<NodeError> {
        let from = match command {
            Command::Acquire { .. } | Command::Grant { .. } => self.standing.votes,
            Command::Heal { .. } | Command::Extend { .. } => self.standing.renews,
            Command::Delete { .. } | Command::Ping => return None,
        };
        (now < from).then(|| NodeError::young(address, from.since(now)))
    }

    pub(super) fn answered(&mut self, now: Timestamp) {
        self.outstanding = self.outstanding.saturating_sub(1);
        self.heard = now;
        self.slow = false;
    }

    /// The node is not what it was: looks at it without delay.
    pub(super) fn look_at_once(&mut self) {
        self.look_at = self.looked_at.after(LOOK_APART);
    }

    /// The next look: at a young node soon, because another client may know that it is older.
    pub(super) fn looked(&mut self, now: Timestamp) {
        let pause = if now < self.standing.votes { self.young_pause } else { LOOK };
        self.young_pause = (self.young_pause * 2).min(LOOK_YOUNG_MAX);
        self.looked_at = now;
        self.look_at = now.after(pause);
    }

    /// How long an answer has been overdue; `None` if none is outstanding.
    pub(super) fn silence(&self, now: Timestamp) -> Option<Duration> {
        (self.outstanding > 0).then(|| now.since(self.heard))
    }

    /// How long since anything was heard or asked.
    pub(super) fn idle(&self, now: Timestamp) -> Duration {
        now.since(self.heard)
    }
}

pub(super) struct State {
    pub(super) phase: Phase,
    pub(super) debts: Debts,
    /// Answers that nobody awaits any more, oldest first; the supervisor looks after them.
    pub(super) orphans: VecDeque<Pending>,
    /// The supervisor looks by itself within a tick: no need to wake it for an orphan.
    pub(super) watching: bool,
    pub(super) last_error: Option<NodeError>,
    /// The connection that was given up last, and why.
    given_up: Option<(u64, NodeError)>,
    /// Why the node may not vote at all.
    pub(super) refusal: Option<Refusal>,
    pub(super) warnings: Vec<NodeWarning>,
    /// What it said of itself last.
    pub(super) report: Report,
    pub(super) native: Vec<&'static str>,
    pub(super) round_trip: Option<Duration>,
    pub(super) clock: ClockWatch,
    /// When it came up or went down.
    pub(super) since: Timestamp,
    /// The owner is gone: end once nothing is owed.
    pub(super) closing: bool,
    epochs: u64,
}

impl State {
    pub(super) fn new(now: Timestamp, first_until: Timestamp) -> Self {
        Self {
            phase: Phase::First { until: first_until, queue: Vec::new() },
            debts: Debts::default(),
            orphans: VecDeque::new(),
            watching: false,
            last_error: None,
            given_up: None,
            refusal: None,
            warnings: Vec::new(),
            report: Report::default(),
            native: Vec::new(),
            round_trip: None,
            clock: ClockWatch::default(),
            since: now,
            closing: false,
            epochs: 0,
        }
    }

    pub(super) fn link(&mut self, epoch: u64) -> Option<&mut Link> {
        match &mut self.phase {
            Phase::Linked(link) if link.epoch == epoch => Some(link),
            _ => None,
        }
    }

    /// Puts `connection` in use: what is owed is paid on it first, then it takes votes. Returns its epoch.
    pub(super) fn go_up(
        &mut self,
        connection: Arc<dyn Connection>,
        standing: Standing,
        address: &Arc<str>,
        now: Timestamp,
    ) -> u64 {
        self.epochs += 1;
        self.refusal = None;
        self.since = now;
        self.report = connection.report().clone();
        self.native = connection.native();
        self.round_trip = connection.report().round_trip;
        let mut link = Link::new(self.epochs, connection, standing, now);
        link.looked(now);
        for (number, target) in self.debts.all() {
            let command = Command::Delete { target };
            self.orphans.push_back(link.submit(&command, Form::Best, Some(number), now));
            self.debts.submitted(number);
        }
        if let Phase::First { queue, .. } = std::mem::replace(&mut self.phase, Phase::Down) {
            for vote in queue {
                if vote.submitted.is_closed() || vote.command.is_over() {
                    continue;
                }
                if let Some(young) = link.too_young(&vote.command, address, now) {
                    // Whoever asked may be gone; that is no matter.
                    let _ = vote.submitted.send(Err(young));
                    continue;
                }
                let pending = link.submit(&vote.command, Form::Best, None, now);
                if let Err(Ok(pending)) = vote.submitted.send(Ok(pending)) {
                    self.orphans.push_back(pending);
                }
            }
        }
        self.phase = Phase::Linked(link);
        self.epochs
    }

    /// The connection is lost or was never had.
    pub(super) fn go_down(&mut self, error: NodeError, now: Timestamp) {
        match std::mem::replace(&mut self.phase, Phase::Down) {
            Phase::Linked(link) => {
                link.connection.close();
                self.orphans.clear();
                self.since = now;
                self.given_up = Some((link.epoch, error.clone()));
                self.debts.disconnected(&link.connection.report().into(), link.outstanding > 0, now);
            }
            Phase::First { queue, .. } => {
                for vote in queue {
                    // Whoever asked may be gone; that is no matter.
                    let _ = vote.submitted.send(Err(error.clone()));
                }
            }
            Phase::Down => {}
        }
        if error.kind() != NodeErrorKind::Refused {
            self.refusal = None;
        }
        self.last_error = Some(error);
    }

    /// The answer to what was sent on the connection of that epoch. Where the connection was given up, the
    /// reason says more than that it broke.
    pub(super) fn explained(&self, epoch: u64, answer: Answer) -> Answer {
        answer.map_err(|broken| match &self.given_up {
            Some((of, reason)) if *of == epoch && broken.kind() == NodeErrorKind::ConnectionLost => {
                reason.clone().sent_as(&broken)
            }
            _ => broken,
        })
    }

    /// Why a node that is down gives no vote.
    pub(super) fn down_error(&self, address: &Arc<str>) -> NodeError {
        let unknown = || NodeError::new(address, NodeErrorKind::Unreachable, "not connected");
        self.last_error.clone().unwrap_or_else(unknown)
    }
}
