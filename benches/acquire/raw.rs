//! The raw limit: the library's commands through plain connections, and a count to the quorum.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use futures::StreamExt as _;
use futures::stream::FuturesUnordered;
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, Cmd, Value};

const DELETE: &str = include_str!("../../src/node/lua/delete.lua");
const GRANT: &str = include_str!("../../src/node/lua/grant.lua");
/// How long a fence is kept, in milliseconds.
const RECORD_TTL: u64 = 24 * 3600 * 1000;

/// How the library deletes on this kind of server.
enum Delete {
    Delex,
    Delifeq,
    Script(String),
}

pub(crate) struct Raw {
    connections: Vec<MultiplexedConnection>,
    delete: Delete,
    /// The hash of the script that grants a fence.
    grant: String,
}

impl Raw {
    pub(crate) async fn connect(urls: &[String]) -> Self {
        let mut connections = Vec::new();
        for url in urls {
            let client = Client::open(url.as_str()).expect("a good address");
            let info = client.get_connection_info().clone();
            let nodelay = info.tcp_settings().clone().set_nodelay(true);
            let client = Client::open(info.set_tcp_settings(nodelay)).expect("a good address");
            let config = AsyncConnectionConfig::new().set_response_timeout(None);
            let connection = client.get_multiplexed_async_connection_with_config(&config).await;
            connections.push(connection.expect("the master is up"));
        }
        let delete = Delete::find(&mut connections).await;
        let grant = load(&mut connections, GRANT).await;
        Self { connections, delete, grant }
    }

    pub(crate) async fn acquire(&self, key: &str, token: &str, ttl: Duration) {
        let mut set = redis::cmd("SET");
        set.arg(key).arg(token).arg("NX").arg("PX").arg(ttl.as_millis() as u64);
        self.count(&set, |answer| *answer == Value::Okay).await;
    }

    pub(crate) async fn grant(&self, key: &str, token: &str, ttl: Duration) {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_micros();
        let mut cmd = redis::cmd("EVALSHA");
        cmd.arg(&self.grant).arg(2).arg(key).arg(format!("leasehold:fence:{key}"));
        cmd.arg(token).arg(ttl.as_millis() as u64).arg(now as u64).arg(RECORD_TTL);
        self.count(&cmd, |answer| *answer == Value::Int(1)).await;
    }

    pub(crate) async fn release(&self, key: &str, token: &str) {
        let mut cmd;
        match &self.delete {
            Delete::Delex => {
                cmd = redis::cmd("DELEX");
                cmd.arg(key).arg("IFEQ").arg(token);
            }
            Delete::Delifeq => {
                cmd = redis::cmd("DELIFEQ");
                cmd.arg(key).arg(token);
            }
            Delete::Script(hash) => {
                cmd = redis::cmd("EVALSHA");
                cmd.arg(hash).arg(1).arg(key).arg(token);
            }
        }
        self.count(&cmd, |answer| *answer == Value::Int(1)).await;
    }

    /// Sends `cmd` to all, and waits until a quorum said yes.
    async fn count(&self, cmd: &Cmd, is_yes: impl Fn(&Value) -> bool) {
        let connections = self.connections.iter().cloned();
        let send =
            |mut connection: MultiplexedConnection| async move { connection.send_packed_command(cmd).await };
        let mut answers: FuturesUnordered<_> = connections.map(send).collect();
        let mut open = self.connections.len() / 2 + 1;
        while open > 0 {
            let answer = answers.next().await.expect("a quorum says yes").expect("no error");
            open -= usize::from(is_yes(&answer));
        }
    }
}

impl Delete {
    async fn find(connections: &mut [MultiplexedConnection]) -> Self {
        let first = &mut connections[0];
        if redis::cmd("DELEX").arg("none").arg("IFEQ").arg("").query_async::<i32>(first).await.is_ok() {
            return Self::Delex;
        }
        if redis::cmd("DELIFEQ").arg("none").arg("").query_async::<i32>(first).await.is_ok() {
            return Self::Delifeq;
        }
        Self::Script(load(connections, DELETE).await)
    }
}

/// Loads a script everywhere and tells its hash.
async fn load(connections: &mut [MultiplexedConnection], script: &str) -> String {
    let mut hash = String::new();
    for connection in connections {
        let load = redis::cmd("SCRIPT").arg("LOAD").arg(script).query_async(connection).await;
        hash = load.expect("a script can be loaded");
    }
    hash
}
