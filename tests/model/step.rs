//! What can happen in a moment, and what comes of it. Each rule is one condition here.

use super::state::{CLIENTS, Client, Command, Key, Message, NODES, Node, Phase, ROUND_TIMEOUT, State, World};
use crate::Rule;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    Tick,
    /// Begins a round: a SET to each node that may vote.
    Acquire(Client),
    /// Asks all nodes for a renewal with this TTL.
    Extend(Client, u8),
    /// Puts the key back on one node.
    Heal(Client, usize),
    /// Counts the votes: the round is won, or the lease goes on for longer.
    Decide(Client),
    /// Gives a round up or a lease back.
    End(Client),
    /// A node runs one command of its queue.
    Run(Client, usize, usize),
    /// A node loses its memory, and its connections with what is under way to it. Its answers may still
    /// arrive.
    Restart(usize),
}

/// All that may be tried in `state`.
pub(crate) fn actions(world: &World, state: &State) -> Vec<Action> {
    let mut actions = vec![Action::Tick];
    for client in CLIENTS {
        actions.extend([Action::Acquire(client), Action::Decide(client), Action::End(client)]);
        let ttls = world.budget(client).extend_ttls;
        actions.extend(ttls.iter().map(|ttl| Action::Extend(client, *ttl)));
        for node in 0..NODES {
            actions.push(Action::Heal(client, node));
            let queue = &state.nodes[node].lane(client).queue;
            actions.extend((0..queue.len()).map(|index| Action::Run(client, node, index)));
        }
    }
    actions.extend((0..NODES).map(Action::Restart));
    actions
}

/// What comes of `action`; `None` if it cannot be.
pub(crate) fn apply(world: &World, state: &State, action: Action) -> Option<State> {
    match action {
        Action::Tick => {
            let mut next = state.clone();
            next.tick(world);
            Some(next)
        }
        Action::Acquire(client) => acquire(world, state, client),
        Action::Extend(client, ttl) => extend(world, state, client, ttl),
        Action::Heal(client, node) => heal(world, state, client, node),
        Action::Decide(client) => decide(world, state, client),
        Action::End(client) => end(world, state, client),
        Action::Run(client, node, index) => run(world, state, client, node, index),
        Action::Restart(node) => restart(world, state, node),
    }
}

fn acquire(world: &World, state: &State, client: Client) -> Option<State> {
    let budget = world.budget(client);
    let session = state.session(client);
    if session.phase != Phase::Idle || session.rounds == budget.rounds {
        return None;
    }
    let mut next = state.clone();
    let session = next.session_mut(client);
    session.phase = Phase::Trying { age: 0 };
    session.rounds += 1;
    (session.left, session.ttl) = (budget.ttl, budget.ttl);
    let token = next.token(client);
    let message = Message { command: Command::Set, token, ttl: budget.ttl, worth: budget.ttl };
    let voters = next.nodes.iter_mut().filter(|node| may_vote(world, node, budget.ttl));
    voters.for_each(|node| node.lane_mut(client).queue.push(message));
    Some(next)
}

/// The restart guard.
fn may_vote(world: &World, node: &Node, ttl: u8) -> bool {
    if !world.keeps(Rule::Guard) {
        true
    } else if !world.keeps(Rule::GuardForMaxTtl) {
        node.age >= ttl
    } else {
        node.age >= world.max_ttl
    }
}

fn extend(world: &World, state: &State, client: Client, asked: u8) -> Option<State> {
    let session = state.session(client);
    if !goes_on(world, state, client) || session.extends == world.budget(client).extends {
        return None;
    }
    let ttl = if world.keeps(Rule::Growth) { asked.max(session.ttl) } else { asked };
    let mut next = state.clone();
    let session = next.session_mut(client);
    session.extends += 1;
    session.ttl = session.ttl.max(ttl);
    let token = next.token(client);
    for node in &mut next.nodes {
        let counts = node.age >= world.young || !world.keeps(Rule::YoungNodesDoNotRenew);
        let worth = if counts { ttl } else { 0 };
        node.lane_mut(client).queue.push(Message { command: Command::Extend, token, ttl, worth });
    }
    Some(next)
}

/// Whether a lease is kept up.
pub(crate) fn goes_on(world: &World, state: &State, client: Client) -> bool {
    let session = state.session(client);
    session.phase == Phase::Holding && (session.left > 0 || !world.keeps(Rule::NoRevival))
}

fn heal(world: &World, state: &State, client: Client, node: usize) -> Option<State> {
    let session = state.session(client);
    if !goes_on(world, state, client) || session.heals == world.budget(client).heals {
        return None;
    }
    let mut next = state.clone();
    next.session_mut(client).heals += 1;
    // It counts from the next renewal on.
    let message = Message { command: Command::Set, token: state.token(client), ttl: session.ttl, worth: 0 };
    next.nodes[node].lane_mut(client).queue.push(message);
    Some(next)
}

/// How many votes win.
pub(crate) fn quorum(world: &World) -> usize {
    if world.keeps(Rule::Majority) { NODES / 2 + 1 } else { NODES / 2 }
}

/// Whether votes are still counted.
pub(crate) fn counts_votes(world: &World, state: &State, client: Client) -> bool {
    match state.session(client).phase {
        Phase::Idle => false,
        Phase::Trying { age } => age <= ROUND_TIMEOUT || !world.keeps(Rule::RoundTimeout),
        Phase::Holding => goes_on(world, state, client) || !world.keeps(Rule::NoLateRenewal),
    }
}

fn decide(world: &World, state: &State, client: Client) -> Option<State> {
    let mut votes = state.nodes.each_ref().map(|node| node.lane(client).vote);
    votes.sort_unstable_by(|a, b| b.cmp(a));
    // That of the least among the best of a quorum.
    let validity = votes[quorum(world) - 1];
    let later = validity > 0 && (!state.holds(client) || validity > state.session(client).left);
    if !later || !counts_votes(world, state, client) {
        return None;
    }
    let mut next = state.clone();
    let session = next.session_mut(client);
    session.phase = Phase::Holding;
    session.left = if world.keeps(Rule::FromTheSend) { validity } else { session.ttl };
    Some(next)
}

fn end(world: &World, state: &State, client: Client) -> Option<State> {
    let phase = state.session(client).phase;
    if phase == Phase::Idle || !world.budget(client).deletes {
        return None;
    }
    let mut next = state.clone();
    let (token, over) = (state.token(client), world.keeps(Rule::DeadTokensOnly) || !state.holds(client));
    for node in &mut next.nodes {
        let lane = node.lane_mut(client);
        let delete = Message { command: Command::Delete, token, ttl: 0, worth: 0 };
        if lane.queue.last() != Some(&delete) {
            lane.queue.push(delete);
        }
        if over {
            lane.vote = 0;
            lane.queue.iter_mut().for_each(|message| message.worth = 0);
        }
    }
    if over {
        let session = next.session_mut(client);
        (session.phase, session.left, session.ttl) = (Phase::Idle, 0, 0);
    }
    Some(next)
}

fn run(world: &World, state: &State, client: Client, node: usize, index: usize) -> Option<State> {
    let message = *state.nodes[node].lane(client).queue.get(index)?;
    let mut next = state.clone();
    let node = &mut next.nodes[node];
    let queue = &mut node.lane_mut(client).queue;
    queue.remove(index);
    if world.keeps(Rule::Order) {
        // Those before it can be run no more: they were lost, with their connection.
        queue.drain(..index);
    }
    if execute(world, node, message) {
        let vote = &mut node.lane_mut(client).vote;
        *vote = message.worth.max(*vote);
    }
    Some(next)
}

/// What Redis does; true is a yes.
fn execute(world: &World, node: &mut Node, message: Message) -> bool {
    let Message { command, token, ttl: left, .. } = message;
    let ours = node.key.is_some_and(|key| key.token == token);
    match command {
        Command::Set if node.key.is_none() => node.key = Some(Key { token, left }),
        Command::Extend if ours => node.key = Some(Key { token, left }),
        Command::Delete if ours || !world.keeps(Rule::CompareAndDelete) => node.key = None,
        Command::Set | Command::Extend | Command::Delete => return false,
    }
    true
}

fn restart(world: &World, state: &State, node: usize) -> Option<State> {
    if state.restarts == world.restarts {
        return None;
    }
    let mut next = state.clone();
    next.restarts += 1;
    let node = &mut next.nodes[node];
    (node.key, node.age) = (None, 0);
    node.lanes.iter_mut().for_each(|lane| lane.queue.clear());
    Some(next)
}
