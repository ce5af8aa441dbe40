//! Breadth first through all states: what it finds is among the shortest.

use std::collections::HashSet;
use std::hash::{BuildHasherDefault, Hasher};
use std::rc::Rc;

use super::state::{CLIENTS, Client, Lane, State, World};
use super::step::{Action, actions, apply, counts_votes, goes_on, quorum};

/// What came of a search.
#[derive(Debug)]
pub(crate) struct Found {
    /// How many states were looked at.
    pub(crate) states: usize,
    /// In how many of them each client held the lock.
    pub(crate) held: [usize; 2],
    /// The steps to an overlap.
    pub(crate) overlap: Option<Vec<Action>>,
}

/// Looks through all that may come of the start, up to the first overlap.
pub(crate) fn search(world: &World) -> Found {
    let mut states = vec![(Rc::new(world.start().canonical()), 0)];
    let mut seen: HashSet<Rc<State>, BuildHasherDefault<Plain>> =
        states.iter().map(|(state, _)| state.clone()).collect();
    let mut held = [0; 2];
    let mut at = 0;
    while at < states.len() {
        let state = states[at].0.clone();
        CLIENTS.iter().for_each(|client| held[*client as usize] += usize::from(state.holds(*client)));
        if state.overlaps() {
            return Found { states: at + 1, held, overlap: Some(steps(world, &states, at)) };
        }
        if !CLIENTS.iter().any(|client| is_out(world, &state, *client)) {
            for action in actions(world, &state) {
                let Some(next) = apply(world, &state, action) else { continue };
                let next = Rc::new(next.canonical());
                if seen.insert(next.clone()) {
                    states.push((next, at));
                }
            }
        }
        at += 1;
    }
    Found { states: states.len(), held, overlap: None }
}

/// Whether the client can never hold the lock again, so that no overlap follows.
fn is_out(world: &World, state: &State, client: Client) -> bool {
    let (session, budget) = (state.session(client), world.budget(client));
    let asks_again =
        session.rounds < budget.rounds || (goes_on(world, state, client) && session.extends < budget.extends);
    let may_say_yes = |lane: &Lane| lane.vote > 0 || lane.queue.iter().any(|message| message.worth > 0);
    let yes = state.nodes.iter().filter(|node| may_say_yes(node.lane(client))).count();
    let may_win = counts_votes(world, state, client) && yes >= quorum(world);
    !state.holds(client) && !asks_again && !may_win
}

/// The actions on the way to state number `last`. Canonical states do not tell which node is which, so
/// that the way is gone once more from the start.
fn steps(world: &World, states: &[(Rc<State>, usize)], last: usize) -> Vec<Action> {
    let mut way = vec![last];
    while let Some(&at) = way.last().filter(|at| **at != 0) {
        way.push(states[at].1);
    }
    let mut state = world.start();
    let mut steps = Vec::new();
    for at in way.iter().rev().skip(1) {
        let next = |action: Action| {
            let next = apply(world, &state, action)?;
            (next.clone().canonical() == *states[*at].0).then_some((action, next))
        };
        let (action, next) = actions(world, &state).into_iter().find_map(next).expect("it was gone before");
        steps.push(action);
        state = next;
    }
    steps
}

/// For small numbers. The standard hasher takes most of the time of a debug build.
#[derive(Default)]
struct Plain(u64);

impl Hasher for Plain {
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u8(*byte));
    }

    fn write_u8(&mut self, number: u8) {
        self.0 = (self.0.rotate_left(5) ^ u64::from(number)).wrapping_mul(0x517c_c1b7_2722_0a95);
    }

    fn write_usize(&mut self, number: usize) {
        self.write_u8(number as u8);
    }

    fn write_isize(&mut self, number: isize) {
        self.write_u8(number as u8);
    }

    fn finish(&self) -> u64 {
        self.0.rotate_left(32)
    }
}
