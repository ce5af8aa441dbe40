//! The same for programs. Fields may be added, none changes its meaning.

use std::time::Duration;

use serde::Serialize;

use super::facts::{Facts, Fleet, State};
use super::finding::{Finding, Weight, heaviest};
use super::timing::Advice;

#[derive(Serialize)]
struct Report<'a> {
    /// Leases can be had, and nothing is weaker than it should be.
    fit: bool,
    quorum: Quorum,
    node_timeout_ms: f64,
    max_ttl_ms: f64,
    nodes: Vec<Node<'a>>,
    findings: &'a [Finding],
    advice: Option<Times>,
}

#[derive(Serialize)]
struct Quorum {
    nodes: usize,
    needed: usize,
    able: usize,
    /// Until enough nodes are old enough, if that is all that is missing.
    ready_in_ms: Option<f64>,
}

#[derive(Serialize)]
struct Node<'a> {
    address: &'a str,
    state: &'static str,
    young_for_ms: Option<f64>,
    refused: Option<String>,
    error: Option<&'a str>,
    server: Option<&'a str>,
    native_commands: &'a [&'static str],
    appendonly: Option<bool>,
    appendfsync: Option<&'a str>,
    synced: bool,
    eviction_policy: Option<&'a str>,
    replicas: Option<u64>,
    clock_ahead_us: Option<i64>,
    round_trips: Option<RoundTrips>,
    owed_deletions: usize,
    warnings: Vec<String>,
}

#[derive(Serialize)]
struct RoundTrips {
    count: usize,
    p50_ms: f64,
    p99_ms: f64,
}

#[derive(Serialize)]
struct Times {
    p99_ms: f64,
    least_ttl_ms: f64,
    node_timeout_ms: f64,
    least_ttl_with_it_ms: f64,
}

/// One object, and a line's end.
pub(super) fn text(fleet: &Fleet, findings: &[Finding]) -> String {
    let report = Report {
        fit: fleet.has_quorum() && heaviest(findings) == Weight::Note,
        quorum: Quorum {
            nodes: fleet.nodes.len(),
            needed: fleet.quorum(),
            able: fleet.able(),
            ready_in_ms: fleet.ready_in().map(millis),
        },
        node_timeout_ms: millis(fleet.node_timeout),
        max_ttl_ms: millis(fleet.max_ttl),
        nodes: fleet.nodes.iter().map(node).collect(),
        findings,
        advice: Advice::new(fleet).map(|advice| Times {
            p99_ms: millis(advice.p99),
            least_ttl_ms: millis(advice.ttl_now),
            node_timeout_ms: millis(advice.node_timeout),
            least_ttl_with_it_ms: millis(advice.ttl),
        }),
    };
    // Texts and numbers alone cannot fail to be written.
    serde_json::to_string_pretty(&report).unwrap_or_default() + "\n"
}

fn node(node: &Facts) -> Node<'_> {
    Node {
        address: &node.address,
        state: state(&node.state),
        young_for_ms: node.young().map(millis),
        refused: match &node.state {
            State::Refused(refusal) => Some(refusal.to_string()),
            _ => None,
        },
        error: node.error.as_ref().map(|(_, reason)| reason.as_str()),
        server: node.server.as_deref(),
        native_commands: &node.native_commands,
        appendonly: node.appendonly,
        appendfsync: node.appendfsync.as_deref(),
        synced: node.synced,
        eviction_policy: node.eviction_policy.as_deref(),
        replicas: node.replicas,
        clock_ahead_us: node.clock_ahead_micros,
        round_trips: node.round_trips.map(|times| RoundTrips {
            count: times.count,
            p50_ms: millis(times.p50),
            p99_ms: millis(times.p99),
        }),
        owed_deletions: node.owed,
        warnings: node.warnings.iter().map(ToString::to_string).collect(),
    }
}

fn state(state: &State) -> &'static str {
    match state {
        State::Up => "up",
        State::Young(_) => "young",
        State::Slow => "slow",
        State::Connecting => "connecting",
        State::Refused(_) => "refused",
        State::Down => "down",
    }
}

/// Milliseconds, to the microsecond.
fn millis(time: Duration) -> f64 {
    (time.as_secs_f64() * 1e6).round() / 1e3
}
