//! Servers that a client does not believe: an error that names the node and the reason, and no hang.

use std::time::Instant;

use leasehold::testing::LocalMasters;
use leasehold::{AcquireError, Builder, ConnectError, NodeErrorKind, NodeState};

use super::certificates::{Authority, Identity};
use super::servers::{TlsMaster, three, urls};
use crate::common::secs;
use crate::views::{builder, until_node};

/// Does not believe the one node, and says so with one of `words`; a node that is up has been believed.
async fn does_not_believe(builder: Builder, address: &str, words: &[&str]) {
    let begun = Instant::now();
    let redlock = builder.connect().await.expect("nothing that waiting could not mend");
    let down = until_node(&redlock, 0, "down", |node| node.state == NodeState::Down).await;
    let error = redlock.lease("job").try_acquire().await.expect_err("the only node is not believed");
    assert!(begun.elapsed() < secs(15), "{:?}", begun.elapsed());
    let AcquireError::NoQuorum(too_few) = &error else { panic!("{error:?}") };
    let failed = too_few.failed.iter().next().expect("it is named");
    for named in [failed, &down.last_error.expect("it is known why")] {
        assert_eq!(named.address(), address);
        let kind = named.kind();
        assert!(matches!(kind, NodeErrorKind::Unreachable | NodeErrorKind::ConnectionLost), "{named:?}");
        let reason = named.reason().to_lowercase();
        assert!(words.iter().any(|word| reason.contains(word)), "{reason}");
    }
}

async fn shown_and_trusted(shown: &Identity, trusted: &Authority, words: &[&str]) {
    let master = TlsMaster::start(shown).await;
    let builder = builder([master.url("127.0.0.1")]).tls_ca(&trusted.pem);
    does_not_believe(builder, &master.address.to_string(), words).await;
}

const HERE: &[&str] = &["127.0.0.1"];

#[tokio::test]
async fn a_certificate_of_another_authority_is_refused() {
    let shown = Authority::new().issue(HERE);
    shown_and_trusted(&shown, &Authority::new(), &["certificate", "badsignature"]).await;
}

#[tokio::test]
async fn a_certificate_for_another_host_is_refused() {
    let authority = Authority::new();
    let shown = authority.issue(&["elsewhere.test", "127.0.0.2"]);
    shown_and_trusted(&shown, &authority, &["not valid for name"]).await;
}

#[tokio::test]
async fn a_certificate_that_has_expired_is_refused() {
    let authority = Authority::new();
    shown_and_trusted(&authority.issue_expired(HERE), &authority, &["expired"]).await;
}

#[tokio::test]
async fn without_an_authority_of_its_own_a_client_refuses_a_private_one() {
    let master = TlsMaster::start(&Authority::new().issue(HERE)).await;
    let builder = builder([master.url("127.0.0.1")]);
    // Also where a machine has no authorities at all.
    let words = ["certificate"];
    does_not_believe(builder, &master.address.to_string(), &words).await;
}

#[tokio::test]
async fn a_server_that_does_not_speak_tls_is_named() {
    let plain = LocalMasters::start(1).await.expect("a master");
    let url = plain.url(0).replace("redis://", "rediss://");
    let builder = builder([url]).tls_ca(Authority::new().pem);
    let words = ["tls", "message", "no connection within", "eof", "reset"];
    does_not_believe(builder, &plain.addr(0).to_string(), &words).await;
}

#[tokio::test]
async fn a_server_that_speaks_only_tls_is_named_to_a_client_without() {
    let master = TlsMaster::start(&Authority::new().issue(HERE)).await;
    let builder = builder([format!("redis://{}", master.address)]);
    does_not_believe(builder, &master.address.to_string(), &["connection", "broken pipe", "reset", "eof"])
        .await;
}

#[tokio::test]
async fn a_server_that_wants_a_certificate_of_the_client_is_named() {
    let authority = Authority::new();
    let strict = |builder: leasehold::testing::LocalMastersBuilder| builder.arg("--tls-auth-clients", "yes");
    let master = TlsMaster::start_with(&authority.issue(HERE), strict).await;
    let builder = builder([master.url("127.0.0.1")]).tls_ca(&authority.pem);
    does_not_believe(builder, &master.address.to_string(), &["certificate", "connection", "reset"]).await;
}

#[tokio::test]
async fn one_master_that_is_not_believed_does_not_keep_the_others_from_serving() {
    let (authority, masters) = three().await;
    let other = TlsMaster::start(&Authority::new().issue(HERE)).await;
    let mut urls = urls(&masters);
    urls[1] = other.url("127.0.0.1");
    let redlock = builder(&urls).tls_ca(&authority.pem).connect().await.expect("connect");
    until_node(&redlock, 1, "down", |node| node.state == NodeState::Down).await;
    // The fleet is new, as the client says who can tell.
    let adopted = redlock.adopt().await;
    assert!(adopted[0].is_ok() && adopted[1].is_err() && adopted[2].is_ok(), "{adopted:?}");
    let lease = redlock.lease("job").acquire().await.expect("two of three");
    lease.release().await.expect("release");
}

#[tokio::test]
async fn what_is_no_certificate_is_refused_before_anything_is_connected() {
    let authority = Authority::new();
    let cut = &authority.pem[..authority.pem.len() / 2];
    let garbled = authority.pem.replace("M", "?");
    let key = authority.issue(HERE).key;
    for pem in ["", "secret nonsense", cut, &garbled, &key] {
        let connected = builder(["rediss://127.0.0.1:9"]).tls_ca(pem).connect().await.map(drop);
        let error = connected.expect_err(pem);
        let text = error.to_string();
        let ConnectError::InvalidOption { option, reason } = error else { panic!("{error:?}") };
        assert_eq!(option, "tls_ca");
        assert!(!reason.is_empty() && !reason.contains("secret") && text.contains("tls_ca"), "{text}");
    }
}

#[tokio::test]
async fn an_authority_that_is_no_certificate_is_refused_for_masters_without_tls_too() {
    let connected = builder(["redis://127.0.0.1:9"]).tls_ca("nonsense").connect().await.map(drop);
    assert!(matches!(connected, Err(ConnectError::InvalidOption { .. })), "{connected:?}");
}
