//! Leases are used from where no tokio runtime is entered.

use futures::executor::block_on;
use leasehold::testing::LocalMasters;
use leasehold::{ConnectError, Redlock};

#[test]
fn connect_outside_of_a_runtime_is_an_error_and_no_panic() {
    let error = block_on(Redlock::connect(["redis://127.0.0.1:1"])).unwrap_err();
    assert!(matches!(error, ConnectError::NoRuntime), "{error}");
}

#[test]
fn another_executor_acquires_extends_and_releases() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let (_masters, redlock) = runtime.block_on(async {
        let masters = LocalMasters::start(3).await.unwrap();
        let redlock = Redlock::connect(masters.urls()).await.unwrap();
        (masters, redlock)
    });
    let lease = block_on(redlock.lease("k").acquire()).unwrap();
    assert!(block_on(redlock.lease("k").wait(std::time::Duration::from_millis(50)).acquire()).is_err());
    block_on(lease.extend(std::time::Duration::from_secs(20))).unwrap();
    block_on(lease.release()).unwrap();
    assert!(block_on(redlock.round_trips(3)).iter().all(|node| node.is_ok()));
    block_on(redlock.close());
}
