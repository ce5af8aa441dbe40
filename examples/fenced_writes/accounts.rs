//! One account in PostgreSQL and one in Redis. Both remember the highest fence that they have seen, in one step
//! with each read and write, and refuse a lower one.

use leasehold::Fence;
use redis::Script;
use redis::aio::MultiplexedConnection;

use crate::postgres::Database;
use crate::timeline::Result;

const CREATE: &str =
    "CREATE TABLE account (id int PRIMARY KEY, balance bigint NOT NULL, fence bigint NOT NULL);
    INSERT INTO account VALUES (7, 100, 0)";
/// Reading raises the fence too: else an earlier holder could write between this read and its write.
const READ: &str = "UPDATE account SET fence = $1 WHERE id = 7 AND fence <= $1 RETURNING balance";
const WRITE: &str = "UPDATE account SET balance = $2, fence = $1 WHERE id = 7 AND fence <= $1";
const SCRIPT: &str = include_str!("account.lua");
const KEY: &str = "account:7";

pub(crate) struct Accounts {
    sql: tokio_postgres::Client,
    redis: MultiplexedConnection,
    script: Script,
}

impl Accounts {
    pub(crate) async fn connect(database: &Database, store: &str) -> Result<Self> {
        let redis = redis::Client::open(store)?.get_multiplexed_async_connection().await?;
        Ok(Self { sql: database.connect().await?, redis, script: Script::new(SCRIPT) })
    }

    /// Both accounts, with a balance of 100.
    pub(crate) async fn create(&mut self) -> Result<()> {
        self.sql.batch_execute(CREATE).await?;
        Ok(redis::cmd("HSET").arg(KEY).arg("balance").arg(100).query_async(&mut self.redis).await?)
    }

    /// The balance in PostgreSQL and that in Redis; none where the fence is too old.
    pub(crate) async fn read(&mut self, fence: Fence) -> Result<[Option<i64>; 2]> {
        let row = self.sql.query_opt(READ, &[&i64::from(fence)]).await?;
        let stored = self.script.key(KEY).arg(fence.get()).invoke_async(&mut self.redis).await?;
        Ok([row.map(|row| row.get(0)), stored])
    }

    /// Whether each of them took the new balance.
    pub(crate) async fn write(&mut self, fence: Fence, balances: [i64; 2]) -> Result<[bool; 2]> {
        let rows = self.sql.execute(WRITE, &[&i64::from(fence), &balances[0]]).await?;
        let mut call = self.script.key(KEY);
        let stored: Option<i64> =
            call.arg(fence.get()).arg(balances[1]).invoke_async(&mut self.redis).await?;
        Ok([rows == 1, stored.is_some()])
    }

    /// What stands there now, for who looks from outside.
    pub(crate) async fn balances(&mut self) -> Result<[i64; 2]> {
        let row = self.sql.query_one("SELECT balance FROM account WHERE id = 7", &[]).await?;
        let stored = redis::cmd("HGET").arg(KEY).arg("balance").query_async(&mut self.redis).await?;
        Ok([row.get(0), stored])
    }
}
