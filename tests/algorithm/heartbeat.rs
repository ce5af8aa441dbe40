use futures::FutureExt as _;
use leasehold::{ExtendError, LossReason, ReleaseError};
use tokio::time::Instant;

use super::*;

#[tokio::test(start_paused = true)]
async fn a_lease_lives_for_as_long_as_its_holder_wants() {
    let (nodes, redlock) = nodes(5).await;
    let lease = redlock.lease("k").acquire().await.unwrap();
    let lost = lease.cancellation_token();
    for _ in 0..200 {
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert!(lease.remaining() > TTL / 2, "renewed every third: {:?}", lease.remaining());
    }
    assert!(!lost.is_cancelled());
    assert_eq!(holders(&nodes, 5, "k").len(), 5);
    lease.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_loss_is_announced_at_the_end_of_validity_though_every_node_hangs() {
    let (nodes, redlock) = nodes(5).await;
    let lease = redlock.lease("k").acquire().await.unwrap();
    tokio::time::sleep(Duration::from_secs(5)).await;
    gate_all(&nodes, &[Gate::Never; 5]);
    let deadline = Instant::now() + lease.remaining();
    let lost = lease.lost().await;
    assert!(Instant::now() <= deadline, "late by {:?}", Instant::now() - deadline);
    assert!(deadline - Instant::now() <= millis(3), "early by {:?}", deadline - Instant::now());
    assert!(!lease.is_valid());
    let LossReason::Expired { failed } = lost.reason else { panic!("{lost}") };
    assert_eq!(failed.len(), 5, "{failed}");
    assert!(matches!(lease.release().await, Err(ReleaseError::Lost(_))));
}

#[tokio::test(start_paused = true)]
async fn a_lease_without_heartbeat_runs_out_and_says_so() {
    let (_nodes, redlock) = nodes(3).await;
    let lease = redlock.lease("k").without_heartbeat().acquire().await.unwrap();
    let begun = Instant::now();
    lease.lost().await;
    assert!(begun.elapsed() <= TTL - millis(102) && begun.elapsed() >= TTL - millis(110));
}

#[tokio::test(start_paused = true)]
async fn a_quorum_of_denials_is_a_loss_at_once() {
    let (nodes, redlock) = nodes(5).await;
    let lease = redlock.lease("k").acquire().await.unwrap();
    tokio::time::sleep(Duration::from_secs(1)).await;
    (0..3).for_each(|node| nodes.remove(node, "k"));
    let lost = tokio::time::timeout(TTL / 3, lease.lost()).await.expect("at the next beat");
    assert!(matches!(lost.reason, LossReason::Denied { denied: 3, nodes: 5, .. }), "{lost}");
    tokio::time::sleep(millis(1)).await;
    assert_eq!(holders(&nodes, 5, "k"), [0; 0], "a lost lease is given back like a dropped one");
}

#[tokio::test(start_paused = true)]
async fn answers_after_the_node_timeout_still_count_before_the_old_deadline() {
    let (nodes, redlock) = nodes(5).await;
    let lease = redlock.lease("k").acquire().await.unwrap();
    tokio::time::sleep(Duration::from_secs(1)).await;
    gate_all(&nodes, &[Gate::Late(millis(1_500)); 5]);
    tokio::time::sleep(Duration::from_secs(120)).await;
    assert!(lease.is_valid());
}

#[tokio::test(start_paused = true)]
async fn a_failed_extend_changes_nothing() {
    let (nodes, redlock) = nodes(5).await;
    let lease = redlock.lease("k").without_heartbeat().acquire().await.unwrap();
    tokio::time::sleep(Duration::from_secs(2)).await;
    gate_all(&nodes, &[Gate::Error, Gate::Error, Gate::Error, Gate::Grant, Gate::Grant]);
    let before = lease.remaining();
    let error = lease.extend(Duration::from_secs(20)).await.unwrap_err();
    let ExtendError::NoQuorum(too_few) = error else { panic!("{error}") };
    assert_eq!(too_few.failed.len(), 3, "{too_few}");
    assert_eq!(lease.remaining(), before);
    assert_eq!(holders(&nodes, 5, "k").len(), 5);
    gate_all(&nodes, &[Gate::Grant; 5]);
    lease.extend(Duration::from_secs(20)).await.unwrap();
    assert_eq!(lease.remaining(), Duration::from_secs(20) - millis(202));
}

#[tokio::test(start_paused = true)]
async fn an_extend_waits_for_the_node_timeout_at_most() {
    let (nodes, redlock) = nodes(5).await;
    let lease = redlock.lease("k").acquire().await.unwrap();
    tokio::time::sleep(Duration::from_secs(2)).await;
    gate_all(&nodes, &[Gate::Never, Gate::Never, Gate::Never, Gate::Grant, Gate::Grant]);
    let begun = Instant::now();
    assert!(matches!(lease.extend(TTL).await, Err(ExtendError::NoQuorum(_))));
    assert!(begun.elapsed() <= NODE_TIMEOUT + millis(2), "{:?}", begun.elapsed());
    gate_all(&nodes, &[Gate::Grant; 5]);
    tokio::time::sleep(millis(1)).await;
    assert!(lease.remaining() > TTL - millis(610), "the late answers count: {:?}", lease.remaining());
}

#[tokio::test(start_paused = true)]
async fn a_shorter_extend_never_shrinks_the_deadline_nor_any_expiry() {
    let (nodes, redlock) = nodes(3).await;
    let lease = redlock.lease("k").ttl(Duration::from_secs(30)).acquire().await.unwrap();
    let before = lease.remaining();
    lease.extend(Duration::from_secs(1)).await.unwrap();
    assert_eq!(lease.remaining(), before);
    assert!((0..3).all(|node| nodes.expiry(node, "k") == Some(Duration::from_secs(30))));
    let error = lease.extend(Duration::from_secs(61)).await.unwrap_err();
    assert!(matches!(error, ExtendError::InvalidRequest(_)), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_dropped_extend_goes_on() {
    let (nodes, redlock) = nodes(3).await;
    let lease = redlock.lease("k").without_heartbeat().acquire().await.unwrap();
    gate_all(&nodes, &[Gate::Slow(millis(100)); 3]);
    let _ = tokio::time::timeout(millis(50), lease.extend(Duration::from_secs(30))).await;
    tokio::time::sleep(millis(100)).await;
    assert!(lease.remaining() > Duration::from_secs(29));
}

#[tokio::test(start_paused = true)]
async fn nodes_that_lost_the_key_are_healed_and_count_from_the_next_extend() {
    let (nodes, redlock) = nodes(5).await;
    let lease = redlock.lease("k").acquire().await.unwrap();
    tokio::time::sleep(Duration::from_secs(1)).await;
    for round in 0..5 {
        let lost = [round, (round + 1) % 5];
        lost.iter().for_each(|node| nodes.restart(*node, false));
        tokio::time::sleep(TTL / 3 * 2).await;
        assert_eq!(holders(&nodes, 5, "k"), [0, 1, 2, 3, 4], "round {round}");
        assert_eq!(nodes.value(round, "k").as_deref(), Some(lease.token().as_str()));
    }
    assert!(lease.is_valid());
}

#[tokio::test(start_paused = true)]
async fn a_lease_won_on_three_nodes_is_filled_in_on_the_others() {
    for heartbeat in [true, false] {
        let (nodes, redlock) = nodes(5).await;
        gate_all(&nodes, &[Gate::Grant, Gate::Grant, Gate::Grant, Gate::Error, Gate::Never]);
        let request = redlock.lease("k");
        let request = if heartbeat { request } else { request.without_heartbeat() };
        let lease = request.acquire().await.unwrap();
        assert_eq!(holders(&nodes, 5, "k"), [0, 1, 2]);
        gate_all(&nodes, &[Gate::Grant; 5]);
        tokio::time::sleep(NODE_TIMEOUT + millis(1)).await;
        assert_eq!(holders(&nodes, 5, "k"), [0, 1, 2, 3, 4], "heartbeat {heartbeat}");
        lease.release().await.unwrap();
        tokio::time::sleep(millis(1)).await;
        assert_eq!(holders(&nodes, 5, "k"), [0; 0]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_foreign_value_is_never_overwritten_by_a_fill_in() {
    let (nodes, redlock) = nodes(3).await;
    nodes.set(2, "k", "rival", Duration::from_secs(300));
    let lease = redlock.lease("k").acquire().await.unwrap();
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(nodes.value(2, "k").as_deref(), Some("rival"));
    lease.release().await.unwrap();
    tokio::time::sleep(millis(1)).await;
    assert_eq!(holders(&nodes, 3, "k"), [2]);
}

#[tokio::test(start_paused = true)]
async fn nothing_but_deletions_is_sent_once_a_lease_is_over() {
    for end in ["release", "drop", "detach", "loss"] {
        let (nodes, redlock) = nodes(3).await;
        let lease = redlock.lease("k").acquire().await.unwrap();
        tokio::time::sleep(TTL / 3 * 2 - millis(1)).await;
        match end {
            "release" => lease.release().await.unwrap(),
            "drop" => drop(lease),
            "detach" => drop(lease.detach()),
            _ => {
                (0..3).for_each(|node| nodes.remove(node, "k"));
                lease.lost().await;
                drop(lease);
            }
        }
        tokio::time::sleep(millis(1)).await;
        let count = nodes.requests(0).len();
        tokio::time::sleep(TTL * 3).await;
        assert_eq!(nodes.requests(0).len(), count, "after {end}: {:?}", nodes.requests(0));
    }
}

#[tokio::test(start_paused = true)]
async fn a_release_in_the_middle_of_a_renewal_is_no_loss() {
    let (nodes, redlock) = nodes(3).await;
    let lease = redlock.lease("k").acquire().await.unwrap();
    let lost = lease.cancellation_token();
    tokio::time::sleep(TTL / 3 - millis(20)).await;
    gate_all(&nodes, &[Gate::Slow(millis(50)); 3]);
    tokio::time::sleep(millis(40)).await;
    lease.release().await.unwrap();
    tokio::time::sleep(millis(200)).await;
    assert!(!lost.is_cancelled());
    assert_eq!(holders(&nodes, 3, "k"), [0; 0]);
}

#[tokio::test(start_paused = true)]
async fn max_hold_ends_the_renewal() {
    let (_nodes, redlock) = nodes(3).await;
    let hold = Duration::from_secs(20);
    let lease = redlock.lease("k").max_hold(hold).acquire().await.unwrap();
    let begun = Instant::now();
    lease.lost().await;
    assert!(begun.elapsed() > hold - TTL / 3 && begun.elapsed() < hold + TTL, "{:?}", begun.elapsed());
}

#[tokio::test(start_paused = true)]
async fn an_own_interval_is_kept() {
    let (nodes, redlock) = nodes(1).await;
    let lease = redlock.lease("k").renew_every(millis(250)).acquire().await.unwrap();
    tokio::time::sleep(Duration::from_secs(10) + millis(10)).await;
    let renewals = nodes.requests(0).iter().filter(|request| *request == "extend k").count();
    assert!((38..=41).contains(&renewals), "{renewals}");
    drop(lease);
}

#[tokio::test(start_paused = true)]
async fn a_suspend_beyond_the_deadline_is_noticed_within_a_second_of_waking() {
    for age in [Duration::ZERO, Duration::from_secs(2)] {
        let (nodes, redlock) = nodes(3).await;
        let lease = redlock.lease("k").acquire().await.unwrap();
        tokio::time::sleep(age).await;
        nodes.suspend(TTL);
        assert!(lease.lost().now_or_never().is_none(), "nobody looked yet");
        tokio::time::timeout(millis(1_001), lease.lost()).await.expect("within a second");
        assert_eq!(lease.remaining(), Duration::ZERO);
    }
}

#[tokio::test(start_paused = true)]
async fn a_suspend_is_seen_at_once_by_who_uses_the_lease() {
    let (nodes, redlock) = nodes(3).await;
    let lease = redlock.lease("k").acquire().await.unwrap();
    nodes.suspend(TTL);
    assert!(!lease.is_valid());
    assert!(matches!(lease.extend(TTL).await, Err(ExtendError::Lost(_))));
    assert!(lease.cancellation_token().is_cancelled());
}

#[tokio::test(start_paused = true)]
async fn protect_drops_the_work_on_loss() {
    let (nodes, redlock) = nodes(3).await;
    let lease = redlock.lease("k").acquire().await.unwrap();
    assert_eq!(lease.protect(async { 7 }).await.unwrap(), 7);
    gate_all(&nodes, &[Gate::Error; 3]);
    let begun = Instant::now();
    let lost = lease.protect(std::future::pending::<()>()).await.unwrap_err();
    assert!(begun.elapsed() < TTL, "{lost}");
}

#[tokio::test(start_paused = true)]
async fn a_result_is_not_lost_when_the_release_fails() {
    let (nodes, redlock) = nodes(3).await;
    let result = redlock.with_lease("k", async |lease| {
        assert!(lease.is_valid());
        gate_all(&nodes, &[Gate::Error; 3]);
        42
    });
    assert_eq!(result.await.unwrap(), 42);
}

#[tokio::test(start_paused = true)]
async fn a_node_whose_clock_was_stepped_forward_does_not_count_in_the_next_renewal() {
    let (nodes, redlock) = nodes(5).await;
    let lease = redlock.lease("k").without_heartbeat().acquire().await.unwrap();
    tokio::time::sleep(Duration::from_secs(1)).await;
    lease.extend(TTL).await.unwrap();
    let before = lease.remaining();
    tokio::time::sleep(Duration::from_secs(1)).await;
    (0..3).for_each(|node| nodes.step_clock(node, Duration::from_secs(1)));
    let error = lease.extend(TTL).await.unwrap_err();
    assert!(error.to_string().contains("stepped forward by"), "{error}");
    assert_eq!(lease.remaining(), before - Duration::from_secs(1));
    assert!(redlock.nodes()[0].warnings.iter().any(|warning| warning.to_string().contains("stepped")));
    lease.extend(TTL).await.unwrap();
    assert_eq!(lease.remaining(), TTL - millis(102), "from then on it counts again");
}

/// A node that does not answer must not make the others be asked over and over.
#[tokio::test(start_paused = true)]
async fn silent_and_missing_nodes_do_not_quicken_the_heartbeat() {
    let (nodes, redlock) = nodes(5).await;
    let lease = redlock.lease("k").ttl(Duration::from_secs(2)).acquire().await.unwrap();
    nodes.gate(0, Gate::Never);
    nodes.kill(1);
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert!(lease.is_valid());
    let renewals = nodes.requests(4).iter().filter(|request| *request == "extend k").count();
    assert!((80..=100).contains(&renewals), "{renewals} renewals in 60 s at two thirds of a second");
}

#[tokio::test(start_paused = true)]
async fn an_extend_is_not_won_by_answers_to_earlier_ones() {
    let (nodes, redlock) = nodes(3).await;
    let lease = redlock.lease("k").without_heartbeat().acquire().await.unwrap();
    nodes.gate(0, Gate::Never);
    tokio::time::sleep(Duration::from_secs(1)).await;
    lease.extend(TTL).await.unwrap();
    tokio::time::sleep(millis(100)).await;
    nodes.gate(1, Gate::Error);
    let before = lease.remaining();
    assert!(matches!(lease.extend(TTL).await, Err(ExtendError::NoQuorum(_))));
    assert!(lease.remaining() <= before);
}
