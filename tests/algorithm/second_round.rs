//! What a fenced round does whose first number did not fit.

use super::*;

const HOUR: Duration = Duration::from_secs(3600);

/// Nodes whose clocks have jumped since the client last heard of them, so that its first number is too low.
async fn nodes_ahead(count: usize) -> (MemoryNodes, Redlock) {
    let (nodes, redlock) = nodes(count).await;
    redlock.lease("other").fenced().acquire().await.unwrap().release().await.unwrap();
    (0..count).for_each(|node| nodes.step_clock(node, HOUR));
    (nodes, redlock)
}

fn grants(nodes: &MemoryNodes, node: usize) -> usize {
    nodes.requests(node).iter().filter(|request| *request == "grant k").count()
}

#[tokio::test(start_paused = true)]
async fn nodes_that_refused_the_key_are_not_asked_again() {
    let (nodes, redlock) = nodes_ahead(3).await;
    nodes.set(0, "k", "rival", TTL);
    let lease = redlock.lease("k").fenced().try_acquire().await.unwrap();
    assert!(lease.is_some(), "the other two are a quorum");
    assert_eq!([0, 1, 2].map(|node| grants(&nodes, node)), [1, 2, 2]);
}

#[tokio::test(start_paused = true)]
async fn no_second_number_is_tried_where_no_quorum_could_grant_it() {
    let (nodes, redlock) = nodes_ahead(3).await;
    (0..2).for_each(|node| nodes.set(node, "k", "rival", TTL));
    assert!(redlock.lease("k").fenced().try_acquire().await.unwrap().is_none());
    tokio::time::sleep(millis(1)).await;
    assert_eq!([0, 1, 2].map(|node| grants(&nodes, node)), [1, 1, 1]);
}

#[tokio::test(start_paused = true)]
async fn a_node_that_failed_leaves_the_second_number_to_the_others() {
    for failed in [vec![0], vec![0, 3]] {
        let (nodes, redlock) = nodes_ahead(5).await;
        failed.iter().for_each(|node| nodes.gate(*node, Gate::Error));
        let lease = redlock.lease("k").fenced().try_acquire().await.unwrap();
        assert!(lease.is_some(), "{failed:?}");
        assert_eq!(holders(&nodes, 5, "k").len(), 5 - failed.len());
    }
}

#[tokio::test(start_paused = true)]
async fn a_node_that_granted_the_first_number_alone_gives_the_key_back() {
    let (nodes, redlock) = nodes(3).await;
    redlock.lease("other").fenced().acquire().await.unwrap().release().await.unwrap();
    [1, 2].iter().for_each(|node| nodes.step_clock(*node, HOUR));
    let lease = redlock.lease("k").fenced().try_acquire().await.unwrap().expect("two of three");
    assert_eq!([0, 1, 2].map(|node| grants(&nodes, node)), [2, 2, 2]);
    assert_eq!(holders(&nodes, 3, "k"), [0, 1, 2]);
    lease.release().await.unwrap();
    tokio::time::sleep(millis(1)).await;
    assert_eq!(holders(&nodes, 3, "k"), [0; 0]);
}
