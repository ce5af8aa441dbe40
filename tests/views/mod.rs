//! Masters, a client's view of them, and a look past the client.
//!
//! Nothing here sleeps where an event can be awaited: [`until`] asks again and again, with a deadline that
//! a loaded machine keeps.

// Each test file is a crate of its own and uses a part.
#![allow(dead_code)]

pub(crate) mod faketime;
pub(crate) mod forward;
pub(crate) mod program;
pub(crate) mod raw;

use std::time::{Duration, Instant};

use leasehold::testing::{FaultProxy, LocalMasters, LocalMastersBuilder};
use leasehold::{Builder, NodeState, NodeStatus, Redlock};

/// Longer than anything takes on a loaded machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);
/// Between two looks.
const TICK: Duration = Duration::from_millis(5);

pub(crate) const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

pub(crate) const fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

/// Asks again and again until `look` gives something; fails with `what` if it never does.
pub(crate) async fn until<T>(what: &str, mut look: impl AsyncFnMut() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(seen) = look().await {
            return seen;
        }
        assert!(begun.elapsed() < PATIENCE, "not within {PATIENCE:?}: {what}");
        tokio::time::sleep(TICK).await;
    }
}

/// Waits until node `index` of `redlock` looks as `wanted` says, and returns how it looks then.
pub(crate) async fn until_node(
    redlock: &Redlock,
    index: usize,
    what: &str,
    wanted: impl Fn(&NodeStatus) -> bool,
) -> NodeStatus {
    let mut last = None;
    let begun = Instant::now();
    while begun.elapsed() < PATIENCE {
        let status = redlock.nodes().remove(index);
        if wanted(&status) {
            return status;
        }
        last = Some(status);
        tokio::time::sleep(TICK).await;
    }
    panic!("node {index} should be {what} within {PATIENCE:?}: {last:#?}");
}

pub(crate) async fn until_up(redlock: &Redlock, index: usize) -> NodeStatus {
    until_node(redlock, index, "up", |node| node.state == NodeState::Up).await
}

pub(crate) async fn until_all_up(redlock: &Redlock) {
    for index in 0..redlock.nodes().len() {
        until_up(redlock, index).await;
    }
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

/// Has a client meet all of `masters`, so that they are a fleet that has served before.
pub(crate) async fn meet(masters: &LocalMasters, max_ttl: Duration) {
    let first = builder(masters.urls()).max_ttl(max_ttl).connect().await.expect("connect");
    until_all_up(&first).await;
    first.close().await;
}

/// The network as one client sees it: it is cut off from some of the masters.
pub(crate) struct View {
    urls: Vec<String>,
    // One for each master that cannot be reached, in their order.
    cut: Vec<FaultProxy>,
}

impl View {
    /// The masters `reached`, by their own addresses, and no other.
    pub(crate) async fn of(masters: &LocalMasters, reached: &[usize]) -> Self {
        let mut view = Self { urls: Vec::new(), cut: Vec::new() };
        for index in 0..masters.len() {
            if reached.contains(&index) {
                view.urls.push(masters.url(index));
            } else {
                let proxy = FaultProxy::start(masters.addr(index)).await.expect("a proxy");
                proxy.refuse(true);
                view.urls.push(proxy.url());
                view.cut.push(proxy);
            }
        }
        view
    }

    pub(crate) fn builder(&self) -> Builder {
        builder(&self.urls)
    }

    /// Lets the client reach all.
    pub(crate) fn heal(&self) {
        self.cut.iter().for_each(|proxy| proxy.refuse(false));
    }
}
