//! Five masters, each behind a network that can be made bad.

use std::time::Duration;

use leasehold::testing::{FaultProxy, LocalMasters};
use leasehold::{NodeState, Redlock};

use super::{connect, found, until};

pub(crate) struct Proxied {
    pub(crate) masters: LocalMasters,
    pub(crate) proxies: Vec<FaultProxy>,
}

impl Proxied {
    pub(crate) async fn start() -> Self {
        let masters = LocalMasters::start(5).await.expect("local masters");
        let mut proxies = Vec::new();
        for index in 0..masters.len() {
            proxies.push(FaultProxy::start(masters.addr(index)).await.expect("a proxy"));
        }
        // By their addresses at the proxies: a marker is that of an address.
        found(proxies.iter().map(FaultProxy::url)).await;
        Self { masters, proxies }
    }

    pub(crate) fn urls(&self) -> Vec<String> {
        self.proxies.iter().map(FaultProxy::url).collect()
    }

    /// A client through the proxies, all up.
    pub(crate) async fn client(&self, node_timeout: Duration) -> Redlock {
        connect(Redlock::builder().nodes(self.urls()).node_timeout(node_timeout)).await
    }

    pub(crate) fn black_holes(&self, count: usize) {
        self.proxies[..count].iter().for_each(FaultProxy::black_hole);
    }

    pub(crate) fn heal(&self) {
        self.proxies.iter().for_each(FaultProxy::heal);
    }

    /// The addresses of the first `count` nodes as a client names them.
    pub(crate) fn names(&self, count: usize) -> Vec<String> {
        self.proxies[..count].iter().map(|proxy| proxy.addr().to_string()).collect()
    }
}

/// Returns once the client knows the first `count` nodes as slow or down, and no others.
pub(crate) async fn until_first_known_down(redlock: &Redlock, count: usize) {
    let known = async || {
        let nodes = redlock.nodes();
        nodes.iter().enumerate().all(|(index, node)| (node.state == NodeState::Up) == (index >= count))
    };
    until("it should be known who is down", known).await;
}
