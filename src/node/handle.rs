//! What the algorithm calls. Submitting is synchronous and in call order.

use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Waker};
use std::time::Duration;

use tokio::sync::{Notify, oneshot, watch};

use super::reply::Pending;
use super::state::{Phase, Queued, Standing, State, guarded};
use super::status::NodeStatus;
use super::supervisor::Supervisor;
use super::{
    Answer, Command, Connector, Form, Heard, NodeError, NodeErrorKind, NodeWarning, Refusal, Reply, Report,
    Roster, Target, Vote,
};
use super::{admission, marker};
use crate::clock::{Clock, Timestamp};
use crate::metrics;
use crate::sabotage::{self, Sabotage};
use crate::validity::drift;

/// How many older answers are looked for when one more is left to itself.
const REAPED: usize = 2;

/// The times of one node.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Timing {
    /// An answer that takes longer is overdue.
    pub(crate) node_timeout: Duration,
    /// The longest TTL that any client asks of the node.
    pub(crate) max_ttl: Duration,
    /// Nodes that may have forgotten leases do not vote.
    pub(crate) restart_guard: bool,
    /// Nothing is written, not even the marker.
    pub(crate) observe_only: bool,
}

impl Timing {
    /// After so much silence a connection is replaced; also the time to make one.
    pub(super) fn silence(&self) -> Duration {
        self.node_timeout.max(Duration::from_secs(2))
    }

    /// How often the supervisor looks while answers are outstanding.
    pub(super) fn tick(&self) -> Duration {
        (self.node_timeout / 4).clamp(Duration::from_millis(5), Duration::from_millis(250))
    }

    /// How often the supervisor looks while all is quiet: a command may be sent at any time.
    pub(super) fn idle_tick(&self) -> Duration {
        self.node_timeout.clamp(Duration::from_millis(250), self.ping_interval())
    }

    /// An idle connection is pinged so often.
    pub(super) fn ping_interval(&self) -> Duration {
        Duration::from_secs(5)
    }
}

/// What a target's deletion needs to know of its past.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Deletion {
    /// When the first SET of the target was sent, at the earliest.
    pub(crate) sent: Timestamp,
    /// When its keys will have run out by themselves.
    pub(crate) until: Timestamp,
}

/// What the handle, its replies and the supervisor share.
pub(crate) struct Shared {
    /// The node's number among all nodes.
    pub(super) index: usize,
    pub(super) address: Arc<str>,
    /// Of the address.
    place: String,
    pub(super) roster: Arc<Roster>,
    pub(super) clock: Clock,
    pub(super) timing: Timing,
    pub(super) wake: Notify,
    /// True once the first try to connect is over.
    pub(super) tried: watch::Sender<bool>,
    state: Mutex<State>,
}

impl Shared {
    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing panics while it holds the lock; if it did, the state would still be whole.
        self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// What is known of the node besides its report.
    pub(super) fn fleet(&self, is_new: bool) -> admission::Fleet<'_> {
        admission::Fleet { fingerprint: &self.roster.fingerprint, place: &self.place, is_new }
    }

    /// Enters the node as the server that `report` shows.
    pub(super) fn enter(&self, report: &Report) -> Result<(), Refusal> {
        self.roster.enter(self.index, report.run_id.as_deref())
    }

    pub(super) fn error(&self, kind: NodeErrorKind, reason: impl Into<Arc<str>>) -> NodeError {
        NodeError::new(&self.address, kind, reason)
    }

    pub(super) fn overdue(&self) -> NodeError {
        self.error(NodeErrorKind::TimedOut, "no answer in time")
    }

    /// Takes in the answer to `pending`, and says what counts of it.
    pub(super) fn answered(&self, pending: &Pending, heard: Heard) -> Answer {
        let now = self.clock.now();
        let Heard { answer, time } = heard;
        let mut state = self.lock();
        if let Some(time) = time {
            self.note_time(&mut state, pending.sent, now, time);
        }
        if let Some(link) = state.link(pending.epoch) {
            match &answer {
                // No answer: the command may still be under way.
                Err(error) if error.kind() == NodeErrorKind::ConnectionLost => {
                    state.go_down(error.clone(), now);
                    self.wake.notify_one();
                }
                Err(error) if error.kind() == NodeErrorKind::ReadOnly => {
                    link.answered(now);
                    link.look_at_once();
                    self.wake.notify_one();
                }
                Ok(_) | Err(_) => link.answered(now),
            }
        }
        if let Some(number) = pending.debt
            && state.debts.answered(number, &answer, now)
        {
            self.wake.notify_one();
        }
        self.count(&mut state, pending, answer)
    }

    /// What counts of an answer, by all that is known of the node now.
    fn count(&self, state: &mut State, pending: &Pending, answer: Answer) -> Answer {
        let command = &pending.command;
        if !matches!(answer, Ok(Vote::Yes)) || !command.sets() {
            return state.explained(pending.epoch, answer);
        }
        // Another client may have marked it anew since it was asked.
        let link = state.link(pending.epoch);
        let young = link.and_then(|link| {
            link.too_young(command, &self.address, guarded(command, pending.sent, self.timing.max_ttl))
        });
        if let Some(young) = young {
            return Err(young.after_sending());
        }
        if self.timing.restart_guard && pending.alarm.is_raised() {
            let reason = "its memory was emptied: it is checked anew";
            return Err(self.error(NodeErrorKind::Emptied, reason).after_sending());
        }
        if let Command::Extend { ttl, since, .. } = command
            && let Some(gained) = state.clock.stepped(*since, drift(ttl.duration()))
        {
            let reason = NodeWarning::ClockStepped { gained }.to_string();
            return Err(self.error(NodeErrorKind::ClockStepped, reason));
        }
        answer
    }

    /// Takes in the node's TIME, and whether its clock was stepped since the one before.
    pub(super) fn note_time(&self, state: &mut State, sent: Timestamp, received: Timestamp, time: u64) {
        let Some(gained) = state.clock.note(sent, received, time, self.timing.max_ttl) else { return };
        metrics::clock_step(&self.address);
        state.warnings.retain(|warning| !matches!(warning, NodeWarning::ClockStepped { .. }));
        state.warnings.push(NodeWarning::ClockStepped { gained });
    }

    /// Sends `pending` again in the form that its `error` calls for, if there is one.
    pub(super) fn submit_again(&self, pending: &Pending, error: &NodeError) -> Option<Pending> {
        if pending.command.is_over() {
            return None;
        }
        let mut state = self.lock();
        let link = state.link(pending.epoch)?;
        let form = link.connection.next_form(&pending.command, pending.form, error)?;
        let now = self.clock.now();
        link.answered(now);
        Some(link.submit(&pending.command, form, pending.debt, now))
    }

    /// Takes an answer over that nobody awaits any more, and looks whether the oldest of them have come:
    /// in ordinary traffic these have, so that few are ever kept.
    pub(super) fn orphan(&self, pending: Pending) {
        let now = self.clock.now();
        let mut state = self.lock();
        let node_timeout = self.timing.node_timeout;
        let Some(link) = state.link(pending.epoch) else { return };
        if link.silence(now).is_some_and(|silence| silence >= node_timeout) {
            link.slow = true;
        }
        if !state.watching {
            state.watching = true;
            self.wake.notify_one();
        }
        let known = state.orphans.len().min(REAPED);
        let oldest: [Option<Pending>; REAPED] =
            std::array::from_fn(|index| if index < known { state.orphans.pop_front() } else { None });
        state.orphans.push_back(pending);
        drop(state);
        let mut cx = Context::from_waker(Waker::noop());
        for mut pending in oldest.into_iter().flatten().rev() {
            if pending.poll(self, &mut cx).is_pending() {
                self.lock().orphans.push_front(pending);
            }
        }
    }
}

/// One node. Dropping it ends its supervisor, once nothing is owed any more.
pub(crate) struct Node {
    shared: Arc<Shared>,
}

impl Node {
    /// Starts to connect, in the background. Must be called within a runtime.
    pub(crate) fn start(
        (index, address): (usize, Arc<str>),
        connector: Arc<dyn Connector>,
        roster: Arc<Roster>,
        clock: Clock,
        timing: Timing,
    ) -> Self {
        let now = clock.now();
        let shared = Arc::new(Shared {
            index,
            place: marker::place(&address),
            address,
            roster,
            clock,
            timing,
            wake: Notify::new(),
            tried: watch::Sender::new(false),
            state: Mutex::new(State::new(now, now.after(timing.node_timeout))),
        });
        shared.clock.spawn(Supervisor::new(shared.clone(), connector).run());
        Self { shared }
    }

    /// Asks for a vote. A node that cannot vote now fails at once.
    pub(crate) fn vote(&self, command: &Command) -> Reply {
        let shared = &self.shared;
        let now = shared.clock.now();
        let mut state = shared.lock();
        if command.is_over() {
            return Reply::failed(shared, shared.error(NodeErrorKind::Over, "not asked any more"));
        }
        let outgrown = matches!(command, Command::Extend { grown, .. } if state.debts.outgrown(*grown, now));
        if let Phase::Linked(link) = &mut state.phase
            && link.silence(now).is_some_and(|silence| silence >= shared.timing.node_timeout)
        {
            link.slow = true;
            shared.wake.notify_one();
        }
        match &mut state.phase {
            Phase::First { until, queue } if now < *until => {
                let (submitted, pending) = oneshot::channel();
                queue.push(Queued { command: command.clone(), submitted });
                Reply::queued(shared, pending)
            }
            Phase::First { .. } => {
                Reply::failed(shared, shared.error(NodeErrorKind::Connecting, "still connecting"))
            }
            Phase::Linked(link) if link.slow => {
                Reply::failed(shared, shared.error(NodeErrorKind::Slow, "earlier answers are overdue"))
            }
            Phase::Linked(link) => {
                let young =
                    link.too_young(command, &shared.address, guarded(command, now, shared.timing.max_ttl));
                if let (Some(young), Command::Acquire { .. } | Command::Grant { .. }) = (&young, command) {
                    return Reply::failed(shared, young.clone());
                }
                let pending = link.submit(command, Form::Best, None, now);
                let reason = "an older command may still be under way on a broken connection";
                let unsettled = outgrown.then(|| shared.error(NodeErrorKind::Unsettled, reason));
                if let Some(uncounted) = young.or(unsettled) {
                    // Sent, but no vote; who asked is told that it may have been run.
                    state.orphans.push_back(pending);
                    shared.wake.notify_one();
                    return Reply::failed(shared, uncounted.after_sending());
                }
                Reply::sent(shared, pending)
            }
            Phase::Down => Reply::failed(shared, state.down_error(&shared.address)),
        }
    }

    /// Deletes what holds the target's token, now or as soon as the node can be reached. The deletion
    /// goes on without the reply. Nothing else is sent for the target any more.
    pub(crate) fn delete(&self, target: &Arc<Target>, past: Deletion) -> Reply {
        let shared = &self.shared;
        let now = shared.clock.now();
        let mut state = shared.lock();
        if !sabotage::has(Sabotage::DebtOfWonToken) {
            target.end();
        }
        let number = state.debts.add(target.clone(), past.sent, past.until);
        let state = &mut *state;
        let Phase::Linked(link) = &mut state.phase else {
            return Reply::failed(shared, state.down_error(&shared.address));
        };
        let command = Command::Delete { target: target.clone() };
        let pending = link.submit(&command, Form::Best, Some(number), now);
        state.debts.submitted(number);
        Reply::sent(shared, pending)
    }

    /// The error of an answer that came too late to count.
    pub(crate) fn overdue(&self) -> NodeError {
        self.shared.overdue()
    }

    /// Resolves when the first try to connect is over.
    pub(crate) async fn tried(&self) {
        // The sender lives as long as this handle, so that this does not end early.
        let _ = self.shared.tried.subscribe().wait_for(|tried| *tried).await;
    }

    /// Resolves when nothing is owed.
    pub(crate) async fn settled(&self) {
        while !self.shared.lock().debts.is_empty() {
            self.shared.clock.sleep(Duration::from_millis(5)).await;
            self.shared.wake.notify_one();
        }
    }

    /// Marks the node as one that remembers for ever.
    pub(crate) async fn adopt(&self) -> Result<(), NodeError> {
        let shared = &self.shared;
        if shared.timing.observe_only {
            return Err(shared.error(NodeErrorKind::NoPermission, "not asked: this client only observes"));
        }
        let (connection, epoch, report) = {
            let state = shared.lock();
            let Phase::Linked(link) = &state.phase else { return Err(state.down_error(&shared.address)) };
            (link.connection.clone(), link.epoch, state.report.clone())
        };
        let unknown = || shared.error(NodeErrorKind::Server, "it keeps no marker (INFO, GET)");
        let marker = admission::admit(&report, shared.fleet(true)).write.ok_or_else(unknown)?;
        let marking = shared.clock.within(shared.timing.silence(), connection.mark(&marker));
        marking.await.unwrap_or_else(|| Err(shared.overdue()))?;
        let now = shared.clock.now();
        let mut state = shared.lock();
        state.warnings.retain(|warning| *warning != NodeWarning::OtherFleet);
        if let Some(link) = state.link(epoch) {
            link.standing = Standing { votes: now, renews: now, marked: true, since: Some(0) };
        }
        Ok(())
    }

    pub(crate) async fn round_trips(
        &self,
        count: usize,
        timeout: Duration,
    ) -> Result<Vec<Duration>, NodeError> {
        let mut times = Vec::with_capacity(count.min(10_000));
        for _ in 0..count {
            let begun = std::time::Instant::now();
            let ping = self.shared.clock.within(timeout, self.vote(&Command::Ping));
            ping.await.unwrap_or_else(|| Err(self.shared.overdue()))?;
            times.push(begun.elapsed());
        }
        Ok(times)
    }

    pub(crate) fn status(&self) -> NodeStatus {
        let shared = &self.shared;
        NodeStatus::of(&shared.address, &shared.lock(), shared.timing.node_timeout, &shared.clock)
    }

    /// How far the node's clock is ahead of this machine's, in microseconds.
    pub(crate) fn clock_ahead(&self) -> Option<i64> {
        self.status().clock_ahead_micros
    }

    /// Why the node may not vote at all.
    pub(crate) fn refusal(&self) -> Option<Refusal> {
        self.shared.lock().refusal.clone()
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.shared.lock().closing = true;
        self.shared.wake.notify_one();
    }
}
