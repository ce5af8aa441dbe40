//! Masters that crash and connections that break, one after the other: the lease lives through it.

use futures::FutureExt as _;

use crate::common::*;

#[tokio::test]
async fn a_lease_lives_through_a_crash_of_every_master_one_after_the_other() {
    let masters = five().await;
    let redlock = client(&masters).await;
    let lease = redlock.lease("job").ttl(secs(5)).acquire().await.unwrap();
    let (lost, token) = (lease.lost(), lease.token().to_string());
    until_held_by_all(&masters, "job", &token).await;
    for index in 0..5 {
        masters.kill(index).await.unwrap();
        until("the crash should be noticed", async || {
            redlock.nodes()[index].state != leasehold::NodeState::Up
        })
        .await;
        masters.restart(index).await.unwrap();
        until_all_up(&redlock).await;
        assert!(lease.is_valid());
    }
    until_held_by_all(&masters, "job", &token).await;
    // Past what was promised before the last crash.
    tokio::time::sleep(secs(6)).await;
    assert!(lease.is_valid());
    assert!(lost.now_or_never().is_none(), "it was never lost");
    assert!(key_is(&masters, "job", &token).await);
    lease.release().await.unwrap();
    until_free(&masters, "job").await;
}

#[tokio::test]
async fn a_lease_heals_when_every_master_loses_its_memory_one_after_the_other() {
    let masters = five().await;
    let node_timeout = ms(500);
    let redlock =
        connect(leasehold::Redlock::builder().nodes(masters.urls()).node_timeout(node_timeout)).await;
    let lease = redlock.lease("job").ttl(secs(3)).acquire().await.unwrap();
    let (lost, token) = (lease.lost(), lease.token().to_string());
    until_held_by_all(&masters, "job", &token).await;
    for index in 0..5 {
        masters.restart_empty(index).await.unwrap();
        until_held_by_all(&masters, "job", &token).await;
        // Its answers count once it is older than any round that it may have forgotten, and from the
        // renewal after that on.
        tokio::time::sleep(node_timeout + secs(2)).await;
        lease.extend(secs(3)).await.unwrap();
    }
    assert!(lease.is_valid());
    assert!(lost.now_or_never().is_none(), "it was never lost");
    lease.release().await.unwrap();
    until_free(&masters, "job").await;
}

#[tokio::test]
async fn a_lease_on_several_keys_lives_through_a_crash_of_every_master() {
    let masters = five().await;
    let redlock = client(&masters).await;
    let lease = redlock.lease_all(["a", "b"]).ttl(secs(3)).acquire().await.unwrap();
    let lost = lease.lost();
    for index in 0..5 {
        masters.restart(index).await.unwrap();
        until_all_up(&redlock).await;
    }
    for key in ["a", "b"] {
        until_held_by_all(&masters, key, lease.token().as_str()).await;
    }
    assert!(lease.is_valid() && lost.now_or_never().is_none());
}

#[tokio::test]
async fn a_crash_of_two_masters_at_once_and_for_long_is_lived_through() {
    let masters = five().await;
    let redlock = client(&masters).await;
    let lease = redlock.lease("job").ttl(secs(2)).acquire().await.unwrap();
    let lost = lease.lost();
    until_held_by_all(&masters, "job", lease.token().as_str()).await;
    masters.kill(0).await.unwrap();
    masters.kill(4).await.unwrap();
    throughout(secs(5), "the lease should be valid", async || lease.is_valid()).await;
    masters.restart(0).await.unwrap();
    masters.restart_empty(4).await.unwrap();
    until_held_by_all(&masters, "job", lease.token().as_str()).await;
    assert!(lease.is_valid() && lost.now_or_never().is_none());
}

#[tokio::test]
async fn a_lease_lives_through_connections_that_break_all_the_time() {
    let proxied = Proxied::start().await;
    let redlock = proxied.client(ms(500)).await;
    let lease = redlock.lease("job").ttl(secs(3)).renew_every(ms(100)).acquire().await.unwrap();
    let (lost, token) = (lease.lost(), lease.token().to_string());
    until_held_by_all(&proxied.masters, "job", &token).await;
    for round in 0..40 {
        proxied.proxies[round % 5].cut();
        tokio::time::sleep(ms(100)).await;
    }
    // All at once, too.
    proxied.proxies.iter().for_each(leasehold::testing::FaultProxy::cut);
    tokio::time::sleep(secs(4)).await;
    assert!(lease.is_valid() && lost.now_or_never().is_none(), "it was never lost");
    assert!(key_is(&proxied.masters, "job", &token).await);
    for raw in raws(&proxied.masters) {
        // The client's connection, and the one that asks.
        let few = async || raw.info("connected_clients").await == "2";
        until("broken connections should not pile up", few).await;
    }
    lease.release().await.unwrap();
    until_free(&proxied.masters, "job").await;
}

#[tokio::test]
async fn connections_that_were_given_up_do_not_pile_up() {
    let masters = five().await;
    let redlock = connect(leasehold::Redlock::builder().nodes(masters.urls()).node_timeout(ms(500))).await;
    masters.pause(0).await.unwrap();
    let lease = hold(&redlock, "job").await;
    // Over several connections and tries to make one.
    tokio::time::sleep(secs(9)).await;
    masters.resume(0).unwrap();
    until_all_up(&redlock).await;
    let raw = raw(&masters, 0);
    until("only one should be left", async || raw.info("connected_clients").await == "2").await;
    lease.release().await.unwrap();
    until_free(&masters, "job").await;
}

#[tokio::test]
async fn servers_that_close_idle_connections_are_no_matter() {
    let masters = five().await;
    for raw in raws(&masters) {
        raw.tell(&["CONFIG", "SET", "timeout", "1"]).await;
    }
    let redlock = client(&masters).await;
    let kept = redlock.lease("kept").ttl(secs(6)).acquire().await.unwrap();
    let lost = kept.lost();
    for _ in 0..4 {
        // Idle for longer than the servers like.
        tokio::time::sleep(ms(1_500)).await;
        hold(&redlock, "job").await.release().await.unwrap();
    }
    assert!(kept.is_valid() && lost.now_or_never().is_none());
    until_free(&masters, "job").await;
    kept.release().await.unwrap();
    until_free(&masters, "kept").await;
}
