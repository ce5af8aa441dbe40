//! The ten lines of the README. Needs the five masters of `docker-compose.yml`.

use leasehold::Redlock;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let redlock = Redlock::connect((7001..=7005).map(|port| format!("redis://127.0.0.1:{port}"))).await?;
    let Some(lease) = redlock.lease("nightly-report").try_acquire().await? else {
        println!("another worker has it");
        return Ok(());
    };
    lease.protect(async { println!("working, for {:?} at least", lease.remaining()) }).await?;
    lease.release().await?;
    Ok(())
}
