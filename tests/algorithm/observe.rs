use leasehold::{AcquireError, InvalidRequest, NodeState};

use super::*;

#[tokio::test(start_paused = true)]
async fn who_only_observes_sees_a_new_fleet_and_leaves_it_as_it_is() {
    let nodes = MemoryNodes::new(3);
    let observer = nodes.redlock(Redlock::builder().observe_only()).await;
    assert!(observer.nodes().iter().all(|node| node.state == NodeState::Up), "{observer:?}");
    let refused = observer.lease("k").try_acquire().await.unwrap_err();
    assert!(matches!(refused, AcquireError::InvalidRequest(InvalidRequest::ObserveOnly)), "{refused}");
    assert!(observer.adopt().await.iter().all(Result::is_err));
    assert!(observer.nodes().iter().all(|node| node.clock_ahead_micros.is_some()), "at once: {observer:?}");
    assert!(observer.round_trips(3).await.iter().all(|times| times.as_ref().unwrap().len() == 3));
    let client = nodes.redlock(Redlock::builder()).await;
    assert!(client.lease("k").try_acquire().await.unwrap().is_some(), "it is still new");
}

#[tokio::test(start_paused = true)]
async fn a_node_is_not_older_for_having_been_observed() {
    let nodes = MemoryNodes::new(3);
    nodes.kill(2);
    let observer = nodes.redlock(Redlock::builder().observe_only()).await;
    assert!(matches!(observer.nodes()[0].state, NodeState::Young(_)), "{observer:?}");
    tokio::time::sleep(Duration::from_secs(40)).await;
    let client = nodes.redlock(Redlock::builder()).await;
    let NodeState::Young(left) = client.nodes()[0].state else { panic!("{client:?}") };
    assert!(left > Duration::from_secs(58), "{left:?}");
}

#[tokio::test(start_paused = true)]
async fn what_clients_make_of_the_nodes_is_seen() {
    let nodes = MemoryNodes::new(3);
    nodes.kill(2);
    let observer = nodes.redlock(Redlock::builder().observe_only()).await;
    let client = nodes.redlock(Redlock::builder()).await;
    let _ = client.adopt().await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(observer.nodes()[0].state, NodeState::Up, "{observer:?}");
    nodes.restart(0, false);
    drop(client);
    tokio::time::sleep(Duration::from_secs(8)).await;
    assert!(matches!(observer.nodes()[0].state, NodeState::Young(_)), "{observer:?}");
}
