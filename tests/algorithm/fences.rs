use std::cell::{Cell, RefCell};
use std::collections::VecDeque;

use futures::future::join_all;
use leasehold::{Fence, Lease, NodeState};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

use super::*;

async fn fence(redlock: &Redlock, key: &str) -> Fence {
    let lease = redlock.lease(key).fenced().acquire().await.unwrap();
    let fence = lease.fence().unwrap();
    lease.release().await.unwrap();
    fence
}

#[tokio::test(start_paused = true)]
async fn each_later_holder_has_a_greater_fence() {
    let (nodes, first) = nodes(5).await;
    let second = nodes.redlock(Redlock::builder()).await;
    let mut last = Fence::from(0);
    for round in 0..200 {
        let next = fence(if round % 2 == 0 { &first } else { &second }, "k").await;
        assert!(next > last, "round {round}: {next} after {last}");
        last = next;
    }
    assert!(redlock_is_plain(&first).await);
}

async fn redlock_is_plain(redlock: &Redlock) -> bool {
    redlock.lease("k").acquire().await.unwrap().fence().is_none()
}

#[tokio::test(start_paused = true)]
async fn an_ordinary_fenced_lease_takes_one_round_trip() {
    let (nodes, redlock) = nodes(5).await;
    for _ in 0..20 {
        fence(&redlock, "k").await;
    }
    let grants = nodes.requests(0).iter().filter(|request| *request == "grant k").count();
    // The wall clock and the nodes' virtual clocks drift apart here, which costs a second round now and then.
    assert!(grants <= 24, "{grants} grants for 20 leases");
}

#[tokio::test(start_paused = true)]
async fn fences_grow_though_clocks_differ_and_nodes_forget() {
    let (nodes, redlock) = nodes(5).await;
    let mut last = Fence::from(0);
    for round in 0..60 {
        match round % 6 {
            1 => nodes.step_clock(round % 5, Duration::from_millis(400)),
            3 => nodes.restart(round % 5, false),
            _ => {}
        }
        let request = redlock.lease("k").fenced().wait(Duration::MAX);
        let lease = request.acquire().await.unwrap();
        let next = lease.fence().unwrap();
        assert!(next > last, "round {round}: {next} after {last}");
        last = next;
        lease.release().await.unwrap();
        tokio::time::sleep(Duration::from_secs(2)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_second_round_has_its_own_number_and_validity() {
    let (nodes, redlock) = nodes(3).await;
    fence(&redlock, "k").await;
    // Two nodes jump ahead by an hour: the estimate is wrong for them, and the third has another clock.
    (0..3).for_each(|node| nodes.step_clock(node, Duration::from_secs(3600)));
    gate_all(&nodes, &[Gate::Slow(millis(50)); 3]);
    let lease = redlock.lease("k").fenced().acquire().await.unwrap();
    assert_eq!(nodes.requests(0).iter().filter(|request| *request == "grant k").count(), 3);
    assert!(lease.remaining() <= TTL - millis(102) - millis(50), "{:?}", lease.remaining());
    assert!(lease.remaining() >= TTL - millis(102) - millis(53), "counted from the second send");
    assert_eq!(holders(&nodes, 3, "k"), [0, 1, 2]);
}

#[tokio::test(start_paused = true)]
async fn fenced_and_plain_leases_exclude_each_other() {
    let (_nodes, redlock) = nodes(3).await;
    let fenced = redlock.lease("k").fenced().acquire().await.unwrap();
    assert!(redlock.lease("k").try_acquire().await.unwrap().is_none());
    fenced.release().await.unwrap();
    let plain = redlock.lease("k").acquire().await.unwrap();
    assert!(redlock.lease("k").fenced().try_acquire().await.unwrap().is_none());
    drop(plain);
}

#[tokio::test(start_paused = true)]
async fn a_fenced_lease_renews_heals_and_takes_its_fence_along() {
    let (nodes, redlock) = nodes(3).await;
    let lease = redlock.lease("k").fenced().acquire().await.unwrap();
    for node in 0..3 {
        nodes.restart(node, false);
        tokio::time::sleep(Duration::from_secs(70)).await;
    }
    assert!(lease.is_valid());
    assert_eq!(holders(&nodes, 3, "k"), [0, 1, 2]);
    let before = lease.fence().unwrap();
    lease.release().await.unwrap();
    assert!(fence(&redlock, "k").await > before);
}

#[tokio::test(start_paused = true)]
async fn a_dropped_second_round_leaves_nothing_behind() {
    for moment in 0..120 {
        let (nodes, redlock) = nodes(3).await;
        fence(&redlock, "k").await;
        (0..3).for_each(|node| nodes.step_clock(node, Duration::from_secs(3600)));
        gate_all(&nodes, &[Gate::Slow(millis(20)), Gate::Late(millis(30)), Gate::Slow(millis(40))]);
        let attempt = redlock.lease("k").fenced().acquire();
        drop(tokio::time::timeout(millis(moment), attempt).await);
        tokio::time::sleep(millis(200)).await;
        assert_eq!(holders(&nodes, 3, "k"), [0; 0], "dropped after {moment} ms");
    }
}

/// Also how long a node that forgot has no vote.
const MAX_TTL: Duration = Duration::from_secs(3);
const CLIENTS: usize = 3;
/// In milliseconds.
const HOUR: i64 = 3_600_000;
const CASES: u32 = 96;

/// What happens next, to a client or a node.
#[derive(Clone, Debug)]
enum Event {
    /// A client wins a lease if it can, and gives it back.
    Lease,
    /// The same, but it keeps it until it is its turn again.
    Keep,
    /// An attempt is dropped after so long.
    Drop(Duration),
    /// An attempt whose first number is so many milliseconds off is dropped when so many nodes have its second.
    CutShort(i64, usize),
    /// A client ends, and another begins whose clock is so many milliseconds off.
    Newcomer(i64),
    /// All clients want the key at once.
    Rivals,
    /// A node is treated so from now on; the oldest fault ends where there would be too many.
    Gate(Gate),
    Restart,
    Forget,
    Cut,
    StepClock(Duration),
    Pause(Duration),
}

fn event() -> impl Strategy<Value = Event> {
    let up_to = |most: u64| (0..most).prop_map(millis);
    let gate = prop_oneof![
        up_to(700).prop_map(Gate::Slow),
        up_to(700).prop_map(Gate::Late),
        Just(Gate::ReplyLost),
        Just(Gate::Error),
        Just(Gate::Never),
        Just(Gate::Grant),
    ];
    prop_oneof![
        4 => Just(Event::Lease),
        2 => Just(Event::Keep),
        2 => up_to(600).prop_map(Event::Drop),
        2 => (hour(), 1..3_usize).prop_map(|(off, reached)| Event::CutShort(off, reached)),
        2 => prop_oneof![hour(), -HOUR..HOUR].prop_map(Event::Newcomer),
        1 => Just(Event::Rivals),
        3 => gate.prop_map(Event::Gate),
        1 => Just(Event::Restart),
        2 => Just(Event::Forget),
        1 => Just(Event::Cut),
        2 => up_to(500).prop_map(Event::StepClock),
        3 => up_to(5000).prop_map(Event::Pause),
    ]
}

/// An hour in either direction.
fn hour() -> impl Strategy<Value = i64> {
    prop_oneof![Just(-HOUR), Just(HOUR)]
}

/// A fleet of three or five, and what happens to whom.
fn story() -> impl Strategy<Value = (usize, Vec<(usize, Event)>)> {
    prop_oneof![Just(3_usize), Just(5)]
        .prop_flat_map(|count| (Just(count), prop::collection::vec((0..count, event()), 1..30)))
}

/// Nodes and their clients, within the faults that the promise allows.
struct World {
    nodes: MemoryNodes,
    /// Each client's own machine, and how far its clock is off.
    machines: Vec<(MemoryNodes, i64)>,
    clients: Vec<Redlock>,
    kept: Vec<Option<Lease>>,
    /// Nodes with a fault, the oldest first.
    faulty: VecDeque<usize>,
    stepped: Vec<Duration>,
    /// In the order of the grants.
    granted: Vec<Fence>,
    newcomers: usize,
    /// Attempts that were dropped while a minority had the second number.
    cut_short: usize,
}

impl World {
    async fn new(count: usize) -> Self {
        let nodes = MemoryNodes::new(count);
        let machines: Vec<_> = (0..CLIENTS).map(|_| (nodes.from_elsewhere(0), 0)).collect();
        let mut clients = Vec::new();
        for (machine, _) in &machines {
            clients.push(machine.redlock(Redlock::builder().max_ttl(MAX_TTL)).await);
        }
        Self {
            nodes,
            machines,
            clients,
            kept: (0..CLIENTS).map(|_| None).collect(),
            faulty: VecDeque::new(),
            stepped: vec![Duration::ZERO; count],
            granted: Vec::new(),
            newcomers: 0,
            cut_short: 0,
        }
    }

    async fn play(&mut self, whom: usize, event: Event) {
        let (node, client) = (whom, whom % CLIENTS);
        match event {
            Event::Lease => drop(self.lease(client).await),
            Event::Keep => self.kept[client] = self.lease(client).await,
            Event::Drop(after) => drop(tokio::time::timeout(after, self.lease(client)).await),
            Event::CutShort(off, reached) => self.cut_short(client, off, reached).await,
            Event::Newcomer(off) => self.newcomer(client, off).await,
            Event::Rivals => self.contend().await,
            Event::Gate(gate) => self.gate(node, gate),
            // With a majority that forgot there is no promise.
            Event::Forget if self.without_vote() < self.few() => self.nodes.restart(node, false),
            Event::Restart | Event::Forget => self.nodes.restart(node, true),
            Event::Cut => self.nodes.cut(node),
            Event::StepClock(by) => {
                // With clocks that are a second apart there are no fences.
                let by = by.min(millis(900) - self.stepped[node]);
                self.stepped[node] += by;
                self.nodes.step_clock(node, by);
            }
            Event::Pause(time) => tokio::time::sleep(time).await,
        }
    }

    async fn lease(&mut self, client: usize) -> Option<Lease> {
        self.kept[client] = None;
        let lease = acquire(&self.clients[client]).await;
        self.granted.extend(lease.as_ref().and_then(Lease::fence));
        lease
    }

    async fn contend(&mut self) {
        self.kept.fill_with(|| None);
        let granted = RefCell::new(&mut self.granted);
        let attempts = self.clients.iter().map(async |client| {
            let lease = acquire(client).await;
            granted.borrow_mut().extend(lease.as_ref().and_then(Lease::fence));
        });
        join_all(attempts).await;
    }

    async fn newcomer(&mut self, client: usize, off: i64) {
        self.kept[client] = None;
        let machine = self.nodes.from_elsewhere(off);
        self.clients[client] = machine.redlock(Redlock::builder().max_ttl(MAX_TTL)).await;
        self.machines[client] = (machine, off);
        self.newcomers += 1;
    }

    async fn cut_short(&mut self, client: usize, off: i64, reached: usize) {
        self.kept.fill_with(|| None);
        tokio::time::sleep(millis(50)).await;
        let (machine, was_off) = &mut self.machines[client];
        *was_off += off;
        machine.set_wall_clock(*was_off);
        // One after the other.
        let well: Vec<_> = (0..self.stepped.len()).filter(|node| !self.faulty.contains(node)).collect();
        well.iter().for_each(|node| self.nodes.gate(*node, Gate::Slow(millis(10 * (*node as u64 + 1)))));
        let before = self.heard();
        let reached = reached.min(self.few());
        let in_time = async {
            while self.have_second(&before) < reached {
                tokio::time::sleep(millis(1)).await;
            }
        };
        let request = self.clients[client].lease("k").ttl(MAX_TTL).fenced();
        let cut = tokio::select! {
            biased;
            () = in_time => true,
            _ = request.try_acquire() => false,
        };
        well.iter().for_each(|node| self.nodes.gate(*node, Gate::Grant));
        self.cut_short += usize::from(cut);
    }

    /// For each node how often it was asked for a number, and how often it granted one.
    fn heard(&self) -> Vec<(usize, usize)> {
        let asked = |node| self.nodes.requests(node).iter().filter(|request| *request == "grant k").count();
        (0..self.stepped.len()).map(|node| (asked(node), self.nodes.granted(node).len())).collect()
    }

    /// How many nodes have granted the second number of the only round since `before`.
    fn have_second(&self, before: &[(usize, usize)]) -> usize {
        let now = self.heard();
        let second =
            |(now, before): &(&(usize, usize), &(usize, usize))| now.0 == before.0 + 2 && now.1 > before.1;
        now.iter().zip(before).filter(second).count()
    }

    fn gate(&mut self, node: usize, gate: Gate) {
        self.faulty.retain(|faulty| *faulty != node);
        if gate != Gate::Grant {
            self.faulty.push_back(node);
        }
        self.nodes.gate(node, gate);
        if self.faulty.len() > self.few() {
            let oldest = self.faulty.pop_front().unwrap();
            self.nodes.gate(oldest, Gate::Grant);
        }
    }

    /// How many nodes are a minority.
    fn few(&self) -> usize {
        (self.stepped.len() - 1) / 2
    }

    /// How many nodes have no vote, as far as a client knows.
    fn without_vote(&self) -> usize {
        self.clients[0].nodes().iter().filter(|node| node.state != NodeState::Up).count()
    }
}

async fn acquire(redlock: &Redlock) -> Option<Lease> {
    redlock.lease("k").ttl(MAX_TTL).fenced().wait(MAX_TTL).acquire().await.ok()
}

#[test]
fn fences_grow_whatever_happens_to_a_minority() {
    let mut runner = TestRunner::new(Config { cases: CASES, failure_persistence: None, ..Config::default() });
    let [grants, newcomers, cut_short] = [const { Cell::new(0) }; 3];
    let outcome = runner.run(&story(), |(count, events)| {
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build()?;
        let world = runtime.block_on(async {
            let mut world = World::new(count).await;
            for (whom, event) in events {
                world.play(whom, event).await;
            }
            world
        });
        let granted = &world.granted;
        grants.set(grants.get() + granted.len());
        newcomers.set(newcomers.get() + world.newcomers);
        cut_short.set(cut_short.get() + world.cut_short);
        prop_assert!(granted.is_sorted_by(|earlier, later| earlier < later), "{:?}", granted);
        Ok(())
    });
    outcome.unwrap_or_else(|failure| panic!("{failure}"));
    let (grants, newcomers, cut_short) = (grants.get(), newcomers.get(), cut_short.get());
    println!("{grants} leases, {newcomers} new clients, {cut_short} second rounds cut short");
    assert!(grants > CASES as usize, "there is much to compare: {grants} leases");
    assert!(newcomers > 0 && cut_short > 0, "{newcomers} new clients, {cut_short} second rounds cut short");
}
