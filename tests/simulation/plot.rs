//! Troubles that conspire: what a rule is for may take four of them within a moment, which chance alone
//! brings together once in a million worlds. Their moments are drawn all the same.

use proptest::collection::vec;
use proptest::prelude::*;

use super::world::{End, Fault, Kind, Memory, Trouble, Way, World};

/// When what happens after the plot has begun, and for how long, in milliseconds.
#[derive(Clone, Debug)]
pub(crate) struct Plot {
    what: Kind,
    begins: u64,
    /// Who plays which part.
    nodes: [usize; 3],
    /// Moments, each within its own range.
    at: [u64; 6],
    spans: [u64; 6],
    /// Of two such plots, the one that takes longer.
    slow: bool,
}

/// None to several for `kind`.
pub(crate) fn plots(kind: Kind) -> BoxedStrategy<Vec<Plot>> {
    let count = match kind {
        Kind::Amnesia => 1..=3usize,
        Kind::StartUp | Kind::Fences => 1..=1,
        _ => return Just(Vec::new()).boxed(),
    };
    let alike = |(mut plots, slow): (Vec<Plot>, bool)| {
        plots.iter_mut().for_each(|plot| plot.slow = slow);
        plots
    };
    (vec(plot(kind), count), prop::bool::ANY).prop_map(alike).boxed()
}

fn plot(kind: Kind) -> impl Strategy<Value = Plot> {
    let parts = vec![[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]];
    let begins = match kind {
        Kind::Amnesia => 500..=9_000u64,
        Kind::StartUp => 0..=1_500,
        _ => 300..=1_000,
    };
    let shares = || prop::array::uniform6(0..=1_000u64);
    (begins, prop::sample::select(parts), shares(), shares(), prop::bool::ANY)
        .prop_map(move |(begins, nodes, at, spans, slow)| Plot { what: kind, begins, nodes, at, spans, slow })
}

fn within(share: u64, (least, most): (u64, u64)) -> u64 {
    least + (most - least) * share / 1_000
}

impl Plot {
    pub(crate) fn happen_in(&self, world: &mut World) {
        match self.what {
            Kind::Amnesia => self.forgotten_grant(world),
            Kind::StartUp if self.slow => self.read_once(world),
            Kind::StartUp => self.late_node(world),
            Kind::Fences if self.slow => self.second_round(world),
            Kind::Fences => self.climbing_fences(world),
            _ => {}
        }
    }

    fn fault(&self, world: &mut World, part: usize, range: (u64, u64), what: Trouble) {
        world.faults.push(Fault { at: self.begins + within(self.at[part], range), what });
    }

    fn span(&self, part: usize, range: (u64, u64)) -> u64 {
        within(self.spans[part], range)
    }

    fn hold(&self, part: usize, client: usize, node: usize, range: (u64, u64)) -> Trouble {
        let way = Way::ToServer;
        Trouble::Hold { client, node: self.nodes[node], way, time: self.span(part, range) }
    }

    fn forget(&self, part: usize, node: usize) -> Trouble {
        let time = self.span(part, (1, 40));
        Trouble::Crash { node: self.nodes[node], time, memory: Memory::Nothing }
    }

    /// A node grants a rival and forgets it; the holder, who could not reach that node, puts its key there and
    /// loses another node, which the rival's request reaches late. All of it within one round of the rival; if
    /// `slow`, within a round that is longer than it may be.
    fn forgotten_grant(&self, world: &mut World) {
        let (holder, rival) = (0, 1);
        for step in &mut world.clients[holder].steps {
            (step.ttl, step.hold) = (150 + step.ttl % 100, 2_000 + step.hold % 3_000);
            (step.pause, step.heartbeat, step.wait) = (step.pause % 50, true, 2_500);
            (step.give_up, step.extend) = (None, None);
        }
        for step in &mut world.clients[rival].steps {
            (step.ttl, step.wait) = (2_950 + step.ttl % 50, 2_500);
            (step.pause, step.give_up) = (step.pause % 60, None);
        }
        let until_counted = if self.slow { (1_100, 1_350) } else { (70, 200) };
        world.node_timeout = if self.slow { self.span(4, (70, 110)) } else { self.span(4, (520, 590)) };
        let out_of_reach = self.span(0, (300, 500));
        let forgets = out_of_reach + within(self.at[0], (60, 200));
        let leaves = forgets + within(self.at[1], until_counted);
        let arrives = leaves + within(self.at[2], (130, 300));
        let here = |moment: u64| (moment, moment);
        let until = forgets + within(self.at[3], (0, 30));
        let mut hold = |client: usize, node: usize, from: u64, to: u64| {
            let what = Trouble::Hold { client, node: self.nodes[node], way: Way::ToServer, time: to - from };
            self.fault(world, 5, here(from), what);
        };
        hold(holder, 0, 0, until);
        hold(rival, 2, out_of_reach, arrives);
        hold(holder, 2, leaves, leaves + 1_000);
        self.fault(world, 5, here(forgets), self.forget(3, 0));
    }

    /// A node comes up for the first time when another has just lost its memory, and the third does not answer a
    /// client that starts.
    fn late_node(&self, world: &mut World) {
        let begins = 700 + self.begins;
        let (old, new) = (0, 1);
        world.nodes[self.nodes[1]].up_at = begins + within(self.at[0], (0, 100));
        world.clients[new].start = begins + within(self.at[1], (0, 150));
        let first = &mut world.clients[old].steps[0];
        (first.pause, first.ttl, first.hold) = (0, 3_000, 2_900);
        (first.give_up, first.extend, first.end) = (None, None, End::Release);
        let plot = Self { begins, ..self.clone() };
        plot.fault(world, 2, (0, 80), plot.forget(2, 0));
        plot.fault(world, 3, (0, 20), plot.hold(3, old, 0, (100, 1_000)));
        plot.fault(world, 4, (0, 20), plot.hold(4, old, 1, (100, 1_000)));
        plot.fault(world, 5, (0, 20), plot.hold(5, new, 2, (300, 2_000)));
    }

    /// Two clients start together and find two nodes unmarked; the third answers one of them late. Meanwhile the
    /// other has taken a key on it and on another, and it has forgotten that.
    fn read_once(&self, world: &mut World) {
        let (fast, slow) = (0, 1);
        world.clients[slow].start = world.clients[fast].start + within(self.at[0], (0, 5));
        for client in [fast, slow] {
            let first = &mut world.clients[client].steps[0];
            (first.pause, first.ttl, first.hold, first.wait) = (0, 3_000, 2_900, 2_500);
            (first.give_up, first.extend, first.end) = (None, None, End::Release);
        }
        world.clients[fast].steps[0].pause = 150;
        let plot = Self { begins: 0, ..self.clone() };
        let forgets = 200 + within(self.at[3], (0, 300));
        let (way, time) = (Way::ToServer, plot.span(1, (1_000, 3_000)));
        plot.fault(world, 1, (40, 160), Trouble::Lose { client: fast, node: self.nodes[0], way, time });
        plot.fault(
            world,
            2,
            (0, 5),
            Trouble::Hold { client: slow, node: self.nodes[2], way, time: forgets + plot.span(2, (20, 400)) },
        );
        plot.fault(world, 4, (forgets, forgets), plot.forget(3, 2));
        plot.fault(world, 4, (forgets, forgets), plot.hold(4, fast, 2, (300, 1_500)));
    }

    /// A rival's fence stands on two nodes and is above the number that a client proposes, who cannot reach one
    /// of them: the third grants that at once, and the other one the next.
    fn second_round(&self, world: &mut World) {
        let (holder, rival) = (0, 1);
        world.clients.truncate(2);
        world.faults.retain(|fault| fault.at > self.begins + 3_000);
        world.node_timeout = self.span(0, (350, 400));
        // What it knows of the nodes' clocks is as old as an answer.
        world.clients[holder].back = self.span(1, (80, 150)) * 1_000;
        world.clients[rival].back = 0;
        world.clients[rival].start = self.begins - 40;
        let first = &mut world.clients[holder].steps[0];
        // It takes its time to connect.
        (first.pause, first.ttl, first.wait) =
            (self.begins - 200 + within(self.at[0], (0, 250)), 1_500, 2_500);
        (first.all, first.fenced, first.heartbeat, first.end) = (false, true, false, End::Keep);
        (first.give_up, first.extend) = (None, None);
        for (number, step) in world.clients[rival].steps.iter_mut().enumerate() {
            (step.wait, step.fenced, step.all) = (2_500, true, false);
            (step.give_up, step.extend) = (None, None);
            step.pause = if number == 0 { 60 } else { 60 + step.pause % 150 };
            if number == 0 {
                (step.ttl, step.hold, step.end) = (1_500, step.hold % 30, End::Release);
            }
        }
        self.fault(world, 1, (0, 10), self.hold(2, rival, 0, (100, 400)));
        self.fault(world, 2, (0, 10), self.hold(3, holder, 2, (2_000, 3_000)));
    }

    /// A client takes a key again and again on two nodes; then one of them forgets and the other cannot be
    /// reached.
    fn climbing_fences(&self, world: &mut World) {
        let (busy, late) = (0, 1);
        for step in &mut world.clients[busy].steps {
            (step.pause, step.hold, step.wait) = (step.pause % 20, step.hold % 20, 500);
            (step.give_up, step.extend, step.end, step.fenced) = (None, None, End::Release, true);
        }
        world.clients[late].start = self.begins + within(self.at[0], (3_000, 7_000));
        self.fault(world, 1, (0, 300), self.hold(1, busy, 2, (4_000, 8_000)));
        self.fault(world, 2, (1_000, 3_000), self.forget(2, 1));
        let time = self.span(3, (3_000, 8_000));
        self.fault(world, 3, (3_000, 5_000), Trouble::Isolate { node: self.nodes[0], time });
    }
}
