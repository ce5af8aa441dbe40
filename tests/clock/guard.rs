//! Nodes that may have forgotten, and whose clock is stepped while they grow old.

use std::time::Duration;

use leasehold::{NodeState, Redlock};

use super::faked::Scene;
use crate::common::{secs, throughout, until_all_up};
use crate::views::{builder, is_young, until_node};

const MAX_TTL: Duration = secs(4);

async fn client(scene: &Scene) -> Redlock {
    builder(scene.urls()).max_ttl(MAX_TTL).connect().await.expect("connect")
}

/// A node that restarted empty, and was seen so; a client that saw it.
async fn young() -> (Scene, Redlock) {
    let scene = Scene::start_with(3, false).await;
    until_all_up(&client(&scene).await).await;
    scene.faked.restart(0).await.expect("restart");
    let redlock = client(&scene).await;
    until_node(&redlock, 2, "young", is_young).await;
    (scene, redlock)
}

#[tokio::test]
async fn a_young_node_whose_clock_was_set_back_grows_old_all_the_same() {
    let (scene, redlock) = young().await;
    scene.ahead(-3_600_000);
    until_node(&redlock, 2, "old enough", |node| node.state == NodeState::Up).await;
}

#[tokio::test]
async fn a_young_node_whose_clock_was_set_back_grows_old_for_new_clients_too() {
    let (scene, redlock) = young().await;
    drop(redlock);
    scene.ahead(-3_600_000);
    let new = client(&scene).await;
    until_node(&new, 2, "young", is_young).await;
    until_node(&new, 2, "old enough", |node| node.state == NodeState::Up).await;
}

#[tokio::test]
async fn a_young_node_whose_clock_is_stepped_forward_is_no_older_for_a_client_that_saw_it_young() {
    let (scene, redlock) = young().await;
    let long = builder(scene.urls()).max_ttl(secs(600)).connect().await.expect("connect");
    until_node(&long, 2, "young", is_young).await;
    scene.ahead(3_600_000);
    // It looks at a young node every second.
    throughout(secs(4), "it is but a few seconds old", async || is_young(&long.nodes()[2])).await;
    drop(redlock);
}
