//! A node restarts and has lost what it granted.

use std::path::Path;
use std::time::Duration;

use leasehold::NodeState;
use leasehold::testing::{LocalMasters, LocalMastersBuilder};

use super::scene::{LONG, MIDDLE, SHORT, Scene, met};
use crate::common::{raw, until};
use crate::views::{Network, builder, masters};

/// Starts masters of which the middle loses the key, in a way that the tests differ in.
async fn scene(builder: LocalMastersBuilder, max_ttl: Duration) -> Scene {
    let masters = builder.start().await.expect("local masters");
    Scene::begin(masters, max_ttl).await
}

fn forgetful() -> LocalMastersBuilder {
    masters(5).persistent(false)
}

/// A crash of one that keeps nothing.
async fn restart_without_persistence(scene: &Scene) {
    scene.masters.restart(MIDDLE).await.expect("restart");
    scene.middle_has_forgotten().await;
}

/// A crash of one that keeps all, and a new disk.
async fn restart_with_an_empty_folder(scene: &Scene) {
    scene.masters.restart_empty(MIDDLE).await.expect("restart");
    scene.middle_has_forgotten().await;
}

#[tokio::test]
async fn a_node_that_restarted_empty_gives_no_second_lease_before_the_first_is_over() {
    let scene = scene(forgetful(), SHORT).await;
    restart_without_persistence(&scene).await;
    let rival = scene.rival().await;
    rival.is_kept_out().await;
    rival.wins_only_afterwards().await;
}

#[tokio::test]
async fn without_the_guard_a_node_that_restarted_empty_gives_a_second_lease() {
    let scene = scene(forgetful(), LONG).await;
    restart_without_persistence(&scene).await;
    scene.unguarded_rival().await.wins_while_it_is_held().await;
}

#[tokio::test]
async fn a_client_that_was_connected_throughout_is_kept_out_too() {
    let scene = scene(forgetful(), SHORT).await;
    let rival = scene.rival().await;
    assert_eq!(rival.redlock.nodes()[MIDDLE].state, NodeState::Up);
    restart_without_persistence(&scene).await;
    rival.is_kept_out().await;
    rival.wins_only_afterwards().await;
}

#[tokio::test]
async fn without_the_guard_a_client_that_was_connected_throughout_wins() {
    let scene = scene(forgetful(), LONG).await;
    let rival = scene.unguarded_rival().await;
    restart_without_persistence(&scene).await;
    rival.wins_while_it_is_held().await;
}

#[tokio::test]
async fn a_node_that_restarts_again_and_again_stays_young() {
    let scene = scene(forgetful(), LONG).await;
    for _ in 0..3 {
        restart_without_persistence(&scene).await;
        scene.rival().await.is_kept_out().await;
    }
}

#[tokio::test]
async fn an_always_synced_node_that_comes_back_without_its_data_is_kept_out() {
    let scene = scene(masters(5), SHORT).await;
    restart_with_an_empty_folder(&scene).await;
    let rival = scene.rival().await;
    rival.is_kept_out().await;
    rival.wins_only_afterwards().await;
}

#[tokio::test]
async fn without_the_guard_an_always_synced_node_without_its_data_gives_a_second_lease() {
    let scene = scene(masters(5), LONG).await;
    restart_with_an_empty_folder(&scene).await;
    scene.unguarded_rival().await.wins_while_it_is_held().await;
}

/// Every second: the last writes are lost with the machine.
fn lazily_synced() -> LocalMastersBuilder {
    masters(5).arg("--appendfsync", "everysec")
}

/// A scene in which the middle crashes and comes back with what it had on disk before the key was set.
async fn restart_with_older_data(builder: LocalMastersBuilder, max_ttl: Duration) -> Scene {
    let masters = builder.start().await.expect("local masters");
    let network = met(&masters, max_ttl).await;
    restart_with_what_is_on_disk_now(masters, network, max_ttl).await
}

async fn restart_with_what_is_on_disk_now(
    masters: LocalMasters,
    network: Network,
    max_ttl: Duration,
) -> Scene {
    let disk = tempfile::tempdir().expect("a folder");
    let middle = raw(&masters, MIDDLE);
    assert!(middle.get("leasehold:node").await.is_some(), "the marker is on disk before");
    copy(masters.dir(MIDDLE), disk.path());
    let scene = Scene::hold(masters, network, max_ttl, true).await;
    scene.masters.kill(MIDDLE).await.expect("kill");
    std::fs::remove_dir_all(scene.masters.dir(MIDDLE)).expect("the old disk is gone");
    copy(disk.path(), scene.masters.dir(MIDDLE));
    scene.masters.restart(MIDDLE).await.expect("restart");
    assert!(middle.get("leasehold:node").await.is_some(), "the marker is there, the key is not");
    scene.middle_has_forgotten().await;
    scene
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).expect("a folder");
    for entry in std::fs::read_dir(from).expect("a folder") {
        let (path, name) = entry.map(|entry| (entry.path(), entry.file_name())).expect("a file");
        if path.is_dir() {
            copy(&path, &to.join(name));
        } else {
            std::fs::copy(&path, to.join(name)).expect("a copy");
        }
    }
}

#[tokio::test]
async fn a_node_that_did_not_sync_always_is_kept_out_although_it_has_its_data() {
    let scene = restart_with_older_data(lazily_synced(), SHORT).await;
    let rival = scene.rival().await;
    rival.is_kept_out().await;
    rival.wins_only_afterwards().await;
}

#[tokio::test]
async fn without_the_guard_a_node_that_did_not_sync_always_gives_a_second_lease() {
    let scene = restart_with_older_data(lazily_synced(), LONG).await;
    scene.unguarded_rival().await.wins_while_it_is_held().await;
}

/// Its configuration says `always`, and it was told otherwise while it ran.
#[tokio::test]
async fn a_node_that_was_told_to_sync_lazily_while_it_ran_is_kept_out_after_a_restart() {
    let masters = masters(5).start().await.expect("local masters");
    let network = met(&masters, SHORT).await;
    let watching = builder(network.urls()).max_ttl(SHORT).connect().await.expect("connect");
    let middle = raw(&masters, MIDDLE);
    middle.tell(&["CONFIG", "SET", "appendfsync", "everysec"]).await;
    let marker = async || middle.get("leasehold:node").await.expect("a marker");
    until("the marker should say so", async || marker().await.contains(" unsynced ")).await;
    drop(watching);
    let scene = restart_with_what_is_on_disk_now(masters, network, SHORT).await;
    let rival = scene.rival().await;
    rival.is_kept_out().await;
    rival.wins_only_afterwards().await;
}
