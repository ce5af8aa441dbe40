//! What a fenced round does whose first number did not fit.

use std::collections::BTreeSet;

use leasehold::Fence;

use super::*;

const HOUR: Duration = Duration::from_secs(3600);

/// Nodes whose clocks have jumped since the client last heard of them, so that its first number is too low.
async fn nodes_ahead(count: usize) -> (MemoryNodes, Redlock) {
    let (nodes, redlock) = nodes(count).await;
    redlock.lease("other").fenced().acquire().await.unwrap().release().await.unwrap();
    (0..count).for_each(|node| nodes.step_clock(node, HOUR));
    (nodes, redlock)
}

fn grants(nodes: &MemoryNodes, node: usize) -> usize {
    nodes.requests(node).iter().filter(|request| *request == "grant k").count()
}

#[tokio::test(start_paused = true)]
async fn nodes_that_refused_the_key_are_not_asked_again() {
    let (nodes, redlock) = nodes_ahead(3).await;
    nodes.set(0, "k", "rival", TTL);
    let lease = redlock.lease("k").fenced().try_acquire().await.unwrap();
    assert!(lease.is_some(), "the other two are a quorum");
    assert_eq!([0, 1, 2].map(|node| grants(&nodes, node)), [1, 2, 2]);
}

#[tokio::test(start_paused = true)]
async fn no_second_number_is_tried_where_no_quorum_could_grant_it() {
    let (nodes, redlock) = nodes_ahead(3).await;
    (0..2).for_each(|node| nodes.set(node, "k", "rival", TTL));
    assert!(redlock.lease("k").fenced().try_acquire().await.unwrap().is_none());
    tokio::time::sleep(millis(1)).await;
    assert_eq!([0, 1, 2].map(|node| grants(&nodes, node)), [1, 1, 1]);
}

#[tokio::test(start_paused = true)]
async fn a_node_that_failed_leaves_the_second_number_to_the_others() {
    for failed in [vec![0], vec![0, 3]] {
        let (nodes, redlock) = nodes_ahead(5).await;
        failed.iter().for_each(|node| nodes.gate(*node, Gate::Error));
        let lease = redlock.lease("k").fenced().try_acquire().await.unwrap();
        assert!(lease.is_some(), "{failed:?}");
        assert_eq!(holders(&nodes, 5, "k").len(), 5 - failed.len());
    }
}

#[tokio::test(start_paused = true)]
async fn a_node_that_granted_the_first_number_alone_gives_the_key_back() {
    let (nodes, redlock) = nodes(3).await;
    redlock.lease("other").fenced().acquire().await.unwrap().release().await.unwrap();
    [1, 2].iter().for_each(|node| nodes.step_clock(*node, HOUR));
    let lease = redlock.lease("k").fenced().try_acquire().await.unwrap().expect("two of three");
    assert_eq!([0, 1, 2].map(|node| grants(&nodes, node)), [2, 2, 2]);
    assert_eq!(holders(&nodes, 3, "k"), [0, 1, 2]);
    lease.release().await.unwrap();
    tokio::time::sleep(millis(1)).await;
    assert_eq!(holders(&nodes, 3, "k"), [0; 0]);
}

/// How far the clock of the next client is off, in milliseconds. The nodes are an hour ahead.
const OFF: [i64; 6] = [0, -3_600_000, 3_600_000, 7_200_000, -700, 700];

/// Lets the second number reach one node after the other.
fn slow_down(nodes: &MemoryNodes, count: usize) {
    let gates = [20, 30, 40, 50, 60].map(|delay| Gate::Slow(millis(delay)));
    gate_all(nodes, &gates[..count]);
    nodes.gate(1, Gate::Late(millis(30)));
}

/// Drops an attempt after `moment`, and returns on how many nodes its second number stood then.
async fn drop_after(moment: Duration, nodes: &MemoryNodes, redlock: &Redlock, count: usize) -> usize {
    let before = all_granted(nodes, count).len();
    let attempt = redlock.lease("k").fenced().acquire();
    drop(tokio::time::timeout(moment, attempt).await);
    all_granted(nodes, count).len() - before
}

fn all_granted(nodes: &MemoryNodes, count: usize) -> Vec<Fence> {
    (0..count).flat_map(|node| nodes.granted(node)).collect()
}

/// Another client, whose clock is `off`: from the beginning, or by a jump after it has learned that it is right.
struct Rival {
    machine: MemoryNodes,
    redlock: Redlock,
    off: i64,
}

impl Rival {
    async fn start(nodes: &MemoryNodes, off: i64, jumps: bool) -> Self {
        let machine = nodes.from_elsewhere(if jumps { 0 } else { off });
        let redlock = machine.redlock(Redlock::builder()).await;
        redlock.lease("other").fenced().acquire().await.unwrap().release().await.unwrap();
        Self { machine, redlock, off }
    }

    async fn fence(&self) -> Fence {
        self.machine.set_wall_clock(self.off);
        self.redlock.lease("k").fenced().acquire().await.unwrap().fence().unwrap()
    }
}

#[tokio::test(start_paused = true)]
async fn the_next_fence_is_above_a_second_number_that_was_cut_short() {
    for (count, off, jumps) in [3, 5]
        .into_iter()
        .flat_map(|count| OFF.into_iter().flat_map(move |off| [(count, off, false), (count, off, true)]))
    {
        let mut cuts = BTreeSet::new();
        for (moment, lost) in (0..100).step_by(5).flat_map(|moment| [(moment, false), (moment, true)]) {
            let (nodes, redlock) = nodes_ahead(count).await;
            let rival = Rival::start(&nodes, off, jumps).await;
            slow_down(&nodes, count);
            let reached = drop_after(millis(moment), &nodes, &redlock, count).await;
            cuts.insert(reached);
            // What is on its way arrives all the same, or never; and then a minority is down that has not got it.
            if lost {
                (0..count).for_each(|node| nodes.cut(node));
                (count - (count - 1) / 2..count).for_each(|node| nodes.kill(node));
            }
            (0..count).for_each(|node| nodes.gate(node, Gate::Grant));
            tokio::time::sleep(millis(200)).await;
            let granted = all_granted(&nodes, count).into_iter().max();
            let next = rival.fence().await;
            let what = format!("{count} nodes, {off} ms off, jumps: {jumps}, {moment} ms, lost: {lost}");
            assert!(Some(next) > granted, "{next} after {granted:?} on {reached} nodes: {what}");
        }
        assert!((0..=count / 2).all(|reached| cuts.contains(&reached)), "{count} nodes: {cuts:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_clock_that_jumps_costs_one_second_round() {
    for off in [-3_600_000, 3_600_000] {
        let (nodes, redlock) = nodes(3).await;
        redlock.lease("k").fenced().acquire().await.unwrap().release().await.unwrap();
        nodes.set_wall_clock(off);
        for _ in 0..5 {
            redlock.lease("k").fenced().acquire().await.unwrap().release().await.unwrap();
            tokio::time::sleep(millis(1)).await;
        }
        let grants = grants(&nodes, 0);
        assert!(grants <= 1 + 5 + 1, "{off} ms off: {grants} grants for 6 leases");
    }
}
