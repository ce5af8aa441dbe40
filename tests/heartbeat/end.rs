//! Once a lease is over nothing of it is sent any more but deletions.

use leasehold::testing::LocalMasters;
use leasehold::{Lease, Redlock};

use crate::common::*;

async fn world() -> (LocalMasters, Redlock, Lease, Vec<Monitor>) {
    let masters = five().await;
    let redlock = client(&masters).await;
    let monitors = monitors(&masters).await;
    let request = redlock.lease("job").ttl(secs(30)).renew_every(ms(50));
    let lease = request.acquire().await.unwrap();
    // From here on it beats.
    lease.extend(secs(30)).await.unwrap();
    (masters, redlock, lease, monitors)
}

/// That no renewal comes for many beats; what was under way may still arrive.
async fn no_more_renewals(monitors: &mut [Monitor], token: &str) {
    tokio::time::sleep(ms(100)).await;
    let before = renewals(monitors, token).await;
    assert!(before > 5, "{before}: it was renewed until then");
    tokio::time::sleep(secs(1)).await;
    assert_eq!(renewals(monitors, token).await, before);
}

#[tokio::test]
async fn after_a_release() {
    let (masters, _redlock, lease, mut monitors) = world().await;
    let token = lease.token().to_string();
    tokio::time::sleep(ms(500)).await;
    lease.release().await.unwrap();
    no_more_renewals(&mut monitors, &token).await;
    until_free(&masters, "job").await;
}

#[tokio::test]
async fn after_a_drop() {
    let (masters, _redlock, lease, mut monitors) = world().await;
    let token = lease.token().to_string();
    tokio::time::sleep(ms(500)).await;
    drop(lease);
    no_more_renewals(&mut monitors, &token).await;
    until_free(&masters, "job").await;
}

#[tokio::test]
async fn after_a_detach() {
    let (masters, _redlock, lease, mut monitors) = world().await;
    let token = lease.token().to_string();
    tokio::time::sleep(ms(500)).await;
    lease.detach();
    no_more_renewals(&mut monitors, &token).await;
    assert!(key_is(&masters, "job", &token).await, "not deleted either");
}

#[tokio::test]
async fn after_a_loss() {
    let (masters, _redlock, lease, mut monitors) = world().await;
    let token = lease.token().to_string();
    tokio::time::sleep(ms(500)).await;
    for index in 0..3 {
        raw(&masters, index).tell(&["SET", "job", "another"]).await;
    }
    soon("the loss should be announced", lease.lost()).await;
    no_more_renewals(&mut monitors, &token).await;
    let another = Some("another".to_owned());
    assert_eq!(holders(&masters, "job").await, [another.clone(), another.clone(), another, None, None]);
}

#[tokio::test]
async fn after_a_close() {
    let (masters, redlock, lease, mut monitors) = world().await;
    let token = lease.token().to_string();
    tokio::time::sleep(ms(500)).await;
    redlock.close().await;
    no_more_renewals(&mut monitors, &token).await;
    until_free(&masters, "job").await;
    drop(lease);
}

#[tokio::test]
async fn of_many_leases_that_end_in_the_middle_of_a_beat_none_is_left() {
    let masters = five().await;
    let redlock = client(&masters).await;
    for number in 0..60 {
        let request = redlock.lease("job").ttl(secs(30)).renew_every(ms(1));
        let lease = request.acquire().await.unwrap();
        tokio::time::sleep(ms(number % 6)).await;
        match number % 3 {
            0 => drop(lease),
            1 => lease.release().await.unwrap(),
            _ => {
                let _ = tokio::time::timeout(ms(1), lease.extend(secs(30))).await;
            }
        }
    }
    until_free(&masters, "job").await;
    throughout(secs(1), "the key should stay free", async || {
        holders(&masters, "job").await.iter().all(Option::is_none)
    })
    .await;
}
