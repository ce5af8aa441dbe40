//! Too few nodes: said soon, by name, and for as long as it lasts.

use std::time::{Duration, Instant};

use leasehold::{AcquireError, NodeErrorKind, NodeState, Redlock, TooFewNodes};

use crate::common::*;

fn too_few(refused: AcquireError) -> TooFewNodes {
    let AcquireError::NoQuorum(too_few) = refused else { panic!("{refused:?}") };
    assert_eq!((too_few.nodes, too_few.needed), (5, 3));
    too_few
}

/// That just `names` are named, each with one of `kinds`.
fn assert_named(too_few: &TooFewNodes, names: &[String], kinds: &[NodeErrorKind]) {
    let named: Vec<&str> = too_few.failed.iter().map(|error| error.address()).collect();
    assert_eq!(named, names, "{too_few}");
    for error in &too_few.failed {
        assert!(kinds.contains(&error.kind()), "{:?}: {error}", error.kind());
        assert!(too_few.to_string().contains(error.address()), "{too_few}");
    }
}

#[tokio::test]
async fn three_black_holes_are_named_within_the_node_timeout() {
    let proxied = Proxied::start().await;
    let node_timeout = ms(400);
    let redlock = proxied.client(node_timeout).await;
    let mut fastest = Duration::MAX;
    // The fastest of some tries, since a loaded machine makes some late.
    for _ in 0..5 {
        proxied.black_holes(3);
        let started = Instant::now();
        let refused = redlock.lease("job").ttl(secs(30)).try_acquire().await.unwrap_err();
        fastest = fastest.min(started.elapsed());
        let too_few = too_few(refused);
        assert_eq!(too_few.answered, 2);
        assert_named(&too_few, &proxied.names(3), &[NodeErrorKind::TimedOut]);
        proxied.heal();
        until_all_up(&redlock).await;
    }
    println!("{fastest:?}");
    assert!(fastest >= node_timeout - ms(10), "{fastest:?}: they could have answered yet");
    assert!(fastest < node_timeout + ms(80), "{fastest:?}");
    until_free(&proxied.masters, "job").await;
}

#[tokio::test]
async fn three_nodes_that_are_known_to_be_silent_are_named_at_once() {
    let proxied = Proxied::start().await;
    let node_timeout = secs(1);
    let redlock = proxied.client(node_timeout).await;
    proxied.black_holes(3);
    redlock.lease("job").ttl(secs(30)).try_acquire().await.unwrap_err();
    until_first_known_down(&redlock, 3).await;
    let kinds = [NodeErrorKind::Slow, NodeErrorKind::TimedOut, NodeErrorKind::Unreachable];
    let started = Instant::now();
    let mut rounds = 0;
    // Past the moment when the connections are replaced, and the new ones stay silent.
    while started.elapsed() < secs(6) {
        let begun = Instant::now();
        let refused = redlock.lease("job").ttl(secs(30)).try_acquire().await.unwrap_err();
        let took = begun.elapsed();
        assert!(took < node_timeout / 2, "round {rounds} took {took:?}");
        assert_named(&too_few(refused), &proxied.names(3), &kinds);
        rounds += 1;
        tokio::time::sleep(ms(20)).await;
    }
    proxied.heal();
    until_free(&proxied.masters, "job").await;
    until_all_up(&redlock).await;
    hold(&redlock, "job").await.release().await.unwrap();
}

#[tokio::test]
async fn acquire_gives_up_within_a_second_more() {
    let proxied = Proxied::start().await;
    let node_timeout = ms(400);
    let redlock = proxied.client(node_timeout).await;
    proxied.black_holes(3);
    let started = Instant::now();
    let refused = redlock.lease("job").ttl(secs(30)).wait(secs(60)).acquire().await.unwrap_err();
    let took = started.elapsed();
    let kinds = [NodeErrorKind::Slow, NodeErrorKind::TimedOut];
    assert_named(&too_few(refused), &proxied.names(3), &kinds);
    println!("{took:?}");
    assert!(took >= node_timeout, "{took:?}");
    assert!(took < node_timeout + secs(1) + ms(500), "{took:?}");
    proxied.heal();
    until_free(&proxied.masters, "job").await;
}

#[tokio::test]
async fn acquire_goes_on_when_the_nodes_come_back_within_a_second() {
    let proxied = Proxied::start().await;
    let redlock = proxied.client(ms(300)).await;
    proxied.black_holes(3);
    let acquiring = tokio::spawn(redlock.lease("job").ttl(secs(30)).wait(secs(60)).acquire());
    tokio::time::sleep(ms(500)).await;
    proxied.heal();
    let lease = soon("it should be won", acquiring).await.unwrap().unwrap();
    until_held_by_all(&proxied.masters, "job", lease.token().as_str()).await;
}

#[tokio::test]
async fn acquire_waits_no_longer_for_nodes_than_it_was_told() {
    let proxied = Proxied::start().await;
    let redlock = proxied.client(ms(100)).await;
    proxied.black_holes(3);
    let started = Instant::now();
    let refused = redlock.lease("job").wait(ms(200)).acquire().await.unwrap_err();
    assert!(started.elapsed() < ms(200) + ms(100) + ms(500), "{:?}", started.elapsed());
    too_few(refused);
}

#[tokio::test]
async fn two_nodes_that_are_gone_and_two_that_refuse_are_held_by_another() {
    let proxied = Proxied::start().await;
    let redlock = proxied.client(ms(400)).await;
    proxied.black_holes(2);
    for index in 2..4 {
        raw(&proxied.masters, index).tell(&["SET", "job", "another", "PX", "60000"]).await;
    }
    for _ in 0..3 {
        assert!(redlock.lease("job").ttl(secs(60)).try_acquire().await.unwrap().is_none());
    }
    proxied.heal();
    let undone = async || {
        let stands = holders(&proxied.masters, "job").await;
        let another = Some("another".to_owned());
        stands == [None, None, another.clone(), another, None]
    };
    until("only the other's keys should be left", undone).await;
}

#[tokio::test]
async fn connect_does_not_need_the_nodes_and_they_are_taken_in_when_they_come() {
    let masters = five().await;
    for index in 0..5 {
        masters.kill(index).await.unwrap();
    }
    let connecting = Redlock::builder().nodes(masters.urls()).connect();
    let redlock = soon("connect should not hang", connecting).await.unwrap();
    assert!(redlock.nodes().iter().all(|node| node.state == NodeState::Down));
    let refused = redlock.lease("job").try_acquire().await.unwrap_err();
    let names: Vec<String> = (0..5).map(|index| masters.addr(index).to_string()).collect();
    assert_named(&too_few(refused), &names, &[NodeErrorKind::Unreachable]);
    for index in 0..5 {
        masters.restart(index).await.unwrap();
    }
    until_all_up(&redlock).await;
    let lease = hold(&redlock, "job").await;
    until_held_by_all(&masters, "job", lease.token().as_str()).await;
}

#[tokio::test]
async fn connect_does_not_wait_for_silent_nodes_beyond_the_node_timeout() {
    let proxied = Proxied::start().await;
    proxied.black_holes(5);
    let started = Instant::now();
    let redlock = Redlock::builder().nodes(proxied.urls()).node_timeout(ms(400)).connect().await.unwrap();
    assert!(started.elapsed() < ms(400) + ms(500), "{:?}", started.elapsed());
    assert!(redlock.nodes().iter().all(|node| node.state == NodeState::Connecting));
    let started = Instant::now();
    too_few(redlock.lease("job").ttl(secs(30)).try_acquire().await.unwrap_err());
    assert!(started.elapsed() < ms(400) + ms(500), "{:?}", started.elapsed());
    proxied.heal();
    until_all_up(&redlock).await;
    let lease = hold(&redlock, "job").await;
    until_held_by_all(&proxied.masters, "job", lease.token().as_str()).await;
}

#[tokio::test]
async fn a_node_is_back_soon_after_its_server() {
    let masters = five().await;
    let redlock = client(&masters).await;
    masters.kill(0).await.unwrap();
    until_first_known_down(&redlock, 1).await;
    // Long enough for the pauses between tries to grow.
    tokio::time::sleep(secs(4)).await;
    masters.restart(0).await.unwrap();
    let all_up = async || redlock.nodes().iter().all(|node| node.state == NodeState::Up);
    let took = until_within(secs(3), "the node should be tried each second", all_up).await;
    println!("{took:?}");
    let lease = hold(&redlock, "job").await;
    until_held_by_all(&masters, "job", lease.token().as_str()).await;
}

#[tokio::test]
async fn a_silent_node_is_well_again_as_soon_as_it_answers() {
    let masters = five().await;
    let redlock = connect(Redlock::builder().nodes(masters.urls()).node_timeout(ms(500))).await;
    for _ in 0..3 {
        masters.pause(0).await.unwrap();
        hold(&redlock, "job").await.release().await.unwrap();
        until_first_known_down(&redlock, 1).await;
        masters.resume(0).unwrap();
        until_all_up(&redlock).await;
        until_free(&masters, "job").await;
    }
}
