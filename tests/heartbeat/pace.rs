use futures::FutureExt as _;
use leasehold::LossReason;

use crate::common::*;

#[tokio::test]
async fn a_short_lease_is_kept_for_many_ttls() {
    let masters = five().await;
    let redlock = client(&masters).await;
    let lease = redlock.lease("job").ttl(secs(1)).acquire().await.unwrap();
    let (lost, token) = (lease.lost(), lease.token().to_string());
    until_held_by_all(&masters, "job", &token).await;
    throughout(secs(6), "the lease should be kept", async || {
        lease.is_valid() && key_is(&masters, "job", &token).await
    })
    .await;
    assert!(lost.now_or_never().is_none());
    for raw in raws(&masters) {
        assert!((1..=1_000).contains(&raw.pttl("job").await));
    }
    lease.release().await.unwrap();
    until_free(&masters, "job").await;
}

#[tokio::test]
async fn without_a_heartbeat_a_lease_runs_out_and_that_is_announced() {
    let masters = five().await;
    let redlock = client(&masters).await;
    let lease = redlock.lease("job").ttl(secs(2)).without_heartbeat().acquire().await.unwrap();
    let mut monitors = monitors(&masters).await;
    let (seen, left) = (std::time::Instant::now(), lease.remaining());
    let lost = within(secs(5), "the end should be announced", lease.lost()).await;
    let after = seen.elapsed();
    assert!(after < left + ms(100) && after + ms(50) > left, "{after:?} after {left:?} were left");
    assert!(matches!(&lost.reason, LossReason::Expired { failed } if failed.is_empty()), "{lost:?}");
    assert!(!lease.is_valid());
    until_free(&masters, "job").await;
    let token = lease.token().as_str();
    // Two nodes at most were not waited for, and are asked once whether they have it.
    assert!(renewals(&mut monitors, token).await <= 4, "it was not to be renewed");
}

#[tokio::test]
async fn a_heartbeat_renews_every_third_of_the_ttl() {
    let masters = five().await;
    let redlock = client(&masters).await;
    let mut monitors = monitors(&masters).await;
    let lease = redlock.lease("job").ttl(ms(1_500)).acquire().await.unwrap();
    tokio::time::sleep(secs(5)).await;
    // The SET and ten renewals; a busy machine makes some late.
    for monitor in &mut monitors {
        let count = monitor.renewals(lease.token().as_str()).await;
        assert!((7..=13).contains(&count), "{count}");
    }
}

#[tokio::test]
async fn a_heartbeat_renews_as_often_as_it_was_told() {
    let masters = five().await;
    let redlock = client(&masters).await;
    let mut monitors = monitors(&masters).await;
    let request = redlock.lease("job").ttl(secs(60)).renew_every(ms(200));
    let lease = request.acquire().await.unwrap();
    tokio::time::sleep(secs(4)).await;
    for monitor in &mut monitors {
        let count = monitor.renewals(lease.token().as_str()).await;
        assert!((15..=24).contains(&count), "{count}");
    }
}

#[tokio::test]
async fn after_its_longest_time_a_lease_is_renewed_no_more() {
    let masters = five().await;
    let redlock = client(&masters).await;
    let started = std::time::Instant::now();
    let request = redlock.lease("job").ttl(secs(1)).max_hold(secs(3));
    let lease = request.acquire().await.unwrap();
    let lost = within(secs(8), "the renewals should end", lease.lost()).await;
    let after = started.elapsed();
    assert!(after >= ms(2_500), "{after:?}: it was kept until then");
    assert!(after <= secs(4) + ms(1_500), "{after:?}: it is over one TTL after that");
    assert!(matches!(lost.reason, LossReason::Expired { .. }), "{lost:?}");
    until_free(&masters, "job").await;
}

#[tokio::test]
async fn the_ttl_of_an_extend_is_the_one_that_the_heartbeat_then_uses() {
    let masters = five().await;
    let redlock = client(&masters).await;
    let lease = redlock.lease("job").ttl(secs(1)).acquire().await.unwrap();
    lease.extend(secs(6)).await.unwrap();
    // By then renewals at the old pace had left little of it.
    tokio::time::sleep(secs(5)).await;
    assert!(lease.remaining() > secs(2), "{:?}", lease.remaining());
    for raw in raws(&masters) {
        let left = raw.pttl("job").await;
        assert!(left > 2_000, "{left} ms");
    }
}

#[tokio::test]
async fn a_renewal_that_failed_is_tried_again_soon_enough() {
    let masters = five().await;
    let redlock = connect(leasehold::Redlock::builder().nodes(masters.urls()).node_timeout(ms(300))).await;
    let lease = redlock.lease("job").ttl(secs(4)).acquire().await.unwrap();
    let lost = lease.lost();
    until_held_by_all(&masters, "job", lease.token().as_str()).await;
    for _ in 0..2 {
        for index in 0..3 {
            masters.pause(index).await.unwrap();
        }
        // Over one renewal at least, and not over the whole validity.
        tokio::time::sleep(ms(1_800)).await;
        for index in 0..3 {
            masters.resume(index).unwrap();
        }
        until("it should be renewed", async || lease.remaining() > secs(3)).await;
    }
    assert!(lost.now_or_never().is_none());
    assert!(key_is(&masters, "job", lease.token().as_str()).await);
}

/// Counts what a healthy master is asked while `silent` masters stand still and `down` are gone.
async fn renewals_beside(silent: usize, down: usize) {
    let masters = five().await;
    let redlock = connect(leasehold::Redlock::builder().nodes(masters.urls()).node_timeout(ms(300))).await;
    let lease = redlock.lease("job").ttl(secs(2)).acquire().await.unwrap();
    let lost = lease.lost();
    until_all_have_said_so(&masters, &lease).await;
    for index in 0..silent {
        masters.pause(index).await.unwrap();
    }
    for index in silent..silent + down {
        masters.kill(index).await.unwrap();
    }
    let mut monitor = Monitor::start(&masters, 4).await;
    let started = std::time::Instant::now();
    let mut longest = std::time::Duration::ZERO;
    while started.elapsed() < secs(5) {
        let asleep = std::time::Instant::now();
        tokio::time::sleep(ms(10)).await;
        longest = longest.max(asleep.elapsed());
    }
    let count = monitor.renewals(lease.token().as_str()).await;
    println!("{count} renewals; the runtime was held up for {longest:?}");
    // Eight, and some for a loaded machine.
    assert!((5..=16).contains(&count), "{count} renewals in 5 s");
    assert!(longest < ms(700), "the runtime was held up for {longest:?}");
    assert!(lease.is_valid() && lost.now_or_never().is_none());
}

#[tokio::test]
async fn a_silent_node_does_not_change_the_pace() {
    renewals_beside(1, 0).await;
}

#[tokio::test]
async fn a_silent_node_and_one_that_is_down_do_not_change_the_pace() {
    renewals_beside(1, 1).await;
}

#[tokio::test]
async fn two_silent_nodes_do_not_change_the_pace() {
    renewals_beside(2, 0).await;
}

#[tokio::test]
async fn an_extend_beside_a_silent_node_renews_from_now_on() {
    let masters = five().await;
    let redlock = connect(leasehold::Redlock::builder().nodes(masters.urls()).node_timeout(ms(300))).await;
    let lease = redlock.lease("job").ttl(secs(20)).without_heartbeat().acquire().await.unwrap();
    until_all_have_said_so(&masters, &lease).await;
    masters.pause(0).await.unwrap();
    // All of it before the silent connection is given up.
    for _ in 0..3 {
        lease.extend(secs(20)).await.unwrap();
        let old = secs(20) - ms(202) - lease.remaining();
        assert!(old < ms(500), "a renewal that was sent {old:?} ago");
        tokio::time::sleep(ms(600)).await;
    }
}
