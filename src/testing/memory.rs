//! Nodes in memory, for tests in paused time: the algorithm runs on them exactly as on Redis.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::{BoxFuture, ready};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::clock::{EPOCH, VirtualClock};
use super::gate::{Gate, Request, Server};
use super::store::{Entry, Store};
use crate::clock::Clock;
use crate::config::Builder;
use crate::fence::Fence;
use crate::node::{
    Alarm, Command, Connection, Connector, Form, Heard, Marker, NodeError, NodeErrorKind, Report, Role, Vote,
};
use crate::redlock::Redlock;

/// A set of nodes in memory.
///
/// Every [`Redlock`] made by [`redlock`](Self::redlock) is a client of the same nodes. Time is tokio's, so
/// that tests may pause it.
pub struct MemoryNodes {
    nodes: Vec<Arc<MemoryNode>>,
    clock: Arc<VirtualClock>,
}

#[derive(Default)]
struct State {
    store: Store,
    down: bool,
    /// Grows with each restart.
    run: u64,
    clients: u64,
    /// Connections that the server still has, by client number.
    links: HashMap<u64, CancellationToken>,
    requests: Vec<String>,
    /// The numbers of all fences granted.
    granted: Vec<u64>,
    /// By how many microseconds its clock was stepped forward.
    stepped: u64,
}

pub(super) struct MemoryNode {
    name: Arc<str>,
    /// The node's TIME counts from here.
    born: Instant,
    gate: watch::Sender<Gate>,
    state: Mutex<State>,
}

impl MemoryNodes {
    /// `count` nodes that answer at once. Must be called within a runtime.
    pub fn new(count: usize) -> Self {
        let node = |index| {
            Arc::new(MemoryNode {
                name: format!("memory:{index}").into(),
                born: Instant::now(),
                gate: watch::Sender::new(Gate::Grant),
                state: Mutex::default(),
            })
        };
        Self { nodes: (0..count).map(node).collect(), clock: Arc::new(VirtualClock::new()) }
    }

    /// A new client of the nodes, with the options of `builder` (its addresses are not used).
    pub async fn redlock(&self, builder: Builder) -> Redlock {
        let connector = |node: &Arc<MemoryNode>| {
            (node.name.clone(), Arc::new(MemoryConnector(node.clone())) as Arc<dyn Connector>)
        };
        let connectors = self.nodes.iter().map(connector).collect();
        let connected = builder.start(connectors, Clock::Virtual(self.clock.clone())).await;
        connected.expect("nodes in memory are never refused")
    }

    /// The same nodes for clients on another machine, whose Unix time is wrong by `millis`.
    /// [`suspend`](Self::suspend) and [`set_wall_clock`](Self::set_wall_clock) are for one machine alone.
    pub fn from_elsewhere(&self, millis: i64) -> Self {
        let clock = self.clock.of_another(millis.saturating_mul(1_000));
        Self { nodes: self.nodes.clone(), clock: Arc::new(clock) }
    }

    /// Lets the Unix time of the clients' machine be wrong by `millis` from now on.
    pub fn set_wall_clock(&self, millis: i64) {
        self.clock.set_wall(millis.saturating_mul(1_000));
    }

    /// How node `index` treats requests from now on. Requests that a [`Gate::Never`] holds are treated so
    /// too.
    pub fn gate(&self, index: usize, gate: Gate) {
        self.nodes[index].gate.send_replace(gate);
    }

    /// Breaks all connections to node `index`; it can be connected to again.
    pub fn cut(&self, index: usize) {
        self.nodes[index].lock().links.drain().for_each(|(_, link)| link.cancel());
    }

    /// Ends node `index`; what it has not run is gone.
    pub fn kill(&self, index: usize) {
        self.cut(index);
        self.nodes[index].lock().down = true;
    }

    /// Starts node `index` again, with its data or without.
    pub fn restart(&self, index: usize, keep: bool) {
        self.kill(index);
        let mut state = self.nodes[index].lock();
        state.down = false;
        state.run += 1;
        if !keep {
            state.store = Store::default();
        }
    }

    /// The value that stands at `key` on node `index`.
    pub fn value(&self, index: usize, key: &str) -> Option<String> {
        let node = &self.nodes[index];
        let time = node.time();
        node.lock().store.live(key.as_bytes(), time).map(|entry| entry.token.clone())
    }

    /// How long `key` still stands on node `index`.
    pub fn expiry(&self, index: usize, key: &str) -> Option<Duration> {
        let node = &self.nodes[index];
        let time = node.time();
        let left = |entry: &Entry| Duration::from_micros(entry.expires.saturating_sub(time));
        node.lock().store.live(key.as_bytes(), time).map(left)
    }

    /// Puts a value of somebody else at `key`.
    pub fn set(&self, index: usize, key: &str, value: &str, ttl: Duration) {
        let node = &self.nodes[index];
        let time = node.time();
        node.lock().store.set(key.as_bytes(), value, ttl, time);
    }

    /// Deletes `key`, as a FLUSHALL or an eviction would.
    pub fn remove(&self, index: usize, key: &str) {
        self.nodes[index].lock().store.remove(key.as_bytes());
    }

    /// What node `index` has run or answered so far, oldest first: `acquire`, `extend`, `delete`, each
    /// with its first key. Pings are left out.
    pub fn requests(&self, index: usize) -> Vec<String> {
        self.nodes[index].lock().requests.clone()
    }

    /// The fences that node `index` has granted so far, oldest first, also to leases that were not won.
    pub fn granted(&self, index: usize) -> Vec<Fence> {
        self.nodes[index].lock().granted.iter().copied().map(Fence::from).collect()
    }

    /// Steps the clock of node `index` forward: keys run out that much earlier.
    pub fn step_clock(&self, index: usize, by: Duration) {
        self.nodes[index].lock().stepped += u64::try_from(by.as_micros()).unwrap_or(u64::MAX);
    }

    /// Lets the lease clock jump ahead while timers stand still, as a suspended machine does.
    pub fn suspend(&self, time: Duration) {
        self.clock.suspend(time);
    }
}

impl MemoryNode {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn gate(&self) -> watch::Receiver<Gate> {
        self.gate.subscribe()
    }

    /// What the node says of itself: a master that syncs every write.
    fn report(&self, run: u64) -> Report {
        Report {
            run_id: Some(format!("{}-{run}", self.name)),
            role: Some(Role::Master),
            time: Some(self.time()),
            marker: Some(self.lock().store.marker().cloned()),
            appendonly: Some(true),
            fsync: Some("always".to_owned()),
            no_fsync_on_rewrite: Some(false),
            tracked: true,
            ..Report::default()
        }
    }

    /// Runs `command`, as the server does.
    pub(super) fn run(&self, command: &Command) -> Vote {
        let time = self.time();
        let mut state = self.lock();
        state.note(command);
        let vote = state.store.run(command, time);
        if let (Command::Grant { fence, .. }, Vote::Yes) = (command, &vote) {
            state.granted.push(*fence);
        }
        vote
    }

    /// Notes a command that is answered without being run.
    pub(super) fn note(&self, command: &Command) {
        self.lock().note(command);
    }

    /// The node's TIME in microseconds.
    pub(super) fn time(&self) -> u64 {
        let micros = u64::try_from(self.born.elapsed().as_micros()).unwrap_or(u64::MAX);
        EPOCH + micros + self.lock().stepped
    }

    pub(super) fn failure(&self) -> NodeError {
        NodeError::new(&self.name, NodeErrorKind::Server, "ERR the gate says error")
    }
}

impl State {
    fn note(&mut self, command: &Command) {
        let (verb, target) = match command {
            Command::Ping => return,
            Command::Acquire { target, .. } => ("acquire", target),
            Command::Grant { target, .. } => ("grant", target),
            Command::Heal { target, .. } => ("heal", target),
            Command::Extend { target, .. } => ("extend", target),
            Command::Delete { target } => ("delete", target),
        };
        self.requests.push(format!("{verb} {}", target.keys[0].escape_ascii()));
    }
}

struct MemoryConnector(Arc<MemoryNode>);

impl Connector for MemoryConnector {
    fn connect(&self) -> BoxFuture<'_, Result<Arc<dyn Connection>, NodeError>> {
        let node = self.0.clone();
        let mut state = self.0.lock();
        if state.down {
            let refused = NodeError::new(&node.name, NodeErrorKind::Unreachable, "connection refused");
            return ready(Err(refused)).boxed();
        }
        state.clients += 1;
        let (client, run) = (state.clients, state.run);
        let dropped = CancellationToken::new();
        state.links.insert(client, dropped.clone());
        drop(state);
        let (requests, queue) = mpsc::unbounded_channel();
        tokio::spawn(Server::new(node.clone(), queue, dropped.clone()).run());
        let report = Report { client: Some(client), ..self.0.report(run) };
        let closed = CancellationToken::new();
        let connection: Arc<dyn Connection> =
            Arc::new(MemoryConnection { node, requests, dropped, closed, report, alarm: Arc::default() });
        // A frozen server accepts connections and greets nobody.
        let mut gate = self.0.gate();
        async move {
            let _ = gate.wait_for(|gate| *gate != Gate::Never).await;
            Ok(connection)
        }
        .boxed()
    }
}

/// The client's end. What it has submitted is run even if it closes, until the server drops it.
struct MemoryConnection {
    node: Arc<MemoryNode>,
    requests: mpsc::UnboundedSender<Request>,
    /// The server has dropped the connection, with all that it has not run.
    dropped: CancellationToken,
    /// The client has closed it.
    closed: CancellationToken,
    report: Report,
    alarm: Arc<Alarm>,
}

impl Connection for MemoryConnection {
    fn submit(&self, command: &Command, _form: Form) -> BoxFuture<'static, Heard> {
        let (reply, answer) = oneshot::channel();
        let lost = NodeError::new(&self.node.name, NodeErrorKind::ConnectionLost, "the connection broke");
        if self.closed.is_cancelled() || self.dropped.is_cancelled() {
            return ready(Err(lost).into()).boxed();
        }
        // The server's task ends only when the connection is dropped.
        let _ = self.requests.send(Request { command: command.clone(), at: Instant::now(), reply });
        let (dropped, closed) = (self.dropped.clone(), self.closed.clone());
        async move {
            tokio::select! {
                biased;
                Ok(heard) = answer => heard,
                () = dropped.cancelled() => Err(lost.after_sending()).into(),
                () = closed.cancelled() => Err(lost.after_sending()).into(),
            }
        }
        .boxed()
    }

    fn report(&self) -> &Report {
        &self.report
    }

    fn alarm(&self) -> &Arc<Alarm> {
        &self.alarm
    }

    fn look(&self) -> BoxFuture<'static, Result<Report, NodeError>> {
        let (node, mut gate) = (self.node.clone(), self.node.gate());
        let client = self.report.client;
        async move {
            let _ = gate.wait_for(|gate| *gate != Gate::Never).await;
            let run = node.lock().run;
            Ok(Report { client, ..node.report(run) })
        }
        .boxed()
    }

    fn mark(&self, marker: &Marker) -> BoxFuture<'static, Result<Marker, NodeError>> {
        ready(Ok(self.node.lock().store.mark(marker))).boxed()
    }

    fn kill(&self, client: u64) -> BoxFuture<'static, Result<(), NodeError>> {
        if let Some(link) = self.node.lock().links.remove(&client) {
            link.cancel();
        }
        ready(Ok(())).boxed()
    }

    fn closed(&self) -> BoxFuture<'static, ()> {
        self.dropped.clone().cancelled_owned().boxed()
    }

    fn close(&self) {
        self.closed.cancel();
    }
}
