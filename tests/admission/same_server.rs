//! One server behind two addresses would vote twice.

use leasehold::testing::{Direction, FaultProxy, LocalMasters};
use leasehold::{ConnectError, NodeErrorKind, NodeState, NodeStatus, Redlock, Refusal};

use crate::common::{connect, ms};
use crate::views::forward::Forward;
use crate::views::{builder, is_connected, masters, until_connected, until_node, until_up};

async fn two() -> LocalMasters {
    masters(2).unix_sockets(true).start().await.expect("local masters")
}

/// Connecting to `urls` fails because the `first` and the `second` are one server, and says so.
async fn are_one(urls: [String; 3], first: usize, second: usize) {
    let shown = |index: usize| urls[index].replace("redis://", "").replace("unix://", "unix:");
    let error = builder(&urls).connect().await.map(drop).expect_err("one server twice");
    let text = error.to_string();
    let ConnectError::Refused { position, address, refusal } = error else { panic!("{error:?}") };
    // Whichever of the two answered first has taken the place.
    let other = [(second, first), (first, second)].into_iter().find(|(late, _)| *late == position - 1);
    let (late, early) = other.unwrap_or_else(|| panic!("node {position} is another: {text}"));
    assert_eq!(address, shown(late));
    assert_eq!(refusal, Refusal::SameServer { other: shown(early) });
    assert!(text.contains(&shown(early)) && text.contains("give each node a master of its own"), "{text}");
}

#[tokio::test]
async fn a_server_under_two_host_names_is_refused() {
    let masters = two().await;
    let named = masters.url(0).replace("127.0.0.1", "localhost");
    are_one([masters.url(0), named, masters.url(1)], 0, 1).await;
}

#[tokio::test]
async fn a_server_behind_a_proxy_and_by_itself_is_refused() {
    let masters = two().await;
    let proxy = FaultProxy::start(masters.addr(0)).await.expect("a proxy");
    are_one([proxy.url(), masters.url(1), masters.url(0)], 0, 2).await;
}

#[tokio::test]
async fn a_server_by_its_port_and_by_its_socket_is_refused() {
    let masters = two().await;
    are_one([masters.url(1), masters.url(0), masters.unix_url(0).expect("a socket")], 1, 2).await;
}

#[tokio::test]
async fn a_server_by_two_database_numbers_is_refused() {
    let masters = two().await;
    let urls = [masters.url(0), format!("{}/1", masters.url(0)), masters.url(1)];
    let error = builder(urls).connect().await.map(drop).expect_err("one server twice");
    assert!(matches!(error, ConnectError::SameNode { first: 1, second: 2, .. }), "{error:?}");
}

#[tokio::test]
async fn without_the_guard_a_server_is_refused_a_second_place_all_the_same() {
    let masters = two().await;
    let named = masters.url(0).replace("127.0.0.1", "localhost");
    let connected = builder([masters.url(0), named, masters.url(1)]).restart_guard(false).connect().await;
    assert!(matches!(connected, Err(ConnectError::Refused { .. })), "{connected:?}");
}

/// Three nodes, of which the second is gone and the third turns out to be the first.
async fn found_out_later(masters: &LocalMasters) -> (Redlock, Forward) {
    // Each of the three was a server of its own when a client met them.
    let third = crate::views::masters(1).start().await.expect("a master");
    let before = Forward::start(([127, 0, 0, 1], 0), third.addr(0)).await.expect("an address");
    let address = before.address;
    let urls = [masters.url(0), masters.url(1), format!("redis://{address}")];
    connect(builder(&urls)).await.close().await;
    before.end().await;
    masters.kill(1).await.expect("kill");
    let redlock = builder(urls).connect().await.expect("a node that is not there is no error");
    until_up(&redlock, 0).await;
    (redlock, Forward::start(address, masters.addr(0)).await.expect("an address"))
}

#[tokio::test]
async fn a_server_that_turns_up_behind_a_second_address_later_has_one_vote() {
    let masters = two().await;
    let (redlock, forward) = found_out_later(&masters).await;
    let refused =
        until_node(&redlock, 2, "refused", |node| matches!(node.state, NodeState::Refused(_))).await;
    let first = masters.addr(0).to_string();
    assert_eq!(refused.state, NodeState::Refused(Refusal::SameServer { other: first.clone() }));
    assert_eq!(redlock.nodes()[0].state, NodeState::Up);
    let error = redlock.lease("job").try_acquire().await.expect_err("one vote of three");
    let leasehold::AcquireError::NoQuorum(too_few) = &error else { panic!("{error:?}") };
    let refusal = too_few.failed.iter().find(|node| node.address() == forward.address.to_string());
    let refusal = refusal.expect("it is named");
    assert_eq!(refusal.kind(), NodeErrorKind::Refused);
    assert!(refusal.reason().contains(&first), "{refusal}");
}

#[tokio::test]
async fn the_second_address_gets_the_place_when_the_first_is_gone_and_there_is_still_only_one() {
    let masters = two().await;
    let proxy = FaultProxy::start(masters.addr(0)).await.expect("a proxy");
    // The second address is slow to answer, so that the first has taken the place by then.
    let slow = FaultProxy::start(masters.addr(0)).await.expect("a proxy");
    slow.hold(Direction::ToClient);
    let urls = [proxy.url(), slow.url(), masters.url(1)];
    let redlock = builder(urls).node_timeout(ms(300)).connect().await.expect("nothing is seen yet");
    let refused = |node: &NodeStatus| matches!(node.state, NodeState::Refused(_));
    until_connected(&redlock, 0).await;
    slow.heal();
    until_node(&redlock, 1, "refused", refused).await;
    proxy.refuse(true);
    proxy.cut();
    until_connected(&redlock, 1).await;
    proxy.refuse(false);
    until_node(&redlock, 0, "refused", refused).await;
    assert!(is_connected(&redlock.nodes()[1]), "{redlock:?}");
}
