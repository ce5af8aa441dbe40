//! Servers that take over each other's data.

use std::net::SocketAddr;

use crate::common::{Raw, until};

/// Makes `server` a replica of the one at `source`, and returns when it has all of that one's data and none of
/// its own, on disk too where it keeps data there.
pub(crate) async fn follow(server: &Raw, source: SocketAddr) {
    server.tell(&["REPLICAOF", &source.ip().to_string(), &source.port().to_string()]).await;
    let wanted = [
        ("master_link_status", "up"),
        ("aof_rewrite_scheduled", "0"),
        ("aof_rewrite_in_progress", "0"),
        ("aof_last_bgrewrite_status", "ok"),
    ];
    until("the replica should have its master's data", async || {
        let text: String = server.ask(&["INFO", "all"]).await;
        let is = |(name, value)| text.contains(&format!("\r\n{name}:{value}\r\n"));
        wanted.into_iter().all(is)
    })
    .await;
}

/// Makes `server` a replica of one that is not there: it keeps what it has.
pub(crate) async fn follow_nobody(server: &Raw) {
    server.tell(&["REPLICAOF", "127.0.0.1", "9"]).await;
}

/// Makes a replica a master again.
pub(crate) async fn promote(server: &Raw) {
    server.tell(&["REPLICAOF", "NO", "ONE"]).await;
    assert_eq!(server.info("role").await, "master");
}
