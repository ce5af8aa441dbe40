//! prof
use leasehold::Redlock;
use leasehold::testing::LocalMasters;
use std::time::Instant;
#[tokio::main]
async fn main() {
    let masters = LocalMasters::builder().count(5).persistent(false).start().await.unwrap();
    let redlock = Redlock::connect(masters.urls()).await.unwrap();
    let t = Instant::now();
    let n = 60000;
    for _ in 0..n {
        let lease = redlock.lease("k").try_acquire().await.unwrap().unwrap();
        lease.release().await.unwrap();
    }
    println!("{:?}", t.elapsed() / n);
}
