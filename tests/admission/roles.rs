//! Who is no master is refused when a client connects.

use std::path::Path;

use leasehold::testing::LocalMasters;
use leasehold::{ConnectError, Refusal};

use crate::common::raw;
use crate::views::program::{script, server, with_another_port};
use crate::views::replication::{follow, follow_nobody};
use crate::views::{builder, masters};

/// Connecting fails because of the second node, with a reason that says what to do.
async fn is_refused(masters: &LocalMasters, other: &LocalMasters, wanted: Refusal, advice: &str) {
    for guard in [true, false] {
        let urls = [masters.url(0), other.url(0), masters.url(1)];
        let connected = builder(urls).restart_guard(guard).connect().await.map(drop);
        let error = connected.expect_err("it may not vote");
        let text = error.to_string();
        let ConnectError::Refused { position: 2, address, refusal } = error else { panic!("{error:?}") };
        assert_eq!((address, refusal), (other.addr(0).to_string(), wanted.clone()));
        assert!(text.contains(advice) && text.contains(&other.addr(0).to_string()), "{text}");
    }
}

async fn two() -> LocalMasters {
    masters(2).start().await.expect("local masters")
}

#[tokio::test]
async fn a_replica_is_refused() {
    let (masters, replica) = (two().await, crate::views::masters(1).start().await.expect("a server"));
    follow(&raw(&replica, 0), masters.addr(0)).await;
    is_refused(&masters, &replica, Refusal::Replica, "name its master instead").await;
}

#[tokio::test]
async fn a_replica_without_a_connection_to_its_master_is_refused() {
    let (masters, replica) = (two().await, crate::views::masters(1).start().await.expect("a server"));
    follow_nobody(&raw(&replica, 0)).await;
    is_refused(&masters, &replica, Refusal::Replica, "name its master instead").await;
}

#[tokio::test]
async fn a_node_of_a_cluster_is_refused() {
    let build = |port: u16| {
        LocalMasters::builder().arg("--cluster-enabled", "yes").arg("--cluster-port", port.to_string())
    };
    let (cluster, _) = with_another_port(build).await.expect("a node of a cluster");
    is_refused(&two().await, &cluster, Refusal::Cluster, "`cluster-enabled no`").await;
}

#[tokio::test]
async fn a_sentinel_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let sentinel = sentinel(folder.path()).await;
    is_refused(&two().await, &sentinel, Refusal::Sentinel, "name independent masters instead").await;
}

/// It wants a file and few options.
async fn sentinel(folder: &Path) -> LocalMasters {
    let start = folder.join("sentinel");
    let server = server();
    let lines = [
        "[ \"$1 $3 $5\" = '--bind --port --dir' ] || exit 1".to_owned(),
        "printf 'bind %s\\nport %s\\ndir %s\\n' \"$2\" \"$4\" \"$6\" >\"$6/sentinel.conf\"".to_owned(),
        format!("exec '{}' \"$6/sentinel.conf\" --sentinel", server.display()),
    ];
    script(&start, &lines.join("\n"));
    LocalMasters::builder().count(1).program(start).start().await.expect("a sentinel")
}
