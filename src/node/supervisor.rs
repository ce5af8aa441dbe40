//! The task of one node: connects, pays what is owed, watches for silence, and does so again.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use super::handle::Shared;
use super::reply::Pending;
use super::state::Standing;
use super::{Command, Connection, Connector, Form, NodeError, NodeErrorKind, NodeWarning, entry};
use futures::FutureExt as _;
use futures::future::{BoxFuture, OptionFuture};

use crate::clock::Timestamp;
use crate::metrics;
use crate::retry::Backoff;

/// How many times `max_ttl` a supervisor without an owner goes on trying to pay.
const PATIENCE: u32 = 10;

pub(super) struct Supervisor {
    shared: Arc<Shared>,
    connector: Arc<dyn Connector>,
    /// Answers that nobody awaits, oldest first.
    orphans: VecDeque<Pending>,
}

/// What to do next with a connection.
enum Next {
    Sleep(Duration),
    Reconnect,
    End,
}

impl Supervisor {
    pub(super) fn new(shared: Arc<Shared>, connector: Arc<dyn Connector>) -> Self {
        Self { shared, connector, orphans: VecDeque::new() }
    }

    pub(super) async fn run(mut self) {
        let mut backoff = Backoff::reconnect();
        let mut closing_since = None;
        for serial in 0.. {
            match connect(&self.shared, &*self.connector, serial).await {
                Ok((connection, standing)) => {
                    backoff = Backoff::reconnect();
                    let epoch = self.go_up(connection.clone(), standing);
                    self.watch(connection.clone(), epoch).await;
                    self.orphans.clear();
                    connection.close();
                }
                Err(error) => {
                    self.shared.lock().go_down(error, self.shared.clock.now());
                    self.shared.tried.send_replace(true);
                }
            }
            self.shared.roster.leave(self.shared.index);
            if self.is_over(&mut closing_since) {
                return;
            }
            tokio::select! {
                biased;
                () = tokio::time::sleep(backoff.delay()) => {}
                () = self.shared.roster.stirred() => {}
                () = self.shared.wake.notified() => {
                    if self.is_over(&mut closing_since) {
                        return;
                    }
                    // Whatever it was must not turn the pause into a busy loop.
                    tokio::time::sleep(backoff.delay()).await;
                }
            }
        }
    }

    fn go_up(&self, connection: Arc<dyn Connection>, (standing, warnings): Entered) -> u64 {
        let now = self.shared.clock.now();
        let mut state = self.shared.lock();
        if warnings.contains(&NodeWarning::OtherFleet) {
            metrics::other_fleet(&self.shared.address);
        }
        state.warnings = warnings;
        let epoch = state.go_up(connection, standing, &self.shared.address, now);
        drop(state);
        self.shared.tried.send_replace(true);
        epoch
    }

    /// Whether the owner is gone and nothing is owed, or has been owed for too long.
    fn is_over(&self, since: &mut Option<Timestamp>) -> bool {
        let now = self.shared.clock.now();
        let mut state = self.shared.lock();
        state.debts.forget(now);
        if !state.closing {
            return false;
        }
        let since = *since.get_or_insert(now);
        state.debts.is_empty() || now.since(since) > self.shared.timing.max_ttl * PATIENCE
    }

    /// Looks after a connection until it is lost or no longer needed.
    async fn watch(&mut self, connection: Arc<dyn Connection>, epoch: u64) {
        let mut closed = connection.closed();
        let mut look: Option<BoxFuture<'static, Result<(), NodeError>>> = None;
        loop {
            let pause = match self.look(epoch) {
                Next::Sleep(pause) => pause,
                Next::Reconnect => return,
                Next::End => {
                    connection.close();
                    return;
                }
            };
            let (slow, look_in) = match self.shared.lock().link(epoch) {
                Some(link) => (link.slow, link.look_at.since(self.shared.clock.now())),
                None => return,
            };
            if look.is_none() && look_in.is_zero() {
                let (shared, connection) = (self.shared.clone(), connection.clone());
                look = Some(async move { entry::look_again(&shared, connection, epoch).await }.boxed());
            }
            // The next look waits for the one under way.
            let pause = if look.is_some() { pause } else { pause.min(look_in) };
            tokio::select! {
                biased;
                () = &mut closed => {
                    self.sweep();
                    let mut state = self.shared.lock();
                    if state.link(epoch).is_some() {
                        let error = self.shared.error(NodeErrorKind::ConnectionLost, "the connection broke");
                        state.go_down(error, self.shared.clock.now());
                    }
                    return;
                }
                seen = OptionFuture::from(look.as_mut()), if look.is_some() => {
                    look = None;
                    if self.has_changed(epoch, seen.unwrap_or(Ok(()))) {
                        return;
                    }
                }
                () = connection.alarm().rung() => {
                    if let Some(link) = self.shared.lock().link(epoch) {
                        link.look_at_once();
                    }
                }
                () = self.shared.wake.notified() => {}
                () = tokio::time::sleep(pause) => {}
                // The first answer of a slow node makes it well again, so that one is waited for.
                () = Self::oldest(&mut self.orphans, &self.shared), if slow => {}
            }
        }
    }

    /// Takes in a look at the node. True if the connection has to be made and checked anew.
    fn has_changed(&self, epoch: u64, seen: Result<(), NodeError>) -> bool {
        let now = self.shared.clock.now();
        let mut state = self.shared.lock();
        if let Some(link) = state.link(epoch) {
            link.looked(now);
        }
        match seen {
            // Silence and breaks have their own ways.
            Err(error) if error.kind() == NodeErrorKind::Refused => {
                state.go_down(error, now);
                true
            }
            Ok(()) | Err(_) => false,
        }
    }

    /// Resolves when the oldest orphan has its answer.
    async fn oldest(orphans: &mut VecDeque<Pending>, shared: &Shared) {
        poll_fn(|cx| match orphans.front_mut() {
            Some(pending) => pending.poll(shared, cx).map(|_| ()),
            None => Poll::Pending,
        })
        .await;
        orphans.pop_front();
    }

    /// Takes in the answers to what nobody awaits.
    fn sweep(&mut self) {
        self.orphans.extend(std::mem::take(&mut self.shared.lock().orphans));
        let mut cx = Context::from_waker(Waker::noop());
        let shared = &self.shared;
        self.orphans.retain_mut(|pending| pending.poll(shared, &mut cx).is_pending());
    }

    /// One look: answers, silence, what is due, what comes next.
    fn look(&mut self, epoch: u64) -> Next {
        self.sweep();
        let shared = &self.shared;
        let timing = &shared.timing;
        let now = shared.clock.now();
        let mut state = shared.lock();
        let due = state.debts.due(now);
        let closing = state.closing && state.debts.is_empty();
        let Some(link) = state.link(epoch) else { return Next::Reconnect };
        match link.silence(now) {
            Some(silence) if silence >= timing.silence() => {
                let error = shared.error(NodeErrorKind::TimedOut, format!("no answer for {silence:?}"));
                state.go_down(error, now);
                return Next::Reconnect;
            }
            Some(silence) if silence >= timing.node_timeout => link.slow = true,
            Some(_) | None if closing => return Next::End,
            Some(_) => {}
            None if link.idle(now) >= timing.ping_interval() => {
                self.orphans.push_back(link.submit(&Command::Ping, Form::Best, None, now));
            }
            None => {}
        }
        for (number, target) in &due {
            let command = Command::Delete { target: target.clone() };
            self.orphans.push_back(link.submit(&command, Form::Best, Some(*number), now));
        }
        let outstanding = link.silence(now).is_some();
        let ping = timing.ping_interval().saturating_sub(link.idle(now));
        for (number, _) in &due {
            state.debts.submitted(*number);
        }
        state.watching = outstanding;
        let next_due = state.debts.next_due().map(|at| at.since(now));
        let pause = if outstanding { timing.tick() } else { ping.min(timing.idle_tick()) };
        Next::Sleep(next_due.map_or(pause, |due| due.min(pause)).max(Duration::from_millis(1)))
    }
}

type Entered = (Standing, Vec<NodeWarning>);

/// A connection on which nothing older can interfere, as far as the server lets us see to that, to a node
/// that may vote.
async fn connect(
    shared: &Shared,
    connector: &dyn Connector,
    serial: u64,
) -> Result<(Arc<dyn Connection>, Entered), NodeError> {
    let limit = shared.timing.silence();
    let connect = async {
        let begun = shared.clock.now();
        let connection = connector.connect().await?;
        if let Some(time) = connection.report().time {
            let now = shared.clock.now();
            shared.note_time(&mut shared.lock(), begun, now, time);
        }
        kill_stale(shared, &*connection).await?;
        Ok(connection)
    };
    let overdue = |_| {
        let reason = format!("no connection within {limit:?}");
        Err(shared.error(NodeErrorKind::Unreachable, reason))
    };
    let connection = tokio::time::timeout(limit, connect).await.unwrap_or_else(overdue)?;
    // The wait for the other nodes comes on top.
    let limit = limit + shared.timing.node_timeout;
    let entered = tokio::time::timeout(limit, entry::enter(shared, &*connection, serial)).await;
    let entered =
        entered.unwrap_or_else(|_| Err(shared.error(NodeErrorKind::TimedOut, "no answer in time")))?;
    Ok((connection, entered))
}

/// Makes the server forget our broken connections, and what it has not yet run of them.
async fn kill_stale(shared: &Shared, connection: &dyn Connection) -> Result<(), NodeError> {
    let clients = shared.lock().debts.killable(&connection.report().into());
    for client in clients {
        match connection.kill(client).await {
            Ok(()) => shared.lock().debts.killed(client),
            Err(error) if error.kind() == NodeErrorKind::ConnectionLost => return Err(error),
            // Forbidden: waited out.
            Err(_) => {}
        }
    }
    let rest = shared.timing.max_ttl + Duration::from_secs(1);
    let after_connect = shared.timing.node_timeout + Duration::from_secs(1);
    shared.lock().debts.wait_out(rest, after_connect, shared.clock.now());
    Ok(())
}
