use tokio::time::Instant;

use super::*;

/// Long enough that no expiry does the work of an undo.
const LONG: Duration = Duration::from_secs(60);

#[tokio::test(start_paused = true)]
async fn a_dropped_acquire_leaves_no_key_at_any_moment() {
    for moment in 0..40 {
        let (nodes, redlock) = nodes(5).await;
        let slow = |node: u64| Gate::Slow(millis(4 * node));
        let late = |node: u64| Gate::Late(millis(5 * node));
        gate_all(&nodes, &[slow(1), late(2), slow(3), late(4), slow(5)]);
        let attempt = redlock.lease("k").ttl(LONG).acquire();
        let outcome = tokio::time::timeout(millis(moment), attempt).await;
        drop(outcome);
        tokio::time::sleep(millis(100)).await;
        assert_eq!(holders(&nodes, 5, "k"), [0; 0], "dropped after {moment} ms");
    }
}

#[tokio::test(start_paused = true)]
async fn a_deletion_never_overtakes_its_set() {
    let (nodes, redlock) = nodes(3).await;
    gate_all(&nodes, &[Gate::Never; 3]);
    redlock.lease("k").ttl(LONG).try_acquire().await.unwrap_err();
    gate_all(&nodes, &[Gate::Grant; 3]);
    tokio::time::sleep(millis(1)).await;
    for node in 0..3 {
        assert_eq!(nodes.requests(node), ["acquire k", "delete k"]);
    }
    assert_eq!(holders(&nodes, 3, "k"), [0; 0]);
}

#[tokio::test(start_paused = true)]
async fn nodes_frozen_during_an_attempt_have_no_key_when_they_go_on() {
    for frozen_for in
        [millis(600), millis(1_900), millis(2_100), Duration::from_secs(5), Duration::from_secs(600)]
    {
        let (nodes, redlock) = nodes(5).await;
        let never = Gate::Never;
        gate_all(&nodes, &[never, never, never, Gate::Grant, Gate::Grant]);
        redlock.lease("k").ttl(LONG).try_acquire().await.unwrap_err();
        tokio::time::sleep(frozen_for).await;
        gate_all(&nodes, &[Gate::Grant; 5]);
        // A connection is tried again within a second, and a try to connect takes two at most.
        tokio::time::sleep(Duration::from_secs(4)).await;
        assert_eq!(holders(&nodes, 5, "k"), [0; 0], "frozen for {frozen_for:?}");
        assert!(redlock.nodes().iter().all(|node| node.owed == 0), "{:?}", redlock.nodes());
        assert!(redlock.lease("k").try_acquire().await.unwrap().is_some(), "free for the next");
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_owed_is_paid_after_the_last_clone_is_gone() {
    let (nodes, redlock) = nodes(3).await;
    gate_all(&nodes, &[Gate::ReplyLost; 3]);
    redlock.lease("k").ttl(LONG).try_acquire().await.unwrap_err();
    tokio::time::sleep(millis(1)).await;
    assert_eq!(holders(&nodes, 3, "k"), [0; 0], "the deletion runs behind its SET");
    gate_all(&nodes, &[Gate::Never; 3]);
    let _ = tokio::time::timeout(millis(10), redlock.lease("j").ttl(LONG).try_acquire()).await;
    drop(redlock);
    tokio::time::sleep(Duration::from_secs(10)).await;
    gate_all(&nodes, &[Gate::Grant; 3]);
    tokio::time::sleep(Duration::from_secs(4)).await;
    assert_eq!(holders(&nodes, 3, "j"), [0; 0]);
}

#[tokio::test(start_paused = true)]
async fn a_node_that_restarted_with_its_data_gives_the_key_back() {
    let (nodes, redlock) = nodes(3).await;
    gate_all(&nodes, &[Gate::ReplyLost, Gate::Held, Gate::Held]);
    assert!(redlock.lease("k").ttl(LONG).try_acquire().await.unwrap_or(None).is_none());
    // The deletion was run, but suppose that the server crashed before it was on disk.
    nodes.set(0, "k", "of another", LONG);
    nodes.restart(0, true);
    nodes.gate(0, Gate::Grant);
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(nodes.value(0, "k").as_deref(), Some("of another"), "another's key is left alone");
    assert!(redlock.nodes().iter().all(|node| node.owed == 0));
}

#[tokio::test(start_paused = true)]
async fn a_slow_node_is_well_again_at_its_first_answer() {
    let (nodes, redlock) = nodes(3).await;
    gate_all(&nodes, &[Gate::Never, Gate::Never, Gate::Grant]);
    redlock.lease("k").try_acquire().await.unwrap_err();
    let begun = Instant::now();
    gate_all(&nodes, &[Gate::Grant; 3]);
    tokio::time::sleep(millis(1)).await;
    assert!(redlock.lease("k").try_acquire().await.unwrap().is_some());
    assert!(begun.elapsed() < millis(10));
}

#[tokio::test(start_paused = true)]
async fn close_gives_back_what_is_held_and_pays_what_is_owed() {
    let (nodes, redlock) = nodes(3).await;
    let lease = redlock.lease("k").acquire().await.unwrap();
    let lost = lease.lost();
    redlock.close().await;
    assert_eq!(holders(&nodes, 3, "k"), [0; 0]);
    assert_eq!(lost.await.to_string(), "the lease on `k` was lost: the Redlock was closed");
    assert!(!lease.is_valid());
    let error = redlock.lease("k").try_acquire().await.unwrap_err();
    assert_eq!(error.to_string(), "this Redlock was closed");
}

#[tokio::test(start_paused = true)]
async fn close_ends_within_its_bound_when_a_node_hangs() {
    let (nodes, redlock) = nodes(3).await;
    let lease = redlock.lease("k").acquire().await.unwrap();
    nodes.gate(0, Gate::Never);
    let begun = Instant::now();
    redlock.close().await;
    assert!(begun.elapsed() <= NODE_TIMEOUT + millis(1_001));
    assert_eq!(holders(&nodes, 3, "k"), [0]);
    drop((lease, redlock));
    nodes.gate(0, Gate::Grant);
    tokio::time::sleep(millis(300)).await;
    assert_eq!(holders(&nodes, 3, "k"), [0; 0], "paid in the background");
}

#[tokio::test(start_paused = true)]
async fn what_a_suspended_client_is_granted_too_late_is_given_back() {
    let (nodes, redlock) = nodes(3).await;
    gate_all(&nodes, &[Gate::Slow(millis(100)); 3]);
    let attempt = redlock.lease("k").ttl(LONG).try_acquire();
    let suspend = async {
        tokio::time::sleep(millis(50)).await;
        nodes.suspend(Duration::from_secs(1));
    };
    let (outcome, ()) = tokio::join!(attempt, suspend);
    let error = outcome.unwrap_err().to_string();
    assert!((0..3).all(|node| error.contains(&format!("memory:{node}: no answer in time"))), "{error}");
    tokio::time::sleep(millis(200)).await;
    assert_eq!(holders(&nodes, 3, "k"), [0; 0]);
}

#[tokio::test(start_paused = true)]
async fn a_deletion_that_the_node_refuses_is_owed_until_the_key_has_run_out_for_certain() {
    let (nodes, redlock) = nodes(3).await;
    gate_all(&nodes, &[Gate::Slow(millis(10)), Gate::Held, Gate::Held]);
    assert!(redlock.lease("k").ttl(TTL).try_acquire().await.unwrap().is_none());
    tokio::time::sleep(millis(1)).await;
    // The SET is run, the deletion behind it is refused from here on.
    nodes.gate(0, Gate::Error);
    tokio::time::sleep(TTL + millis(800)).await;
    assert_eq!(redlock.nodes()[0].owed, 1, "a second beyond the TTL");
    tokio::time::sleep(millis(800)).await;
    assert_eq!(redlock.nodes()[0].owed, 0);
}
