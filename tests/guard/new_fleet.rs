//! Nodes without a marker are new, or have forgotten: what a client must see of all of them to tell.

use std::time::{Duration, Instant};

use leasehold::testing::LocalMasters;
use leasehold::{AcquireError, NodeState, Redlock};

use super::scene::{LONG, MIDDLE, SHORT, Scene};
use crate::common::{PATIENCE, ms, raw, secs, until_all_up};
use crate::views::forward::Forward;
use crate::views::{builder, is_young, masters};

async fn five() -> LocalMasters {
    masters(5).start().await.expect("local masters")
}

#[tokio::test]
async fn a_new_fleet_votes_at_once() {
    let masters = five().await;
    let redlock = builder(masters.urls()).connect().await.expect("connect");
    let states: Vec<_> = redlock.nodes().into_iter().map(|node| node.state).collect();
    assert_eq!(states, vec![NodeState::Up; 5]);
    let lease = redlock.lease("job").try_acquire().await.expect("a quorum").expect("nobody has it");
    assert!(lease.is_valid());
}

#[tokio::test]
async fn a_fleet_of_one_node_is_new_too() {
    let masters = masters(1).start().await.expect("a master");
    let redlock = builder(masters.urls()).connect().await.expect("connect");
    assert!(redlock.lease("job").try_acquire().await.expect("a quorum").is_some());
}

/// Two of five were never reached and the middle has lost its memory: not all nodes of this fleet are new.
async fn never_reached(guard: bool, max_ttl: Duration) -> Scene {
    let masters = masters(5).persistent(false).start().await.expect("local masters");
    // With the guard these three have to grow old: nobody can know that the fleet is new.
    let scene = Scene::begin_with_three(masters, max_ttl, guard).await;
    for index in [3, 4] {
        assert_eq!(raw(&scene.masters, index).get("leasehold:node").await, None, "nobody was here");
    }
    scene.masters.restart(MIDDLE).await.expect("restart");
    scene.middle_has_forgotten().await;
    scene
}

#[tokio::test]
async fn nodes_never_reached_before_and_one_that_restarted_empty_are_no_new_fleet() {
    let scene = never_reached(true, secs(6)).await;
    let rival = scene.rival().await;
    rival.is_kept_out().await;
    rival.wins_only_afterwards().await;
}

#[tokio::test]
async fn one_marker_anywhere_is_enough_to_tell_that_the_fleet_is_not_new() {
    let scene = never_reached(true, secs(6)).await;
    // Cut off from one holder only; that the other one has a marker is all that keeps this from being new.
    let rival = scene.rival_of(&[1, MIDDLE, 3, 4], true).await;
    assert!(is_young(&rival.redlock.nodes()[MIDDLE]) && is_young(&rival.redlock.nodes()[3]));
    rival.is_kept_out().await;
    rival.wins_only_afterwards().await;
}

/// As a later version of the library may write it, or anybody.
#[tokio::test]
async fn a_marker_that_cannot_be_read_is_not_the_sign_of_a_new_fleet() {
    let masters = masters(5).persistent(false).start().await.expect("local masters");
    let scene = Scene::begin(masters, SHORT).await;
    scene.masters.restart(MIDDLE).await.expect("restart");
    for index in [0, 1, 3, 4] {
        raw(&scene.masters, index).tell(&["SET", "leasehold:node", "9 of another age"]).await;
    }
    scene.middle_has_forgotten().await;
    let rival = scene.rival_of(&[0, 1, MIDDLE, 3, 4], true).await;
    rival.is_kept_out().await;
    rival.wins_only_afterwards().await;
}

#[tokio::test]
async fn a_client_that_was_given_only_the_node_that_forgot_makes_it_no_older_for_others() {
    let masters = masters(5).persistent(false).start().await.expect("local masters");
    let scene = Scene::begin(masters, SHORT).await;
    scene.masters.restart(MIDDLE).await.expect("restart");
    scene.middle_has_forgotten().await;
    // To itself it is a new fleet of one.
    let urls = [scene.network.urls().swap_remove(MIDDLE)];
    let alone = builder(urls).max_ttl(SHORT).connect().await.expect("connect");
    assert_eq!(alone.nodes()[0].state, NodeState::Up);
    let rival = scene.rival().await;
    rival.is_kept_out().await;
    rival.wins_only_afterwards().await;
}

#[tokio::test]
async fn without_the_guard_nodes_never_reached_and_an_empty_one_give_a_second_lease() {
    let scene = never_reached(false, LONG).await;
    scene.unguarded_rival().await.wins_while_it_is_held().await;
}

/// A client of a namespace of its own, which is a new fleet: the markers stand behind it.
async fn client(masters: &LocalMasters, namespace: &str) -> Redlock {
    builder(masters.urls()).namespace(namespace).connect().await.expect("connect")
}

/// Asks for a key of its own until it has it. The default `max_ttl` is a minute: whoever has to wait for
/// that is not served within a few seconds.
async fn is_served(redlock: &Redlock, key: &str) -> Duration {
    let begun = Instant::now();
    let lease = redlock.lease(key).wait(secs(15)).acquire().await;
    lease.expect("a new fleet is usable at once").release().await.expect("release");
    begun.elapsed()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_new_fleet_serves_two_clients_that_connect_at_the_same_moment() {
    let masters = five().await;
    let mut waits = Vec::new();
    for attempt in 0..100 {
        let namespace = format!("new-{attempt}:");
        let one = async |key| {
            let redlock = client(&masters, &namespace).await;
            let wait = is_served(&redlock, key).await;
            until_all_up(&redlock).await;
            wait
        };
        let (first, second) = tokio::join!(one("a"), one("b"));
        waits.extend([first, second]);
    }
    waits.sort_unstable();
    eprintln!("waits: median {:?}, longest {:?}", waits[waits.len() / 2], waits[waits.len() - 1]);
    assert!(waits[waits.len() / 2] < secs(1), "{waits:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn two_clients_that_see_a_new_fleet_in_another_order_both_learn_soon_that_it_is_new() {
    let masters = five().await;
    let mut urls = Vec::new();
    let mut ways = Vec::new();
    for index in 0..5 {
        let mut dice = Dice(2026 + index as u64);
        let distance = move || ms(dice.roll(5) * dice.roll(2));
        let way = Forward::start_far(([127, 0, 0, 1], 0), masters.addr(index), distance).await;
        ways.push(way.expect("an address"));
        urls.push(format!("redis://{}", ways[index].address));
    }
    let mut slow = Vec::new();
    for attempt in 0..120 {
        let namespace = format!("far-{attempt}:");
        let one = async || {
            let redlock = builder(&urls).namespace(&*namespace).connect().await.expect("connect");
            let begun = Instant::now();
            until_all_up(&redlock).await;
            begun.elapsed()
        };
        let (first, second) = tokio::join!(one(), one());
        slow.extend([first, second].into_iter().filter(|wait| *wait > ms(800)));
    }
    // A busy machine may stand still for a moment, but not each time.
    assert!(slow.len() < 3, "{} of 240: {slow:?}", slow.len());
}

/// The same numbers in each run (a linear congruential generator).
struct Dice(u64);

impl Dice {
    /// A number below `sides`.
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % sides
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn two_clients_of_a_new_fleet_that_want_the_same_key_never_both_have_it() {
    let masters = five().await;
    for attempt in 0..30 {
        let namespace = format!("rivals-{attempt}:");
        let one = async || {
            let redlock = client(&masters, &namespace).await;
            let lease = redlock.lease("job").wait(secs(15)).acquire().await.expect("a new fleet");
            let got = Instant::now();
            assert!(lease.is_valid());
            tokio::time::sleep(ms(20)).await;
            let released = Instant::now();
            lease.release().await.expect("release");
            (got, released)
        };
        let (first, second) = tokio::join!(one(), one());
        let apart = first.1 <= second.0 || second.1 <= first.0;
        assert!(apart, "attempt {attempt}: two leases at the same time");
    }
}

#[tokio::test]
async fn a_new_fleet_serves_a_stream_of_clients_that_live_for_a_moment() {
    let masters = five().await;
    for number in 0..30 {
        let redlock = client(&masters, "").await;
        let lease = redlock.lease("job").try_acquire().await;
        let lease = lease.unwrap_or_else(|error| panic!("client {number}: {error}"));
        let lease = lease.unwrap_or_else(|| panic!("client {number}: nobody else has it"));
        lease.release().await.expect("release");
        redlock.close().await;
    }
}

#[tokio::test]
async fn clients_of_a_new_fleet_that_die_while_they_connect_leave_it_usable() {
    let masters = five().await;
    let mut longest = Duration::ZERO;
    for attempt in 0..40 {
        let namespace = format!("dying-{attempt}:");
        // Dropped at some moment of its first round trips.
        let connecting = builder(masters.urls()).namespace(&*namespace).connect();
        drop(tokio::time::timeout(Duration::from_micros(attempt * 150), connecting).await);
        longest = longest.max(is_served(&client(&masters, &namespace).await, "job").await);
    }
    eprintln!("longest wait {longest:?}");
}

#[tokio::test]
async fn a_node_of_a_new_fleet_that_is_a_moment_late_is_waited_for() {
    let masters = five().await;
    masters.pause(4).await.expect("pause");
    let connecting = tokio::spawn(builder(masters.urls()).connect());
    let marked = async || raw(&masters, 0).get("leasehold:node").await;
    for _ in 0..20 {
        assert_eq!(marked().await, None, "nobody can tell yet that the fleet is new");
        tokio::time::sleep(ms(10)).await;
    }
    masters.resume(4).expect("resume");
    let redlock = connecting.await.expect("no panic").expect("connect");
    assert!(redlock.lease("job").try_acquire().await.expect("a new fleet").is_some());
    until_all_up(&redlock).await;
}

#[tokio::test]
async fn a_new_fleet_of_which_a_node_is_missing_is_young() {
    let masters = five().await;
    masters.kill(4).await.expect("kill");
    let redlock =
        builder(masters.urls()).max_ttl(SHORT).node_timeout(ms(500)).connect().await.expect("connect");
    assert!(redlock.nodes()[..4].iter().all(is_young), "{:?}", redlock.nodes());
    let young = redlock.lease("job").ttl(secs(1)).try_acquire().await;
    assert!(matches!(young, Err(AcquireError::NoQuorum(_))), "{young:?}");
    // The last one comes later, and finds the others marked.
    masters.restart(4).await.expect("restart");
    until_all_up(&redlock).await;
    assert!(redlock.lease("job").ttl(secs(1)).try_acquire().await.expect("a quorum").is_some());
}

#[tokio::test]
async fn adopt_makes_a_new_fleet_of_which_a_node_is_missing_vote_at_once() {
    let masters = five().await;
    masters.kill(4).await.expect("kill");
    let max_ttl = PATIENCE * 10;
    let redlock =
        builder(masters.urls()).max_ttl(max_ttl).node_timeout(ms(500)).connect().await.expect("connect");
    let other =
        builder(masters.urls()).max_ttl(max_ttl).node_timeout(ms(500)).connect().await.expect("connect");
    assert!(redlock.nodes()[..4].iter().all(is_young), "{:?}", redlock.nodes());

    let outcomes = redlock.adopt().await;
    assert!(outcomes[..4].iter().all(Result::is_ok), "{outcomes:?}");
    let missing = outcomes[4].as_ref().expect_err("the last one is down");
    assert_eq!(missing.address(), masters.addr(4).to_string());

    let lease = redlock.lease("job").try_acquire().await.expect("adopted").expect("nobody has it");
    lease.release().await.expect("release");
    // Other clients look again, and new ones see it at once.
    assert!(other.lease("job").wait(PATIENCE).acquire().await.expect("adopted").is_valid());
    let new = builder(masters.urls()).max_ttl(max_ttl).connect().await.expect("connect");
    assert!(new.lease("another").try_acquire().await.expect("adopted").is_some());
}
