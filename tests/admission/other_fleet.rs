//! Clients with different sets of nodes, or another `max_ttl`, do not exclude each other: they are warned.

use leasehold::testing::LocalMasters;
use leasehold::{NodeStatus, NodeWarning, Redlock};

use crate::views::{builder, masters, meet, secs, until_all_up, until_up};

async fn four() -> LocalMasters {
    masters(4).start().await.expect("local masters")
}

/// A client of these of the masters.
async fn client(masters: &LocalMasters, nodes: &[usize], max_ttl: u64) -> Redlock {
    let urls = nodes.iter().map(|index| masters.url(*index));
    builder(urls).max_ttl(secs(max_ttl)).connect().await.expect("connect")
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
    until_up(&second, 0).await;
    until_up(&second, 1).await;
    assert_eq!(warned(&second), [true, true, false]);
    let warning = second.nodes()[0].warnings[0].to_string();
    assert!(warning.contains("other nodes") && warning.contains("max_ttl"), "{warning}");
}

#[tokio::test]
async fn a_client_with_a_node_more_is_warned() {
    let masters = four().await;
    let _first = client(&masters, &[0, 1, 2], 60).await;
    let second = client(&masters, &[0, 1, 2, 3], 60).await;
    assert_eq!(warned(&second), [true, true, true, false]);
}

#[tokio::test]
async fn a_client_with_another_max_ttl_is_warned() {
    let masters = four().await;
    let _first = client(&masters, &[0, 1, 2], 60).await;
    let second = client(&masters, &[0, 1, 2], 61).await;
    assert_eq!(warned(&second), [true; 3]);
    // It is served all the same.
    assert!(second.lease("job").try_acquire().await.expect("they vote").is_some());
}

#[tokio::test]
async fn a_restart_does_not_make_one_forget_whose_fleet_it_is() {
    let masters = four().await;
    drop(client(&masters, &[0, 1, 2], 60).await);
    for index in 0..3 {
        masters.restart(index).await.expect("restart");
    }
    let second = client(&masters, &[0, 1, 2], 61).await;
    until_all_up(&second).await;
    assert_eq!(warned(&second), [true; 3]);
    drop(client(&masters, &[0, 1, 2], 60).await);
    let first = client(&masters, &[0, 1, 2], 60).await;
    assert_eq!(warned(&first), [false; 3], "the warned one has left the marker as it was");
}

#[tokio::test]
async fn to_adopt_the_nodes_writes_the_new_set_into_their_markers() {
    let masters = four().await;
    meet(&masters, secs(60)).await;
    let second = client(&masters, &[0, 1, 2], 60).await;
    until_up(&second, 0).await;
    assert_eq!(warned(&second), [true; 3]);
    assert!(second.adopt().await.iter().all(Result::is_ok));
    assert_eq!(warned(&second), [false; 3]);
    let third = client(&masters, &[0, 1, 2], 60).await;
    assert_eq!(warned(&third), [false; 3]);
}
