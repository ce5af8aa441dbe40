use std::time::Duration;

use leasehold::testing::LocalMasters;
use leasehold::{AcquireError, ConnectError, ExtendError, InvalidRequest, LeaseRequest, Redlock};

use crate::common::*;

/// One master and a client of it.
struct One {
    masters: LocalMasters,
    redlock: Redlock,
}

impl One {
    async fn start() -> Self {
        let masters = fleet(1).await;
        let redlock = client(&masters).await;
        Self { masters, redlock }
    }
}

/// Asks for `job` in both ways; both have to be refused, and nothing be sent.
async fn refused(change: impl Fn(LeaseRequest) -> LeaseRequest) -> Vec<InvalidRequest> {
    let one = One::start().await;
    let request = change(one.redlock.lease("job"));
    let before = writes(&one.masters).await;
    let outcomes = [request.clone().acquire().await.unwrap_err(), request.try_acquire().await.unwrap_err()];
    assert_eq!(writes(&one.masters).await, before);
    let reason = |error| match error {
        AcquireError::InvalidRequest(reason) => reason,
        other => panic!("{other:?}"),
    };
    outcomes.map(reason).to_vec()
}

#[tokio::test]
async fn a_ttl_that_leaves_no_validity_is_refused_before_anything_is_sent() {
    for ttl in [Duration::ZERO, Duration::from_micros(1), ms(1), ms(3)] {
        for reason in refused(|request| request.ttl(ttl)).await {
            assert_eq!(reason, InvalidRequest::TtlTooShort { ttl });
            assert!(reason.to_string().contains("validity"), "{reason}");
        }
    }
}

#[tokio::test]
async fn a_ttl_above_the_longest_is_refused_before_anything_is_sent() {
    for ttl in [secs(60) + ms(1), Duration::MAX] {
        for reason in refused(|request| request.ttl(ttl)).await {
            assert_eq!(reason, InvalidRequest::TtlTooLong { ttl, max_ttl: secs(60) });
            assert!(reason.to_string().contains("max_ttl"), "{reason}");
        }
    }
}

#[tokio::test]
async fn a_renewal_interval_that_leaves_no_second_try_is_refused_before_anything_is_sent() {
    let ttl = secs(10);
    for interval in [Duration::ZERO, ms(5_001), secs(10), secs(11), Duration::MAX] {
        for reason in refused(|request| request.ttl(ttl).renew_every(interval)).await {
            assert_eq!(reason, InvalidRequest::RenewalInterval { interval, ttl });
        }
    }
}

#[tokio::test]
async fn an_empty_key_and_a_reserved_one_are_refused_before_anything_is_sent() {
    let one = One::start().await;
    let before = writes(&one.masters).await;
    for key in ["", "leasehold:", "leasehold:node", "leasehold:fence:job"] {
        let refused = one.redlock.lease(key).acquire().await.unwrap_err();
        let AcquireError::InvalidRequest(reason) = refused else { panic!("{refused:?}") };
        match reason {
            InvalidRequest::EmptyKey => assert_eq!(key, ""),
            InvalidRequest::ReservedKey { key: named } => assert_eq!(named.as_bytes(), key.as_bytes()),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(writes(&one.masters).await, before);
}

#[tokio::test]
async fn keys_that_only_look_reserved_are_keys() {
    let one = One::start().await;
    for key in ["leasehold", "Leasehold:x", " leasehold:x", "x:leasehold:"] {
        hold(&one.redlock, key).await.release().await.unwrap();
    }
}

#[tokio::test]
async fn an_extend_that_leaves_no_validity_is_refused_and_changes_nothing() {
    let one = One::start().await;
    let lease = one.redlock.lease("job").ttl(secs(60)).without_heartbeat().acquire().await.unwrap();
    let before = writes(&one.masters).await;
    for ttl in [Duration::ZERO, Duration::from_micros(1), ms(3), secs(61), Duration::MAX] {
        let refused = lease.extend(ttl).await.unwrap_err();
        assert!(matches!(refused, ExtendError::InvalidRequest(_)), "{refused:?}");
    }
    assert_eq!(writes(&one.masters).await, before);
    assert!(lease.remaining() > secs(30));
}

#[tokio::test]
async fn a_wait_without_end_waits_on_and_can_be_given_up() {
    let one = One::start().await;
    let lease = hold(&one.redlock, "job").await;
    let waiter = tokio::spawn(one.redlock.lease("job").wait(Duration::MAX).acquire());
    // Several rounds of its own.
    let asked = async || one.redlock.nodes().len() == 1 && raw(&one.masters, 0).calls(&["set"]).await > 4;
    until("the waiter should ask again and again", asked).await;
    assert!(!waiter.is_finished());
    waiter.abort();
    assert!(waiter.await.unwrap_err().is_cancelled());

    let waiter = tokio::spawn(one.redlock.lease("job").wait(Duration::MAX).acquire());
    lease.release().await.unwrap();
    soon("the waiter should have it", waiter).await.unwrap().unwrap().release().await.unwrap();
    until_free(&one.masters, "job").await;
}

#[tokio::test]
async fn a_wait_of_zero_is_one_round() {
    let one = One::start().await;
    let free = one.redlock.lease("job").wait(Duration::ZERO).acquire().await.unwrap();
    let held = one.redlock.lease("job").wait(Duration::ZERO).acquire().await.unwrap_err();
    assert!(matches!(held, AcquireError::TimedOut { .. }), "{held:?}");
    free.release().await.unwrap();
}

#[tokio::test]
async fn the_shortest_ttls_never_give_a_lease_without_validity_and_leave_no_key() {
    let masters = five().await;
    let redlock = client(&masters).await;
    for millis in (4..40).chain(4..40) {
        match redlock.lease("job").ttl(ms(millis)).without_heartbeat().try_acquire().await {
            Ok(Some(lease)) => assert!(lease.remaining() < ms(millis)),
            Ok(None) | Err(AcquireError::NoQuorum(_)) => {}
            Err(other) => panic!("{other:?}"),
        }
    }
    until_free(&masters, "job").await;
}

/// A port that notices when somebody calls.
struct Listener(std::net::TcpListener);

impl Listener {
    fn new() -> Self {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        Self(listener)
    }

    fn url(&self) -> String {
        format!("redis://{}", self.0.local_addr().unwrap())
    }

    fn was_called(&self) -> bool {
        self.0.accept().is_ok()
    }
}

#[tokio::test]
async fn no_node_is_refused() {
    let refused = Redlock::connect(Vec::<String>::new()).await.unwrap_err();
    assert!(matches!(refused, ConnectError::NoNodes), "{refused:?}");
}

#[tokio::test]
async fn the_same_address_twice_is_refused_before_anybody_is_called() {
    let (one, two) = (Listener::new(), Listener::new());
    let with_login = one.url().replace("redis://", "redis://user:hunter2@");
    for again in [one.url(), format!("{}/3", one.url()), with_login] {
        let refused = Redlock::connect([one.url(), two.url(), again]).await.unwrap_err();
        assert!(matches!(refused, ConnectError::SameNode { first: 1, second: 3, .. }), "{refused:?}");
        assert!(!format!("{refused} {refused:?}").contains("hunter2"));
    }
    assert!(!one.was_called() && !two.was_called());
}

#[tokio::test]
async fn a_bad_address_is_refused_before_anybody_is_called() {
    let one = Listener::new();
    let bad =
        ["", "not an address", "http://host", "redis://", "redis://h:99999", "redis://h/x", "redis://h:0"];
    for bad in bad {
        let refused = Redlock::connect([one.url(), bad.to_owned()]).await.unwrap_err();
        assert!(matches!(refused, ConnectError::BadAddress { position: 2, .. }), "{bad}: {refused:?}");
    }
    let refused = Redlock::connect([one.url(), "redis://:hunter2@h:port".to_owned()]).await.unwrap_err();
    assert!(!format!("{refused} {refused:?}").contains("hunter2"), "{refused:?}");
    assert!(!one.was_called());
}

#[tokio::test]
async fn options_out_of_range_are_refused_before_anybody_is_called() {
    let one = Listener::new();
    let builder = || Redlock::builder().nodes([one.url()]);
    let cases = [
        (builder().node_timeout(Duration::ZERO), "node_timeout"),
        (builder().node_timeout(Duration::MAX), "node_timeout"),
        (builder().max_ttl(Duration::ZERO), "max_ttl"),
        (builder().max_ttl(secs(2)), "max_ttl"),
        (builder().max_ttl(Duration::MAX), "max_ttl"),
    ];
    for (builder, named) in cases {
        let refused = builder.connect().await.unwrap_err();
        assert!(
            matches!(&refused, ConnectError::InvalidOption { option, .. } if *option == named),
            "{refused:?}"
        );
    }
    assert!(!one.was_called());
}

#[tokio::test]
async fn a_longer_ttl_is_possible_where_all_clients_agree_on_it() {
    let one = One::start().await;
    let redlock = connect(Redlock::builder().nodes(one.masters.urls()).max_ttl(secs(3_600))).await;
    let lease = redlock.lease("job").ttl(secs(3_600)).acquire().await.unwrap();
    assert!(lease.remaining() > secs(3_500));
    lease.release().await.unwrap();
}

#[tokio::test]
async fn a_closed_redlock_gives_no_lease() {
    let one = One::start().await;
    one.redlock.close().await;
    let before = writes(&one.masters).await;
    let refused = one.redlock.clone().lease("job").acquire().await.unwrap_err();
    assert!(matches!(refused, AcquireError::InvalidRequest(InvalidRequest::Closed)), "{refused:?}");
    assert_eq!(writes(&one.masters).await, before);
}
