//! What a node says of itself. Pure: texts in, facts out; what it does not tell is `None`.

use std::collections::HashMap;
use std::time::Duration;

use super::marker::Marker;

/// What a node is at the moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    Master,
    Replica,
    Cluster,
    Sentinel,
}

/// Answers to INFO, ROLE, CONFIG GET, TIME and GET marker, in one round trip.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Report {
    /// A new one for each start of the server.
    pub(crate) run_id: Option<String>,
    /// The server's number for this connection, unique within a run.
    pub(crate) client: Option<u64>,
    pub(crate) role: Option<Role>,
    /// Changes when a replica is made a master.
    pub(crate) replication: Option<String>,
    /// It was a replica of another in this run, and has that one's data.
    pub(crate) was_replica: bool,
    pub(crate) replicas: Option<u64>,
    pub(crate) uptime: Option<Duration>,
    /// The node's TIME in microseconds.
    pub(crate) time: Option<u64>,
    /// `None` if it may not be read; `Some(None)` if there is none.
    pub(crate) marker: Option<Option<Marker>>,
    /// Such as `Redis 7.0.15`.
    pub(crate) server: Option<String>,
    pub(crate) appendonly: Option<bool>,
    /// `appendfsync`.
    pub(crate) fsync: Option<String>,
    /// `no-appendfsync-on-rewrite`.
    pub(crate) no_fsync_on_rewrite: Option<bool>,
    /// `maxmemory-policy`.
    pub(crate) eviction: Option<String>,
    /// How long it took to answer all this.
    pub(crate) round_trip: Option<Duration>,
    /// The connection is told when the memory is emptied.
    pub(crate) tracked: bool,
}

impl Report {
    /// Whether every write is on disk before it is answered.
    pub(crate) fn synced(&self) -> bool {
        self.appendonly == Some(true)
            && self.fsync.as_deref() == Some("always")
            && self.no_fsync_on_rewrite == Some(false)
    }

    /// Whether the node says how it writes to disk.
    pub(crate) fn tells_synced(&self) -> bool {
        self.appendonly.is_some() && self.fsync.is_some() && self.no_fsync_on_rewrite.is_some()
    }

    /// The marker, if it is one of this run of the server.
    pub(crate) fn marker_of_now(&self) -> Option<&Marker> {
        let marker = self.marker.as_ref()?.as_ref()?;
        (Some(&marker.run_id) == self.run_id.as_ref()).then_some(marker)
    }

    /// Takes in the answer to INFO, or to a part of it.
    pub(crate) fn info(&mut self, text: &str) {
        let facts: HashMap<&str, &str> =
            text.lines().filter_map(|line| line.trim_end().split_once(':')).collect();
        let fact = |name: &str| facts.get(name).map(|value| (*value).to_owned());
        let mode = fact("redis_mode").or_else(|| fact("server_mode"));
        let role = match (mode.as_deref(), fact("role").as_deref(), fact("cluster_enabled").as_deref()) {
            (Some("sentinel"), ..) => Some(Role::Sentinel),
            (Some("cluster"), ..) | (_, _, Some("1")) => Some(Role::Cluster),
            (_, Some("slave" | "replica"), _) => Some(Role::Replica),
            (_, Some("master"), _) => Some(Role::Master),
            _ => None,
        };
        self.role = role.or(self.role);
        self.run_id = fact("run_id").or(self.run_id.take());
        self.replication = fact("master_replid").or(self.replication.take());
        if let Some(id) = fact("master_replid2") {
            self.was_replica = id.bytes().any(|byte| byte != b'0');
        }
        let number = |name| fact(name).and_then(|text| text.parse::<u64>().ok());
        self.replicas = number("connected_slaves").or(self.replicas);
        self.uptime = number("uptime_in_seconds").map(Duration::from_secs).or(self.uptime);
        let valkey = fact("valkey_version").map(|version| format!("Valkey {version}"));
        let redis = fact("redis_version").map(|version| format!("Redis {version}"));
        self.server = valkey.or(redis).or(self.server.take());
        self.appendonly = fact("aof_enabled").map(|enabled| enabled == "1").or(self.appendonly);
        self.eviction = fact("maxmemory_policy").or(self.eviction.take());
    }

    /// Takes in the answer to ROLE, which stands where INFO is forbidden.
    pub(crate) fn role(&mut self, word: &str) {
        let role = match word {
            "master" => Role::Master,
            "slave" | "replica" => Role::Replica,
            "sentinel" => Role::Sentinel,
            _ => return,
        };
        if !matches!(self.role, Some(Role::Cluster | Role::Sentinel)) {
            self.role = Some(role);
        }
    }

    /// Takes in one setting of CONFIG GET.
    pub(crate) fn setting(&mut self, name: &str, value: &str) {
        match name {
            "appendonly" => self.appendonly = Some(value == "yes"),
            "appendfsync" => self.fsync = Some(value.to_owned()),
            "no-appendfsync-on-rewrite" => self.no_fsync_on_rewrite = Some(value == "yes"),
            "maxmemory-policy" => self.eviction = Some(value.to_owned()),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(info: &str) -> Report {
        let mut report = Report::default();
        report.info(info);
        report
    }

    #[test]
    fn a_master_is_read() {
        let report = report(
            "# Server\r\nredis_version:7.0.15\r\nredis_mode:standalone\r\nrun_id:abc\r\nuptime_in_seconds:7\r\n\
             role:master\r\nconnected_slaves:2\r\nmaster_replid:def\r\nmaster_replid2:0000\r\naof_enabled:1\r\n\
             maxmemory_policy:noeviction\r\ncluster_enabled:0\r\n",
        );
        assert_eq!(report.role, Some(Role::Master));
        assert_eq!(report.run_id.as_deref(), Some("abc"));
        assert_eq!(report.uptime, Some(Duration::from_secs(7)));
        assert_eq!(report.server.as_deref(), Some("Redis 7.0.15"));
        assert_eq!((report.replicas, report.appendonly, report.was_replica), (Some(2), Some(true), false));
        assert!(!report.synced(), "CONFIG has not said how it syncs");
    }

    #[test]
    fn who_cannot_be_a_node_is_seen() {
        assert_eq!(report("role:slave").role, Some(Role::Replica));
        assert_eq!(report("role:master\r\ncluster_enabled:1").role, Some(Role::Cluster));
        assert_eq!(report("redis_mode:sentinel").role, Some(Role::Sentinel));
        assert_eq!(report("server_mode:cluster\r\nrole:master").role, Some(Role::Cluster));
        assert!(report("role:master\r\nmaster_replid2:00a0").was_replica);
        assert_eq!(
            report("valkey_version:9.1.2\r\nredis_version:7.2.4").server.as_deref(),
            Some("Valkey 9.1.2")
        );
    }

    #[test]
    fn a_node_that_tells_nothing_is_nothing_known() {
        assert_eq!(report("nonsense"), Report::default());
        let mut report = Report::default();
        report.role("slave");
        assert_eq!(report.role, Some(Role::Replica));
    }

    #[test]
    fn role_tells_what_info_did_not_but_does_not_make_a_cluster_a_master() {
        let told = |info: &str, word: &str| {
            let mut report = report(info);
            report.role(word);
            report.role
        };
        assert_eq!(told("", "master"), Some(Role::Master));
        assert_eq!(told("", "replica"), Some(Role::Replica));
        assert_eq!(told("", "sentinel"), Some(Role::Sentinel));
        assert_eq!(told("role:master", "handshake"), Some(Role::Master));
        assert_eq!(told("role:master", "slave"), Some(Role::Replica));
        assert_eq!(told("role:master\r\ncluster_enabled:1", "master"), Some(Role::Cluster));
        assert_eq!(told("redis_mode:sentinel", "master"), Some(Role::Sentinel));
    }

    #[test]
    fn a_marker_of_an_earlier_run_is_not_one_of_now() {
        let marker = Marker::read("1 run 0 synced f p r");
        let of = |run_id: Option<&str>, marker| Report {
            run_id: run_id.map(str::to_owned),
            marker,
            ..Report::default()
        };
        let stands = Some(Some(marker.clone()));
        assert_eq!(of(Some("run"), stands.clone()).marker_of_now(), Some(&marker));
        assert_eq!(of(Some("later"), stands.clone()).marker_of_now(), None);
        assert_eq!(of(None, stands).marker_of_now(), None);
        assert_eq!(of(Some("run"), Some(None)).marker_of_now(), None);
    }

    #[test]
    fn always_synced_takes_all_three_settings() {
        let all = [("appendonly", "yes"), ("appendfsync", "always"), ("no-appendfsync-on-rewrite", "no")];
        let mut report = Report::default();
        for (name, value) in all {
            assert!(!report.tells_synced(), "before {name}");
            report.setting(name, value);
        }
        assert!(report.synced() && report.tells_synced());
        for (name, value) in
            [("appendonly", "no"), ("appendfsync", "everysec"), ("no-appendfsync-on-rewrite", "yes")]
        {
            let mut report = report.clone();
            report.setting(name, value);
            assert!(!report.synced(), "{name} {value}");
            assert!(report.tells_synced());
        }
        for missing in 0..all.len() {
            let mut report = Report::default();
            let told = all.iter().enumerate().filter(|(index, _)| *index != missing);
            told.for_each(|(_, (name, value))| report.setting(name, value));
            assert!(!report.tells_synced() && !report.synced(), "without {}", all[missing].0);
        }
    }

    #[test]
    fn config_tells_what_is_evicted() {
        let mut report = report("maxmemory_policy:noeviction");
        report.setting("maxmemory-policy", "allkeys-lru");
        report.setting("maxmemory", "100");
        assert_eq!(report.eviction.as_deref(), Some("allkeys-lru"));
    }
}
