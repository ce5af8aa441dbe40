//! What the tests of admission share, besides what all tests on real servers do: a network that is cut for one
//! client and not for the next, servers that take over each other's data, and servers started in other ways.

// Each test file is a crate of its own and uses a part.
#![allow(dead_code)]

pub(crate) mod faketime;
pub(crate) mod forward;
pub(crate) mod program;
pub(crate) mod replication;

use std::time::{Duration, Instant};

use leasehold::testing::{FaultProxy, LocalMasters, LocalMastersBuilder};
use leasehold::{Builder, NodeState, NodeStatus, Redlock};

use crate::common::{PATIENCE, connect, ms, secs};

/// Asks again and again until `look` gives something; fails with `what` if it never does.
pub(crate) async fn until_some<T>(what: &str, mut look: impl AsyncFnMut() -> Option<T>) -> T {
    let mut seen = None;
    crate::common::until(what, async || {
        seen = look().await;
        seen.is_some()
    })
    .await;
    seen.expect("it was there")
}

/// Waits until node `index` of `redlock` looks as `wanted` says, and returns how it looks then.
pub(crate) async fn until_node(
    redlock: &Redlock,
    index: usize,
    what: &str,
    wanted: impl Fn(&NodeStatus) -> bool,
) -> NodeStatus {
    let begun = Instant::now();
    loop {
        let status = redlock.nodes().remove(index);
        if wanted(&status) {
            return status;
        }
        assert!(begun.elapsed() < PATIENCE, "node {index} should be {what} within {PATIENCE:?}: {status:#?}");
        tokio::time::sleep(ms(5)).await;
    }
}

pub(crate) async fn until_up(redlock: &Redlock, index: usize) -> NodeStatus {
    until_node(redlock, index, "up", |node| node.state == NodeState::Up).await
}

/// Up or young.
pub(crate) async fn until_connected(redlock: &Redlock, index: usize) -> NodeStatus {
    until_node(redlock, index, "connected", is_connected).await
}

pub(crate) fn is_connected(node: &NodeStatus) -> bool {
    matches!(node.state, NodeState::Up | NodeState::Young(_))
}

pub(crate) fn is_young(node: &NodeStatus) -> bool {
    matches!(node.state, NodeState::Young(_))
}

/// Servers that send their data to a replica without the usual pause of five seconds.
pub(crate) fn masters(count: usize) -> LocalMastersBuilder {
    LocalMasters::builder().count(count).arg("--repl-diskless-sync-delay", "0")
}

/// A client for tests in which time plays no part: a busy machine is no dead node.
pub(crate) fn builder<I>(urls: I) -> Builder
where
    I: IntoIterator,
    I::Item: Into<String>,
{
    Redlock::builder().nodes(urls).node_timeout(secs(2))
}

/// Has a client meet all of the nodes, so that they are a fleet that has served before.
pub(crate) async fn meet<I>(urls: I, max_ttl: Duration)
where
    I: IntoIterator,
    I::Item: Into<String>,
{
    connect(builder(urls).max_ttl(max_ttl)).await.close().await;
}

/// All clients name the masters alike, and each can be let reach others of them.
pub(crate) struct Network {
    proxies: Vec<FaultProxy>,
}

impl Network {
    /// Before `masters`; all can be reached.
    pub(crate) async fn before(masters: &LocalMasters) -> Self {
        let start = (0..masters.len()).map(|index| FaultProxy::start(masters.addr(index)));
        Self { proxies: futures::future::try_join_all(start).await.expect("proxies") }
    }

    pub(crate) fn urls(&self) -> Vec<String> {
        self.proxies.iter().map(FaultProxy::url).collect()
    }

    /// What stands before node `index`.
    pub(crate) fn proxy(&self, index: usize) -> &FaultProxy {
        &self.proxies[index]
    }

    /// How node `index` is named.
    pub(crate) fn name(&self, index: usize) -> String {
        self.proxies[index].addr().to_string()
    }

    /// From now on `reached` can be reached and no other.
    pub(crate) fn reach(&self, reached: &[usize]) {
        for (index, proxy) in self.proxies.iter().enumerate() {
            let cut = !reached.contains(&index);
            proxy.refuse(cut);
            if cut {
                proxy.cut();
            }
        }
    }
}
