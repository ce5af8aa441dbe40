//! Servers as they are, asked past the library.

use leasehold::testing::LocalMasters;
use redis::{AsyncConnectionConfig, FromRedisValue, RedisResult, Value};

use super::{PATIENCE, until};

/// One server; connects anew for each question, so that restarts are no matter.
#[derive(Clone, Debug)]
pub(crate) struct Raw(redis::Client);

/// Master `index`, past the library.
pub(crate) fn raw(masters: &LocalMasters, index: usize) -> Raw {
    Raw::new(&masters.url(index))
}

impl Raw {
    pub(crate) fn new(url: &str) -> Self {
        Self(redis::Client::open(url).expect("an address"))
    }

    /// One command as words, and what the server says.
    pub(crate) async fn say(&self, words: &[&str]) -> RedisResult<Value> {
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
    pub(crate) async fn get(&self, key: &str) -> Option<String> {
        self.ask(&["GET", key]).await
    }

    /// The value behind `name` in INFO.
    pub(crate) async fn info(&self, name: &str) -> Option<String> {
        let text: String = self.ask(&["INFO", "all"]).await;
        let values = text.lines().filter_map(|line| line.split_once(':'));
        values.filter(|(key, _)| *key == name).map(|(_, value)| value.trim().to_owned()).next()
    }

    /// Makes it a replica of `source`, and returns when it has all of that one's data and none of its own, on
    /// disk too where it keeps data there.
    pub(crate) async fn follow(&self, source: &Raw) {
        let address = source.0.get_connection_info().addr().to_string();
        let (host, port) = address.rsplit_once(':').expect("host and port");
        self.tell(&["REPLICAOF", host, port]).await;
        let wanted = [
            ("master_link_status", "up"),
            ("aof_rewrite_scheduled", "0"),
            ("aof_rewrite_in_progress", "0"),
            ("aof_last_bgrewrite_status", "ok"),
        ];
        let has_it = async || {
            let text: String = self.ask(&["INFO", "all"]).await;
            let is = |(name, value)| text.contains(&format!("\r\n{name}:{value}\r\n"));
            wanted.into_iter().all(is).then_some(())
        };
        until("the replica has its master's data", has_it).await;
    }

    /// Makes a replica a master again.
    pub(crate) async fn promote(&self) {
        self.tell(&["REPLICAOF", "NO", "ONE"]).await;
        assert_eq!(self.info("role").await.as_deref(), Some("master"));
    }
}
