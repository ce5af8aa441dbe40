//! Servers as they are, asked past the library.

use futures::future::join_all;
use leasehold::testing::LocalMasters;
use redis::{AsyncConnectionConfig, FromRedisValue, RedisResult, Value};

use super::{PATIENCE, until};

/// Commands by which a client changes keys.
const WRITES: [&str; 9] =
    ["set", "del", "delex", "delifeq", "eval", "evalsha", "pexpire", "expire", "getdel"];

/// One server; connects anew for each question, so that restarts are no matter.
#[derive(Clone, Debug)]
pub(crate) struct Raw(redis::Client);

/// Master `index`, past the library.
pub(crate) fn raw(masters: &LocalMasters, index: usize) -> Raw {
    Raw::new(&masters.url(index))
}

/// All masters, past the library.
pub(crate) fn raws(masters: &LocalMasters) -> Vec<Raw> {
    (0..masters.len()).map(|index| raw(masters, index)).collect()
}

impl Raw {
    pub(crate) fn new(url: &str) -> Self {
        Self(redis::Client::open(url).expect("an address"))
    }

    /// One command as words, and what the server says.
    pub(crate) async fn say<W: redis::ToRedisArgs>(&self, words: &[W]) -> RedisResult<Value> {
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(PATIENCE))
            .set_response_timeout(Some(PATIENCE));
        let mut connection = self.0.get_multiplexed_async_connection_with_config(&config).await?;
        let mut cmd = redis::Cmd::new();
        for word in words {
            cmd.arg(word);
        }
        cmd.query_async(&mut connection).await
    }

    /// One command as words that the server has to like.
    pub(crate) async fn ask<T: FromRedisValue>(&self, words: &[&str]) -> T {
        let answer = self.say(words).await.unwrap_or_else(|error| panic!("{words:?}: {error}"));
        redis::from_redis_value(answer).unwrap_or_else(|error| panic!("{words:?}: {error}"))
    }

    /// One command as words, for its effect.
    pub(crate) async fn tell(&self, words: &[&str]) {
        let _: Value = self.ask(words).await;
    }

    /// The string at `key`.
    pub(crate) async fn get(&self, key: impl AsRef<[u8]>) -> Option<String> {
        let answer = self.say(&[b"GET", key.as_ref()]).await.expect("GET");
        redis::from_redis_value(answer).expect("a string or nothing")
    }

    /// The milliseconds left of `key`; -2 if it is not there, -1 if it has no end.
    pub(crate) async fn pttl(&self, key: impl AsRef<[u8]>) -> i64 {
        let answer = self.say(&[b"PTTL", key.as_ref()]).await.expect("PTTL");
        redis::from_redis_value(answer).expect("a number")
    }

    /// How often the server was asked for any of `commands` since it started, refusals included.
    pub(crate) async fn calls(&self, commands: &[&str]) -> u64 {
        let stats: String = self.ask(&["INFO", "commandstats"]).await;
        let count = |line: &str| -> Option<u64> {
            let (name, rest) = line.strip_prefix("cmdstat_")?.split_once(':')?;
            let calls = rest.strip_prefix("calls=")?.split(',').next()?.parse::<u64>().ok()?;
            let refused = rest.split("rejected_calls=").nth(1)?.split(',').next()?.parse::<u64>().ok()?;
            commands.contains(&name).then_some(calls + refused)
        };
        stats.lines().filter_map(count).sum()
    }

    /// One line of `INFO`.
    pub(crate) async fn info(&self, field: &str) -> String {
        let info: String = self.ask(&["INFO", "everything"]).await;
        let line = info.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
        line.unwrap_or_else(|| panic!("{field} in INFO")).trim().to_owned()
    }
}

/// What stands at `key`, a master each.
pub(crate) async fn holders(masters: &LocalMasters, key: impl AsRef<[u8]>) -> Vec<Option<String>> {
    let (raws, key) = (raws(masters), key.as_ref());
    join_all(raws.iter().map(|raw| raw.get(key))).await
}

/// Whether `value` stands at `key` on all masters.
pub(crate) async fn key_is(masters: &LocalMasters, key: impl AsRef<[u8]>, value: &str) -> bool {
    holders(masters, key).await.iter().all(|stands| stands.as_deref() == Some(value))
}

/// Returns once no master has any key but the library's own.
pub(crate) async fn until_empty(masters: &LocalMasters) {
    for raw in raws(masters) {
        let empty = async || {
            let keys: Vec<Vec<u8>> = raw.ask(&["KEYS", "*"]).await;
            keys.iter().all(|key| key.starts_with(b"leasehold:"))
        };
        until("no key should be left", empty).await;
    }
}

/// Returns once `value` stands at `key` on all masters: the lease is won at the quorum, the rest follows.
pub(crate) async fn until_held_by_all(masters: &LocalMasters, key: impl AsRef<[u8]>, value: &str) {
    let key = key.as_ref();
    until("all masters should hold the token", async || key_is(masters, key, value).await).await;
}

/// Returns once `key` is on no master.
pub(crate) async fn until_free(masters: &LocalMasters, key: impl AsRef<[u8]>) {
    let key = key.as_ref();
    let free = async || holders(masters, key).await.iter().all(Option::is_none);
    until("the key should be on no master", free).await;
}

/// How often each master was asked to change a key.
pub(crate) async fn writes(masters: &LocalMasters) -> Vec<u64> {
    let raws = raws(masters);
    join_all(raws.iter().map(|raw| raw.calls(&WRITES))).await
}
