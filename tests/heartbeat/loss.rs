//! What a holder notices of the loss of its lease.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use leasehold::{ExtendError, Lease, LossReason, ReleaseError, WithLeaseError};

use crate::common::*;

/// Notes when it is dropped.
struct Noting(Arc<AtomicBool>);

impl Drop for Noting {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

#[tokio::test]
async fn all_who_listen_hear_of_a_loss_and_late_ones_at_once() {
    let masters = five().await;
    let redlock = client(&masters).await;
    let lease = redlock.lease("job").ttl(secs(1)).without_heartbeat().acquire().await.unwrap();
    let listeners = (0..5).map(|_| tokio::spawn(lease.lost())).collect::<Vec<_>>();
    let token = lease.cancellation_token();
    let protected = lease.protect(std::future::pending::<()>());
    let lost = within(secs(5), "protect should end", protected).await.unwrap_err();
    assert_eq!(lost.key.as_bytes(), b"job");
    for listener in listeners {
        let lost = soon("each should hear", listener).await.unwrap();
        assert!(matches!(lost.reason, LossReason::Expired { .. }), "{lost:?}");
    }
    assert!(token.is_cancelled());
    soon("a late one should hear at once", lease.lost()).await;
    assert!(matches!(lease.extend(secs(1)).await, Err(ExtendError::Lost(_))));
    assert!(matches!(lease.release().await, Err(ReleaseError::Lost(_))));
}

#[tokio::test]
async fn protect_gives_the_output_and_drops_the_work_on_a_loss() {
    let masters = five().await;
    let redlock = client(&masters).await;
    let lease = redlock.lease("job").ttl(secs(1)).without_heartbeat().acquire().await.unwrap();
    assert_eq!(lease.protect(async { 42 }).await.unwrap(), 42);
    let dropped = Arc::new(AtomicBool::new(false));
    let noting = Noting(dropped.clone());
    let work = async move {
        let _noting = noting;
        std::future::pending::<()>().await;
    };
    within(secs(5), "protect should end", lease.protect(work)).await.unwrap_err();
    assert!(dropped.load(Ordering::SeqCst));
}

#[tokio::test]
async fn work_that_held_up_the_runtime_beyond_the_validity_is_no_success() {
    let masters = five().await;
    let redlock = client(&masters).await;
    let lease = redlock.lease("job").ttl(secs(1)).acquire().await.unwrap();
    let blocking = async { std::thread::sleep(ms(1_300)) };
    let lost = lease.protect(blocking).await.unwrap_err();
    assert!(matches!(lost.reason, LossReason::Expired { .. }), "{lost:?}");
    assert!(!lease.is_valid());
}

#[tokio::test]
async fn with_lease_ends_its_work_on_a_loss() {
    let masters = five().await;
    let redlock = client(&masters).await;
    let work = async |lease: &Lease| {
        until_all_have_said_so(&masters, lease).await;
        for index in 0..3 {
            raw(&masters, index).tell(&["DEL", "job"]).await;
        }
        std::future::pending::<()>().await;
    };
    let lost = within(secs(20), "the loss should end it", redlock.with_lease("job", work)).await;
    let Err(WithLeaseError::Lost(lost)) = lost else { panic!("{lost:?}") };
    assert!(matches!(lost.reason, LossReason::Denied { denied: 3, nodes: 5 }), "{lost:?}");
    until_free(&masters, "job").await;
}
