//! Whoever makes trouble, within what the library assumes: at most two of five nodes at a time. One that has
//! lost its memory counts among them for as long as it may not vote, and a little longer.

use std::time::Duration;

use leasehold::testing::Direction;
use rand::RngExt as _;
use rand::rngs::StdRng;
use tokio::task::JoinSet;

use super::arena::Arena;
use super::crew::Worker;
use super::deck::Deck;
use super::grave::Graves;
use super::moment::Moment;
use super::worker::MAX_TTL;
use crate::common::{ms, secs};

/// The longest trouble of a node that remembers.
const LONGEST: Duration = ms(1_500);
/// How long a node is still in trouble when its clients can reach it again, until they know.
const AFTERMATH: Duration = ms(500);
/// Until they notice that a connection which has lost something stays silent.
const SILENCE: Duration = ms(2_500);
/// How long a node that has forgotten is in trouble after its restart.
const YOUTH: Duration = MAX_TTL.saturating_add(secs(2));

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    BlackHole,
    HoldRequests,
    HoldReplies,
    LoseRequests,
    LoseReplies,
    SlowRequests,
    SlowReplies,
    Cut,
    Refuse,
    Stop,
    Kill,
    Restart,
    Forget,
}

/// All of them take 39 s and what the servers need for their restarts, so that a run of a minute has each.
pub(super) const FAULTS: [Fault; 13] = [
    Fault::BlackHole,
    Fault::HoldRequests,
    Fault::HoldReplies,
    Fault::LoseRequests,
    Fault::LoseReplies,
    Fault::SlowRequests,
    Fault::SlowReplies,
    Fault::Cut,
    Fault::Refuse,
    Fault::Stop,
    Fault::Kill,
    Fault::Restart,
    Fault::Forget,
];

impl Fault {
    async fn begin(self, arena: &Arena, node: usize, dice: &mut StdRng) {
        let (proxy, masters) = (&arena.proxied.proxies[node], &arena.proxied.masters);
        let latency = ms(dice.random_range(1..400));
        match self {
            Self::BlackHole => proxy.black_hole(),
            Self::HoldRequests => proxy.hold(Direction::ToServer),
            Self::HoldReplies => proxy.hold(Direction::ToClient),
            Self::LoseRequests => proxy.lose(Direction::ToServer),
            Self::LoseReplies => proxy.lose_replies(),
            Self::SlowRequests => proxy.latency(Direction::ToServer, latency),
            Self::SlowReplies => proxy.latency(Direction::ToClient, latency),
            Self::Cut => proxy.cut(),
            Self::Refuse => {
                proxy.refuse(true);
                proxy.cut();
            }
            Self::Stop => masters.pause(node).await.unwrap(),
            Self::Kill => masters.kill(node).await.unwrap(),
            Self::Restart => masters.restart(node).await.unwrap(),
            Self::Forget => masters.restart_empty(node).await.unwrap(),
        }
    }

    /// Returns for how long the node is in trouble from then on.
    async fn end(self, arena: &Arena, node: usize, dice: &mut StdRng) -> Duration {
        let (proxy, masters) = (&arena.proxied.proxies[node], &arena.proxied.masters);
        match self {
            Self::Stop => masters.resume(node).unwrap(),
            Self::Kill => masters.restart(node).await.unwrap(),
            _ => {}
        }
        // What a black hole has kept is sometimes lost, and sometimes delivered.
        let cut = dice.random_range(0..3) == 0;
        if cut {
            proxy.cut();
        }
        proxy.heal();
        match self {
            Self::LoseRequests | Self::LoseReplies if !cut => SILENCE,
            Self::Forget => YOUTH,
            _ => AFTERMATH,
        }
    }
}

/// Troubles one node after another until `end`. Two of these at a time are a minority.
pub(super) async fn trouble_nodes(arena: &Arena, mut dice: StdRng, end: Moment) {
    let clock = arena.journal.clock;
    let mut faults = Deck::of(&FAULTS);
    while clock.now() < end {
        let fault = faults.draw(&mut dice);
        if fault == Fault::Forget && clock.now().after(LONGEST + YOUTH) > end {
            continue;
        }
        let node = arena.take(&mut dice);
        arena.tell(node, &format!("{fault:?}"));
        fault.begin(arena, node, &mut dice).await;
        tokio::time::sleep(dice.random_range(ms(50)..LONGEST)).await;
        tokio::time::sleep(fault.end(arena, node, &mut dice).await).await;
        arena.give_back(node);
        tokio::time::sleep(ms(dice.random_range(0..300))).await;
    }
}

#[derive(Clone, Copy)]
enum Blow {
    Stop,
    Kill,
}

/// These take 21 s at the most.
const BLOWS: [Blow; 5] = [Blow::Stop, Blow::Stop, Blow::Stop, Blow::Kill, Blow::Kill];

/// Stops and kills one of `workers` after another until `end`. Watches over what the dead have left.
pub(super) async fn trouble_workers(
    arena: &std::sync::Arc<Arena>,
    workers: &mut [Worker<'_>],
    mut dice: StdRng,
    end: Moment,
) -> Graves {
    let clock = arena.journal.clock;
    let (mut graves, mut blows) = (JoinSet::new(), Deck::of(&BLOWS));
    while clock.now() < end {
        let index = dice.random_range(0..workers.len());
        let worker = &mut workers[index];
        let left = end.since(clock.now());
        match blows.draw(&mut dice) {
            Blow::Stop => {
                worker.stop();
                tokio::time::sleep(dice.random_range(ms(50)..secs(4)).min(left)).await;
                worker.go_on();
            }
            Blow::Kill => {
                super::grave::bury(&mut graves, arena, worker).await;
                tokio::time::sleep(dice.random_range(Duration::ZERO..secs(1)).min(left)).await;
                worker.start_again();
            }
        }
        tokio::time::sleep(ms(dice.random_range(100..1_000))).await;
    }
    graves
}
