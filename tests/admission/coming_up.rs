//! Nodes that are not there, or not for us, when a client connects.

use std::time::{Duration, Instant};

use leasehold::testing::LocalMasters;
use leasehold::{AcquireError, NodeErrorKind, NodeState, Redlock};

use crate::common::{Raw, ms, secs, until_all_up};
use crate::views::{builder, masters, meet, until_node, until_some, until_up};

/// All down, which have served before.
async fn down() -> LocalMasters {
    let masters = masters(3).start().await.expect("local masters");
    meet(masters.urls(), secs(60)).await;
    for index in 0..3 {
        masters.kill(index).await.expect("kill");
    }
    masters
}

#[tokio::test]
async fn connect_does_not_need_a_single_master_to_be_up() {
    let masters = down().await;
    let begun = Instant::now();
    let redlock = builder(masters.urls()).connect().await.expect("nothing is wrong in itself");
    assert!(begun.elapsed() < secs(10), "{:?}", begun.elapsed());
    let error = redlock.lease("job").try_acquire().await.expect_err("nobody is there");
    let AcquireError::NoQuorum(too_few) = &error else { panic!("{error:?}") };
    assert_eq!(too_few.failed.len(), 3);
    for (index, node) in too_few.failed.iter().enumerate() {
        assert_eq!(node.address(), masters.addr(index).to_string());
        assert_eq!(node.kind(), NodeErrorKind::Unreachable, "{node}");
    }
}

#[tokio::test]
async fn masters_that_come_up_after_the_client_are_taken_in() {
    let masters = down().await;
    let redlock = builder(masters.urls()).connect().await.expect("connect");
    masters.restart(0).await.expect("restart");
    until_up(&redlock, 0).await;
    assert!(redlock.lease("job").try_acquire().await.is_err(), "one of three");
    masters.restart(2).await.expect("restart");
    until_up(&redlock, 2).await;
    assert!(redlock.lease("job").try_acquire().await.expect("two of three").is_some());
    masters.restart(1).await.expect("restart");
    until_all_up(&redlock).await;
}

#[tokio::test]
async fn a_waiting_acquire_gets_its_lease_from_masters_that_come_up() {
    let masters = down().await;
    let redlock = builder(masters.urls()).connect().await.expect("connect");
    for index in 0..3 {
        masters.restart(index).await.expect("restart");
    }
    // They are there, and the client comes back to each within a second.
    let lease =
        until_some("there should be a lease", async || redlock.lease("job").acquire().await.ok()).await;
    assert!(lease.is_valid());
}

#[tokio::test]
async fn a_new_fleet_that_comes_up_after_its_client_is_usable_soon() {
    let masters = masters(3).start().await.expect("local masters");
    for index in 0..3 {
        masters.kill(index).await.expect("kill");
    }
    // As when a machine starts all of its services at once: nobody was ever here.
    let redlock = Redlock::builder().nodes(masters.urls()).connect().await.expect("connect");
    // Long enough for its pauses between two tries to have grown to their longest.
    until_node(&redlock, 0, "down for a while", |node| node.since > secs(4)).await;
    futures::future::try_join_all((0..3).map(|index| masters.restart(index))).await.expect("restart");
    let begun = Instant::now();
    let lease =
        until_some("there should be a lease", async || redlock.lease("job").acquire().await.ok()).await;
    assert!(lease.is_valid());
    assert!(begun.elapsed() < secs(15), "not only after max_ttl: {:?}", begun.elapsed());
}

/// Five masters that ask for a password, and addresses with it, of which the third has a wrong one.
async fn one_wrong_password() -> (LocalMasters, Redlock, Duration) {
    let masters = masters(5).arg("--requirepass", "right-secret").start().await.expect("local masters");
    let with = |password: &str| -> Vec<String> {
        let login = format!("redis://:{password}@");
        masters.urls().iter().map(|url| url.replace("redis://", &login)).collect()
    };
    let first = builder(with("right-secret")).connect().await.expect("connect");
    until_all_up(&first).await;
    first.close().await;
    let mut urls = with("right-secret");
    urls[2] = with("wrong-secret").swap_remove(2);
    let begun = Instant::now();
    let redlock = builder(urls).connect().await.expect("the others are well");
    (masters, redlock, begun.elapsed())
}

#[tokio::test]
async fn a_wrong_password_for_one_of_five_is_named_and_the_others_serve() {
    let (masters, redlock, took) = one_wrong_password().await;
    assert!(took < secs(10), "{took:?}");
    let node = until_node(&redlock, 2, "down", |node| node.state == NodeState::Down).await;
    let error = node.last_error.expect("it is known why");
    assert_eq!(error.kind(), NodeErrorKind::Authentication);
    assert_eq!(error.address(), masters.addr(2).to_string());
    for index in [0, 1, 3, 4] {
        until_up(&redlock, index).await;
    }
    let lease = redlock.lease("job").try_acquire().await.expect("four vote").expect("nobody has it");
    lease.extend(secs(20)).await.expect("extend");
    lease.release().await.expect("release");
}

#[tokio::test]
async fn the_error_of_a_round_names_the_node_with_the_wrong_password_and_not_the_password() {
    let (masters, redlock, _) = one_wrong_password().await;
    for index in [0, 1] {
        masters.kill(index).await.expect("kill");
        until_node(&redlock, index, "down", |node| node.state == NodeState::Down).await;
    }
    let begun = Instant::now();
    let error = redlock.lease("job").try_acquire().await.expect_err("two of five");
    assert!(begun.elapsed() < secs(10), "{:?}", begun.elapsed());
    let AcquireError::NoQuorum(too_few) = &error else { panic!("{error:?}") };
    let address = masters.addr(2).to_string();
    let node = too_few.failed.iter().find(|node| node.address() == address).expect("it is named");
    assert_eq!(node.kind(), NodeErrorKind::Authentication);
    let told = format!("{error} {error:?} {redlock:?} {:?}", redlock.nodes());
    assert!(!told.contains("secret"), "{told}");
}

#[tokio::test]
async fn a_missing_password_is_told_as_one() {
    let masters = masters(1).arg("--requirepass", "secret").start().await.expect("a master");
    let redlock = builder(masters.urls()).connect().await.expect("nothing is wrong in itself");
    let node = until_node(&redlock, 0, "down", |node| node.state == NodeState::Down).await;
    assert_eq!(node.last_error.expect("it is known why").kind(), NodeErrorKind::Authentication);
}

#[tokio::test]
async fn a_password_that_is_put_right_at_the_server_is_taken_in() {
    let (masters, redlock, _) = one_wrong_password().await;
    let url = masters.url(2).replace("redis://", "redis://:right-secret@");
    Raw::new(&url).tell(&["CONFIG", "SET", "requirepass", "wrong-secret"]).await;
    until_up(&redlock, 2).await;
}

#[tokio::test]
async fn a_node_that_takes_connections_and_says_nothing_does_not_keep_connect_waiting() {
    let masters = masters(3).start().await.expect("local masters");
    meet(masters.urls(), secs(60)).await;
    masters.pause(1).await.expect("pause");
    let begun = Instant::now();
    let redlock = builder(masters.urls()).node_timeout(ms(500)).connect().await.expect("connect");
    assert!(begun.elapsed() < secs(5), "{:?}", begun.elapsed());
    assert!(redlock.lease("job").try_acquire().await.expect("two of three").is_some());
    masters.resume(1).expect("resume");
    until_up(&redlock, 1).await;
}
