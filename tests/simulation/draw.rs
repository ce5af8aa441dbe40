//! How worlds are drawn. Each has a little of everything; each kind has more of what it is for.

use proptest::collection::vec;
use proptest::prelude::*;

use super::plot;
use super::world::{
    ClientPlan, Delays, End, Fault, GiveUp, Kind, Memory, NodePlan, Step, Trouble, Way, World,
};

type Range = std::ops::RangeInclusive<u64>;
type Sizes = std::ops::RangeInclusive<usize>;

/// Any world of `kind`.
pub(crate) fn worlds(kind: Kind) -> impl Strategy<Value = World> {
    let few = matches!(kind, Kind::Amnesia | Kind::StartUp | Kind::Fences);
    let nodes = match kind {
        Kind::StartUp => prop_oneof![3 => vec(node(kind), 3), 1 => vec(node(kind), 4..=5)].boxed(),
        _ => vec(node(kind), if few { 3..=3 } else { 3..=7 }).boxed(),
    };
    let clients: Sizes = match kind {
        Kind::Crowded => 3..=6,
        Kind::Amnesia => 2..=2,
        Kind::StartUp => 2..=3,
        _ => 2..=4,
    };
    let clients = vec(client(kind), clients);
    let keys: Sizes = if kind == Kind::Crowded { 1..=4 } else { 1..=2 };
    let keys = if few { Just(1).boxed() } else { keys.boxed() };
    let times = (3_000u64..=4_000, node_timeout(kind), keys);
    let faults = (vec(fault(kind), fault_count(kind)), plot::plots(kind));
    (any::<u64>().no_shrink(), times, delays(kind), nodes, clients, faults).prop_map(
        move |(seed, (max_ttl, node_timeout, keys), delays, nodes, clients, (faults, plots))| {
            let mut world = World {
                seed,
                max_ttl,
                node_timeout,
                keys,
                guard: true,
                few_forget: true,
                outside: None,
                kill: kind != Kind::Unkillable,
                delays,
                nodes,
                clients,
                faults,
            };
            plots.into_iter().for_each(|plot| plot.happen_in(&mut world));
            // Nothing is well where an answer takes longer than it is waited for.
            world.delays.usual = world.delays.usual.min(node_timeout * 100);
            for client in &mut world.clients {
                client.back = client.back.min(node_timeout * 500);
            }
            world
        },
    )
}

fn node_timeout(kind: Kind) -> Range {
    match kind {
        Kind::Amnesia => 100..=600,
        Kind::StartUp => 500..=1_500,
        Kind::Network | Kind::Fences => 50..=400,
        _ => 20..=300,
    }
}

fn delays(kind: Kind) -> impl Strategy<Value = Delays> {
    let (usual, tail): (Range, _) = match kind {
        Kind::Crowded | Kind::Clocks => (100..=2_000, 0..=10u32),
        Kind::Network | Kind::Unkillable => (100..=10_000, 10..=100),
        Kind::Crashes | Kind::Fences => (100..=5_000, 0..=50),
        Kind::Pauses => (1_000..=20_000, 0..=100),
        Kind::Amnesia | Kind::StartUp => (500..=5_000, 0..=20),
    };
    (usual, tail).prop_map(|(usual, tail)| Delays { usual, tail })
}

fn node(kind: Kind) -> impl Strategy<Value = NodePlan> {
    let rate = if kind == Kind::Clocks {
        prop_oneof![1 => Just(4_900), 1 => -4_900..=4_900i32].boxed()
    } else {
        (-200..=200i32).boxed()
    };
    (rate, -300_000..=300_000i64, prop::bool::ANY).prop_map(|(rate, clock_off, synced)| NodePlan {
        rate,
        clock_off,
        up_at: 0,
        synced,
    })
}

fn client(kind: Kind) -> impl Strategy<Value = ClientPlan> {
    let rate = if kind == Kind::Clocks { -4_900..=4_900i32 } else { -200..=200 };
    let off = match kind {
        Kind::Fences => prop::sample::select(vec![0, 0, 1, -1, 3_600, -3_600, 3_600]).boxed(),
        _ => (-1..=1i64).boxed(),
    };
    let far = matches!(kind, Kind::Network | Kind::Unkillable | Kind::Fences);
    let back = if far { prop_oneof![Just(0u64), 5_000..=150_000u64].boxed() } else { Just(0).boxed() };
    let steps: Sizes = if kind == Kind::Crowded { 4..=12 } else { 6..=16 };
    (rate, off, 0..=30u64, back, vec(step(kind), steps))
        .prop_map(|(rate, clock_off, start, back, steps)| ClientPlan { rate, clock_off, start, back, steps })
}

fn step(kind: Kind) -> impl Strategy<Value = Step> {
    let ttl = match kind {
        Kind::Clocks => (1_500..=3_000u64).boxed(),
        Kind::Fences => prop_oneof![60..=200u64, 200..=1_500u64].boxed(),
        _ => prop_oneof![60..=400u64, 400..=3_000u64].boxed(),
    };
    let pause: Range = if kind == Kind::Fences { 0..=150 } else { 0..=400 };
    let wait = prop_oneof![1 => Just(0u64), 3 => 50..=2_500u64];
    // Of the TTL, in percent: many end at about the end of validity.
    let hold = prop_oneof![3 => 0..=50u64, 2 => 50..=150u64, 1 => 150..=400u64];
    let fenced = prop::bool::weighted(if kind == Kind::Fences { 0.9 } else { 0.2 });
    let extend = prop::option::weighted(0.3, (0..=800u64, 60..=3_000u64));
    let moment = prop_oneof![(0..=400u64).prop_map(GiveUp::After), (0..=12u32).prop_map(GiveUp::AtPoll)];
    let give_up = prop::option::weighted(0.15, moment);
    let renewed = matches!(kind, Kind::Crowded | Kind::Pauses | Kind::Crashes | Kind::Amnesia);
    let heartbeat = prop::bool::weighted(if renewed { 0.8 } else { 0.5 });
    let ends = [End::Release, End::Release, End::Release, End::Drop, End::Detach, End::Keep];
    // An extend or a release takes two polls, and as long as a quorum's answers.
    let moment = prop_oneof![(0..=40u64).prop_map(GiveUp::After), (0..=1u32).prop_map(GiveUp::AtPoll)];
    let cut_short = prop::option::weighted(0.15, moment);
    let end = (prop::sample::select(ends.to_vec()), give_up, cut_short);
    let what = (0..8usize, prop::bool::weighted(0.1), fenced, ttl, heartbeat);
    (pause, what, wait, hold, extend, end).prop_map(
        |(pause, (key, all, fenced, ttl, heartbeat), wait, hold, extend, (end, give_up, cut_short))| Step {
            pause,
            key,
            all,
            fenced,
            ttl,
            wait,
            heartbeat,
            hold: ttl * hold / 100,
            extend,
            end,
            give_up,
            cut_short,
        },
    )
}

fn fault_count(kind: Kind) -> Sizes {
    match kind {
        Kind::Crowded | Kind::Clocks => 0..=3,
        Kind::StartUp => 0..=6,
        Kind::Amnesia => 0..=2,
        Kind::Fences => 0..=6,
        Kind::Network | Kind::Unkillable => 4..=30,
        Kind::Pauses | Kind::Crashes => 3..=16,
    }
}

fn fault(kind: Kind) -> impl Strategy<Value = Fault> {
    let last = if kind == Kind::StartUp { 3_000 } else { 9_000u64 };
    (0..=last, trouble(kind)).prop_map(|(at, what)| Fault { at, what })
}

fn trouble(kind: Kind) -> impl Strategy<Value = Trouble> {
    let (network, crash, freeze, process) = match kind {
        Kind::Crowded | Kind::Clocks => (3, 1, 1, 1),
        Kind::Network | Kind::Unkillable => (12, 1, 1, 1),
        Kind::Crashes => (3, 6, 6, 1),
        Kind::Amnesia => (3, 6, 1, 0),
        Kind::StartUp => (3, 6, 1, 2),
        Kind::Pauses => (3, 1, 1, 10),
        Kind::Fences => (8, 4, 1, 1),
    };
    prop_oneof![
        network => network_trouble(),
        crash => crash_trouble(),
        freeze => (0..7usize, 10..=3_000u64).prop_map(|(node, time)| Trouble::Freeze { node, time }),
        process => process_trouble(),
    ]
}

fn network_trouble() -> impl Strategy<Value = Trouble> {
    let way = || prop::sample::select(vec![Way::ToServer, Way::ToClient]);
    let route = || (0..6usize, 0..7usize);
    prop_oneof![
        3 => (route(), prop_oneof![Just(0u64), 0..=1_500u64])
            .prop_map(|((client, node), late)| Trouble::Cut { client, node, late }),
        3 => (route(), way(), 5..=2_500u64)
            .prop_map(|((client, node), way, time)| Trouble::Hold { client, node, way, time }),
        3 => (route(), way(), 5..=2_500u64)
            .prop_map(|((client, node), way, time)| Trouble::Lose { client, node, way, time }),
        1 => (0..7usize, 20..=3_000u64).prop_map(|(node, time)| Trouble::Isolate { node, time }),
    ]
}

fn crash_trouble() -> impl Strategy<Value = Trouble> {
    let memory =
        prop::sample::select(vec![Memory::All, Memory::AllButLast, Memory::Nothing, Memory::Nothing]);
    let time = prop_oneof![1..=60u64, 1..=2_500u64];
    (0..7usize, time, memory).prop_map(|(node, time, memory)| Trouble::Crash { node, time, memory })
}

fn process_trouble() -> impl Strategy<Value = Trouble> {
    prop_oneof![
        3 => (0..6usize, 1..=3_000u64).prop_map(|(client, time)| Trouble::Pause { client, time }),
        1 => (0..6usize, 0..=1_000u64).prop_map(|(client, time)| Trouble::Die { client, time }),
    ]
}
