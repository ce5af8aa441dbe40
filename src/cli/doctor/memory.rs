//! What nodes remember of what they granted. Pure.

use leasehold::NodeWarning;

use super::facts::{Facts, Fleet};
use super::finding::{Finding, Weight};
use super::voting::seconds;

pub(super) fn replicas(fleet: &Fleet) -> Vec<Finding> {
    let with: Vec<&Facts> = fleet.connected().filter(|node| node.replicas.unwrap_or(0) > 0).collect();
    let text = "has replicas: a failover to one forgets the leases that it has not heard of";
    let finding = Finding::about(with.iter().copied(), "replicas", Weight::Warning, text);
    let mend = |finding: Finding| {
        finding
            .mend(
                "at each of its replicas REPLICAOF NO ONE, and nothing that fails it over; this shows them:",
            )
            .mend_each(with, "INFO replication")
    };
    finding.map(mend).into_iter().collect()
}

/// How a node keeps its keys through a restart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Keeping {
    Always,
    /// Not every write is on disk before its answer, by `appendfsync`.
    Late,
    /// The same, by `no-appendfsync-on-rewrite`.
    LateOnRewrite,
    Nothing,
    Unknown,
}

fn keeping(node: &Facts) -> Keeping {
    match (node.appendonly, node.appendfsync.as_deref()) {
        _ if node.synced => Keeping::Always,
        (Some(false), _) => Keeping::Nothing,
        (Some(true), Some("always")) => Keeping::LateOnRewrite,
        (Some(true), Some(_)) => Keeping::Late,
        _ => Keeping::Unknown,
    }
}

pub(super) fn persistence(fleet: &Fleet) -> Vec<Finding> {
    let guard = format!("after one, the restart guard keeps it from voting for {:?}", seconds(fleet.max_ttl));
    let kinds: [(Keeping, &str, String, &[&str]); 4] = [
        (
            Keeping::Nothing,
            "not-persistent",
            format!("keeps nothing through a restart: {guard} (max_ttl)"),
            &["CONFIG SET appendonly yes", "CONFIG SET appendfsync always"],
        ),
        (
            Keeping::Late,
            "not-synced",
            format!("may lose its last writes in a restart (appendfsync is not `always`): {guard} (max_ttl)"),
            &["CONFIG SET appendfsync always"],
        ),
        (
            Keeping::LateOnRewrite,
            "not-synced",
            format!(
                "may lose writes in a restart (no-appendfsync-on-rewrite is not `no`): {guard} (max_ttl)"
            ),
            &["CONFIG SET no-appendfsync-on-rewrite no"],
        ),
        (
            Keeping::Unknown,
            "persistence-unknown",
            format!("does not tell whether it keeps its keys through a restart: {guard} (max_ttl)"),
            &["ACL SETUSER … +info +config|get"],
        ),
    ];
    let found = kinds.into_iter().filter_map(|(kind, code, text, commands)| {
        let nodes: Vec<&Facts> = fleet.connected().filter(|node| keeping(node) == kind).collect();
        let finding = Finding::about(nodes.iter().copied(), code, Weight::Warning, text)?;
        let each = |finding: Finding, command: &&str| finding.mend_each(nodes.iter().copied(), command);
        let finding = commands.iter().fold(finding, each);
        let in_file = "and the same in redis.conf (CONFIG REWRITE writes it there)";
        Some(if kind == Keeping::Unknown { finding } else { finding.mend(in_file) })
    });
    found.collect()
}

pub(super) fn eviction(fleet: &Fleet) -> Vec<Finding> {
    let evicts = |node: &&Facts| node.eviction_policy.as_deref().is_some_and(|policy| policy != "noeviction");
    let nodes: Vec<&Facts> = fleet.connected().filter(evicts).collect();
    let mut policies: Vec<&str> = nodes.iter().filter_map(|node| node.eviction_policy.as_deref()).collect();
    policies.sort_unstable();
    policies.dedup();
    let text =
        format!("may evict a lock when memory is short (maxmemory-policy is {})", policies.join(" or "));
    let finding = Finding::about(nodes.iter().copied(), "eviction", Weight::Warning, text);
    let mend = |finding: Finding| {
        let finding = finding.mend_each(nodes, "CONFIG SET maxmemory-policy noeviction");
        finding.mend("and the same in redis.conf (CONFIG REWRITE writes it there)")
    };
    finding.map(mend).into_iter().collect()
}

/// What the client library warns of, in its words.
pub(super) fn warnings(fleet: &Fleet) -> Vec<Finding> {
    let mut found: Vec<(Finding, Vec<&Facts>)> = Vec::new();
    for node in &fleet.nodes {
        for warning in &node.warnings {
            let text = warning.to_string();
            match found.iter_mut().find(|(finding, _)| finding.text == text) {
                Some((finding, nodes)) => {
                    finding.nodes.push(node.address.clone());
                    nodes.push(node);
                }
                None => {
                    let finding = Finding::new(code(warning), Weight::Warning, text);
                    found.push((Finding { nodes: vec![node.address.clone()], ..finding }, vec![node]));
                }
            }
        }
    }
    found.sort_by_key(|(finding, _)| ORDER.iter().position(|code| *code == finding.code));
    found.into_iter().map(|(finding, nodes)| mend_warning(finding, &nodes)).collect()
}

const ORDER: [&str; 5] = ["info-forbidden", "no-marker", "no-tracking", "other-fleet", "clock-stepped"];

fn code(warning: &NodeWarning) -> &'static str {
    match warning {
        NodeWarning::NoInfo => ORDER[0],
        NodeWarning::NoMarker => ORDER[1],
        NodeWarning::NoTracking => ORDER[2],
        NodeWarning::OtherFleet => ORDER[3],
        NodeWarning::ClockStepped { .. } => ORDER[4],
        _ => "warning",
    }
}

fn mend_warning(finding: Finding, nodes: &[&Facts]) -> Finding {
    let nodes = nodes.iter().copied();
    match finding.code {
        "info-forbidden" => finding.mend_each(nodes, "ACL SETUSER … +info"),
        "no-marker" => finding.mend_each(nodes, "ACL SETUSER … +get +set +eval"),
        "no-tracking" => finding.mend_each(nodes, "ACL SETUSER … +client"),
        "other-fleet" => finding
            .mend("give every client (and this command) the same --nodes and --max-ttl")
            .mend("or, where these are right, the other clients are gone, and no lease can be held:")
            .mend("leasehold adopt"),
        "clock-stepped" => finding.mend("in chrony.conf: maxslewrate 5000, and no makestep but at boot"),
        _ => finding,
    }
}
