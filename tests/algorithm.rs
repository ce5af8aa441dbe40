//! The algorithm on nodes in memory, in paused time.

#[path = "algorithm/acquire.rs"]
mod acquire;
#[path = "algorithm/fences.rs"]
mod fences;
#[path = "algorithm/guard.rs"]
mod guard;
#[path = "algorithm/heartbeat.rs"]
mod heartbeat;
#[path = "algorithm/observe.rs"]
mod observe;
#[path = "algorithm/release.rs"]
mod release;
#[path = "algorithm/renewal.rs"]
mod renewal;
#[path = "algorithm/second_round.rs"]
mod second_round;
#[path = "algorithm/undo.rs"]
mod undo;

use std::time::Duration;

use leasehold::Redlock;
use leasehold::testing::{Gate, MemoryNodes};

const TTL: Duration = Duration::from_secs(10);
const NODE_TIMEOUT: Duration = Duration::from_millis(500);

fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// `count` nodes, and a client of them.
async fn nodes(count: usize) -> (MemoryNodes, Redlock) {
    let nodes = MemoryNodes::new(count);
    let redlock = nodes.redlock(Redlock::builder()).await;
    (nodes, redlock)
}

fn gate_all(nodes: &MemoryNodes, gates: &[Gate]) {
    gates.iter().enumerate().for_each(|(node, gate)| nodes.gate(node, *gate));
}

/// The nodes on which `key` stands.
fn holders(nodes: &MemoryNodes, count: usize, key: &str) -> Vec<usize> {
    (0..count).filter(|node| nodes.value(*node, key).is_some()).collect()
}
