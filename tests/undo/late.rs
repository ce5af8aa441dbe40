//! A SET that arrives on an old connection after the deletion came on a new one.

use leasehold::testing::LocalMasters;
use leasehold::{AcquireError, NodeState, Redlock};

use crate::common::*;

struct World {
    masters: LocalMasters,
    relays: Vec<Relay>,
    redlock: Redlock,
}

impl World {
    /// The first three of five masters behind relays, for a user who may not do what is `forbidden`.
    async fn start(forbidden: &[&str]) -> Self {
        let masters = five().await;
        for raw in raws(&masters) {
            let user = [&["ACL", "SETUSER", "worker", "on", ">secret", "~*", "+@all"], forbidden].concat();
            raw.tell(&user).await;
        }
        let mut relays = Vec::new();
        for index in 0..3 {
            relays.push(Relay::start(masters.addr(index)).await);
        }
        let urls = relays.iter().map(Relay::url).chain(masters.urls().into_iter().skip(3));
        let urls = urls.map(|url| url.replace("redis://", "redis://worker:secret@"));
        let redlock = connect(Redlock::builder().nodes(urls).node_timeout(ms(300))).await;
        Self { masters, relays, redlock }
    }

    fn hold(&self) {
        self.relays.iter().for_each(Relay::hold_present);
    }

    async fn reset(&self) {
        futures::future::join_all(self.relays.iter().map(Relay::reset_held)).await;
    }

    /// Returns once each node has been told to delete on its new connection.
    async fn until_deletions_came(&self) {
        for index in 0..3 {
            let raw = raw(&self.masters, index);
            let came = async || {
                let node = &self.redlock.nodes()[index];
                // Where nothing can be proved the debt stays, and is paid again and again.
                let often = raw.calls(&["del", "delex", "delifeq", "eval", "evalsha"]).await >= 6;
                node.state == NodeState::Up && (node.owed == 0 || often)
            };
            until("the deletion should have come on the new connection", came).await;
        }
    }

    /// Delivers the old SETs, and looks for what becomes of them.
    async fn late_sets_leave_nothing(&self) {
        self.relays.iter().for_each(Relay::deliver_held);
        tokio::time::sleep(ms(300)).await;
        until_within(secs(5), "a late SET should be undone", async || {
            holders(&self.masters, "job").await.iter().all(Option::is_none)
        })
        .await;
        throughout(secs(1), "the key should stay free", async || {
            holders(&self.masters, "job").await.iter().all(Option::is_none)
        })
        .await;
    }
}

fn failed(refused: Result<Option<leasehold::Lease>, AcquireError>) {
    assert!(matches!(refused, Err(AcquireError::NoQuorum(_))), "{refused:?}");
}

/// Connections that fell silent are replaced by the client itself.
async fn after_silence(forbidden: &[&str]) {
    let world = World::start(forbidden).await;
    world.hold();
    failed(world.redlock.lease("job").ttl(secs(60)).try_acquire().await);
    let replaced = async || world.redlock.nodes().iter().any(|node| node.state == NodeState::Down);
    until("the silent connections should be given up", replaced).await;
    until_all_up(&world.redlock).await;
    world.until_deletions_came().await;
    world.late_sets_leave_nothing().await;
}

/// Connections that broke, for the client only, with one answer outstanding.
async fn after_reset(forbidden: &[&str]) {
    let world = World::start(forbidden).await;
    world.hold();
    let attempt = tokio::spawn(world.redlock.lease("job").ttl(secs(60)).try_acquire());
    for index in 3..5 {
        let raw = raw(&world.masters, index);
        until("the attempt should be under way", async || raw.get("job").await.is_some()).await;
    }
    world.reset().await;
    failed(soon("it should fail", attempt).await.unwrap());
    until_all_up(&world.redlock).await;
    world.until_deletions_came().await;
    world.late_sets_leave_nothing().await;
}

#[tokio::test]
async fn on_a_connection_that_fell_silent() {
    after_silence(&[]).await;
}

#[tokio::test]
async fn on_a_connection_that_fell_silent_and_may_not_be_killed() {
    after_silence(&["-client|kill"]).await;
}

#[tokio::test]
async fn on_a_connection_that_fell_silent_and_has_no_number() {
    after_silence(&["-client|id"]).await;
}

#[tokio::test]
async fn on_a_connection_that_fell_silent_on_a_server_without_a_name() {
    after_silence(&["-info"]).await;
}

#[tokio::test]
async fn on_a_connection_that_was_reset() {
    after_reset(&[]).await;
}

#[tokio::test]
async fn on_a_connection_that_was_reset_and_may_not_be_killed() {
    after_reset(&["-client|kill"]).await;
}

#[tokio::test]
async fn a_healing_set_does_not_bring_a_released_key_back() {
    let masters = LocalMasters::start(5).await.unwrap();
    let relay = Relay::start(masters.addr(0)).await;
    let urls = std::iter::once(relay.url()).chain(masters.urls().into_iter().skip(1));
    let redlock = connect(Redlock::builder().nodes(urls).node_timeout(secs(3))).await;
    masters.kill(0).await.unwrap();
    until_first_known_down(&redlock, 1).await;
    let lease = hold(&redlock, "job").await;
    masters.restart(0).await.unwrap();
    until_all_up(&redlock).await;
    assert_eq!(raw(&masters, 0).get("job").await, None, "it is not filled in yet");
    relay.hold_present();
    until("the filling SET should be under way", async || relay.kept() > 0).await;
    relay.reset_held().await;
    until_all_up(&redlock).await;
    drop(lease);
    until_free(&masters, "job").await;
    until("nothing should be owed", async || redlock.nodes().iter().all(|node| node.owed == 0)).await;
    relay.deliver_held();
    tokio::time::sleep(ms(300)).await;
    until_within(secs(5), "a late SET should be undone", async || {
        raw(&masters, 0).get("job").await.is_none()
    })
    .await;
}

/// A renewal for 10 s lies on a broken connection of three nodes; one for 60 s follows on new ones.
/// Whatever becomes of the old one, a quorum keeps the key until the deadline.
async fn renewals_in_the_wrong_order(forbidden: &[&str]) -> bool {
    let world = World::start(forbidden).await;
    let request = world.redlock.lease("job").ttl(secs(10)).without_heartbeat();
    let lease = request.acquire().await.unwrap();
    until_held_by_all(&world.masters, "job", lease.token().as_str()).await;
    world.hold();
    assert!(lease.extend(secs(10)).await.is_err(), "three do not answer");
    world.reset().await;
    until_all_up(&world.redlock).await;
    let extended = lease.extend(secs(60)).await;
    world.relays.iter().for_each(Relay::deliver_held);
    tokio::time::sleep(ms(500)).await;
    let left = lease.remaining();
    let mut keep = 0;
    for raw in raws(&world.masters) {
        let expires = u128::try_from(raw.pttl("job").await).unwrap_or(0);
        keep += usize::from(expires + 50 >= left.as_millis());
    }
    assert!(keep >= 3, "{keep} of 5 keep the key for the {left:?} that were promised");
    extended.is_ok()
}

#[tokio::test]
async fn a_shorter_renewal_comes_to_nothing_where_its_connection_was_killed() {
    assert!(renewals_in_the_wrong_order(&[]).await);
}

#[tokio::test]
async fn a_shorter_renewal_that_cannot_be_killed_keeps_the_longer_one_from_counting() {
    assert!(!renewals_in_the_wrong_order(&["-client|kill"]).await);
}
