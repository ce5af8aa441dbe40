use std::time::Duration;

use leasehold::{NodeErrorKind, NodeWarning, Refusal};

use super::facts::{Facts, Fleet, RoundTrips, State};
use super::finding::{Finding, Weight, findings, heaviest};
use super::redis_cli::RedisCli;
use super::timing::Advice;
use super::{code, json, table};
use crate::cli::exit::Code;

fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn healthy(index: usize) -> Facts {
    let address = format!("10.0.0.{}:6379", index + 1);
    Facts {
        cli: RedisCli::new(&format!("redis://{address}"), &address),
        address,
        state: State::Up,
        server: Some("Redis 7.0.15".into()),
        round_trips: Some(RoundTrips { count: 200, p50: millis(1), p99: millis(2) }),
        clock_ahead_micros: Some(900),
        replicas: Some(0),
        appendonly: Some(true),
        appendfsync: Some("always".into()),
        synced: true,
        eviction_policy: Some("noeviction".into()),
        ..Facts::default()
    }
}

fn fleet(count: usize) -> Fleet {
    let nodes = (0..count).map(healthy).collect();
    Fleet { nodes, node_timeout: millis(500), max_ttl: Duration::from_secs(60) }
}

/// Five nodes, the first `count` of which are changed.
fn changed(count: usize, change: impl Fn(&mut Facts)) -> Fleet {
    let mut fleet = fleet(5);
    fleet.nodes[..count].iter_mut().for_each(change);
    fleet
}

fn down(kind: NodeErrorKind, reason: &str) -> impl Fn(&mut Facts) {
    let error = Some((kind, reason.to_owned()));
    move |node| *node = Facts { state: State::Down, error: error.clone(), ..address_only(node) }
}

fn in_state(state: State) -> impl Fn(&mut Facts) {
    move |node| *node = Facts { state: state.clone(), ..address_only(node) }
}

fn address_only(node: &Facts) -> Facts {
    Facts { address: node.address.clone(), cli: node.cli.clone(), ..Facts::default() }
}

fn codes(fleet: &Fleet) -> Vec<&'static str> {
    findings(fleet).iter().map(|finding| finding.code).collect()
}

fn find<'a>(findings: &'a [Finding], code: &str) -> &'a Finding {
    findings.iter().find(|finding| finding.code == code).unwrap_or_else(|| panic!("no {code}"))
}

/// A fleet, its exit codes without and with `--strict`, the finding, and words of its text and of what mends
/// it.
type Line = (Fleet, (u8, u8), &'static str, &'static str, &'static str);

#[test]
fn every_fault_has_its_finding_its_exit_code_and_what_mends_it() {
    let other = || Refusal::SameServer { other: "10.0.0.9:6379".into() };
    let kept = |on, fsync: &str| {
        let fsync = fsync.to_owned();
        move |node: &mut Facts| {
            (node.appendonly, node.appendfsync, node.synced) = (Some(on), Some(fsync.clone()), false);
        }
    };
    let warned = |warning: NodeWarning| move |node: &mut Facts| node.warnings = vec![warning.clone()];
    let (fit, weak, broken, none) = ((0, 0), (0, 1), (1, 1), (69, 69));
    #[rustfmt::skip]
    let lines: Vec<Line> = vec![
        (fleet(5), fit, "slew", "0.5 %", "maxslewrate 5000"),
        (fleet(5), fit, "ttl", "a TTL of 2.5s", ""),
        (changed(1, down(NodeErrorKind::Unreachable, "refused")), weak, "unreachable", "refused", "PING"),
        (changed(2, in_state(State::Connecting)), weak, "unreachable", "not answered yet", "PING"),
        (changed(1, down(NodeErrorKind::Authentication, "WRONGPASS")), weak, "unreachable", "WRONGPASS", "password"),
        (changed(1, down(NodeErrorKind::NoPermission, "NOPERM")), weak, "unreachable", "NOPERM", "ACL SETUSER"),
        (changed(1, down(NodeErrorKind::Loading, "LOADING")), weak, "unreachable", "LOADING", "wait"),
        (changed(3, down(NodeErrorKind::Unreachable, "refused")), none, "no-quorum", "2 of 5 nodes can vote", "below"),
        (changed(1, in_state(State::Slow)), weak, "slow", "500ms", "--latency"),
        (changed(1, in_state(State::Refused(Refusal::Replica))), broken, "not-a-master", "replica", "REPLICAOF NO ONE"),
        (changed(1, in_state(State::Refused(other()))), broken, "same-server", "10.0.0.9:6379", "a server of its own"),
        (changed(1, in_state(State::Refused(Refusal::Cluster))), broken, "cluster", "cluster", "cluster-enabled no"),
        (changed(1, in_state(State::Refused(Refusal::Sentinel))), broken, "sentinel", "keeps no keys", "masters"),
        (changed(3, in_state(State::Refused(Refusal::Replica))), none, "not-a-master", "replica", "ROLE"),
        (changed(1, |node| node.state = State::Young(millis(41_500))), weak, "young", "in 42s", "leasehold adopt"),
        (changed(3, |node| node.state = State::Young(millis(41_500))), none, "no-quorum", "vote in 42s", "below"),
        (changed(1, |node| node.replicas = Some(2)), weak, "replicas", "failover", "REPLICAOF NO ONE"),
        (changed(1, kept(false, "always")), weak, "not-persistent", "60s (max_ttl)", "CONFIG SET appendonly yes"),
        (changed(1, kept(true, "everysec")), weak, "not-synced", "60s (max_ttl)", "CONFIG SET appendfsync always"),
        (changed(1, kept(true, "always")), weak, "not-synced", "rewrite", "CONFIG SET no-appendfsync-on-rewrite no"),
        (changed(1, |node| (node.appendfsync, node.synced) = (None, false)), weak, "persistence-unknown", "does not tell", "config|get"),
        (changed(1, |node| node.eviction_policy = Some("allkeys-lru".into())), weak, "eviction", "allkeys-lru",
            "redis-cli -h 10.0.0.1 -p 6379 CONFIG SET maxmemory-policy noeviction"),
        (fleet(4), weak, "node-count", "4 bear the loss of 1, no more than 3", "three or five"),
        (fleet(1), weak, "node-count", "a single node", "three or five"),
        (changed(1, warned(NodeWarning::NoInfo)), weak, "info-forbidden", "INFO", "+info"),
        (changed(1, warned(NodeWarning::NoMarker)), weak, "no-marker", "marker", "+eval"),
        (changed(1, warned(NodeWarning::NoTracking)), weak, "no-tracking", "TRACKING", "+client"),
        (changed(1, warned(NodeWarning::OtherFleet)), weak, "other-fleet", "max_ttl", "--max-ttl"),
        (changed(1, warned(NodeWarning::ClockStepped { gained: millis(700) })), weak, "clock-stepped", "700ms", "maxslewrate 5000"),
        (changed(1, |node| node.clock_ahead_micros = Some(-2_000_000)), weak, "clock-offset", "10.0.0.1:6379 is 2.0 s behind", "chronyc"),
        (changed(5, |node| node.round_trips = Some(RoundTrips { count: 9, p50: millis(5), p99: millis(200) })), weak,
            "node-timeout", "500ms", "--node-timeout 1s"),
    ];
    for (fleet, (plain, strict), wanted, text, mend) in lines {
        let found = findings(&fleet);
        let finding = find(&found, wanted);
        assert!(finding.text.contains(text), "{wanted}: {finding:?}");
        assert!(
            mend.is_empty() || finding.mend.iter().any(|line| line.contains(mend)),
            "{wanted}: {finding:?}"
        );
        assert_eq!(code(&fleet, &found, false), Code::of_command(plain.into()), "{wanted}: {found:?}");
        assert_eq!(code(&fleet, &found, true), Code::of_command(strict.into()), "{wanted}: {found:?}");
    }
}

#[test]
fn a_fit_fleet_has_notes_alone() {
    assert_eq!(codes(&fleet(5)), ["slew", "ttl"]);
    assert_eq!(heaviest(&findings(&fleet(3))), Weight::Note);
}

#[test]
fn the_heaviest_come_first() {
    let mut fleet = fleet(10);
    let states = [
        State::Young(millis(9_000)),
        State::Refused(Refusal::Sentinel),
        State::Refused(Refusal::Cluster),
        State::Refused(Refusal::SameServer { other: "10.0.0.10:6379".into() }),
        State::Refused(Refusal::Replica),
        State::Slow,
        State::Down,
    ];
    for (node, state) in fleet.nodes.iter_mut().zip(states) {
        in_state(state)(node);
    }
    fleet.nodes[7].warnings =
        vec![NodeWarning::ClockStepped { gained: millis(1) }, NodeWarning::OtherFleet, NodeWarning::NoInfo];
    fleet.nodes[7].eviction_policy = Some("volatile-ttl".into());
    (fleet.nodes[8].appendonly, fleet.nodes[8].synced, fleet.nodes[8].replicas) =
        (Some(false), false, Some(1));
    fleet.nodes[9].clock_ahead_micros = Some(9_000_000);
    assert_eq!(
        codes(&fleet),
        [
            "no-quorum",
            "not-a-master",
            "same-server",
            "cluster",
            "sentinel",
            "unreachable",
            "slow",
            "young",
            "replicas",
            "not-persistent",
            "persistence-unknown",
            "eviction",
            "node-count",
            "info-forbidden",
            "other-fleet",
            "clock-stepped",
            "clock-offset",
            "slew",
            "ttl"
        ]
    );
}

#[test]
fn nodes_with_one_fault_share_a_finding_and_each_has_its_command() {
    let found = findings(&changed(3, |node| node.eviction_policy = Some("allkeys-lru".into())));
    let finding = find(&found, "eviction");
    assert_eq!(finding.nodes, ["10.0.0.1:6379", "10.0.0.2:6379", "10.0.0.3:6379"]);
    let commands = finding.mend.iter().filter(|line| line.starts_with("redis-cli"));
    assert_eq!(commands.count(), 3);
}

#[test]
fn nothing_is_said_of_what_a_node_that_is_not_there_would_be_like() {
    let found = codes(&changed(2, down(NodeErrorKind::Unreachable, "refused")));
    assert_eq!(found, ["unreachable", "unreachable", "slew", "ttl"]);
    let nobody = codes(&changed(5, in_state(State::Down)));
    assert_eq!(nobody[0], "no-quorum");
    assert!(!nobody.contains(&"ttl"), "nothing was measured");
}

#[test]
fn the_ttl_is_ten_times_the_round_trip_and_five_times_the_node_timeout() {
    let advice = |p99, node_timeout| {
        let mut fleet = fleet(3);
        fleet.nodes[1].round_trips = Some(RoundTrips { count: 200, p50: millis(1), p99: millis(p99) });
        let advice = Advice::new(&Fleet { node_timeout: millis(node_timeout), ..fleet }).unwrap();
        (advice.ttl_now, advice.node_timeout, advice.ttl)
    };
    assert_eq!(advice(2, 500), (millis(2_500), millis(50), millis(250)));
    assert_eq!(advice(2, 10), (millis(200), millis(50), millis(250)), "well above the drift");
    assert_eq!(advice(100, 100), (millis(1_000), millis(500), millis(2_500)));
    assert_eq!(advice(80, 50), (millis(800), millis(400), millis(2_000)));
}

#[test]
fn the_table_and_the_findings_fit_a_hundred_columns() {
    let mut fleet = changed(1, down(NodeErrorKind::Unreachable, &"a long reason, ".repeat(20)));
    fleet.nodes[1].address = format!("unix:/run/{}", "long/".repeat(12));
    fleet.nodes[2].state = State::Young(Duration::from_secs(86_400));
    fleet.nodes[2].clock_ahead_micros = Some(-86_400_000_000);
    fleet.nodes[2].server = Some("Something with a long name 1.2.3".into());
    fleet.nodes[2].native_commands = vec!["SET IFEQ", "DELEX"];
    let slow = RoundTrips { count: 200, p50: millis(1_234), p99: millis(12_345) };
    fleet.nodes[3].round_trips = Some(slow);
    fleet.nodes[4].state = State::Refused(Refusal::SameServer { other: "10.0.0.4:6379".into() });
    for fleet in [fleet, self::fleet(5)] {
        let text = table::text(&fleet, &findings(&fleet), false);
        for line in text.lines().filter(|line| !line.contains("redis-cli")) {
            assert!(line.chars().count() <= 100, "{line}");
        }
        assert!(!text.contains('\x1b') && table::text(&fleet, &findings(&fleet), true).contains('\x1b'));
        assert!(fleet.nodes.iter().all(|node| text.contains(&node.address)), "{text}");
    }
}

#[test]
fn the_object_says_the_same() {
    let fleet = changed(3, |node| node.state = State::Young(millis(41_500)));
    let object: serde_json::Value = serde_json::from_str(&json::text(&fleet, &findings(&fleet))).unwrap();
    assert_eq!(object["fit"], false);
    assert_eq!(object["quorum"]["able"], 2);
    assert_eq!(object["quorum"]["ready_in_ms"], 41_500.0);
    assert_eq!(object["nodes"][0]["state"], "young");
    assert_eq!(object["nodes"][4]["round_trips"]["p99_ms"], 2.0);
    assert_eq!(object["findings"][0]["code"], "no-quorum");
    assert_eq!(object["findings"][0]["weight"], "error");
    assert_eq!(object["advice"]["least_ttl_ms"], 2_500.0);
}
