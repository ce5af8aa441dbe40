//! Three masters stand still during one attempt and go on after it failed: no key of it stays on them.

use leasehold::testing::LocalMasters;
use leasehold::{AcquireError, Redlock};

use crate::common::*;

/// What the client may not do; what the undo has to do without.
async fn world(forbidden: &[&str]) -> (LocalMasters, Redlock) {
    let masters = five().await;
    for raw in raws(&masters) {
        let user = [&["ACL", "SETUSER", "worker", "on", ">secret", "~*", "+@all"], forbidden].concat();
        raw.tell(&user).await;
    }
    let urls = masters.urls().into_iter().map(|url| url.replace("redis://", "redis://worker:secret@"));
    let redlock = connect(Redlock::builder().nodes(urls).node_timeout(ms(300))).await;
    (masters, redlock)
}

/// Three masters stand still, an attempt fails, and they stand still for a while more.
async fn fails_frozen(masters: &LocalMasters, redlock: &Redlock, more_secs: u64) {
    for index in 0..3 {
        masters.pause(index).await.unwrap();
    }
    let refused = redlock.lease("job").ttl(secs(60)).try_acquire().await;
    assert!(matches!(refused, Err(AcquireError::NoQuorum(_))), "{refused:?}");
    for index in 3..5 {
        let raw = raw(masters, index);
        until("those that answer are free", async || raw.get("job").await.is_none()).await;
    }
    tokio::time::sleep(secs(more_secs)).await;
}

async fn thaw(masters: &LocalMasters) {
    for index in 0..3 {
        masters.resume(index).unwrap();
    }
}

/// That the key is on no master soon, and does not come back.
async fn no_key_stays(masters: &LocalMasters) {
    until_free(masters, "job").await;
    throughout(secs(2), "the key should stay free", async || {
        holders(masters, "job").await.iter().all(Option::is_none)
    })
    .await;
}

/// The attempt's connections still stand when the masters go on.
async fn short(forbidden: &[&str]) {
    let (masters, redlock) = world(forbidden).await;
    for _ in 0..3 {
        fails_frozen(&masters, &redlock, 0).await;
        thaw(&masters).await;
        no_key_stays(&masters).await;
        until_all_up(&redlock).await;
    }
}

/// The attempt's connections have been given up when the masters go on, and their SETs lie there.
async fn long(forbidden: &[&str]) {
    let (masters, redlock) = world(forbidden).await;
    fails_frozen(&masters, &redlock, 5).await;
    thaw(&masters).await;
    no_key_stays(&masters).await;
    until_all_up(&redlock).await;
    hold(&redlock, "job").await.release().await.unwrap();
}

#[tokio::test]
async fn for_a_moment() {
    short(&[]).await;
}

#[tokio::test]
async fn for_so_long_that_the_connections_were_replaced() {
    long(&[]).await;
}

#[tokio::test]
async fn for_long_where_the_client_may_not_kill_its_old_connection() {
    long(&["-client|kill"]).await;
}

#[tokio::test]
async fn for_long_where_the_client_may_not_know_its_number() {
    long(&["-client|id"]).await;
}

#[tokio::test]
async fn for_long_where_the_client_may_not_know_the_servers_run() {
    long(&["-info"]).await;
}

#[tokio::test]
async fn for_long_where_the_client_may_do_nothing_but_lock() {
    long(&["-client", "-info", "-role", "-config", "-script"]).await;
}

#[tokio::test]
async fn for_a_moment_where_the_client_may_do_nothing_but_lock() {
    short(&["-client", "-info", "-role", "-config", "-script"]).await;
}

#[tokio::test]
async fn and_are_killed_and_started_again_with_their_data() {
    let (masters, redlock) = world(&[]).await;
    fails_frozen(&masters, &redlock, 0).await;
    // Users are not kept through a restart.
    for index in 0..3 {
        masters.restart(index).await.unwrap();
        let user = ["ACL", "SETUSER", "worker", "on", ">secret", "~*", "+@all"];
        raw(&masters, index).tell(&user).await;
    }
    no_key_stays(&masters).await;
    until_all_up(&redlock).await;
    until("nothing should be owed", async || redlock.nodes().iter().all(|node| node.owed == 0)).await;
}

#[tokio::test]
async fn twenty_attempts_while_three_stand_still_leave_nothing() {
    let (masters, redlock) = world(&[]).await;
    for index in 0..3 {
        masters.pause(index).await.unwrap();
    }
    let attempts = (0..20).map(|_| redlock.lease("job").ttl(secs(60)).wait(secs(5)).acquire());
    for refused in futures::future::join_all(attempts).await {
        assert!(matches!(refused, Err(AcquireError::NoQuorum(_))), "{refused:?}");
    }
    thaw(&masters).await;
    no_key_stays(&masters).await;
}

#[tokio::test]
async fn an_attempt_dropped_while_they_stand_still_leaves_nothing() {
    let (masters, redlock) = world(&[]).await;
    for index in 0..3 {
        masters.pause(index).await.unwrap();
    }
    let acquire = redlock.lease("job").ttl(secs(60)).acquire();
    assert!(tokio::time::timeout(ms(100), acquire).await.is_err());
    thaw(&masters).await;
    no_key_stays(&masters).await;
}

#[tokio::test]
async fn deletions_that_had_to_be_repeated_end_once_nothing_can_be_under_way() {
    const DELETIONS: [&str; 5] = ["del", "delex", "delifeq", "eval", "evalsha"];
    let masters = five().await;
    for raw in raws(&masters) {
        raw.tell(&["ACL", "SETUSER", "worker", "on", ">secret", "~*", "+@all", "-client"]).await;
    }
    let urls = masters.urls().into_iter().map(|url| url.replace("redis://", "redis://worker:secret@"));
    let builder = Redlock::builder().nodes(urls).node_timeout(ms(300)).max_ttl(secs(3));
    let redlock = connect(builder).await;
    for index in 0..3 {
        masters.pause(index).await.unwrap();
    }
    let refused = redlock.lease("job").ttl(secs(3)).try_acquire().await;
    assert!(matches!(refused, Err(AcquireError::NoQuorum(_))), "{refused:?}");
    tokio::time::sleep(secs(4)).await;
    thaw(&masters).await;
    until_all_up(&redlock).await;
    assert!(redlock.nodes()[..3].iter().any(|node| node.owed > 0), "a SET may still come");
    until("nothing should be owed in the end", async || redlock.nodes().iter().all(|node| node.owed == 0))
        .await;
    let raw = raw(&masters, 0);
    let before = raw.calls(&DELETIONS).await;
    tokio::time::sleep(ms(1_500)).await;
    assert_eq!(raw.calls(&DELETIONS).await, before);
}
