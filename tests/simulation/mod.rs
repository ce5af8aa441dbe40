//! A deterministic simulation of clients, nodes and network in tokio's paused time, and a checker that knows
//! the true time. Above the node's connection everything is the code of production.
//!
//! - `world.rs`: what is decided before a run; `draw.rs`, `plot.rs`: how it is drawn from a seed
//! - `run.rs`: a run from its beginning to the last check; `search.rs`: many of them
//! - `client.rs`, `process.rs`: what clients do, and the processes that they do it in
//! - `connection.rs`, `link.rs`, `message.rs`, `network.rs`, `node.rs`, `nemesis.rs`: the rest of the world
//! - `ledger.rs`: the checker; `history.rs`: what a person reads; `regressions.rs`: what was found
//!
//! `LEASEHOLD_SEEDS` says how many worlds are played, `LEASEHOLD_SEED` from which on.

mod client;
mod connection;
mod draw;
mod history;
mod ledger;
mod link;
mod message;
mod nemesis;
mod network;
mod node;
mod plot;
mod process;
mod regressions;
mod run;
mod search;
mod world;

use std::time::Instant;

use ledger::Breach;
use run::play;
use search::{Search, Searched};
use world::{Fault, Kind, Memory, Trouble, Way, World};

use crate::sabotage::Sabotage;

/// Within so many seeds each sabotage is found.
const PATIENCE: u64 = 20_000;
/// Worlds that are played to make one smaller, at most.
const MOST_SHRINKS: usize = 1_000;
/// In so many worlds everything happens.
const ENOUGH: u64 = 100;

/// Each rule of the algorithm, the worlds that show what it is for, and the promise that is broken without it.
const SABOTAGES: [(Sabotage, Kind, Breach); 23] = [
    (Sabotage::SmallQuorum, Kind::Crowded, Breach::Overlap),
    (Sabotage::AllNeeded, Kind::Crowded, Breach::Stuck),
    (Sabotage::NoDrift, Kind::Clocks, Breach::Overlap),
    (Sabotage::FromFirstReply, Kind::Network, Breach::Overlap),
    (Sabotage::PlainDelete, Kind::Network, Breach::Overlap),
    (Sabotage::DebtOfWonToken, Kind::Unkillable, Breach::Overlap),
    (Sabotage::ShorterExtend, Kind::Crowded, Breach::Overlap),
    (Sabotage::LateExtend, Kind::Pauses, Breach::Revived),
    (Sabotage::GuardByOwnTtl, Kind::Amnesia, Breach::Overlap),
    (Sabotage::YoungExtends, Kind::Amnesia, Breach::Overlap),
    (Sabotage::LostReplyKept, Kind::Network, Breach::Leftover),
    (Sabotage::OvertakingDeletion, Kind::Network, Breach::Leftover),
    (Sabotage::FromRenewalEnd, Kind::Network, Breach::Overlap),
    (Sabotage::LossAfterRetry, Kind::Network, Breach::LateLoss),
    (Sabotage::ZombieHeartbeat, Kind::Crowded, Breach::Zombie),
    (Sabotage::NeverOver, Kind::Crashes, Breach::Zombie),
    (Sabotage::OldTtlOnSecondRound, Kind::Fences, Breach::Overlap),
    (Sabotage::FenceByClientClock, Kind::Fences, Breach::Fence),
    (Sabotage::FenceAheadOfHighest, Kind::Fences, Breach::Fence),
    (Sabotage::SlowRound, Kind::Amnesia, Breach::Overlap),
    (Sabotage::NewFleetByQuorum, Kind::StartUp, Breach::Overlap),
    (Sabotage::NewFleetReadOnce, Kind::StartUp, Breach::Overlap),
    (Sabotage::NewFleetStale, Kind::StartUp, Breach::Overlap),
];

fn number(name: &str) -> Option<u64> {
    std::env::var(name)
        .ok()
        .map(|text| text.parse().unwrap_or_else(|_| panic!("{name} is not a number: {text}")))
}

/// Plays `count` worlds, and fails with a history that a person can read.
fn all_hold(search: Search, count: u64) {
    let begun = Instant::now();
    let first = number("LEASEHOLD_SEED").unwrap_or(0);
    let count = number("LEASEHOLD_SEEDS").unwrap_or(count);
    let Searched { found, worlds, counts } = search.run(first..first + count);
    if let Some(found) = found {
        let smallest = search.shrink(&found, MOST_SHRINKS);
        let shown = search.shown(&smallest);
        panic!("{shown}\n\nLEASEHOLD_SEED={} LEASEHOLD_SEEDS=1 plays it again", found.seed);
    }
    let speed = worlds as f64 / begun.elapsed().as_secs_f64();
    println!("{worlds} worlds, {speed:.0} a second: {counts:?}");
    if count == 1 {
        println!("{}", search.shown(&world::world(first)));
    }
    if count >= ENOUGH {
        let much = counts.granted > worlds && counts.lost > worlds / 2 && counts.faults > worlds;
        let all = counts.fenced > 0 && counts.given_up > 0 && counts.cut_short.iter().all(|count| *count > 0);
        assert!(much && all, "too little happens");
    }
}

#[test]
fn the_promises_hold_in_every_world() {
    all_hold(Search::default(), if cfg!(debug_assertions) { 180 } else { 5_000 });
}

#[test]
#[ignore = "takes an hour and more in a release build"]
fn the_promises_hold_in_a_million_worlds() {
    all_hold(Search::default(), 1_000_000);
}

#[test]
fn a_seed_gives_one_history_to_the_letter() {
    for seed in 0..18 {
        let world = world::world(seed);
        let (first, second) =
            (play(&world, None, true).history, play(&world::world(seed), None, true).history);
        assert!(first.lines().count() > 50, "{first}");
        if first != second {
            let differs = first.lines().zip(second.lines()).find(|(first, second)| first != second);
            panic!("two histories of seed {seed}: {differs:#?}");
        }
    }
}

#[test]
fn every_rule_that_is_dropped_breaks_its_promise() {
    let mut missed = Vec::new();
    for (without, kind, breach) in SABOTAGES {
        let search =
            Search { without: Some(without), kind: Some(kind), breach: Some(breach), ..Search::default() };
        let Searched { found, worlds, .. } = search.run(0..PATIENCE);
        match found {
            Some(found) => {
                println!("{without:?}: seed {}, {kind:?} world {worlds}: {}", found.seed, found.violation);
            }
            None => missed.push(without),
        }
    }
    assert!(missed.is_empty(), "not found within {PATIENCE} seeds: {missed:?}");
}

#[test]
fn a_world_that_breaks_a_promise_is_made_smaller() {
    let search =
        Search { without: Some(Sabotage::SmallQuorum), kind: Some(Kind::Crowded), ..Search::default() };
    let found = search.run(0..PATIENCE).found.expect("a violation");
    let size = |world: &World| {
        let steps: usize = world.clients.iter().map(|client| client.steps.len()).sum();
        world.nodes.len() + world.clients.len() + world.faults.len() + steps
    };
    let (first, smallest) = (world::world(found.seed), search.shrink(&found, 300));
    println!("from {} to {}", size(&first), size(&smallest));
    assert!(size(&smallest) < size(&first) / 2, "{smallest:#?}");
    let violation = play(&smallest, search.without, false).violation;
    assert_eq!(violation.map(|violation| violation.breach), Some(found.violation.breach));
}

/// Where the promise ends, and what then breaks.
fn breaks(breach: Breach, kind: Kind, twist: fn(&mut World)) {
    let search = Search { kind: Some(kind), breach: Some(breach), twist: Some(twist), ..Search::default() };
    let found = search.run(0..PATIENCE).found.expect("a violation");
    println!("seed {}: {}", found.seed, found.violation);
}

fn is_broken_outside(kind: Kind, twist: fn(&mut World)) {
    breaks(Breach::Overlap, kind, twist);
}

#[test]
fn where_answers_take_longer_than_the_node_timeout_nobody_gets_a_key() {
    breaks(Breach::Stuck, Kind::Crowded, |world| {
        world.outside = Some("no quorum answers in time");
        world.delays.usual = world.node_timeout * 4_000;
    });
}

#[test]
fn outside_of_the_assumptions_nodes_that_forget_and_vote_give_a_key_twice() {
    is_broken_outside(Kind::Amnesia, |world| {
        world.outside = Some("nodes that forgot vote");
        world.guard = false;
    });
}

#[test]
fn outside_of_the_assumptions_two_running_nodes_that_forget_give_a_key_twice() {
    is_broken_outside(Kind::Crowded, |world| {
        world.outside = Some("running nodes forget");
        let forget = |node| Fault { at: 1_000, what: Trouble::Forget { node } };
        world.nodes.truncate(3);
        world.faults.extend((0..2).map(forget));
    });
}

/// All nodes restart without their memory at once.
fn restart(world: &mut World, nodes: usize) {
    let what = |node| Trouble::Crash { node, time: 20, memory: Memory::Nothing };
    world.outside = Some("most nodes forget at once");
    world.few_forget = false;
    world.nodes.truncate(3);
    world.faults.extend((0..nodes).map(|node| Fault { at: 1_000, what: what(node) }));
}

#[test]
fn outside_of_the_assumptions_a_fleet_that_forgets_as_one_is_taken_for_a_new_one() {
    is_broken_outside(Kind::Crowded, |world| {
        restart(world, 3);
        world.clients.truncate(2);
        // A new client meets the nodes before the old one can tell them that they are not new.
        world.clients[1].start = 1_010;
        for node in 0..3 {
            let what = Trouble::Hold { client: 0, node, way: Way::ToServer, time: 400 };
            world.faults.push(Fault { at: 1_000, what });
        }
    });
}

#[test]
fn outside_of_the_assumptions_clocks_that_jump_give_a_key_twice() {
    is_broken_outside(Kind::Crowded, |world| {
        world.outside = Some("clocks jump");
        world.nodes.truncate(3);
        world.faults.extend((0..2).map(|node| Fault { at: 1_000, what: Trouble::Step { node, by: 2_000 } }));
    });
}

/// More than is promised: as long as one node can tell that the fleet is not new.
#[test]
fn two_of_three_nodes_that_restart_without_memory_give_no_key_twice() {
    let count = if cfg!(debug_assertions) { 180 } else { 5_000 };
    let twist = |world: &mut World| restart(world, 2);
    let search = Search { kind: Some(Kind::Crowded), twist: Some(twist), ..Search::default() };
    let Searched { found, worlds, .. } = search.run(0..count);
    let shown = |found| search.shown(&search.shrink(&found, MOST_SHRINKS));
    assert!(found.is_none(), "{}", found.map_or_else(String::new, shown));
    println!("{worlds} worlds");
}
