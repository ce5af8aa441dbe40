//! Futures of a lease dropped before they were done.

use std::time::Duration;

use leasehold::Lease;

use crate::common::*;

#[tokio::test]
async fn an_extend_dropped_at_any_moment_leaves_the_lease_valid() {
    let masters = five().await;
    let redlock = client(&masters).await;
    let lease = hold(&redlock, "job").await;
    for micros in (0..2_000).step_by(50) {
        let _ = tokio::time::timeout(Duration::from_micros(micros), lease.extend(secs(60))).await;
        assert!(lease.is_valid());
    }
    lease.extend(secs(60)).await.unwrap();
    lease.release().await.unwrap();
    until_free(&masters, "job").await;
}

#[tokio::test]
async fn a_lease_dropped_in_the_middle_of_an_extend_is_released() {
    let masters = five().await;
    let redlock = client(&masters).await;
    for micros in (0..2_000).step_by(100) {
        let lease = hold(&redlock, "job").await;
        let _ = tokio::time::timeout(Duration::from_micros(micros), lease.extend(secs(60))).await;
        drop(lease);
    }
    until_free(&masters, "job").await;
    throughout(ms(500), "the key should stay free", async || {
        holders(&masters, "job").await.iter().all(Option::is_none)
    })
    .await;
}

#[tokio::test]
async fn a_release_dropped_at_any_moment_goes_on() {
    let masters = five().await;
    let redlock = client(&masters).await;
    for micros in (0..2_000).step_by(100) {
        let lease = hold(&redlock, "job").await;
        let _ = tokio::time::timeout(Duration::from_micros(micros), lease.release()).await;
        until_free(&masters, "job").await;
    }
    let lease = hold(&redlock, "job").await;
    drop(lease.release());
    until_free(&masters, "job").await;
}

#[tokio::test]
async fn a_release_dropped_while_nodes_are_silent_goes_on() {
    let proxied = Proxied::start().await;
    let redlock = proxied.client(secs(1)).await;
    let lease = hold(&redlock, "job").await;
    until_held_by_all(&proxied.masters, "job", lease.token().as_str()).await;
    proxied.black_holes(4);
    assert!(tokio::time::timeout(ms(100), lease.release()).await.is_err());
    proxied.heal();
    until_free(&proxied.masters, "job").await;
}

#[tokio::test]
async fn with_lease_dropped_in_its_work_gives_the_key_back() {
    let masters = five().await;
    let redlock = client(&masters).await;
    let work = async |lease: &Lease| {
        until_held_by_all(&masters, "job", lease.token().as_str()).await;
        std::future::pending::<()>().await;
    };
    let mut running = Box::pin(redlock.with_lease("job", work));
    assert!(tokio::time::timeout(secs(1), &mut running).await.is_err());
    assert!(holders(&masters, "job").await.iter().all(Option::is_some));
    drop(running);
    until_free(&masters, "job").await;
}

#[tokio::test]
async fn close_dropped_after_its_first_poll_gives_back_all_the_same() {
    let masters = five().await;
    let redlock = client(&masters).await;
    let lease = hold(&redlock, "job").await;
    assert!(futures::poll!(Box::pin(redlock.close())).is_pending());
    soon("the holder should be told", lease.lost()).await;
    until_free(&masters, "job").await;
}
