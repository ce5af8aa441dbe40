//! A SET whose answer never came is taken back.

use leasehold::AcquireError;
use leasehold::testing::Direction;

use crate::common::*;

/// An attempt at `job` that has to fail for want of nodes.
async fn fails(redlock: &leasehold::Redlock) {
    let refused = redlock.lease("job").ttl(secs(60)).try_acquire().await;
    assert!(matches!(refused, Err(AcquireError::NoQuorum(_))), "{refused:?}");
}

#[tokio::test]
async fn a_key_whose_answer_was_lost_is_deleted_although_no_answer_ever_comes() {
    let proxied = Proxied::start().await;
    let redlock = proxied.client(ms(300)).await;
    proxied.proxies[..3].iter().for_each(|proxy| proxy.lose_replies());
    fails(&redlock).await;
    until_free(&proxied.masters, "job").await;
}

#[tokio::test]
async fn a_key_whose_answer_was_lost_is_deleted_and_the_debt_is_paid_once_answers_come() {
    let proxied = Proxied::start().await;
    let redlock = proxied.client(ms(300)).await;
    proxied.proxies[..3].iter().for_each(|proxy| proxy.lose_replies());
    fails(&redlock).await;
    assert!(redlock.nodes()[..3].iter().all(|node| node.owed == 1));
    proxied.heal();
    until_all_up(&redlock).await;
    until("nothing should be owed", async || redlock.nodes().iter().all(|node| node.owed == 0)).await;
    assert!(holders(&proxied.masters, "job").await.iter().all(Option::is_none));
}

/// An attempt that has set `job` on all masters; three of their answers are on their way.
async fn set_without_answers(proxied: &Proxied, redlock: &leasehold::Redlock) -> Attempt {
    proxied.proxies[..3].iter().for_each(|proxy| proxy.hold(Direction::ToClient));
    let attempt = tokio::spawn(redlock.lease("job").ttl(secs(60)).try_acquire());
    let set = async || holders(&proxied.masters, "job").await.iter().all(Option::is_some);
    until("all masters should have the key", set).await;
    attempt
}

type Attempt = tokio::task::JoinHandle<Result<Option<leasehold::Lease>, AcquireError>>;

async fn has_failed(attempt: Attempt) {
    let refused = soon("it should fail", attempt).await.unwrap();
    assert!(matches!(refused, Err(AcquireError::NoQuorum(_))), "{refused:?}");
}

#[tokio::test]
async fn a_key_whose_answer_was_lost_with_its_connection_is_deleted() {
    let proxied = Proxied::start().await;
    let redlock = proxied.client(secs(5)).await;
    let attempt = set_without_answers(&proxied, &redlock).await;
    proxied.proxies[..3].iter().for_each(|proxy| proxy.cut());
    has_failed(attempt).await;
    proxied.heal();
    until_free(&proxied.masters, "job").await;
}

#[tokio::test]
async fn a_key_whose_answer_was_lost_with_its_server_is_deleted_after_the_restart() {
    let proxied = Proxied::start().await;
    let redlock = proxied.client(secs(5)).await;
    let attempt = set_without_answers(&proxied, &redlock).await;
    for index in 0..3 {
        proxied.masters.kill(index).await.unwrap();
        proxied.proxies[index].cut();
    }
    has_failed(attempt).await;
    proxied.heal();
    for index in 0..3 {
        proxied.masters.restart(index).await.unwrap();
    }
    until_free(&proxied.masters, "job").await;
}

#[tokio::test]
async fn a_set_held_in_a_black_hole_is_undone_when_it_heals_soon() {
    let proxied = Proxied::start().await;
    let redlock = proxied.client(ms(300)).await;
    proxied.black_holes(3);
    fails(&redlock).await;
    proxied.heal();
    until_all_up(&redlock).await;
    until_free(&proxied.masters, "job").await;
    remains_free(&proxied).await;
}

#[tokio::test]
async fn a_set_held_in_a_black_hole_is_undone_when_it_heals_after_the_connection_was_replaced() {
    let proxied = Proxied::start().await;
    let redlock = proxied.client(ms(300)).await;
    proxied.black_holes(3);
    fails(&redlock).await;
    tokio::time::sleep(secs(5)).await;
    proxied.heal();
    until_all_up(&redlock).await;
    until_free(&proxied.masters, "job").await;
    remains_free(&proxied).await;
}

async fn remains_free(proxied: &Proxied) {
    throughout(secs(2), "the key should stay free", async || {
        holders(&proxied.masters, "job").await.iter().all(Option::is_none)
    })
    .await;
}

#[tokio::test]
async fn a_lease_won_while_answers_were_lost_is_given_back_everywhere() {
    let proxied = Proxied::start().await;
    let redlock = proxied.client(ms(300)).await;
    proxied.proxies[..2].iter().for_each(|proxy| proxy.lose_replies());
    let lease = hold(&redlock, "job").await;
    until_held_by_all(&proxied.masters, "job", lease.token().as_str()).await;
    lease.release().await.unwrap();
    until_free(&proxied.masters, "job").await;
}

#[tokio::test]
async fn nodes_that_answered_held_are_not_sent_a_deletion() {
    const DELETIONS: [&str; 5] = ["del", "delex", "delifeq", "eval", "evalsha"];
    let masters = five().await;
    let redlock = client(&masters).await;
    // Each node knows how to delete: no deletion takes a second try.
    hold(&redlock, "warm").await.release().await.unwrap();
    until("nothing should be owed", async || redlock.nodes().iter().all(|node| node.owed == 0)).await;
    for index in 0..3 {
        raw(&masters, index).tell(&["SET", "job", "another", "PX", "60000"]).await;
    }
    let raws = raws(&masters);
    let deletions = async || futures::future::join_all(raws.iter().map(|raw| raw.calls(&DELETIONS))).await;
    let before = deletions().await;
    for _ in 0..10 {
        assert!(redlock.lease("job").ttl(secs(60)).try_acquire().await.unwrap().is_none());
    }
    let undone = async || {
        let now = deletions().await;
        now[3] >= before[3] + 10 && now[4] >= before[4] + 10
    };
    until("those that granted should be sent deletions", undone).await;
    let now = deletions().await;
    assert_eq!(now[..3], before[..3], "those that answered held should not");
    assert!(redlock.nodes()[..3].iter().all(|node| node.owed == 0));
}
