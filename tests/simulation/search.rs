//! Many seeds on all cores, and what becomes of one that breaks a promise.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use proptest::strategy::ValueTree;

use super::ledger::{Breach, Counts, Violation};
use super::run::play;
use super::world::{self, Kind, World};
use crate::sabotage::Sabotage;

/// What is looked for in which worlds.
#[derive(Clone, Copy, Default)]
pub(crate) struct Search {
    /// The rule that is not kept.
    pub(crate) without: Option<Sabotage>,
    /// Worlds of one kind alone.
    pub(crate) kind: Option<Kind>,
    /// A breach of one kind alone.
    pub(crate) breach: Option<Breach>,
    /// What is done to each world.
    pub(crate) twist: Option<fn(&mut World)>,
}

pub(crate) struct Found {
    pub(crate) seed: u64,
    pub(crate) violation: Violation,
}

/// What came of a search: the first seed that broke a promise, and how many worlds were played.
pub(crate) struct Searched {
    pub(crate) found: Option<Found>,
    pub(crate) worlds: u64,
    pub(crate) counts: Counts,
}

impl Search {
    /// Plays the worlds of `seeds` until one breaks a promise.
    pub(crate) fn run(self, seeds: Range<u64>) -> Searched {
        let (next, end) = (AtomicU64::new(seeds.start), AtomicU64::new(seeds.end));
        let total = Mutex::new(Searched { found: None, worlds: 0, counts: Counts::default() });
        let work = || {
            while let Some(seed) =
                Some(next.fetch_add(1, Ordering::Relaxed)).filter(|seed| *seed < end.load(Ordering::Relaxed))
            {
                if self.kind.is_some_and(|kind| world::kind(seed) != kind) {
                    continue;
                }
                let (violation, counts) = self.play(&self.world(world::world(seed)));
                let mut total = total.lock().unwrap_or_else(PoisonError::into_inner);
                total.worlds += 1;
                total.counts.add(&counts);
                if let Some(violation) = violation {
                    // Earlier seeds that are under way may still break one.
                    end.fetch_min(seed, Ordering::Relaxed);
                    if total.found.as_ref().is_none_or(|found| seed < found.seed) {
                        total.found = Some(Found { seed, violation });
                    }
                }
            }
        };
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        std::thread::scope(|scope| (0..cores).for_each(|_| drop(scope.spawn(work))));
        total.into_inner().unwrap_or_else(PoisonError::into_inner)
    }

    fn world(&self, mut world: World) -> World {
        if let Some(twist) = self.twist {
            twist(&mut world);
        }
        world
    }

    fn play(&self, world: &World) -> (Option<Violation>, Counts) {
        let outcome = play(world, self.without, false);
        let wanted = |violation: &Violation| self.breach.is_none_or(|breach| violation.breach == breach);
        (outcome.violation.filter(wanted), outcome.counts)
    }

    /// The smallest world that breaks the promise which that of `found` breaks, after at most `most` tries.
    pub(crate) fn shrink(&self, found: &Found, most: usize) -> World {
        let this = Self { breach: Some(found.violation.breach), ..*self };
        let mut tree = world::tree(found.seed);
        let mut smallest = tree.current();
        let mut simpler = tree.simplify();
        for _ in 0..most {
            if !simpler {
                break;
            }
            let world = tree.current();
            if this.play(&this.world(world.clone())).0.is_some() {
                smallest = world;
                simpler = tree.simplify();
            } else {
                simpler = tree.complicate();
            }
        }
        this.strip(this.world(smallest))
    }

    /// Leaves out of `world` whatever its breach does not need.
    fn strip(&self, mut world: World) -> World {
        self.leave_out(&mut world, 0, |world| &mut world.faults);
        self.leave_out(&mut world, 1, |world| &mut world.clients);
        for client in 0..world.clients.len() {
            self.leave_out(&mut world, 1, |world| &mut world.clients[client].steps);
        }
        self.leave_out(&mut world, 1, |world| &mut world.nodes);
        self.leave_out(&mut world, 0, |world| &mut world.faults);
        world
    }

    fn leave_out<T>(&self, world: &mut World, least: usize, of: impl Fn(&mut World) -> &mut Vec<T>) {
        for index in (0..of(world).len()).rev() {
            let mut smaller = world.clone();
            of(&mut smaller).remove(index);
            if of(&mut smaller).len() >= least && self.play(&smaller).0.is_some() {
                *world = smaller;
            }
        }
    }

    /// `world`, and what happens in it.
    pub(crate) fn shown(&self, world: &World) -> String {
        let outcome = play(world, self.without, true);
        let violation = outcome.violation.map_or_else(String::new, |violation| violation.to_string());
        format!("{world:#?}\n\n{}\n{violation}", outcome.history)
    }
}
