//! Servers that refuse to serve: each refusal is a kind of its own, gives no vote and spoils nothing.

use futures::future::join_all;
use leasehold::testing::{Direction, FaultProxy, LocalMasters, TestingError};
use leasehold::{
    AcquireError, ConnectError, ExtendError, NodeErrorKind, NodeErrors, NodeState, Redlock, Refusal,
    ReleaseError,
};
use tokio::io::AsyncWriteExt as _;

use crate::common::*;

/// Sends `words` to the first three masters.
async fn tell_three(masters: &LocalMasters, words: &[&str]) {
    for index in 0..3 {
        raw(masters, index).tell(words).await;
    }
}

/// What the nodes say to an acquire that three of them refuse.
async fn refused(redlock: &Redlock) -> NodeErrors {
    let refused = redlock.lease("job").ttl(secs(60)).try_acquire().await.unwrap_err();
    let AcquireError::NoQuorum(too_few) = refused else { panic!("{refused:?}") };
    assert_eq!((too_few.nodes, too_few.needed), (5, 3));
    // It is decided at the third refusal.
    assert!(too_few.answered <= 2, "{too_few}");
    too_few.failed
}

/// A kind of refusal, and a word of its reason.
type Kind = (NodeErrorKind, &'static str);

/// That the first three masters are named, and what each said is one of `kinds`.
fn assert_three(masters: &LocalMasters, failed: &NodeErrors, kinds: &[Kind]) {
    let mut named: Vec<&str> = failed.iter().map(|error| error.address()).collect();
    named.sort_unstable();
    let mut expected: Vec<String> = (0..3).map(|index| masters.addr(index).to_string()).collect();
    expected.sort_unstable();
    assert_eq!(named, expected);
    for error in failed {
        let reason = error.reason().to_uppercase();
        let said = kinds.iter().any(|(kind, word)| error.kind() == *kind && reason.contains(word));
        assert!(said, "{:?}: {error}", error.kind());
    }
}

/// Three masters refuse `job` by one of `kinds`; those that serve keep nothing of the attempt, nor do they.
async fn three_refuse(masters: &LocalMasters, redlock: &Redlock, kinds: &[Kind]) {
    for _ in 0..2 {
        assert_three(masters, &refused(redlock).await, kinds);
    }
    let refused = redlock.lease_all(["job", "job2"]).ttl(secs(60)).try_acquire().await.unwrap_err();
    let AcquireError::NoQuorum(too_few) = refused else { panic!("{refused:?}") };
    assert_three(masters, &too_few.failed, kinds);
    until_free(masters, "job").await;
    until_free(masters, "job2").await;
}

/// A held lease is extended and released while three masters refuse by one of `kinds`: it stays as it is.
async fn three_refuse_a_holder(masters: &LocalMasters, redlock: &Redlock, words: &[&str], kinds: &[Kind]) {
    let lease = redlock.lease("held").ttl(secs(60)).without_heartbeat().acquire().await.unwrap();
    let token = lease.token().to_string();
    until_held_by_all(masters, "held", &token).await;
    tell_three(masters, words).await;
    let before = lease.remaining();
    let refused = lease.extend(secs(60)).await.unwrap_err();
    let ExtendError::NoQuorum(too_few) = refused else { panic!("{refused:?}") };
    assert_three(masters, &too_few.failed, kinds);
    assert!(lease.is_valid() && lease.remaining() <= before, "the old deadline stands");
    assert!(key_is(masters, "held", &token).await);
    let refused = lease.release().await.unwrap_err();
    let ReleaseError::NoQuorum(too_few) = refused else { panic!("{refused:?}") };
    assert_three(masters, &too_few.failed, kinds);
}

#[tokio::test]
async fn a_replica_gives_no_vote() {
    let masters = five().await;
    let redlock = client(&masters).await;
    tell_three(&masters, &["SET", "data", "untouched"]).await;
    // Nobody listens there: a replica without its master keeps what it has.
    let become_replica = ["REPLICAOF", "127.0.0.1", "1"];
    // By its first refusal it is found out.
    let kinds = [(NodeErrorKind::ReadOnly, "READONLY"), (NodeErrorKind::Refused, "REPLICA")];
    three_refuse_a_holder(&masters, &redlock, &become_replica, &kinds).await;
    three_refuse(&masters, &redlock, &kinds).await;

    tell_three(&masters, &["REPLICAOF", "NO", "ONE"]).await;
    until_free(&masters, "held").await;
    assert_eq!(raw(&masters, 0).get("data").await.as_deref(), Some("untouched"));
    // One that was a replica may have forgotten what it had granted as a master.
    let young = async || {
        redlock.nodes()[..3]
            .iter()
            .all(|node| matches!(node.state, NodeState::Young(left) if left > secs(30)))
    };
    until("they should be known as young", young).await;
}

/// Its connection is given up while votes are under way on it: whoever waits for these learns why.
#[tokio::test]
async fn a_replica_is_named_as_one_to_all_that_wait_for_its_answer() {
    let nodes = Proxied::start().await;
    let redlock = nodes.client(secs(5)).await;
    tell_three(&nodes.masters, &["REPLICAOF", "127.0.0.1", "1"]).await;
    // Longer than it takes until a node that refused is looked at.
    nodes.proxies[..3].iter().for_each(|proxy| proxy.latency(Direction::ToClient, ms(200)));
    let attempts = (0..20).map(async |turn| {
        tokio::time::sleep(ms(30 * turn)).await;
        refused(&redlock).await
    });
    for failed in join_all(attempts).await {
        let named: Vec<&str> = failed.iter().map(|error| error.address()).collect();
        assert_eq!(named, nodes.names(3));
        for error in &failed {
            let known = matches!(error.kind(), NodeErrorKind::ReadOnly | NodeErrorKind::Refused);
            assert!(known, "{:?}: {error}", error.kind());
        }
    }
}

#[tokio::test]
async fn a_server_that_cannot_persist_gives_no_vote() {
    let masters = five().await;
    let redlock = client(&masters).await;
    for index in 0..3 {
        // Where the snapshot belongs stands a folder, so that saving fails and writes are refused.
        std::fs::create_dir(masters.dir(index).join("dump.rdb")).unwrap();
        let raw = raw(&masters, index);
        raw.tell(&["SET", "data", "untouched"]).await;
    }
    let kind = (NodeErrorKind::CannotPersist, "MISCONF");
    let lease = hold(&redlock, "held").await;
    until_held_by_all(&masters, "held", lease.token().as_str()).await;
    for index in 0..3 {
        let raw = raw(&masters, index);
        raw.tell(&["CONFIG", "SET", "save", "3600 1"]).await;
        raw.tell(&["BGSAVE"]).await;
        until("the save should fail", async || raw.info("rdb_last_bgsave_status").await == "err").await;
    }
    three_refuse(&masters, &redlock, &[kind]).await;
    let refused = lease.release().await.unwrap_err();
    let ReleaseError::NoQuorum(too_few) = refused else { panic!("{refused:?}") };
    assert_three(&masters, &too_few.failed, &[kind]);
    assert_eq!(raw(&masters, 0).get("data").await.as_deref(), Some("untouched"));

    tell_three(&masters, &["CONFIG", "SET", "stop-writes-on-bgsave-error", "no"]).await;
    until_free(&masters, "held").await;
}

#[tokio::test]
async fn a_server_without_memory_gives_no_vote() {
    let masters = five().await;
    let redlock = client(&masters).await;
    tell_three(&masters, &["SET", "data", "untouched"]).await;
    tell_three(&masters, &["CONFIG", "SET", "maxmemory", "1"]).await;
    three_refuse(&masters, &redlock, &[(NodeErrorKind::OutOfMemory, "OOM")]).await;
    tell_three(&masters, &["CONFIG", "SET", "maxmemory", "0"]).await;
    hold(&redlock, "job").await.release().await.unwrap();
    assert_eq!(raw(&masters, 0).get("data").await.as_deref(), Some("untouched"));
}

#[tokio::test]
async fn a_lease_is_renewed_and_released_on_servers_without_memory() {
    let masters = five().await;
    let redlock = client(&masters).await;
    let lease = redlock.lease("job").ttl(secs(20)).without_heartbeat().acquire().await.unwrap();
    let both = redlock.lease_all(["a", "b"]).ttl(secs(20)).without_heartbeat().acquire().await.unwrap();
    until_held_by_all(&masters, "job", lease.token().as_str()).await;
    until_held_by_all(&masters, "b", both.token().as_str()).await;
    for raw in raws(&masters) {
        raw.tell(&["CONFIG", "SET", "maxmemory", "1"]).await;
    }
    for lease in [lease, both] {
        lease.extend(secs(60)).await.unwrap();
        assert!(lease.remaining() > secs(40));
        lease.release().await.unwrap();
    }
    for key in ["job", "a", "b"] {
        until_free(&masters, key).await;
    }
}

#[tokio::test]
async fn a_user_without_permission_gets_no_vote() {
    let masters = five().await;
    for raw in raws(&masters) {
        raw.tell(&["ACL", "SETUSER", "worker", "on", ">secret", "~*", "+@all"]).await;
    }
    let urls = masters.urls().into_iter().map(|url| url.replace("redis://", "redis://worker:secret@"));
    let redlock = connect(Redlock::builder().nodes(urls).node_timeout(secs(2))).await;
    let kind = (NodeErrorKind::NoPermission, "NOPERM");
    let no_keys = ["ACL", "SETUSER", "worker", "resetkeys", "~others:*"];
    three_refuse_a_holder(&masters, &redlock, &no_keys, &[kind]).await;
    three_refuse(&masters, &redlock, &[kind]).await;

    tell_three(&masters, &["ACL", "SETUSER", "worker", "~*"]).await;
    until_free(&masters, "held").await;
    tell_three(&masters, &["ACL", "SETUSER", "worker", "-set"]).await;
    // What a script may not do has no code of its own, and words that differ.
    let refused = redlock.lease("fenced").ttl(secs(60)).fenced().try_acquire().await.unwrap_err();
    let AcquireError::NoQuorum(too_few) = refused else { panic!("{refused:?}") };
    let in_a_script =
        [(NodeErrorKind::NoPermission, "USER EXECUTING"), (NodeErrorKind::NoPermission, "'SET'")];
    assert_three(&masters, &too_few.failed, &in_a_script);
    tell_three(&masters, &["ACL", "SETUSER", "worker", "-eval", "-evalsha"]).await;
    three_refuse(&masters, &redlock, &[kind]).await;
}

#[tokio::test]
async fn a_server_that_wants_a_password_gives_no_vote() {
    let masters = five().await;
    tell_three(&masters, &["CONFIG", "SET", "requirepass", "secret"]).await;
    let redlock = Redlock::builder().nodes(masters.urls()).node_timeout(secs(2)).connect().await.unwrap();
    for _ in 0..2 {
        assert_three(&masters, &refused(&redlock).await, &[(NodeErrorKind::Authentication, "NOAUTH")]);
    }
    for index in 3..5 {
        let raw = raw(&masters, index);
        until("those that serve should keep nothing", async || raw.get("job").await.is_none()).await;
    }
}

#[tokio::test]
async fn a_server_that_wants_no_password_any_more_is_taken_in() {
    let masters = five().await;
    tell_three(&masters, &["CONFIG", "SET", "requirepass", "secret"]).await;
    let redlock = Redlock::builder().nodes(masters.urls()).node_timeout(secs(2)).connect().await.unwrap();
    refused(&redlock).await;
    for index in 0..3 {
        let raw = Raw::new(&masters.url(index).replace("redis://", "redis://:secret@"));
        raw.tell(&["CONFIG", "SET", "requirepass", ""]).await;
    }
    until_all_up(&redlock).await;
    hold(&redlock, "job").await.release().await.unwrap();
}

#[tokio::test]
async fn the_nodes_that_failed_are_named_in_the_order_of_their_addresses() {
    let masters = five().await;
    tell_three(&masters, &["CONFIG", "SET", "maxmemory", "1"]).await;
    let mut proxies = Vec::new();
    for index in 0..5 {
        proxies.push(FaultProxy::start(masters.addr(index)).await.unwrap());
    }
    let urls = proxies.iter().map(FaultProxy::url);
    let redlock = connect(Redlock::builder().nodes(urls).node_timeout(secs(5))).await;
    // The first answers last.
    proxies[0].latency(Direction::ToClient, ms(300));
    proxies[1].latency(Direction::ToClient, ms(150));
    let failed = refused(&redlock).await;
    let named: Vec<&str> = failed.iter().map(|error| error.address()).collect();
    let expected: Vec<String> = proxies[..3].iter().map(|proxy| proxy.addr().to_string()).collect();
    assert_eq!(named, expected);
}

#[tokio::test]
async fn what_is_no_redis_server_is_named_as_none() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("redis://{}", listener.local_addr().unwrap());
    let serve = tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            // Whoever asked may be gone.
            let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await;
        }
    });
    let redlock = Redlock::builder().nodes([url]).node_timeout(secs(2)).connect().await.unwrap();
    let refused = redlock.lease("job").try_acquire().await.unwrap_err();
    let AcquireError::NoQuorum(too_few) = refused else { panic!("{refused:?}") };
    let error = too_few.failed.iter().next().unwrap();
    assert_eq!(error.kind(), NodeErrorKind::Unexpected, "{error}");
    assert!(error.reason().contains("is this a Redis server?"), "{error}");
    serve.abort();
}

/// A server loads for seconds where each key takes it some time.
#[tokio::test]
async fn a_server_that_loads_its_data_gives_no_vote() {
    let masters = LocalMasters::builder().arg("--enable-debug-command", "yes").start().await.unwrap();
    let redlock = client(&masters).await;
    let mut loading = Vec::new();
    for index in 0..3 {
        let raw = raw(&masters, index);
        raw.tell(&["SET", "data", "untouched"]).await;
        raw.tell(&["DEBUG", "POPULATE", "2000", "filler", "1000"]).await;
        raw.tell(&["CONFIG", "SET", "loading-process-events-interval-bytes", "1024"]).await;
        raw.tell(&["CONFIG", "SET", "key-load-delay", "2000"]).await;
        let reload = raw.clone();
        loading.push(tokio::spawn(async move { reload.tell(&["DEBUG", "RELOAD"]).await }));
        let is_loading = async || {
            let answer = raw.say(&["GET", "data"]).await;
            answer.is_err_and(|error| error.code() == Some("LOADING"))
        };
        until("the server should load", is_loading).await;
    }
    assert_three(&masters, &refused(&redlock).await, &[(NodeErrorKind::Loading, "LOADING")]);
    assert!(loading.iter().all(|task| !task.is_finished()), "all of it was while they loaded");
    for task in loading {
        soon("the servers should have loaded", task).await.unwrap();
    }
    until_all_up(&redlock).await;
    until_free(&masters, "job").await;
    hold(&redlock, "job").await.release().await.unwrap();
    assert_eq!(raw(&masters, 0).get("data").await.as_deref(), Some("untouched"));
}

/// Members of a cluster to be. Each listens on a second port, which somebody may have.
async fn cluster(count: usize) -> LocalMasters {
    let builder = LocalMasters::builder().count(count).arg("--cluster-enabled", "yes");
    for _ in 0..20 {
        match builder.clone().start().await {
            Err(TestingError::Exited { log, .. }) if log.contains("(cluster)") => {}
            started => return started.unwrap(),
        }
    }
    panic!("no free ports for a cluster");
}

/// The first three of `cluster` and the two of `plain`, for a user who may not know what a server is.
async fn urls_of_unknowing(cluster: &LocalMasters, plain: &LocalMasters) -> Vec<String> {
    let masters = (0..3).map(|index| (cluster, index)).chain((0..2).map(|index| (plain, index)));
    let mut urls = Vec::new();
    for (masters, index) in masters {
        let user = ["ACL", "SETUSER", "worker", "on", ">secret", "~*", "+@all", "-info", "-role"];
        raw(masters, index).tell(&user).await;
        urls.push(masters.url(index).replace("redis://", "redis://worker:secret@"));
    }
    urls
}

#[tokio::test]
async fn a_cluster_is_refused_by_connect() {
    let (cluster, plain) = (cluster(3).await, fleet(2).await);
    let urls = cluster.urls().into_iter().take(3).chain(plain.urls());
    let refused = Redlock::builder().nodes(urls).node_timeout(secs(2)).connect().await.unwrap_err();
    let ConnectError::Refused { position: 1, address, refusal } = &refused else { panic!("{refused:?}") };
    assert_eq!(*address, cluster.addr(0).to_string());
    assert_eq!(*refusal, Refusal::Cluster);
}

#[tokio::test]
async fn a_cluster_without_slots_gives_no_vote() {
    let (cluster, plain) = (cluster(3).await, fleet(2).await);
    let urls = urls_of_unknowing(&cluster, &plain).await;
    let redlock = connect(Redlock::builder().nodes(urls).node_timeout(secs(2))).await;
    assert_three(&cluster, &refused(&redlock).await, &[(NodeErrorKind::Cluster, "CLUSTERDOWN")]);
    until_free(&plain, "job").await;
}

#[tokio::test]
async fn a_cluster_that_keeps_the_key_elsewhere_gives_no_vote() {
    let (cluster, plain) = (cluster(4).await, fleet(2).await);
    let owner = raw(&cluster, 3);
    owner.tell(&["CLUSTER", "ADDSLOTSRANGE", "0", "16383"]).await;
    let writable = async || owner.say(&["SET", "job", "untouched"]).await.is_ok();
    until("the owner should serve", writable).await;
    for index in 0..3 {
        let raw = raw(&cluster, index);
        raw.tell(&["CLUSTER", "MEET", "127.0.0.1", &cluster.port(3).to_string()]).await;
        let knows = async || {
            let answer = raw.say(&["GET", "job"]).await;
            answer.is_err_and(|error| error.code() == Some("MOVED"))
        };
        until("each should know the owner", knows).await;
    }
    let urls = urls_of_unknowing(&cluster, &plain).await;
    let redlock = connect(Redlock::builder().nodes(urls).node_timeout(secs(2))).await;
    assert_three(&cluster, &refused(&redlock).await, &[(NodeErrorKind::Cluster, "MOVED")]);
    until_free(&plain, "job").await;
    assert_eq!(owner.get("job").await.as_deref(), Some("untouched"));
}

#[tokio::test]
async fn a_key_of_another_type_is_anothers_and_left_as_it_is() {
    let masters = five().await;
    let redlock = client(&masters).await;
    for raw in raws(&masters) {
        raw.tell(&["HSET", "job", "field", "untouched"]).await;
    }
    assert!(redlock.lease("job").try_acquire().await.unwrap().is_none());
    assert!(redlock.lease_all(["job", "job2"]).try_acquire().await.unwrap().is_none());
    until_free(&masters, "job2").await;
    assert_untouched(&masters, 5).await;
}

#[tokio::test]
async fn a_held_key_that_became_another_type_is_named_and_left_as_it_is() {
    let masters = five().await;
    let redlock = client(&masters).await;
    let lease = redlock.lease("job").ttl(secs(60)).without_heartbeat().acquire().await.unwrap();
    until_held_by_all(&masters, "job", lease.token().as_str()).await;
    tell_three(&masters, &["DEL", "job"]).await;
    tell_three(&masters, &["HSET", "job", "field", "untouched"]).await;
    let refused = lease.extend(secs(60)).await.unwrap_err();
    let ExtendError::NoQuorum(too_few) = refused else { panic!("{refused:?}") };
    assert_three(&masters, &too_few.failed, &[(NodeErrorKind::WrongType, "")]);
    assert_untouched(&masters, 3).await;
    let refused = lease.release().await.unwrap_err();
    let ReleaseError::NoQuorum(too_few) = refused else { panic!("{refused:?}") };
    assert_three(&masters, &too_few.failed, &[(NodeErrorKind::WrongType, "")]);
    for index in 3..5 {
        let raw = raw(&masters, index);
        until("the others give it back", async || raw.get("job").await.is_none()).await;
    }
    assert_untouched(&masters, 3).await;
}

async fn assert_untouched(masters: &LocalMasters, count: usize) {
    for index in 0..count {
        let field: String = raw(masters, index).ask(&["HGET", "job", "field"]).await;
        assert_eq!(field, "untouched");
    }
}
