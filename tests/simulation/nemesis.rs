//! Whatever can go wrong, and its end. Keeps within the assumptions: no more than a minority of the nodes
//! has lately lost its memory.

use super::ledger::{Breach, short};
use super::link::Fate;
use super::network::{Network, State};
use super::world::{Fault, Memory, Trouble, World};
use crate::Token;

/// What was planned.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Event {
    Begin(Trouble),
    Thaw(usize),
    Start(usize),
    Flow {
        client: usize,
        node: usize,
    },
    Resume(usize),
    /// Not a fault: what the checker looks for.
    Gone {
        node: usize,
        token: Token,
    },
}

/// Plans all faults of `world`.
pub(crate) fn plan(network: &Network, world: &World) {
    for (node, plan) in world.nodes.iter().enumerate().filter(|(_, plan)| plan.up_at > 0) {
        network.plan(plan.up_at * 1_000, Event::Start(node));
    }
    let (nodes, clients) = (world.nodes.len(), world.clients.len());
    for Fault { at, what } in &world.faults {
        network.plan(at * 1_000, Event::Begin(within(*what, nodes, clients)));
    }
}

/// The same trouble for nodes and clients that exist.
fn within(what: Trouble, nodes: usize, clients: usize) -> Trouble {
    let mut what = what;
    match &mut what {
        Trouble::Freeze { node, .. }
        | Trouble::Crash { node, .. }
        | Trouble::Isolate { node, .. }
        | Trouble::Forget { node }
        | Trouble::Step { node, .. } => *node %= nodes,
        Trouble::Pause { client, .. } | Trouble::Die { client, .. } => *client %= clients,
        Trouble::Cut { client, node, .. }
        | Trouble::Hold { client, node, .. }
        | Trouble::Lose { client, node, .. } => (*client, *node) = (*client % clients, *node % nodes),
    }
    what
}

pub(crate) fn happen(network: &Network, state: &mut State, event: Event) {
    match event {
        Event::Begin(_) if state.calm => return,
        Event::Begin(what) => {
            network.ledger.count(|counts| counts.faults += 1);
            begin(network, state, what);
        }
        Event::Thaw(node) if state.nodes[node].frozen => network.thaw(state, node),
        Event::Start(node) => state.nodes[node].up = true,
        Event::Flow { client, node } => {
            state.routes[client][node] = [Fate::Flow; 2];
            network.let_go(state, client, node);
        }
        Event::Resume(client) => {
            if let Some(process) = &state.processes[client] {
                process.resume();
            }
        }
        Event::Gone { node, token } => {
            let now = network.history.now();
            if state.nodes[node].standing(now).any(|(_, standing)| standing == token.as_str()) {
                let what = format!("{} at n{node}, which nobody deletes", short(token.as_str()));
                network.ledger.broken(Breach::Leftover, what);
            }
            return;
        }
        Event::Thaw(_) => return,
    }
    network.history.note("world", || format!("{event:?}"));
}

fn begin(network: &Network, state: &mut State, what: Trouble) {
    let now = network.history.now();
    let mut then = |after: u64, event| state.plan(now + after * 1_000, event);
    match what {
        Trouble::Freeze { node, time } => {
            then(time, Event::Thaw(node));
            state.nodes[node].frozen = state.nodes[node].up;
        }
        Trouble::Crash { node, time, memory } => {
            then(time, Event::Start(node));
            let memory = if may_forget(state, node, now) { memory } else { Memory::All };
            state.nodes[node].crash(memory, now);
            network.close_all(state, node);
        }
        Trouble::Cut { client, node, late } => network.cut(state, client, node, late),
        Trouble::Hold { client, node, way, time } => {
            then(time, Event::Flow { client, node });
            state.routes[client][node][way as usize] = Fate::Hold;
        }
        Trouble::Lose { client, node, way, time } => {
            then(time, Event::Flow { client, node });
            state.routes[client][node][way as usize] = Fate::Lose;
        }
        Trouble::Isolate { node, time } => {
            for client in 0..state.routes.len() {
                state.plan(now + time * 1_000, Event::Flow { client, node });
                state.routes[client][node] = [Fate::Lose; 2];
            }
        }
        Trouble::Pause { client, time } => {
            then(time, Event::Resume(client));
            if let Some(process) = &state.processes[client] {
                process.pause();
            }
        }
        Trouble::Die { client, time } => {
            state.gone[client] = time;
            if let Some(process) = &state.processes[client] {
                process.kill();
            }
        }
        Trouble::Forget { node } => state.nodes[node].forget(),
        Trouble::Step { node, by } => state.nodes[node].step(by),
    }
}

fn may_forget(state: &State, node: usize, now: u64) -> bool {
    let forgetful = |other: &usize| *other != node && state.nodes[*other].is_forgetful(now, state.max_ttl);
    let others = (0..state.nodes.len()).filter(forgetful).count();
    !state.few_forget || others < (state.nodes.len() - 1) / 2
}

/// All is well from now on but for a minority of the nodes, which is down or cannot be reached.
pub(crate) fn heal_a_quorum(network: &Network, seed: u64) {
    heal(network);
    let mut state = network.lock();
    let state = &mut *state;
    let nodes = state.nodes.len();
    let (first, down) = (usize::try_from(seed % 64).unwrap_or(0), seed & 64 == 0);
    for node in (0..(nodes - 1) / 2).map(|count| (first + count) % nodes) {
        network.history.note("world", || format!("but for n{node}"));
        if down {
            state.nodes[node].crash(Memory::All, network.history.now());
            network.close_all(state, node);
        } else {
            state.routes.iter_mut().for_each(|routes| routes[node] = [Fate::Lose; 2]);
        }
    }
}

/// All is well from now on.
pub(crate) fn heal(network: &Network) {
    let mut state = network.lock();
    let state = &mut *state;
    state.calm = true;
    network.history.note("world", || "all is well");
    for node in 0..state.nodes.len() {
        state.nodes[node].up = true;
        if state.nodes[node].frozen {
            network.thaw(state, node);
        }
        for client in 0..state.routes.len() {
            state.routes[client][node] = [Fate::Flow; 2];
            network.let_go(state, client, node);
        }
    }
    state.processes.iter().flatten().for_each(|process| process.resume());
}
