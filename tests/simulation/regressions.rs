//! What the simulation has found, as the smallest world that shows it. Each breaks its promise without the rule
//! that mended it, and breaks none with it.

use super::ledger::Breach;
use super::run::play;
use super::world::{ClientPlan, Delays, End, Fault, Memory, NodePlan, Step, Trouble, Way, World};
use crate::sabotage::Sabotage;

const NODE: NodePlan = NodePlan { rate: 0, clock_off: 0, up_at: 0, synced: false };

const STEP: Step = Step {
    pause: 0,
    key: 0,
    all: false,
    fenced: false,
    ttl: 3_000,
    wait: 2_500,
    heartbeat: false,
    hold: 2_900,
    extend: None,
    end: End::Release,
    give_up: None,
    cut_short: None,
};

fn client(steps: &[Step]) -> ClientPlan {
    ClientPlan { rate: 0, clock_off: 0, start: 0, back: 0, steps: steps.to_vec() }
}

/// Three nodes on a good network.
fn world(seed: u64, clients: Vec<ClientPlan>, faults: Vec<Fault>) -> World {
    World {
        seed,
        max_ttl: 3_000,
        node_timeout: 500,
        keys: 1,
        guard: true,
        few_forget: true,
        outside: None,
        kill: true,
        delays: Delays { usual: 1_261, tail: 0 },
        nodes: vec![NODE; 3],
        clients,
        faults,
    }
}

fn holds(world: &World) {
    let played = play(world, None, true);
    assert!(played.violation.is_none(), "{}", played.history);
}

fn is_mended(world: &World, by: Sabotage, breach: Breach) {
    let without = play(world, Some(by), false).violation;
    assert_eq!(without.map(|violation| violation.breach), Some(breach), "the world shows it no more");
    holds(world);
}

/// Two clients find a new fleet. One of them has heard it twice of two nodes, and the third does not answer it
/// again before it loses its memory; meanwhile the other client has marked them all and been given a key. What
/// the two nodes had said again was then taken for good beside what the third said now.
#[test]
fn a_fleet_is_not_new_by_what_was_said_before_the_last_node_connected_anew() {
    let (way, at) = (Way::ToServer, 200);
    let faults = vec![
        Fault { at: 1, what: Trouble::Hold { client: 1, node: 2, way, time: 220 } },
        Fault { at: 40, what: Trouble::Lose { client: 0, node: 0, way, time: 1_000 } },
        Fault { at, what: Trouble::Crash { node: 2, time: 1, memory: Memory::Nothing } },
        Fault { at, what: Trouble::Hold { client: 0, node: 2, way, time: 300 } },
    ];
    let clients = vec![client(&[Step { pause: 150, ..STEP }]), client(&[STEP])];
    let world = world(3_037_744_414_226_983_392, clients, faults);
    is_mended(&world, Sabotage::NewFleetStale, Breach::Overlap);
}

/// A client takes a key while a node is down, is stopped before its heartbeat starts, and goes on after the end
/// of validity.
#[test]
fn a_heartbeat_that_starts_after_the_end_of_validity_puts_nothing_back() {
    let faults = vec![
        Fault { at: 140, what: Trouble::Crash { node: 0, time: 100, memory: Memory::All } },
        Fault { at: 600, what: Trouble::Pause { client: 0, time: 4_000 } },
    ];
    holds(&world(0, vec![client(&[Step { pause: 150, heartbeat: true, hold: 20_000, ..STEP }])], faults));
}
