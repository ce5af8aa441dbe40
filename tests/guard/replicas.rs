//! A node becomes a replica of another server, whose data it takes over, and a master again.

use std::net::SocketAddr;

use leasehold::NodeState;
use leasehold::testing::LocalMasters;

use super::scene::{LONG, MIDDLE, Rival, Scene, met};
use crate::common::raw;
use crate::views::masters;
use crate::views::replication::{follow, promote};

/// Five masters with a key on the first three, and a server that is none of them.
async fn scene() -> (Scene, LocalMasters) {
    let masters = masters(5).start().await.expect("local masters");
    let outside = crate::views::masters(1).start().await.expect("an outside server");
    (Scene::begin(masters, LONG).await, outside)
}

/// The middle takes over what `source` has, and is a master again.
async fn fail_over_and_back(scene: &Scene, source: SocketAddr) {
    follow(&scene.middle(), source).await;
    promote(&scene.middle()).await;
    scene.middle_has_forgotten().await;
}

/// The last of the five, which cannot have the key.
fn last(scene: &Scene) -> SocketAddr {
    scene.masters.addr(4)
}

#[tokio::test]
async fn a_node_that_was_a_replica_of_another_node_is_kept_out() {
    let (scene, _) = scene().await;
    fail_over_and_back(&scene, last(&scene)).await;
    scene.rival().await.is_kept_out().await;
}

#[tokio::test]
async fn without_the_guard_a_node_that_was_a_replica_of_another_gives_a_second_lease() {
    let (scene, _) = scene().await;
    fail_over_and_back(&scene, last(&scene)).await;
    scene.unguarded_rival().await.wins_while_it_is_held().await;
}

#[tokio::test]
async fn a_node_that_was_a_replica_of_an_outside_server_is_kept_out() {
    let (scene, outside) = scene().await;
    fail_over_and_back(&scene, outside.addr(0)).await;
    scene.rival().await.is_kept_out().await;
}

#[tokio::test]
async fn without_the_guard_a_node_that_was_a_replica_of_an_outside_server_gives_a_second_lease() {
    let (scene, outside) = scene().await;
    fail_over_and_back(&scene, outside.addr(0)).await;
    scene.unguarded_rival().await.wins_while_it_is_held().await;
}

/// A client that has just found the middle to be a master, and will not look again for a while.
async fn connected_rival(scene: &Scene) -> Rival<'_> {
    let rival = scene.rival().await;
    assert_eq!(rival.redlock.nodes()[MIDDLE].state, NodeState::Up);
    rival
}

#[tokio::test]
async fn a_client_that_was_connected_while_a_node_was_a_replica_of_another_is_kept_out() {
    let (scene, _) = scene().await;
    let rival = connected_rival(&scene).await;
    fail_over_and_back(&scene, last(&scene)).await;
    rival.is_kept_out().await;
}

#[tokio::test]
async fn a_client_that_was_connected_while_a_node_was_a_replica_of_an_outside_server_is_kept_out() {
    let (scene, outside) = scene().await;
    let rival = connected_rival(&scene).await;
    fail_over_and_back(&scene, outside.addr(0)).await;
    rival.is_kept_out().await;
}

#[tokio::test]
async fn without_the_guard_a_client_that_was_connected_while_a_node_was_a_replica_wins() {
    let (scene, _) = scene().await;
    let rival = scene.unguarded_rival().await;
    fail_over_and_back(&scene, last(&scene)).await;
    rival.wins_while_it_is_held().await;
}

#[tokio::test]
async fn a_node_that_restarts_with_the_data_of_another_node_is_kept_out() {
    let (scene, _) = scene().await;
    follow(&scene.middle(), last(&scene)).await;
    // It was told to be a replica while it ran, and knows nothing of that when it starts.
    scene.masters.restart(MIDDLE).await.expect("restart");
    scene.middle_has_forgotten().await;
    scene.rival().await.is_kept_out().await;
}

#[tokio::test]
async fn without_the_guard_a_node_that_restarts_with_the_data_of_another_gives_a_second_lease() {
    let (scene, _) = scene().await;
    follow(&scene.middle(), last(&scene)).await;
    scene.masters.restart(MIDDLE).await.expect("restart");
    scene.middle_has_forgotten().await;
    scene.unguarded_rival().await.wins_while_it_is_held().await;
}

#[tokio::test]
async fn a_promoted_node_that_restarts_is_kept_out() {
    let (scene, _) = scene().await;
    fail_over_and_back(&scene, last(&scene)).await;
    scene.masters.restart(MIDDLE).await.expect("restart");
    scene.middle_has_forgotten().await;
    scene.rival().await.is_kept_out().await;
}

/// Five masters with a key on the first three; the replica of the middle was made a master before the key
/// was set, and has the marker of the middle.
async fn scene_with_a_split_off_replica() -> (Scene, LocalMasters) {
    let masters = masters(5).start().await.expect("local masters");
    let network = met(&masters, LONG).await;
    let replica = crate::views::masters(1).start().await.expect("a replica");
    let middle = raw(&masters, MIDDLE);
    follow(&raw(&replica, 0), masters.addr(MIDDLE)).await;
    promote(&raw(&replica, 0)).await;
    assert_eq!(raw(&replica, 0).get("leasehold:node").await, middle.get("leasehold:node").await);
    (Scene::hold(masters, network, LONG, true).await, replica)
}

#[tokio::test]
async fn a_node_that_took_its_own_marker_back_from_its_replica_is_kept_out() {
    let (scene, replica) = scene_with_a_split_off_replica().await;
    fail_over_and_back(&scene, replica.addr(0)).await;
    scene.rival().await.is_kept_out().await;
}

#[tokio::test]
async fn without_the_guard_a_node_that_failed_over_and_back_gives_a_second_lease() {
    let (scene, replica) = scene_with_a_split_off_replica().await;
    fail_over_and_back(&scene, replica.addr(0)).await;
    scene.unguarded_rival().await.wins_while_it_is_held().await;
}
