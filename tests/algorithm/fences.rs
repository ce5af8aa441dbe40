use leasehold::Fence;

use super::*;

async fn fence(redlock: &Redlock, key: &str) -> Fence {
    let lease = redlock.lease(key).fenced().acquire().await.unwrap();
    let fence = lease.fence().unwrap();
    lease.release().await.unwrap();
    fence
}

#[tokio::test(start_paused = true)]
async fn each_later_holder_has_a_greater_fence() {
    let (nodes, first) = nodes(5).await;
    let second = nodes.redlock(Redlock::builder()).await;
    let mut last = Fence::from(0);
    for round in 0..200 {
        let next = fence(if round % 2 == 0 { &first } else { &second }, "k").await;
        assert!(next > last, "round {round}: {next} after {last}");
        last = next;
    }
    assert!(redlock_is_plain(&first).await);
}

async fn redlock_is_plain(redlock: &Redlock) -> bool {
    redlock.lease("k").acquire().await.unwrap().fence().is_none()
}

#[tokio::test(start_paused = true)]
async fn an_ordinary_fenced_lease_takes_one_round_trip() {
    let (nodes, redlock) = nodes(5).await;
    for _ in 0..20 {
        fence(&redlock, "k").await;
    }
    let grants = nodes.requests(0).iter().filter(|request| *request == "grant k").count();
    // The wall clock and the nodes' virtual clocks drift apart here, which costs a second round now and then.
    assert!(grants <= 24, "{grants} grants for 20 leases");
}

#[tokio::test(start_paused = true)]
async fn fences_grow_though_clocks_differ_and_nodes_forget() {
    let (nodes, redlock) = nodes(5).await;
    let mut last = Fence::from(0);
    for round in 0..60 {
        match round % 6 {
            1 => nodes.step_clock(round % 5, Duration::from_millis(400)),
            3 => nodes.restart(round % 5, false),
            _ => {}
        }
        let request = redlock.lease("k").fenced().wait(Duration::MAX);
        let lease = request.acquire().await.unwrap();
        let next = lease.fence().unwrap();
        assert!(next > last, "round {round}: {next} after {last}");
        last = next;
        lease.release().await.unwrap();
        tokio::time::sleep(Duration::from_secs(2)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_second_round_has_its_own_number_and_validity() {
    let (nodes, redlock) = nodes(3).await;
    fence(&redlock, "k").await;
    // Two nodes jump ahead by an hour: the estimate is wrong for them, and the third has another clock.
    (0..3).for_each(|node| nodes.step_clock(node, Duration::from_secs(3600)));
    gate_all(&nodes, &[Gate::Slow(millis(50)); 3]);
    let lease = redlock.lease("k").fenced().acquire().await.unwrap();
    assert_eq!(nodes.requests(0).iter().filter(|request| *request == "grant k").count(), 3);
    assert!(lease.remaining() <= TTL - millis(102) - millis(50), "{:?}", lease.remaining());
    assert!(lease.remaining() >= TTL - millis(102) - millis(53), "counted from the second send");
    assert_eq!(holders(&nodes, 3, "k"), [0, 1, 2]);
}

#[tokio::test(start_paused = true)]
async fn fenced_and_plain_leases_exclude_each_other() {
    let (_nodes, redlock) = nodes(3).await;
    let fenced = redlock.lease("k").fenced().acquire().await.unwrap();
    assert!(redlock.lease("k").try_acquire().await.unwrap().is_none());
    fenced.release().await.unwrap();
    let plain = redlock.lease("k").acquire().await.unwrap();
    assert!(redlock.lease("k").fenced().try_acquire().await.unwrap().is_none());
    drop(plain);
}

#[tokio::test(start_paused = true)]
async fn a_fenced_lease_renews_heals_and_takes_its_fence_along() {
    let (nodes, redlock) = nodes(3).await;
    let lease = redlock.lease("k").fenced().acquire().await.unwrap();
    for node in 0..3 {
        nodes.restart(node, false);
        tokio::time::sleep(Duration::from_secs(70)).await;
    }
    assert!(lease.is_valid());
    assert_eq!(holders(&nodes, 3, "k"), [0, 1, 2]);
    let before = lease.fence().unwrap();
    lease.release().await.unwrap();
    assert!(fence(&redlock, "k").await > before);
}

#[tokio::test(start_paused = true)]
async fn a_dropped_second_round_leaves_nothing_behind() {
    for moment in 0..120 {
        let (nodes, redlock) = nodes(3).await;
        fence(&redlock, "k").await;
        (0..3).for_each(|node| nodes.step_clock(node, Duration::from_secs(3600)));
        gate_all(&nodes, &[Gate::Slow(millis(20)), Gate::Late(millis(30)), Gate::Slow(millis(40))]);
        let attempt = redlock.lease("k").fenced().acquire();
        drop(tokio::time::timeout(millis(moment), attempt).await);
        tokio::time::sleep(millis(200)).await;
        assert_eq!(holders(&nodes, 3, "k"), [0; 0], "dropped after {moment} ms");
    }
}
