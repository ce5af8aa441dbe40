//! A real server beside a node in memory.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{FromRedisValue, cmd};

use super::case::{Slot, key, record};
use crate::node::address::Address;
use crate::node::connection::RedisConnector;
use crate::node::{Connection, Connector as _};
use crate::testing::{LocalMasters, Store};
use crate::token::Token;

pub(super) struct Twins {
    runtime: tokio::runtime::Runtime,
    /// The way of production.
    pub(super) connection: Arc<dyn Connection>,
    /// Past the library.
    raw: MultiplexedConnection,
    _server: LocalMasters,
}

/// What stands at a name.
#[derive(Clone, Debug)]
pub(super) struct Standing {
    pub(super) value: String,
    /// By the node's TIME.
    pub(super) expires: u64,
}

impl Twins {
    pub(super) fn start() -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let (server, connection, raw) = runtime.block_on(async {
            let server = LocalMasters::builder().count(1).persistent(false).start().await.expect("a server");
            let url = server.url(0);
            let address = Address::parse(&url).expect("an address");
            let connector = RedisConnector::new(url.as_str().into(), address, Vec::new());
            let connection = connector.connect().await.expect("the server answers");
            let client = redis::Client::open(url).expect("an address");
            let raw = client.get_multiplexed_async_connection().await.expect("the server answers");
            (server, connection, raw)
        });
        println!("native commands: {:?}", connection.native());
        Self { runtime, connection, raw, _server: server }
    }

    pub(super) fn wait<T>(&self, future: impl Future<Output = T>) -> T {
        self.runtime.block_on(future)
    }

    /// One command as words that the server has to like.
    pub(super) async fn ask<T: FromRedisValue>(&self, words: &[&[u8]]) -> T {
        let mut cmd = redis::Cmd::new();
        cmd.arg(words);
        cmd.query_async(&mut self.raw.clone()).await.expect("an answer of this type")
    }

    pub(super) async fn time(&self) -> u64 {
        let (seconds, micros): (u64, u64) = self.ask(&[b"TIME"]).await;
        seconds * 1_000_000 + micros
    }

    /// Both hold what `slots` say and nothing else.
    pub(super) async fn set(&self, slots: &[Slot], ours: &Token, time: u64) -> Store {
        let mut store = Store::default();
        let mut pipe = redis::pipe();
        pipe.cmd("FLUSHALL").ignore();
        for (index, slot) in slots.iter().enumerate() {
            if let Some((value, left)) = slot.value(ours) {
                store.set(&key(index), value, left, time);
                pipe.cmd("SET").arg(key(index)).arg(value).arg("EX").arg(left.as_secs()).ignore();
            }
            if let Some((fence, left)) = slot.highest(time) {
                store.note(&record(index), fence, left, time);
                pipe.cmd("SET").arg(record(index)).arg(fence).arg("EX").arg(left.as_secs()).ignore();
            }
        }
        let () = pipe.query_async(&mut self.raw.clone()).await.expect("it is set");
        store
    }

    /// What stands at the server, by name: `keys` keys, then as many records.
    pub(super) async fn standing(&self, keys: usize) -> Vec<Option<Standing>> {
        let mut pipe = redis::pipe();
        for name in names(keys) {
            pipe.add_command(cmd("GET").arg(&name).to_owned()).add_command(cmd("PTTL").arg(&name).to_owned());
        }
        let answers: Vec<(Option<String>, i64)> =
            pipe.query_async(&mut self.raw.clone()).await.expect("strings and numbers");
        let time = self.time().await;
        let expires = |left: i64| time.saturating_add_signed(left.saturating_mul(1_000));
        let standing =
            |(value, left): (Option<String>, i64)| Some(Standing { value: value?, expires: expires(left) });
        answers.into_iter().map(standing).collect()
    }
}

/// What stands at a node in memory, in the same order.
pub(super) fn standing_in(store: &Store, keys: usize, time: u64) -> Vec<Option<Standing>> {
    let entry = |index| {
        let entry = store.live(&key(index), time)?;
        Some(Standing { value: entry.token.clone(), expires: entry.expires })
    };
    let highest = |index| {
        let record = store.record(&record(index), time)?;
        Some(Standing { value: record.fence.to_string(), expires: record.expires })
    };
    (0..keys).map(entry).chain((0..keys).map(highest)).collect()
}

fn names(keys: usize) -> impl Iterator<Item = Vec<u8>> {
    (0..keys).map(key).chain((0..keys).map(record))
}

/// Whether both are the same, but for `slack` in the expiry.
pub(super) fn agree(one: &[Option<Standing>], other: &[Option<Standing>], slack: Duration) -> bool {
    let agree = |one: &Option<Standing>, other: &Option<Standing>| match (one, other) {
        (Some(one), Some(other)) => {
            one.value == other.value && u128::from(one.expires.abs_diff(other.expires)) <= slack.as_micros()
        }
        (one, other) => one.is_none() && other.is_none(),
    };
    one.len() == other.len() && one.iter().zip(other).all(|(one, other)| agree(one, other))
}
