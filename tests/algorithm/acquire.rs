use leasehold::testing::Gate;
use leasehold::{AcquireError, InvalidRequest, NodeErrorKind};
use tokio::time::Instant;

use super::*;

const GATES: [Gate; 8] = [
    Gate::Grant,
    Gate::Held,
    Gate::Error,
    Gate::Slow(Duration::from_millis(200)),
    Gate::Never,
    Gate::Late(Duration::from_millis(200)),
    Gate::Late(Duration::from_secs(4)),
    Gate::ReplyLost,
];

#[derive(Debug, PartialEq)]
enum Vote {
    Yes,
    No,
    None,
}

fn vote(gate: Gate) -> Vote {
    match gate {
        Gate::Grant | Gate::Slow(_) => Vote::Yes,
        Gate::Late(delay) if delay < NODE_TIMEOUT => Vote::Yes,
        Gate::Held => Vote::No,
        _ => Vote::None,
    }
}

/// Every combination of gates on three nodes: the right outcome within the node timeout, and nothing left
/// behind by a round that was not won once the nodes answer again, long before the TTL would do it.
#[tokio::test(start_paused = true)]
async fn every_combination_of_gates_gives_its_outcome_and_leaves_nothing_behind() {
    for case in 0..GATES.len().pow(3) {
        let gates: Vec<Gate> = (0..3).map(|node| GATES[case / GATES.len().pow(node) % GATES.len()]).collect();
        let (nodes, redlock) = nodes(3).await;
        gate_all(&nodes, &gates);
        let begun = Instant::now();
        let outcome = redlock.lease("k").ttl(TTL).try_acquire().await;
        assert!(begun.elapsed() <= NODE_TIMEOUT + millis(1), "{gates:?} took {:?}", begun.elapsed());
        let count = |wanted| gates.iter().filter(|gate| vote(**gate) == wanted).count();
        match outcome {
            Ok(Some(lease)) => {
                assert!(count(Vote::Yes) >= 2, "{gates:?}");
                assert!(lease.remaining() <= TTL - millis(102), "{gates:?}");
                continue;
            }
            Ok(None) => assert!(count(Vote::Yes) < 2 && count(Vote::None) < 2, "{gates:?}"),
            Err(AcquireError::NoQuorum(error)) => {
                assert!(count(Vote::None) >= 2, "{gates:?}");
                assert!(error.failed.len() >= 2, "{gates:?}: {error}");
                assert_eq!((error.nodes, error.needed), (3, 2));
            }
            Err(error) => panic!("{gates:?}: {error}"),
        }
        gate_all(&nodes, &[Gate::Grant; 3]);
        tokio::time::sleep(millis(4_500)).await;
        assert_eq!(holders(&nodes, 3, "k"), [0; 0], "{gates:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_node_that_answered_held_owes_no_deletion() {
    let (nodes, redlock) = nodes(3).await;
    gate_all(&nodes, &[Gate::Held, Gate::Error, Gate::Grant]);
    assert!(redlock.lease("k").try_acquire().await.unwrap().is_none());
    tokio::time::sleep(millis(1)).await;
    assert_eq!(nodes.requests(0), ["acquire k"]);
    assert_eq!(nodes.requests(2), ["acquire k", "delete k"]);
}

#[tokio::test(start_paused = true)]
async fn two_held_one_granted_two_down_is_not_a_lack_of_nodes() {
    let (nodes, redlock) = nodes(5).await;
    gate_all(&nodes, &[Gate::Held, Gate::Held, Gate::Grant, Gate::Error, Gate::Error]);
    assert!(redlock.lease("k").try_acquire().await.unwrap().is_none());
    nodes.gate(0, Gate::Error);
    let error = redlock.lease("k").try_acquire().await.unwrap_err();
    let AcquireError::NoQuorum(too_few) = &error else { panic!("{error}") };
    assert_eq!(too_few.answered, 2);
    let failed: Vec<&str> = too_few.failed.iter().map(|node| node.address()).collect();
    assert_eq!(failed, ["memory:0", "memory:3", "memory:4"]);
}

#[tokio::test(start_paused = true)]
async fn a_lease_is_won_at_the_third_grant_and_does_not_wait_for_the_rest() {
    let (nodes, redlock) = nodes(5).await;
    gate_all(&nodes, &[Gate::Never, Gate::Grant, Gate::Grant, Gate::Slow(millis(300)), Gate::Grant]);
    let begun = Instant::now();
    let lease = redlock.lease("k").acquire().await.unwrap();
    assert_eq!(begun.elapsed(), Duration::ZERO);
    assert_eq!(lease.remaining(), TTL - millis(102), "nothing but drift is taken off");
}

#[tokio::test(start_paused = true)]
async fn the_time_of_the_round_is_taken_off_the_validity() {
    let (nodes, redlock) = nodes(3).await;
    gate_all(&nodes, &[Gate::Slow(millis(300)); 3]);
    let lease = redlock.lease("k").acquire().await.unwrap();
    assert!(lease.remaining() <= TTL - millis(102) - millis(300));
    assert!(lease.remaining() >= TTL - millis(102) - millis(302));
}

#[tokio::test(start_paused = true)]
async fn nodes_that_are_known_to_be_slow_fail_at_once() {
    let (nodes, redlock) = nodes(5).await;
    gate_all(&nodes, &[Gate::Never, Gate::Never, Gate::Never, Gate::Grant, Gate::Grant]);
    redlock.lease("k").try_acquire().await.unwrap_err();
    let begun = Instant::now();
    let error = redlock.lease("k").try_acquire().await.unwrap_err();
    assert_eq!(begun.elapsed(), Duration::ZERO);
    let AcquireError::NoQuorum(too_few) = error else { panic!("{error}") };
    assert!(too_few.failed.iter().all(|node| node.kind() == NodeErrorKind::Slow), "{too_few}");
}

#[tokio::test(start_paused = true)]
async fn acquire_goes_on_without_a_quorum_for_a_second_and_through_held_for_the_whole_wait() {
    let (nodes, redlock) = nodes(3).await;
    gate_all(&nodes, &[Gate::Error, Gate::Error, Gate::Grant]);
    let begun = Instant::now();
    let error = redlock.lease("k").wait(Duration::MAX).acquire().await.unwrap_err();
    assert!(matches!(error, AcquireError::NoQuorum(_)), "{error}");
    assert!(begun.elapsed() >= millis(1_000) && begun.elapsed() < millis(1_100), "{:?}", begun.elapsed());

    gate_all(&nodes, &[Gate::Held; 3]);
    let begun = Instant::now();
    let error = redlock.lease("k").wait(Duration::from_secs(7)).acquire().await.unwrap_err();
    let AcquireError::TimedOut { waited, .. } = error else { panic!("{error}") };
    assert!(waited >= Duration::from_secs(7) && begun.elapsed() < millis(7_100), "{waited:?}");
}

#[tokio::test(start_paused = true)]
async fn acquire_takes_the_key_when_it_is_given_back() {
    let (_nodes, redlock) = nodes(5).await;
    let lease = redlock.lease("k").acquire().await.unwrap();
    let waiting = tokio::spawn(redlock.lease("k").wait(Duration::MAX).acquire());
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert!(!waiting.is_finished(), "the heartbeat keeps it");
    lease.release().await.unwrap();
    let next = tokio::time::timeout(millis(300), waiting).await.expect("soon").unwrap().unwrap();
    assert!(next.is_valid());
}

#[tokio::test(start_paused = true)]
async fn a_request_that_is_wrong_sends_nothing() {
    let (nodes, redlock) = nodes(3).await;
    for ttl in [Duration::ZERO, Duration::from_micros(1), millis(1), millis(3)] {
        let error = redlock.lease("k").ttl(ttl).try_acquire().await.unwrap_err();
        assert!(matches!(error, AcquireError::InvalidRequest(InvalidRequest::TtlTooShort { .. })), "{error}");
    }
    for ttl in [Duration::from_secs(61), Duration::MAX] {
        let error = redlock.lease("k").ttl(ttl).acquire().await.unwrap_err();
        assert!(matches!(error, AcquireError::InvalidRequest(InvalidRequest::TtlTooLong { .. })), "{error}");
    }
    for interval in [Duration::ZERO, TTL / 2 + millis(1), TTL, Duration::MAX] {
        let error = redlock.lease("k").renew_every(interval).acquire().await.unwrap_err();
        assert!(
            matches!(error, AcquireError::InvalidRequest(InvalidRequest::RenewalInterval { .. })),
            "{error}"
        );
    }
    let none: [&str; 0] = [];
    for request in [
        redlock.lease(""),
        redlock.lease("leasehold:x"),
        redlock.lease_all(none),
        redlock.lease_all(["a", ""]),
    ] {
        assert!(matches!(request.try_acquire().await, Err(AcquireError::InvalidRequest(_))));
    }
    assert!((0..3).all(|node| nodes.requests(node).is_empty()));
}

#[tokio::test(start_paused = true)]
async fn all_keys_or_none() {
    let (nodes, redlock) = nodes(3).await;
    let b = redlock.lease("b").acquire().await.unwrap();
    assert!(redlock.lease_all(["c", "b", "a", "b"]).try_acquire().await.unwrap().is_none());
    assert!(holders(&nodes, 3, "a").is_empty() && holders(&nodes, 3, "c").is_empty());
    b.release().await.unwrap();
    let all = redlock.lease_all(["c", "b", "a", "b"]).try_acquire().await.unwrap().unwrap();
    let keys: Vec<String> = all.keys().iter().map(ToString::to_string).collect();
    assert_eq!(keys, ["a", "b", "c"]);
    all.release().await.unwrap();
    for key in ["a", "b", "c"] {
        assert!(holders(&nodes, 3, key).is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn connect_does_not_hang_on_nodes_that_do_not_greet_and_takes_them_in_later() {
    let nodes = MemoryNodes::new(3);
    gate_all(&nodes, &[Gate::Never, Gate::Never, Gate::Grant]);
    let begun = Instant::now();
    let redlock = nodes.redlock(Redlock::builder()).await;
    assert!(begun.elapsed() <= NODE_TIMEOUT * 3 / 2, "{:?}", begun.elapsed());
    let begun = Instant::now();
    redlock.lease("k").try_acquire().await.unwrap_err();
    assert_eq!(begun.elapsed(), Duration::ZERO, "both are known not to answer");
    gate_all(&nodes, &[Gate::Grant; 3]);
    // One was marked while the others did not answer, so that all have to grow old.
    let lease = redlock.lease("k").wait(Duration::MAX).acquire().await.unwrap();
    assert!(lease.is_valid());
    assert!(begun.elapsed() > Duration::from_secs(60) && begun.elapsed() < Duration::from_secs(65));
}

#[tokio::test(start_paused = true)]
async fn nodes_that_are_down_at_connect_are_taken_in_when_they_come_up() {
    let nodes = MemoryNodes::new(3);
    (0..3).for_each(|node| nodes.kill(node));
    let redlock = nodes.redlock(Redlock::builder()).await;
    let error = redlock.lease("k").try_acquire().await.unwrap_err();
    assert!(error.to_string().contains("memory:2: connection refused"), "{error}");
    (0..3).for_each(|node| nodes.restart(node, true));
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(redlock.lease("k").try_acquire().await.unwrap().is_some());
}

#[tokio::test(start_paused = true)]
async fn a_node_whose_answer_is_there_when_the_round_is_decided_owes_nothing() {
    let (nodes, redlock) = nodes(3).await;
    gate_all(&nodes, &[Gate::Held; 3]);
    assert!(redlock.lease("k").try_acquire().await.unwrap().is_none());
    tokio::time::sleep(millis(1)).await;
    for node in 0..3 {
        assert_eq!(nodes.requests(node), ["acquire k"]);
    }
}

#[tokio::test(start_paused = true)]
async fn acquire_waits_for_young_nodes_only_if_they_vote_before_the_wait_is_over() {
    let (nodes, redlock) = nodes(3).await;
    (0..2).for_each(|node| nodes.restart(node, false));
    tokio::time::sleep(Duration::from_secs(2)).await;
    let AcquireError::NoQuorum(too_few) = redlock.lease("k").try_acquire().await.unwrap_err() else {
        panic!("two are young")
    };
    let ready_in = too_few.ready_in().unwrap();
    let begun = Instant::now();
    let error = redlock.lease("k").wait(ready_in).acquire().await.unwrap_err();
    assert!(matches!(error, AcquireError::NoQuorum(_)), "{error}");
    assert!(begun.elapsed() < Duration::from_secs(2), "{:?}", begun.elapsed());
    assert!(redlock.lease("k").wait(ready_in).acquire().await.is_ok(), "time has passed");
}

#[tokio::test(start_paused = true)]
async fn the_bounds_of_the_renewal_interval_may_be_asked_for() {
    let (_nodes, redlock) = nodes(3).await;
    for interval in [millis(1), TTL / 2] {
        redlock.lease("k").renew_every(interval).acquire().await.unwrap().release().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn requests_and_leases_show_their_keys_and_never_the_whole_token() {
    let (_nodes, redlock) = nodes(3).await;
    let request = redlock.lease("nightly-report");
    assert!(format!("{request:?}").contains("nightly-report"), "{request:?}");
    let lease = request.acquire().await.unwrap();
    let shown = format!("{lease:?}");
    assert!(shown.contains("nightly-report"), "{shown}");
    assert!(!shown.contains(lease.token().as_str()), "{shown}");
}
