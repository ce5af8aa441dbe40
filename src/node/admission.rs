//! Who may vote, and since when a node remembers what it granted. Pure.
//!
//! Redlock is as safe as its nodes are independent and remember: a node that forgot a grant must not vote
//! until any lease of that grant is over, which takes `max_ttl`.

use std::time::Duration;

use super::marker::{Marker, size};
use super::report::{Report, Role};
use crate::quorum::quorum;

/// Why a node may not vote at all.
#[derive(Clone, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// The same server stands behind another address.
    #[error("it is the same server as {other}: give each node a master of its own")]
    SameServer {
        /// The other address.
        other: String,
    },
    /// A replica forgets what its master granted last.
    #[error("it is a replica: name its master instead, and run that without replicas")]
    Replica,
    /// A cluster moves keys between its nodes.
    #[error("it is a node of a cluster: use independent masters (`cluster-enabled no`)")]
    Cluster,
    /// A sentinel holds no keys.
    #[error("it is a sentinel: name independent masters instead")]
    Sentinel,
}

/// Something that does not keep a node from voting, but weakens what can be promised.
#[derive(Clone, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum NodeWarning {
    /// INFO is forbidden: neither its role nor its restarts can be seen.
    #[error("INFO is forbidden or lacks run_id: restarts cannot be seen; allow `+info`")]
    NoInfo,
    /// The marker cannot be kept: the time of its start is all that is known.
    #[error(
        "the marker `leasehold:node` cannot be kept: only its uptime tells of a restart; allow GET, SET and EVAL on it, and TIME"
    )]
    NoMarker,
    /// Its marker was written for another set of nodes or another `max_ttl`.
    #[error(
        "another client uses other nodes or another max_ttl (or spells the addresses otherwise): such clients do not exclude each other"
    )]
    OtherFleet,
    /// It does not tell how it writes to disk: it is taken for one that forgets in a restart.
    #[error(
        "CONFIG GET is forbidden: after a restart it does not vote for max_ttl, though it may sync every write; allow `+config|get`"
    )]
    NoConfig,
    /// It does not tell when its memory is emptied: a failover and back within five seconds is not seen.
    #[error(
        "CLIENT TRACKING is forbidden or not known: a failover and back is seen only after five seconds; allow `+client`"
    )]
    NoTracking,
    /// Its clock was stepped forward under a lease: keys ran out early, and its answer did not count.
    #[error(
        "its clock was stepped forward by {gained:?}: let a daemon slew it, by less than 0.5 % (chrony: `maxslewrate 5000`)"
    )]
    ClockStepped {
        /// By how much, at the least.
        gained: Duration,
    },
}

/// What is known of a node besides its own report.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fleet<'a> {
    pub(crate) fingerprint: &'a str,
    /// Of the node's address.
    pub(crate) place: &'a str,
    /// All nodes answered without a marker, and each did so again after the last of them.
    pub(crate) is_new: bool,
}

/// The node may vote once it is old enough.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Admitted {
    /// How long it has remembered all that it granted; `None` is for ever.
    pub(crate) age: Option<Duration>,
    /// What has to be written before the first vote is asked.
    pub(crate) write: Option<Marker>,
    pub(crate) warnings: Vec<NodeWarning>,
}

/// Whether the role of a node lets it vote.
pub(crate) fn check_role(report: &Report) -> Result<(), Refusal> {
    match report.role {
        Some(Role::Master) | None => Ok(()),
        Some(Role::Replica) => Err(Refusal::Replica),
        Some(Role::Cluster) => Err(Refusal::Cluster),
        Some(Role::Sentinel) => Err(Refusal::Sentinel),
    }
}

/// The restart guard.
pub(crate) fn admit(report: &Report, fleet: Fleet<'_>) -> Admitted {
    let Some(run_id) = &report.run_id else {
        return Admitted { age: None, write: None, warnings: vec![NodeWarning::NoInfo] };
    };
    let (Some(marker), Some(time)) = (&report.marker, report.time) else {
        return by_uptime(report);
    };
    let marker_of =
        |since, fingerprint: &str, place: &str| marker_of(report, run_id, since, fingerprint, place);
    let (since, write) = match marker {
        // Overrides another client that did not see that the fleet is new.
        _ if fleet.is_new => (0, Some(marker_of(0, fleet.fingerprint, fleet.place))),
        // It remembers since before its clock was set back.
        Some(marker) if marker.run_id == *run_id && marker.since > time => {
            (time, Some(marker_of(time, &marker.fingerprint, &marker.place)))
        }
        // It remembers; how it syncs may have been changed since.
        // One that was a replica since may have got its own marker back from its former replica.
        Some(marker)
            if marker.run_id == *run_id
                && !(report.was_replica && Some(&marker.replication) != report.replication.as_ref()) =>
        {
            let mut now = marker_of(marker.since, &marker.fingerprint, &marker.place);
            if !report.tells_synced() && report.replicas.unwrap_or(0) == 0 {
                // Another client may know.
                now.synced = marker.synced;
            }
            (marker.since, (now != *marker).then_some(now))
        }
        // It restarted with all that it had granted, unless the marker came with another's data.
        Some(marker)
            if marker.run_id != *run_id
                && marker.synced
                && report.synced()
                && marker.place == fleet.place
                && !report.was_replica =>
        {
            (marker.since, Some(marker_of(marker.since, &marker.fingerprint, fleet.place)))
        }
        // It lost its memory, or may have, or is new.
        Some(_) | None => (time, Some(marker_of(time, fleet.fingerprint, fleet.place))),
    };
    let foreign = |marker: &Marker| !fleet.is_new && marker.fingerprint != fleet.fingerprint;
    let other = marker.as_ref().is_some_and(foreign);
    let mut age = age(since, time);
    if marker
        .as_ref()
        .is_some_and(|marker| foreign(marker) && size(&marker.fingerprint) < quorum(size(fleet.fingerprint)))
    {
        // Who was given a minority of the nodes can take it for a new fleet although the rest is in use: its
        // word is worth no more than the node's uptime.
        let uptime = by_uptime(report).age;
        age = if age.is_none() { uptime } else { age.min(uptime) };
    }
    Admitted { age, write, warnings: if other { vec![NodeWarning::OtherFleet] } else { Vec::new() } }
}

/// The marker of this run of the node.
fn marker_of(report: &Report, run_id: &str, since: u64, fingerprint: &str, place: &str) -> Marker {
    Marker {
        run_id: run_id.to_owned(),
        since,
        // What comes back after a restart may be a replica that took the place of its master.
        synced: report.synced() && report.replicas.unwrap_or(0) == 0,
        fingerprint: fingerprint.to_owned(),
        place: place.to_owned(),
        replication: report.replication.as_deref().unwrap_or("-").to_owned(),
    }
}

/// How long a node has remembered at `time`; `None` is for ever.
pub(crate) fn age(since: u64, time: u64) -> Option<Duration> {
    (since > 0).then(|| Duration::from_micros(time.saturating_sub(since)))
}

/// Without a marker a node remembers since its start. INFO counts whole seconds.
fn by_uptime(report: &Report) -> Admitted {
    let uptime = report.uptime.unwrap_or_default().saturating_sub(Duration::from_secs(1));
    Admitted { age: Some(uptime), write: None, warnings: vec![NodeWarning::NoMarker] }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: u64 = 1_000_000_000;
    const OURS: Fleet<'_> = Fleet { fingerprint: "5-ours", place: "here", is_new: false };

    fn marker(run_id: &str, since: u64, synced: bool) -> Marker {
        Marker {
            run_id: run_id.into(),
            since,
            synced,
            fingerprint: "5-ours".into(),
            place: "here".into(),
            replication: "r".into(),
        }
    }

    fn report(synced: bool, marker: Option<Marker>) -> Report {
        Report {
            run_id: Some("now".into()),
            role: Some(Role::Master),
            time: Some(NOW),
            uptime: Some(Duration::from_secs(9)),
            marker: Some(marker),
            appendonly: Some(synced),
            fsync: Some("always".into()),
            no_fsync_on_rewrite: Some(false),
            replication: Some("r".into()),
            ..Report::default()
        }
    }

    /// Each line: report, whether the fleet is new, the age, the marker written.
    #[test]
    fn the_restart_guard_line_by_line() {
        let seconds = |count| Some(Duration::from_secs(count));
        let since = NOW - 5_000_000;
        let was_replica = |report: Report| Report { was_replica: true, ..report };
        let lines = [
            (
                "the same run remembers",
                report(true, Some(marker("now", since, true))),
                false,
                seconds(5),
                None,
            ),
            ("for ever, too", report(true, Some(marker("now", 0, true))), false, None, None),
            (
                "a restart, always synced",
                report(true, Some(marker("old", since, true))),
                false,
                seconds(5),
                Some(marker("now", since, true)),
            ),
            (
                "also of one that remembers for ever",
                report(true, Some(marker("old", 0, true))),
                false,
                None,
                Some(marker("now", 0, true)),
            ),
            (
                "not synced before",
                report(true, Some(marker("old", 0, false))),
                false,
                seconds(0),
                Some(marker("now", NOW, true)),
            ),
            (
                "not synced now",
                report(false, Some(marker("old", 0, true))),
                false,
                seconds(0),
                Some(marker("now", NOW, false)),
            ),
            (
                "another's marker, from its time as a replica",
                was_replica(report(true, Some(marker("other", 0, true)))),
                false,
                seconds(0),
                Some(marker("now", NOW, true)),
            ),
            (
                "a promoted one that is marked since",
                was_replica(report(true, Some(marker("now", since, true)))),
                false,
                seconds(5),
                None,
            ),
            ("no marker", report(true, None), false, seconds(0), Some(marker("now", NOW, true))),
            ("a new fleet", report(false, None), true, None, Some(marker("now", 0, false))),
            (
                "a new fleet overrides another client",
                report(true, Some(marker("now", NOW - 1, true))),
                true,
                None,
                Some(marker("now", 0, true)),
            ),
            (
                "how it syncs was changed",
                report(false, Some(marker("now", since, true))),
                false,
                seconds(5),
                Some(marker("now", since, false)),
            ),
        ];
        for (line, report, is_new, age, write) in lines {
            let admitted = admit(&report, Fleet { is_new, ..OURS });
            assert_eq!(admitted, Admitted { age, write, warnings: Vec::new() }, "{line}");
        }
    }

    #[test]
    fn markers_that_came_with_other_data_are_not_believed() {
        let young = Some(Duration::ZERO);
        let elsewhere = Marker { place: "there".into(), ..marker("old", 0, true) };
        assert_eq!(admit(&report(true, Some(elsewhere)), OURS).age, young, "another node's data");
        let before = Marker { replication: "before".into(), ..marker("now", 0, true) };
        let back = Report { was_replica: true, ..report(true, Some(before.clone())) };
        assert_eq!(admit(&back, OURS).age, young, "its own marker, from its former replica");
        let trusted = admit(&report(true, Some(before)), OURS);
        assert_eq!(trusted.age, None, "the id changes when a replica attaches, too");
        assert_eq!(trusted.write, Some(marker("now", 0, true)));
    }

    #[test]
    fn a_node_with_replicas_is_not_believed_after_a_restart() {
        let with_replica = Report { replicas: Some(1), ..report(true, Some(marker("now", 0, true))) };
        assert_eq!(admit(&with_replica, OURS).write, Some(marker("now", 0, false)));
    }

    #[test]
    fn a_node_whose_clock_was_set_back_is_young_and_not_in_the_future() {
        let admitted = admit(&report(true, Some(marker("now", NOW + 5, true))), OURS);
        assert_eq!(admitted.age, Some(Duration::ZERO));
        assert_eq!(admitted.write, Some(marker("now", NOW, true)), "from now on it remembers");
        let of_now = admit(&report(true, Some(marker("now", NOW, true))), OURS);
        assert_eq!((of_now.age, of_now.write), (Some(Duration::ZERO), None));
        let restarted = admit(&report(true, Some(marker("old", NOW + 5, true))), OURS);
        assert_eq!(restarted.age, Some(Duration::ZERO));
        assert_eq!(restarted.write, Some(marker("now", NOW + 5, true)), "reset once it is of this run");
    }

    #[test]
    fn another_client_may_know_how_a_node_syncs() {
        let told = report(true, Some(marker("now", 0, true)));
        let untold = Report { fsync: None, ..told };
        assert_eq!(admit(&untold, OURS).write, None);
        let with_replica = Report { replicas: Some(1), ..untold };
        assert_eq!(admit(&with_replica, OURS).write, Some(marker("now", 0, false)));
    }

    #[test]
    fn what_a_node_does_not_tell_is_a_warning() {
        let nothing = admit(&Report::default(), OURS);
        assert_eq!((nothing.age, nothing.warnings), (None, vec![NodeWarning::NoInfo]));
        let no_marker = admit(&Report { marker: None, ..report(true, None) }, OURS);
        assert_eq!((no_marker.age, no_marker.write), (Some(Duration::from_secs(8)), None));
        assert_eq!(no_marker.warnings, [NodeWarning::NoMarker]);
    }

    #[test]
    fn a_marker_of_another_set_of_nodes_is_a_warning_and_stays() {
        let theirs = Marker { fingerprint: "5-theirs".into(), ..marker("now", 0, true) };
        let admitted = admit(&report(true, Some(theirs)), OURS);
        assert_eq!((admitted.age, admitted.write), (None, None), "it may only spell the addresses otherwise");
        assert_eq!(admitted.warnings, [NodeWarning::OtherFleet]);
    }

    #[test]
    fn the_word_of_a_client_with_a_minority_of_the_nodes_is_worth_no_more_than_the_uptime() {
        for (since, uptime, expected) in [(0, 9, 8), (NOW - 3_000_000, 9, 3), (NOW - 30_000_000, 9, 8)] {
            let theirs = Marker { fingerprint: "1-theirs".into(), ..marker("now", since, true) };
            let report = Report { uptime: Some(Duration::from_secs(uptime)), ..report(true, Some(theirs)) };
            assert_eq!(admit(&report, OURS).age, Some(Duration::from_secs(expected)), "{since}");
        }
        for (nodes, age) in [(2, Some(Duration::from_secs(8))), (3, None)] {
            let theirs = Marker { fingerprint: format!("{nodes}-theirs"), ..marker("now", 0, true) };
            assert_eq!(admit(&report(true, Some(theirs)), OURS).age, age, "three of five are a quorum");
        }
    }

    #[test]
    fn only_masters_may_vote() {
        let role = |role| check_role(&Report { role, ..Report::default() });
        assert_eq!(role(Some(Role::Master)), Ok(()));
        assert_eq!(role(None), Ok(()));
        assert_eq!(role(Some(Role::Replica)), Err(Refusal::Replica));
        assert_eq!(role(Some(Role::Cluster)), Err(Refusal::Cluster));
        assert_eq!(role(Some(Role::Sentinel)), Err(Refusal::Sentinel));
    }
}
