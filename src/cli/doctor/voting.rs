//! Who can vote. Pure.

use std::time::Duration;

use leasehold::{NodeErrorKind, Refusal};

use super::facts::{Facts, Fleet, State};
use super::finding::{Finding, Weight};

/// What the user of an ACL needs, see the README.
const ALLOW: &str = "ACL SETUSER … +client +info +role +config|get +time +set +get +del +pexpire +eval +evalsha \
                     +exists +type +ping";

/// In whole seconds, not fewer than there are.
pub(super) fn seconds(time: Duration) -> Duration {
    Duration::from_secs(time.as_secs() + u64::from(time.subsec_nanos() > 0))
}

pub(super) fn no_quorum(fleet: &Fleet) -> Vec<Finding> {
    if fleet.has_quorum() {
        return Vec::new();
    }
    let (able, all, needed) = (fleet.able(), fleet.nodes.len(), fleet.quorum());
    let mut text = format!("no lease can be had now: {able} of {all} nodes can vote, {needed} are needed");
    if let Some(ready_in) = fleet.ready_in() {
        text += &format!("; enough are old enough to vote in {:?}", seconds(ready_in));
    }
    let finding = Finding::new("no-quorum", Weight::Error, text);
    vec![finding.mend("what is said of the single nodes below")]
}

pub(super) fn unreachable(fleet: &Fleet) -> Vec<Finding> {
    let missing = fleet.nodes.iter().filter(|node| matches!(node.state, State::Down | State::Connecting));
    missing.filter_map(unreachable_node).collect()
}

fn unreachable_node(node: &Facts) -> Option<Finding> {
    let reason = match node.state {
        State::Connecting => "it has not answered yet",
        _ => node.trouble(),
    };
    let (what, mend, command) = match node.error.as_ref().map(|(kind, _)| *kind) {
        Some(NodeErrorKind::Authentication) => {
            ("cannot log in", "put user and password into its address: redis://user:password@host", None)
        }
        Some(NodeErrorKind::NoPermission) => {
            ("not allowed to ask it", "allow its user what a client needs:", Some(ALLOW))
        }
        Some(NodeErrorKind::Loading) => {
            ("not ready", "wait until it has read its data:", Some("INFO persistence"))
        }
        _ => ("unreachable", "start the server, or open the way to it, until this says PONG:", Some("PING")),
    };
    let finding = Finding::about([node], "unreachable", Weight::Warning, format!("{what}: {reason}"))?;
    Some(finding.mend(mend).mend_each(command.map(|_| node), command.unwrap_or_default()))
}

pub(super) fn slow(fleet: &Fleet) -> Vec<Finding> {
    let slow: Vec<&Facts> = fleet.nodes.iter().filter(|node| node.state == State::Slow).collect();
    let text = format!(
        "connected, but an answer took longer than the node timeout ({:?}): such an answer is no vote",
        fleet.node_timeout
    );
    let finding = Finding::about(slow.iter().copied(), "slow", Weight::Warning, text);
    finding.map(|finding| finding.mend_each(slow, "--latency")).into_iter().collect()
}

pub(super) fn refused(fleet: &Fleet) -> Vec<Finding> {
    let refusal = |node: &Facts| match &node.state {
        State::Refused(refusal) => Some(refusal.clone()),
        _ => None,
    };
    let found = fleet.nodes.iter().filter_map(|node| Some((rank(&refusal(node)?), node, refusal(node)?)));
    let mut found: Vec<(u8, &Facts, Refusal)> = found.collect();
    found.sort_by_key(|(rank, ..)| *rank);
    found.iter().filter_map(|(_, node, refusal)| refused_node(node, refusal)).collect()
}

fn rank(refusal: &Refusal) -> u8 {
    match refusal {
        Refusal::Replica => 0,
        Refusal::SameServer { .. } => 1,
        Refusal::Cluster => 2,
        _ => 3,
    }
}

fn refused_node(node: &Facts, refusal: &Refusal) -> Option<Finding> {
    let (code, what, mend) = match refusal {
        Refusal::Replica => (
            "not-a-master",
            "it is a replica, and forgets what its master granted last".to_owned(),
            vec![
                "name its master in its place, which this tells:".to_owned(),
                node.cli.with("ROLE"),
                "or make it a master of its own:".to_owned(),
                node.cli.with("REPLICAOF NO ONE"),
            ],
        ),
        Refusal::SameServer { other } => (
            "same-server",
            format!("it is the same server as {other} (one run_id), which would vote twice"),
            vec!["give each node a server of its own, and name each once".to_owned()],
        ),
        Refusal::Cluster => (
            "cluster",
            "it is in cluster mode, and a cluster moves keys between its nodes".to_owned(),
            vec!["use a master of its own: `cluster-enabled no` in redis.conf, and a restart".to_owned()],
        ),
        Refusal::Sentinel => (
            "sentinel",
            "it is a sentinel, which keeps no keys".to_owned(),
            vec!["name independent masters, without sentinels and replicas".to_owned()],
        ),
        other => ("refused", other.to_string(), Vec::new()),
    };
    let text = format!("{what}: clients cannot be started with it, and running ones do not count it");
    let mut finding = Finding::about([node], code, Weight::Error, text)?;
    if let Refusal::SameServer { other } = refusal {
        finding.nodes.push(other.clone());
    }
    Some(mend.into_iter().fold(finding, Finding::mend))
}

pub(super) fn young(fleet: &Fleet) -> Vec<Finding> {
    let young = fleet.nodes.iter().filter(|node| node.young().is_some());
    let longest = fleet.nodes.iter().filter_map(Facts::young).max().unwrap_or_default();
    let text = format!(
        "new or restarted: may have forgotten leases, and does not vote before any of them is over, in {:?}",
        seconds(longest)
    );
    let finding = Finding::about(young, "young", Weight::Warning, text);
    let mend = |finding: Finding| {
        finding
            .mend("wait, with a client running; a node that keeps its data, always synced, votes at once")
            .mend("or, in a new fleet of which a node is missing, and where no lease can be held:")
            .mend("leasehold adopt")
    };
    finding.map(mend).into_iter().collect()
}

/// How many nodes there are.
pub(super) fn count(fleet: &Fleet) -> Vec<Finding> {
    let nodes = fleet.nodes.len();
    if nodes % 2 == 1 && nodes > 1 {
        return Vec::new();
    }
    let text = match nodes {
        1 => "a single node: while it is down there are no leases".to_owned(),
        _ => format!(
            "an even number of nodes: {nodes} bear the loss of {}, no more than {} would",
            (nodes - 1) / 2,
            nodes - 1
        ),
    };
    let finding = Finding::new("node-count", Weight::Warning, text);
    vec![finding.mend("use three or five nodes; the README says how the set of nodes is changed")]
}
