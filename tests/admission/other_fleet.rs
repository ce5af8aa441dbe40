//! Clients with different sets of nodes, or another `max_ttl`, do not exclude each other: they are warned.

use leasehold::testing::LocalMasters;
use leasehold::{NodeState, NodeStatus, NodeWarning, Redlock};

use crate::common::{secs, until_all_up};
use crate::views::{builder, is_young, masters, meet, until_connected};

async fn four() -> LocalMasters {
    masters(4).start().await.expect("local masters")
}

/// A client of these of the masters.
async fn client(masters: &LocalMasters, nodes: &[usize], max_ttl: u64) -> Redlock {
    let urls = nodes.iter().map(|index| masters.url(*index));
    builder(urls).max_ttl(secs(max_ttl)).connect().await.expect("connect")
}

/// Whether each node is connected and warned of.
async fn warned_of(redlock: &Redlock) -> Vec<bool> {
    for index in 0..redlock.nodes().len() {
        until_connected(redlock, index).await;
    }
    warned(redlock)
}

fn warned(redlock: &Redlock) -> Vec<bool> {
    let is = |node: NodeStatus| node.warnings.contains(&NodeWarning::OtherFleet);
    redlock.nodes().into_iter().map(is).collect()
}

#[tokio::test]
async fn clients_of_the_same_nodes_in_any_order_are_not_warned() {
    let masters = four().await;
    let first = client(&masters, &[0, 1, 2], 60).await;
    let second = client(&masters, &[2, 0, 1], 60).await;
    assert_eq!((warned(&first), warned(&second)), (vec![false; 3], vec![false; 3]));
}

#[tokio::test]
async fn a_client_with_another_set_of_nodes_is_warned_at_those_they_share() {
    let masters = four().await;
    let _first = client(&masters, &[0, 1, 2], 60).await;
    let second = client(&masters, &[0, 1, 3], 60).await;
    assert_eq!(warned_of(&second).await, [true, true, false]);
    let warning = second.nodes()[0].warnings[0].to_string();
    assert!(warning.contains("other nodes") && warning.contains("max_ttl"), "{warning}");
}

#[tokio::test]
async fn a_client_with_a_node_more_is_warned() {
    let masters = four().await;
    let _first = client(&masters, &[0, 1, 2], 60).await;
    let second = client(&masters, &[0, 1, 2, 3], 60).await;
    assert_eq!(warned_of(&second).await, [true, true, true, false]);
}

#[tokio::test]
async fn a_client_with_another_max_ttl_is_warned() {
    let masters = four().await;
    let _first = client(&masters, &[0, 1, 2], 60).await;
    assert_eq!(warned_of(&client(&masters, &[0, 1, 2], 61).await).await, [true; 3]);
}

/// Who was given a minority of the nodes may have taken it for a new fleet: only what such a node says of its
/// own age is to be believed.
#[tokio::test]
async fn a_node_of_a_smaller_fleet_is_as_old_as_its_uptime() {
    let masters = four().await;
    until_all_up(&client(&masters, &[0], 6).await).await;
    let second = client(&masters, &[0, 1, 2], 6).await;
    assert!(is_young(&until_connected(&second, 0).await), "it was started a moment ago");
    until_all_up(&second).await;
    assert!(second.lease("job").try_acquire().await.expect("they vote").is_some());
    let third = client(&masters, &[0, 1, 2], 5).await;
    assert_eq!(third.nodes()[0].state, NodeState::Up, "it has been up for longer than that");
}

#[tokio::test]
async fn the_nodes_of_another_fleet_of_the_same_size_vote_at_once() {
    let masters = four().await;
    until_all_up(&client(&masters, &[0, 1, 2], 60).await).await;
    let second = client(&masters, &[0, 1, 3], 60).await;
    until_connected(&second, 0).await;
    until_connected(&second, 1).await;
    assert!(second.lease("job").try_acquire().await.expect("two of three vote").is_some());
}

#[tokio::test]
async fn a_restart_does_not_make_a_node_forget_whose_fleet_it_is() {
    let masters = four().await;
    until_all_up(&client(&masters, &[0, 1, 2], 60).await).await;
    for index in 0..3 {
        masters.restart(index).await.expect("restart");
    }
    // The first to come after the restart uses another max_ttl, and writes the marker anew.
    let second = client(&masters, &[0, 1, 2], 61).await;
    assert_eq!(warned_of(&second).await, [true; 3]);
    let first = client(&masters, &[0, 1, 2], 60).await;
    assert_eq!(warned_of(&first).await, [false; 3], "it was left as it was");
    until_all_up(&first).await;
}

#[tokio::test]
async fn to_adopt_the_nodes_writes_the_new_set_into_their_markers() {
    let masters = four().await;
    meet(masters.urls(), secs(60)).await;
    let second = client(&masters, &[0, 1, 2], 60).await;
    assert_eq!(warned_of(&second).await, [true; 3]);
    assert!(second.adopt().await.iter().all(Result::is_ok));
    assert_eq!(warned(&second), [false; 3]);
    assert!(second.lease("job").try_acquire().await.expect("adopted").is_some());
    let third = client(&masters, &[0, 1, 2], 60).await;
    assert_eq!(warned_of(&third).await, [false; 3]);
    assert!(third.lease("another").try_acquire().await.expect("adopted").is_some());
}
