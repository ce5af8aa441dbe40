//! Messages between clients and nodes, and what becomes of them: one queue of events in true time.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use tokio::sync::{Notify, oneshot};
use tokio_util::sync::CancellationToken;

use super::history::History;
use super::ledger::Ledger;
use super::link::{Fate, Lane, Link};
use super::message::{Answer, Ask, Event, LONGEST, Request, Told, What, shown};
use super::nemesis::{self, Event as Scheduled};
use super::node::{SimNode, refused};
use super::process::Process;
use super::world::{Delays, Way, World};
use crate::node::{Command, Vote};

pub(crate) struct State {
    queue: BinaryHeap<Reverse<Event>>,
    serial: u64,
    pub(crate) nodes: Vec<SimNode>,
    links: Vec<Link>,
    /// By client and node: to the server, and back.
    pub(crate) routes: Vec<Vec<[Fate; 2]>>,
    /// The process of each client, once it runs.
    pub(crate) processes: Vec<Option<Arc<Process>>>,
    delays: Delays,
    /// How much longer answers take, by client.
    back: Vec<u64>,
    dice: StdRng,
    kill: bool,
    pub(crate) few_forget: bool,
    pub(crate) max_ttl: u64,
    /// No more faults.
    pub(crate) calm: bool,
    /// How long the client's next process is not there yet.
    pub(crate) gone: Vec<u64>,
}

pub(crate) struct Network {
    state: Mutex<State>,
    wake: Notify,
    pub(crate) history: Arc<History>,
    pub(crate) ledger: Arc<Ledger>,
}

impl Network {
    pub(crate) fn new(world: &World, ledger: &Arc<Ledger>) -> Arc<Self> {
        let nodes = world.nodes.iter().cloned().enumerate();
        let state = State {
            queue: BinaryHeap::new(),
            serial: 0,
            nodes: nodes.map(|(index, plan)| SimNode::new(index, plan)).collect(),
            links: Vec::new(),
            routes: vec![vec![[Fate::Flow; 2]; world.nodes.len()]; world.clients.len()],
            processes: vec![None; world.clients.len()],
            delays: world.delays,
            back: world.clients.iter().map(|client| client.back).collect(),
            dice: StdRng::seed_from_u64(world.seed),
            kill: world.kill,
            few_forget: world.few_forget,
            max_ttl: world.max_ttl,
            calm: false,
            gone: vec![0; world.clients.len()],
        };
        let history = ledger.history.clone();
        Arc::new(Self { state: Mutex::new(state), wake: Notify::new(), history, ledger: ledger.clone() })
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets everything happen when it is due.
    pub(crate) async fn run(self: Arc<Self>) {
        loop {
            let next = self.lock().queue.peek().map(|Reverse(event)| event.at);
            let wake = self.wake.notified();
            match next {
                Some(at) if at <= self.history.now() => self.happen(),
                Some(at) => {
                    let due = self.history.begun() + std::time::Duration::from_micros(at);
                    tokio::select! {
                        biased;
                        () = tokio::time::sleep_until(due) => {}
                        () = wake => {}
                    }
                }
                None => wake.await,
            }
        }
    }

    fn happen(&self) {
        let mut state = self.lock();
        let Some(Reverse(event)) = state.queue.pop() else { return };
        match event.what {
            What::Arrive { link, request } => self.arrive(&mut state, event.at, link, request),
            What::Return { link, told, answer } => self.come_back(&mut state, link, told, answer),
            What::Scheduled(event) => nemesis::happen(self, &mut state, event),
        }
    }

    /// Plans `event` for `at`.
    pub(crate) fn plan(&self, at: u64, event: Scheduled) {
        self.lock().push(at, What::Scheduled(event));
        self.wake.notify_one();
    }

    /// A new connection of `process` to `node`.
    pub(crate) fn connect(&self, process: &Arc<Process>, node: usize) -> (usize, CancellationToken) {
        let mut state = self.lock();
        let number = state.nodes[node].connect();
        let dropped = CancellationToken::new();
        let open = state.nodes[node].up;
        state.links.push(Link {
            process: process.clone(),
            node,
            number,
            open,
            out: Lane::default(),
            back: Lane::default(),
            held: VecDeque::new(),
            held_back: VecDeque::new(),
            unread: VecDeque::new(),
            dropped: dropped.clone(),
        });
        (state.links.len() - 1, dropped)
    }

    /// Sends `ask` on `link`; whoever is dead sends nothing.
    pub(crate) fn send(&self, link: usize, ask: Ask) -> oneshot::Receiver<Told> {
        let (answer, told) = oneshot::channel();
        let mut state = self.lock();
        let (process, node) = (state.links[link].process.clone(), state.links[link].node);
        if process.is_dead() {
            return told;
        }
        if let Ask::Command(command) = &ask {
            if !matches!(command, Command::Ping) {
                self.history.note(format_args!("c{} > n{node}", process.client), || shown(&ask));
            }
            self.note_attempt(&process, command);
        }
        let now = self.history.now();
        let at = state.delay_to(link, now, Way::ToServer);
        state.push(at, What::Arrive { link, request: Request { ask, answer, sent: now } });
        drop(state);
        self.ledger.count(|counts| counts.messages += 1);
        self.wake.notify_one();
        told
    }

    fn note_attempt(&self, process: &Arc<Process>, command: &Command) {
        match command {
            Command::Acquire { target, .. }
            | Command::Grant { target, .. }
            | Command::Heal { target, .. }
            | Command::Extend { target, .. } => self.ledger.sent(process, target),
            Command::Delete { .. } | Command::Ping => {}
        }
    }

    fn arrive(&self, state: &mut State, at: u64, link: usize, request: Request) {
        match state.fate(link, Way::ToServer) {
            Fate::Hold => return state.links[link].held.push_back(request),
            Fate::Lose => state.links[link].out.broken = true,
            Fate::Flow => {}
        }
        if state.links[link].out.broken {
            return;
        }
        let node = &state.nodes[state.links[link].node];
        if !state.links[link].open || !node.up {
            // Nobody has this connection: refused.
            return self.close(state, link, at);
        }
        if node.frozen {
            return state.links[link].unread.push_back(request);
        }
        self.serve(state, at, link, request);
    }

    /// The server runs `ask` and answers.
    fn serve(&self, state: &mut State, at: u64, link: usize, request: Request) {
        let Request { ask, answer, sent } = request;
        let (node, number) = (state.links[link].node, state.links[link].number);
        let mut told = state.nodes[node].run(&ask, number, at);
        if let Ask::Kill(number) = &ask {
            if state.kill {
                self.forget_link(state, node, *number);
            } else {
                told = Told::Error(refused(&state.nodes[node].name));
            }
        }
        if !matches!(ask, Ask::Command(Command::Ping)) {
            let client = state.links[link].process.client;
            let what = || format!("c{client} {}: {told}", shown(&ask));
            self.history.note_at(at, format_args!("     n{node}"), what);
        }
        if matches!(told, Told::Vote(Vote::Yes, _))
            && let Ask::Command(command) = &ask
        {
            self.check_set(state, link, command, (sent, at));
        }
        let back = state.delay_to(link, at, Way::ToClient);
        state.push(back, What::Return { link, told, answer: Some(answer) });
    }

    /// A key was set that nobody wants any more and nobody is known to delete: just before it runs out, it
    /// must be gone.
    fn check_set(&self, state: &mut State, link: usize, command: &Command, (sent, at): (u64, u64)) {
        let (target, ttl) = match command {
            Command::Acquire { target, ttl }
            | Command::Grant { target, ttl, .. }
            | Command::Heal { target, ttl, .. } => (target, ttl),
            Command::Extend { .. } | Command::Delete { .. } | Command::Ping => return,
        };
        let Link { process, node, .. } = &state.links[link];
        let token = target.token.as_str();
        // What cannot be killed and takes longer than this was given up.
        let given_up = !state.kill && at - sent > (state.max_ttl + 1_000) * 1_000;
        if !given_up && self.ledger.should_be_gone(token) && process.owes(*node) == Some(0) {
            let (node, token) = (*node, target.token);
            state.plan(at + ttl.millis() * 980, Scheduled::Gone { node, token });
        }
    }

    /// The server forgets connection `number`, and what it has not run of it.
    fn forget_link(&self, state: &mut State, node: usize, number: u64) {
        let same = |link: &Link| link.node == node && link.number == number && link.open;
        if let Some(link) = state.links.iter().position(same) {
            self.history.note(format_args!("     n{node}"), || format!("connection {number} is killed"));
            state.links[link].open = false;
            state.links[link].unread.clear();
        }
    }

    fn come_back(&self, state: &mut State, link: usize, told: Told, answer: Option<Answer>) {
        match state.fate(link, Way::ToClient) {
            Fate::Hold => return state.links[link].held_back.push_back((told, answer)),
            Fate::Lose => state.links[link].back.broken = true,
            Fate::Flow => {}
        }
        let link = &state.links[link];
        if link.back.broken {
            return;
        }
        match answer {
            // Whoever asked may be gone.
            Some(answer) => drop(answer.send(told)),
            None => link.dropped.cancel(),
        }
    }

    /// The client is told, some time later, that nobody has `link` any more.
    fn close(&self, state: &mut State, link: usize, at: u64) {
        state.links[link].open = false;
        state.links[link].unread.clear();
        let back = state.delay_to(link, at, Way::ToClient);
        state.push(back, What::Return { link, told: Told::Done, answer: None });
    }

    /// All connections of `node` end with its process.
    pub(crate) fn close_all(&self, state: &mut State, node: usize) {
        for link in 0..state.links.len() {
            if state.links[link].node == node && state.links[link].open {
                self.close(state, link, self.history.now());
            }
        }
    }

    /// The client's ends of its connections to `node` break; what is under way arrives `late`.
    pub(crate) fn cut(&self, state: &mut State, client: usize, node: usize, late: u64) {
        let now = self.history.now();
        for link in &mut state.links {
            if link.node == node && link.process.client == client && !link.dropped.is_cancelled() {
                link.dropped.cancel();
                if late == 0 {
                    link.open = false;
                    link.unread.clear();
                }
            }
        }
        // What was sent is in a buffer somewhere.
        let moved = |event: &Event, links: &[Link]| match event.what {
            What::Arrive { link, .. } => {
                links[link].node == node && links[link].process.client == client && event.at > now
            }
            What::Return { .. } | What::Scheduled(_) => false,
        };
        let mut events = std::mem::take(&mut state.queue).into_vec();
        for Reverse(event) in &mut events {
            if late > 0 && moved(event, &state.links) {
                event.at += late * 1_000;
            }
        }
        state.queue = events.into();
    }

    /// What was held between `client` and `node` goes on its way.
    pub(crate) fn let_go(&self, state: &mut State, client: usize, node: usize) {
        let now = self.history.now();
        for link in 0..state.links.len() {
            if state.links[link].node != node || state.links[link].process.client != client {
                continue;
            }
            if state.fate(link, Way::ToServer) != Fate::Hold {
                for request in std::mem::take(&mut state.links[link].held) {
                    self.arrive(state, now, link, request);
                }
            }
            if state.fate(link, Way::ToClient) != Fate::Hold {
                for (told, answer) in std::mem::take(&mut state.links[link].held_back) {
                    self.come_back(state, link, told, answer);
                }
            }
        }
    }

    /// A server that was stopped goes on: connection by connection, in any order.
    pub(crate) fn thaw(&self, state: &mut State, node: usize) {
        state.nodes[node].frozen = false;
        let now = self.history.now();
        let mut links: Vec<usize> =
            (0..state.links.len()).filter(|link| state.links[*link].node == node).collect();
        while !links.is_empty() {
            let place = state.dice.random_range(0..links.len());
            let link = links.swap_remove(place);
            while let Some(request) = state.links[link].unread.pop_front() {
                self.serve(state, now, link, request);
            }
        }
    }
}

impl State {
    fn push(&mut self, at: u64, what: What) {
        self.serial += 1;
        self.queue.push(Reverse(Event { at, serial: self.serial, what }));
    }

    fn fate(&self, link: usize, way: Way) -> Fate {
        let link = &self.links[link];
        self.routes[link.process.client][link.node][way as usize]
    }

    /// When a message that is sent at `now` arrives.
    fn delay_to(&mut self, link: usize, now: u64, way: Way) -> u64 {
        let usual = self.delays.usual;
        let mut delay = self.dice.random_range(usual / 4..=usual);
        if self.dice.random_range(0..1_000) < self.delays.tail {
            // Pareto, up to a thousand times as long.
            let chance: f64 = self.dice.random_range(0.001..1.0);
            delay = ((usual as f64 / chance) as u64).min(LONGEST);
        }
        if way == Way::ToClient {
            let back = self.back[self.links[link].process.client];
            delay += self.dice.random_range(back / 2..=back);
        }
        let lane = match way {
            Way::ToServer => &mut self.links[link].out,
            Way::ToClient => &mut self.links[link].back,
        };
        lane.clear = (now + delay).max(lane.clear + 1);
        lane.clear
    }

    /// Plans `event` for `at`.
    pub(crate) fn plan(&mut self, at: u64, event: Scheduled) {
        self.push(at, What::Scheduled(event));
    }

    /// What stands at the nodes that are up: node, key and token.
    pub(crate) fn standing(&self, micros: u64) -> Vec<(usize, String, String)> {
        let mut standing = Vec::new();
        for (index, node) in self.nodes.iter().enumerate().filter(|(_, node)| node.up) {
            for (key, token) in node.standing(micros) {
                standing.push((index, key.escape_ascii().to_string(), token.to_owned()));
            }
        }
        standing
    }
}
