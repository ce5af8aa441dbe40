//! One worker, a process. It never asks whether its lease is still valid: the accounts must do without that.

use std::time::Duration;

use leasehold::{Fence, Lease, Redlock};

use crate::accounts::Accounts;
use crate::postgres::Database;
use crate::process::{answer, orders};
use crate::timeline::Result;

const KEY: &str = "account:7";

/// Orders: `hold MILLISECONDS`, `add AMOUNT`, `release`. Answers: the fence; the balances read, or `refused`.
pub(crate) async fn work(args: &[String]) -> Result<()> {
    let [url, schema, store, nodes @ ..] = args else { return Err("too few arguments".into()) };
    let database = Database { url: url.clone(), schema: schema.clone() };
    let mut accounts = Accounts::connect(&database, store).await?;
    let redlock = Redlock::connect(nodes).await?;
    let mut held: Option<(Lease, Fence, [i64; 2])> = None;
    for order in orders() {
        let (word, number) = order.split_once(' ').unwrap_or((&order, "0"));
        match (word, held.take()) {
            ("hold", _) => {
                let lease = acquire(&redlock, Duration::from_millis(number.parse()?)).await?;
                let fence = lease.fence().ok_or("no fence")?;
                match accounts.read(fence).await? {
                    [Some(sql), Some(stored)] => {
                        answer(format!("{fence} {sql} {stored}"))?;
                        held = Some((lease, fence, [sql, stored]));
                    }
                    // Paused between the lease and the read.
                    _ => answer("refused")?,
                }
            }
            ("add", Some((lease, fence, balances))) => {
                let amount: i64 = number.parse()?;
                let written = accounts.write(fence, balances.map(|balance| balance + amount)).await?;
                answer(format!("{} {}", written[0], written[1]))?;
                held = Some((lease, fence, balances));
            }
            (_, lease) => {
                drop(lease);
                answer("released")?;
            }
        }
    }
    Ok(())
}

/// With so short a TTL and so many pauses a round may find too few nodes in time.
async fn acquire(redlock: &Redlock, ttl: Duration) -> Result<Lease> {
    loop {
        match redlock.lease(KEY).ttl(ttl).fenced().acquire().await {
            Err(leasehold::AcquireError::NoQuorum(_)) => {}
            outcome => return Ok(outcome?),
        }
    }
}
