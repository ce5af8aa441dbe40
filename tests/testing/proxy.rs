use std::time::{Duration, Instant};

use leasehold::testing::{Direction, FaultProxy, LocalMasters};

use super::client::{Client, PATIENCE};

/// One master and a proxy before it.
async fn proxied() -> (LocalMasters, FaultProxy) {
    let masters = LocalMasters::start(1).await.expect("start a master");
    let proxy = FaultProxy::start(masters.addr(0)).await.expect("start a proxy");
    (masters, proxy)
}

async fn through(proxy: &FaultProxy) -> Client {
    let mut client = Client::connect(proxy.addr()).await.expect("connect to the proxy");
    assert_eq!(client.ask("PING").await.unwrap(), "+PONG");
    client
}

async fn past(masters: &LocalMasters) -> Client {
    Client::connect(masters.addr(0)).await.expect("connect to the master")
}

/// Returns when the master holds `value` at `key`; what was sent needs a moment to arrive.
async fn until_stored(masters: &LocalMasters, key: &str, value: &str) {
    let mut asking = past(masters).await;
    let started = Instant::now();
    while asking.ask(&format!("GET {key}")).await.unwrap() != value {
        assert!(started.elapsed() < PATIENCE, "{key} should be {value}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn without_faults_it_is_not_noticed() {
    let (masters, proxy) = proxied().await;
    assert_eq!(proxy.url(), format!("redis://{}", proxy.addr()));
    let value = "x".repeat(1_000_000);
    let mut client = through(&proxy).await;
    assert_eq!(proxy.connections(), 1);
    assert_eq!(client.ask("SET small 1").await.unwrap(), "+OK");
    assert_eq!(past(&masters).await.ask("GET small").await.unwrap(), "1");

    let mut connection =
        redis::Client::open(proxy.url()).unwrap().get_multiplexed_async_connection().await.unwrap();
    let () = redis::cmd("SET").arg("large").arg(&value).query_async(&mut connection).await.unwrap();
    let got: String = redis::cmd("GET").arg("large").query_async(&mut connection).await.unwrap();
    assert!(got == value);
}

#[tokio::test]
async fn latency_is_that_of_its_direction_and_ends_at_zero() {
    let (masters, proxy) = proxied().await;
    let latency = Duration::from_millis(400);
    let mut client = through(&proxy).await;
    for direction in [Direction::ToServer, Direction::ToClient] {
        proxy.latency(direction, latency);
        let started = Instant::now();
        client.send(&format!("SET {direction:?} late")).await.unwrap();
        if direction == Direction::ToClient {
            until_stored(&masters, "ToClient", "late").await;
            assert!(started.elapsed() < latency, "only the reply is late");
        }
        assert_eq!(client.reply().await.unwrap(), "+OK");
        assert!(started.elapsed() >= latency, "{direction:?}: {:?}", started.elapsed());
        assert!(started.elapsed() < latency * 5, "{direction:?}: {:?}", started.elapsed());
        proxy.latency(direction, Duration::ZERO);
    }
    let started = Instant::now();
    assert_eq!(client.ask("PING").await.unwrap(), "+PONG");
    assert!(started.elapsed() < latency, "{:?}", started.elapsed());
}

#[tokio::test]
async fn latency_keeps_order_and_lets_many_requests_be_under_way() {
    let (_masters, proxy) = proxied().await;
    let mut client = through(&proxy).await;
    let latency = Duration::from_millis(150);
    proxy.latency(Direction::ToServer, latency);
    proxy.latency(Direction::ToClient, latency);
    let started = Instant::now();
    for number in 0..40 {
        client.send(&format!("ECHO {number}")).await.unwrap();
        // Pieces of their own, not one write that the system joined.
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    for number in 0..40 {
        assert_eq!(client.reply().await.unwrap(), number.to_string());
    }
    assert!(started.elapsed() >= latency * 2);
    assert!(started.elapsed() < latency * 40, "one after the other: {:?}", started.elapsed());
}

#[tokio::test]
async fn a_shorter_latency_does_not_overtake() {
    let (_masters, proxy) = proxied().await;
    let mut client = through(&proxy).await;
    proxy.latency(Direction::ToServer, Duration::from_secs(3600));
    client.send("ECHO first").await.unwrap();
    client.expect_silence().await;
    proxy.latency(Direction::ToServer, Duration::from_millis(1));
    client.send("ECHO second").await.unwrap();
    assert_eq!(client.reply().await.unwrap(), "first");
    assert_eq!(client.reply().await.unwrap(), "second");
}

#[tokio::test]
async fn a_black_hole_keeps_everything_until_it_is_healed() {
    let (masters, proxy) = proxied().await;
    let mut present = through(&proxy).await;
    proxy.black_hole();
    for number in 0..3 {
        present.send(&format!("APPEND order {number}")).await.unwrap();
    }
    let mut new = Client::connect(proxy.addr()).await.expect("new connections are taken");
    new.send("ECHO new").await.unwrap();
    present.expect_silence().await;
    new.expect_silence().await;
    assert_eq!(past(&masters).await.ask("GET order").await.unwrap(), "$-1");

    proxy.heal();
    for length in 1..=3 {
        assert_eq!(present.reply().await.unwrap(), format!(":{length}"));
    }
    assert_eq!(new.reply().await.unwrap(), "new");
    assert_eq!(past(&masters).await.ask("GET order").await.unwrap(), "012");
}

#[tokio::test]
async fn a_kept_request_is_executed_although_its_client_has_gone() {
    let (masters, proxy) = proxied().await;
    let mut client = through(&proxy).await;
    proxy.black_hole();
    client.send("SET key late").await.unwrap();
    client.expect_silence().await;
    drop(client);
    assert_eq!(past(&masters).await.ask("GET key").await.unwrap(), "$-1");
    proxy.heal();
    until_stored(&masters, "key", "late").await;
}

#[tokio::test]
async fn replies_alone_can_be_held() {
    let (masters, proxy) = proxied().await;
    let mut client = through(&proxy).await;
    proxy.hold(Direction::ToClient);
    client.send("SET key value").await.unwrap();
    until_stored(&masters, "key", "value").await;
    client.expect_silence().await;
    proxy.heal();
    assert_eq!(client.reply().await.unwrap(), "+OK");
}

#[tokio::test]
async fn lost_replies_never_come_but_their_requests_are_executed() {
    let (masters, proxy) = proxied().await;
    let mut client = through(&proxy).await;
    proxy.lose_replies();
    client.send("SET key value").await.unwrap();
    until_stored(&masters, "key", "value").await;
    client.expect_silence().await;

    proxy.heal();
    client.send("ECHO another").await.unwrap();
    // Its reply must not be taken for that of the SET.
    client.expect_silence().await;
    assert_eq!(through(&proxy).await.ask("GET key").await.unwrap(), "value");
}

#[tokio::test]
async fn lost_requests_are_never_executed() {
    let (masters, proxy) = proxied().await;
    let mut client = through(&proxy).await;
    proxy.lose(Direction::ToServer);
    client.send("SET key value").await.unwrap();
    client.expect_silence().await;
    proxy.heal();
    assert_eq!(through(&proxy).await.ask("PING").await.unwrap(), "+PONG");
    assert_eq!(past(&masters).await.ask("GET key").await.unwrap(), "$-1");
}

#[tokio::test]
async fn a_cut_ends_present_connections_and_no_others() {
    let (_masters, proxy) = proxied().await;
    let (mut one, mut two) = (through(&proxy).await, through(&proxy).await);
    proxy.cut();
    one.expect_end().await;
    two.expect_end().await;
    let mut new = through(&proxy).await;
    assert_eq!(new.ask("PING").await.unwrap(), "+PONG");
}

#[tokio::test]
async fn a_cut_ends_connections_in_a_black_hole_too() {
    let (_masters, proxy) = proxied().await;
    let mut client = through(&proxy).await;
    proxy.black_hole();
    proxy.cut();
    client.expect_end().await;
}

#[tokio::test]
async fn refusing_is_for_new_connections() {
    let (_masters, proxy) = proxied().await;
    let mut present = through(&proxy).await;
    proxy.refuse(true);
    let refused = async { Client::connect(proxy.addr()).await?.ask("PING").await };
    assert!(refused.await.is_err());
    assert_eq!(present.ask("PING").await.unwrap(), "+PONG");
    proxy.refuse(false);
    through(&proxy).await;
    proxy.refuse(true);
    proxy.heal();
    through(&proxy).await;
}

#[tokio::test]
async fn the_end_of_the_server_is_seen_through_it() {
    let (masters, proxy) = proxied().await;
    let mut client = through(&proxy).await;
    masters.kill(0).await.unwrap();
    client.expect_end().await;
    let unanswered = async { Client::connect(proxy.addr()).await?.ask("PING").await };
    assert!(unanswered.await.is_err(), "nobody is behind it");
    masters.restart(0).await.unwrap();
    through(&proxy).await;
}

#[tokio::test]
async fn a_black_hole_hides_the_end_of_the_server() {
    let (masters, proxy) = proxied().await;
    let mut present = through(&proxy).await;
    proxy.black_hole();
    masters.kill(0).await.unwrap();
    let mut new = Client::connect(proxy.addr()).await.unwrap();
    present.expect_silence().await;
    new.expect_silence().await;
    proxy.heal();
    present.expect_end().await;
    new.expect_end().await;
}

#[tokio::test]
async fn it_ends_with_its_handle() {
    let (_masters, proxy) = proxied().await;
    let address = proxy.addr();
    let mut client = through(&proxy).await;
    drop(proxy);
    client.expect_end().await;
    let started = Instant::now();
    while Client::connect(address).await.is_ok() {
        assert!(started.elapsed() < PATIENCE, "nobody should listen any more");
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn closed_connections_are_not_counted() {
    let (_masters, proxy) = proxied().await;
    let client = through(&proxy).await;
    assert_eq!(proxy.connections(), 1);
    drop(client);
    let started = Instant::now();
    while proxy.connections() > 0 {
        assert!(started.elapsed() < PATIENCE, "the connection should be over");
        tokio::task::yield_now().await;
    }
}
