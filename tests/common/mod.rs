//! What the tests on real servers share: masters, a client of them, and a look past the client.
//!
//! Nothing here sleeps where an event can be awaited: [`until`] asks again and again, with a deadline
//! that a loaded machine keeps.

// Each test file is a crate of its own and uses a part.
#![allow(dead_code, unused_imports)]

mod monitor;
mod proxied;
mod raw;
mod relay;

use std::time::{Duration, Instant};

use leasehold::testing::LocalMasters;
use leasehold::{Builder, Lease, NodeState, Redlock};

pub(crate) use monitor::{Monitor, monitors, renewals};
pub(crate) use proxied::{Proxied, until_first_known_down};
pub(crate) use raw::{Raw, holders, key_is, raw, raws, until_empty, until_free, until_held_by_all, writes};
pub(crate) use relay::Relay;

/// Longer than anything takes on a loaded machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);
/// Between two looks.
const TICK: Duration = Duration::from_millis(5);

pub(crate) const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

pub(crate) const fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

/// Five masters, the usual number, that know each other's client.
pub(crate) async fn five() -> LocalMasters {
    fleet(5).await
}

/// Masters that have served before: a client has met them all and found that none has forgotten anything.
/// Only so do they vote for one who meets some of them, or finds one that cannot vote.
pub(crate) async fn fleet(count: usize) -> LocalMasters {
    let masters = LocalMasters::start(count).await.expect("local masters");
    found(masters.urls()).await;
    masters
}

/// Makes a fleet of new masters, as the first client of all of them does.
pub(crate) async fn found(urls: impl IntoIterator<Item = String>) {
    connect(Redlock::builder().nodes(urls).node_timeout(secs(2))).await.close().await;
}

/// A client of `masters` for tests in which time plays no part: a busy machine is no dead node.
pub(crate) async fn client(masters: &LocalMasters) -> Redlock {
    connect(Redlock::builder().nodes(masters.urls()).node_timeout(secs(2))).await
}

/// Connects, and returns once every node is up.
pub(crate) async fn connect(builder: Builder) -> Redlock {
    let redlock = builder.connect().await.expect("connect");
    until_all_up(&redlock).await;
    redlock
}

pub(crate) async fn until_all_up(redlock: &Redlock) {
    let all_up = async || redlock.nodes().iter().all(|node| node.state == NodeState::Up);
    until("all nodes should be up", all_up).await;
}

/// A lease on `key` whose TTL no test outlives, so that nothing ends by running out.
pub(crate) async fn hold(redlock: &Redlock, key: &str) -> Lease {
    redlock.lease(key).ttl(secs(60)).acquire().await.expect("a free key is won")
}

/// Returns once all nodes have said that they hold the lease: right after it was won, the answers of some
/// were not waited for, and what they say later is no denial.
pub(crate) async fn until_all_have_said_so(masters: &LocalMasters, lease: &Lease) {
    until_held_by_all(masters, lease.key().as_bytes(), lease.token().as_str()).await;
    lease.extend(lease.remaining()).await.expect("all is well");
    // Two answers may be outstanding, for a moment.
    tokio::time::sleep(ms(200)).await;
}

/// Returns once `condition` holds; panics with `what` if it does not in time.
pub(crate) async fn until(what: &str, condition: impl AsyncFnMut() -> bool) {
    until_within(PATIENCE, what, condition).await;
}

/// Returns once `condition` holds, after how long; panics with `what` if it does not within `limit`.
pub(crate) async fn until_within(
    limit: Duration,
    what: &str,
    mut condition: impl AsyncFnMut() -> bool,
) -> Duration {
    let started = Instant::now();
    while !condition().await {
        assert!(started.elapsed() < limit, "{what}, within {limit:?}");
        tokio::time::sleep(TICK).await;
    }
    started.elapsed()
}

/// Panics with `what` if `condition` fails at any look within `span`.
pub(crate) async fn throughout(span: Duration, what: &str, mut condition: impl AsyncFnMut() -> bool) {
    let started = Instant::now();
    while started.elapsed() < span {
        assert!(condition().await, "{what}, and did not after {:?}", started.elapsed());
        tokio::time::sleep(TICK * 4).await;
    }
}

/// The value of `future`; panics with `what` if it takes too long.
pub(crate) async fn soon<T>(what: &str, future: impl Future<Output = T>) -> T {
    within(PATIENCE, what, future).await
}

/// The value of `future`; panics with `what` if it takes longer than `limit`.
pub(crate) async fn within<T>(limit: Duration, what: &str, future: impl Future<Output = T>) -> T {
    let Ok(value) = tokio::time::timeout(limit, future).await else {
        panic!("{what}, within {limit:?}");
    };
    value
}
