//! Masters, clients of them, and a plain look at what stands on them.

use std::time::Duration;

use leasehold::testing::LocalMasters;
use leasehold::{Builder, Fence, NodeState, Redlock};
use redis::aio::MultiplexedConnection;

/// The shortest that is allowed, so that a node that lost its memory votes again soon.
pub(super) const MAX_TTL: Duration = Duration::from_secs(3);
/// Longer than anything takes on a loaded machine.
pub(super) const PATIENCE: Duration = Duration::from_secs(60);
pub(super) const KEY: &str = "account:7";
pub(super) const RECORD: &str = "leasehold:fence:account:7";

pub(super) async fn three() -> LocalMasters {
    LocalMasters::start(3).await.expect("start three masters")
}

pub(super) fn builder(urls: Vec<String>) -> Builder {
    Redlock::builder().nodes(urls).max_ttl(MAX_TTL)
}

pub(super) async fn client(masters: &LocalMasters) -> Redlock {
    builder(masters.urls()).connect().await.expect("the addresses are good")
}

/// The fence of one who holds `KEY` and gives it back at once.
pub(super) async fn next_fence(redlock: &Redlock) -> Fence {
    let lease = redlock.lease(KEY).ttl(MAX_TTL).fenced().acquire().await.expect("it is won in time");
    let fence = lease.fence().expect("it was asked for");
    lease.release().await.expect("a quorum confirms");
    fence
}

/// Waits until every node votes.
pub(super) async fn all_vote(redlock: &Redlock) {
    until(async || redlock.nodes().iter().all(|node| node.state == NodeState::Up)).await;
}

/// Looks until `done`: for what nobody tells of.
pub(super) async fn until(done: impl AsyncFn() -> bool) {
    let looking = async {
        while !done().await {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(PATIENCE, looking).await.expect("it comes about");
}

/// A connection of its own to one master.
pub(super) async fn connection(masters: &LocalMasters, index: usize) -> MultiplexedConnection {
    let client = redis::Client::open(masters.url(index)).expect("a good address");
    client.get_multiplexed_async_connection().await.expect("the master is up")
}

/// What one master answers.
pub(super) async fn ask<T: redis::FromRedisValue>(
    masters: &LocalMasters,
    index: usize,
    command: &[&str],
) -> T {
    let mut cmd = redis::cmd(command[0]);
    cmd.arg(&command[1..]);
    cmd.query_async(&mut connection(masters, index).await).await.expect("an answer of this type")
}
