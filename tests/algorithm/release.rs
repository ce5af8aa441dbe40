use leasehold::{AcquireError, InvalidRequest, LossReason, ReleaseError};
use tokio::time::Instant;

use super::*;

#[tokio::test(start_paused = true)]
async fn a_release_ends_at_a_quorum_and_reaches_every_node() {
    let (nodes, redlock) = nodes(5).await;
    let lease = redlock.lease("k").acquire().await.unwrap();
    tokio::time::sleep(millis(1)).await;
    gate_all(
        &nodes,
        &[Gate::Slow(millis(400)), Gate::Grant, Gate::Grant, Gate::Slow(millis(400)), Gate::Grant],
    );
    let begun = Instant::now();
    lease.release().await.unwrap();
    assert_eq!(begun.elapsed(), Duration::ZERO);
    tokio::time::sleep(millis(401)).await;
    assert_eq!(holders(&nodes, 5, "k"), [0; 0]);
}

#[tokio::test(start_paused = true)]
async fn a_release_behind_slow_sets_leaves_nothing() {
    let (nodes, redlock) = nodes(5).await;
    gate_all(
        &nodes,
        &[Gate::Slow(millis(300)), Gate::Grant, Gate::Grant, Gate::Slow(millis(300)), Gate::Grant],
    );
    let lease = redlock.lease("k").acquire().await.unwrap();
    lease.release().await.unwrap();
    tokio::time::sleep(millis(301)).await;
    assert_eq!(holders(&nodes, 5, "k"), [0; 0]);
    assert_eq!(nodes.requests(0), ["acquire k", "delete k"]);
}

#[tokio::test(start_paused = true)]
async fn a_key_that_is_anothers_is_left_alone_and_said_to_be_lost() {
    let (nodes, redlock) = nodes(5).await;
    let lease = redlock.lease("k").acquire().await.unwrap();
    tokio::time::sleep(millis(1)).await;
    (0..3).for_each(|node| nodes.set(node, "k", "rival", TTL));
    let error = lease.release().await.unwrap_err();
    let ReleaseError::Lost(lost) = error else { panic!("{error}") };
    assert!(matches!(lost.reason, LossReason::Denied { denied: 3, nodes: 5, .. }), "{lost}");
    tokio::time::sleep(millis(10)).await;
    assert_eq!(holders(&nodes, 5, "k"), [0, 1, 2]);
    assert_eq!(nodes.value(0, "k").as_deref(), Some("rival"));
}

#[tokio::test(start_paused = true)]
async fn a_minority_that_lost_the_key_is_no_loss() {
    let (nodes, redlock) = nodes(5).await;
    let lease = redlock.lease("k").acquire().await.unwrap();
    tokio::time::sleep(millis(1)).await;
    (0..2).for_each(|node| nodes.remove(node, "k"));
    lease.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn too_few_confirmations_are_no_loss_and_stay_owed() {
    let (nodes, redlock) = nodes(5).await;
    let lease = redlock.lease("k").acquire().await.unwrap();
    tokio::time::sleep(millis(1)).await;
    (0..3).for_each(|node| nodes.gate(node, Gate::Never));
    let begun = Instant::now();
    let error = lease.release().await.unwrap_err();
    assert!(begun.elapsed() <= NODE_TIMEOUT + millis(1));
    let ReleaseError::NoQuorum(too_few) = error else { panic!("{error}") };
    assert_eq!((too_few.answered, too_few.failed.len()), (2, 3));
    gate_all(&nodes, &[Gate::Grant; 5]);
    tokio::time::sleep(millis(10)).await;
    assert_eq!(holders(&nodes, 5, "k"), [0; 0]);
}

#[tokio::test(start_paused = true)]
async fn a_release_after_the_deadline_says_that_the_lease_was_lost() {
    let (nodes, redlock) = nodes(3).await;
    let lease = redlock.lease("k").without_heartbeat().acquire().await.unwrap();
    tokio::time::sleep(TTL).await;
    let error = lease.release().await.unwrap_err();
    assert!(matches!(error, ReleaseError::Lost(_)), "{error}");
    assert_eq!(holders(&nodes, 3, "k"), [0; 0]);
}

#[tokio::test(start_paused = true)]
async fn a_dropped_lease_is_given_back_and_a_detached_one_runs_out() {
    let (nodes, redlock) = nodes(3).await;
    drop(redlock.lease("k").acquire().await.unwrap());
    tokio::time::sleep(millis(1)).await;
    assert_eq!(holders(&nodes, 3, "k"), [0; 0]);

    let lease = redlock.lease("k").acquire().await.unwrap();
    let lost = lease.cancellation_token();
    assert_eq!(lease.detach(), TTL - millis(102));
    tokio::time::sleep(TTL - millis(1)).await;
    assert_eq!(holders(&nodes, 3, "k"), [0, 1, 2]);
    tokio::time::sleep(millis(1)).await;
    assert_eq!(holders(&nodes, 3, "k"), [0; 0]);
    assert!(!lost.is_cancelled());
    assert_eq!(nodes.requests(0).last().map(String::as_str), Some("acquire k"));
}

#[tokio::test(start_paused = true)]
async fn a_release_waits_for_nobody_once_the_key_is_known_to_be_lost() {
    let (nodes, redlock) = nodes(5).await;
    let lease = redlock.lease("k").acquire().await.unwrap();
    tokio::time::sleep(millis(1)).await;
    (0..3).for_each(|node| nodes.remove(node, "k"));
    (3..5).for_each(|node| nodes.gate(node, Gate::Never));
    let begun = Instant::now();
    let error = lease.release().await.unwrap_err();
    assert!(matches!(error, ReleaseError::Lost(_)), "{error}");
    assert_eq!(begun.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn a_close_ends_a_round_at_any_moment_and_waits_for_its_undoing() {
    for moment in 0..60 {
        let (nodes, redlock) = nodes(5).await;
        let late = [20, 10, 30, 40, 50]
            .map(|time| if time % 20 == 0 { Gate::Slow } else { Gate::Late }(millis(time)));
        gate_all(&nodes, &late);
        let request = redlock.lease("k").fenced();
        let attempt = tokio::spawn(async move { request.acquire().await });
        tokio::time::sleep(millis(moment)).await;
        redlock.close().await;
        assert_eq!(holders(&nodes, 5, "k"), [0; 0], "closed after {moment} ms");
        match attempt.await.unwrap() {
            Ok(lease) => assert!(!lease.is_valid(), "won, and closed after {moment} ms"),
            Err(AcquireError::InvalidRequest(InvalidRequest::Closed)) => {}
            Err(other) => panic!("{other:?} when closed after {moment} ms"),
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!(holders(&nodes, 5, "k"), [0; 0], "closed after {moment} ms");
    }
}
