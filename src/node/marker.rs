//! The marker that each node keeps of itself: since when it remembers what it granted. Pure.

use std::fmt;

/// Where the marker stands, behind the namespace.
pub(super) const MARKER: &[u8] = b"leasehold:node";

const VERSION: &str = "1";

/// What stands at the marker's key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Marker {
    /// The run of the server that wrote it.
    pub(crate) run_id: String,
    /// The node's TIME, in microseconds, since when it remembers; 0 is for ever.
    pub(crate) since: u64,
    /// Whether every write was on disk before it was answered.
    pub(crate) synced: bool,
    /// Of the set of nodes and `max_ttl` of the client that wrote it.
    pub(crate) fingerprint: String,
    /// Of the node's address: a marker that came with another node's data is not this one's.
    pub(crate) place: String,
    /// The node's replication id: it changes when a replica is made a master.
    pub(crate) replication: String,
}

impl Marker {
    /// Reads what stands at the marker's key. What cannot be read (a later version's, anything else) is the
    /// marker of nobody: the node is no new one, and may have forgotten.
    pub(crate) fn read(text: &str) -> Self {
        Self::parse(text).unwrap_or(Self {
            run_id: String::new(),
            since: 0,
            synced: false,
            fingerprint: String::new(),
            place: String::new(),
            replication: String::new(),
        })
    }

    fn parse(text: &str) -> Option<Self> {
        let words: Vec<&str> = text.split(' ').collect();
        let [VERSION, run_id, since, synced, fingerprint, place, replication] = words[..] else {
            return None;
        };
        Some(Self {
            run_id: run_id.to_owned(),
            since: since.parse().ok()?,
            synced: synced == "synced",
            fingerprint: fingerprint.to_owned(),
            place: place.to_owned(),
            replication: replication.to_owned(),
        })
    }
}

impl fmt::Display for Marker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let synced = if self.synced { "synced" } else { "unsynced" };
        let Self { run_id, since, fingerprint, place, replication, .. } = self;
        write!(f, "{VERSION} {run_id} {since} {synced} {fingerprint} {place} {replication}")
    }
}

/// Tells clients that were given other nodes, or another `max_ttl`: their number, and FNV-1a over the sorted
/// addresses.
pub(crate) fn fingerprint<'a>(addresses: impl IntoIterator<Item = &'a str>, max_ttl_millis: u128) -> String {
    let mut addresses: Vec<&str> = addresses.into_iter().collect();
    addresses.sort_unstable();
    format!("{}-{}", addresses.len(), hash(&format!("{} {max_ttl_millis}", addresses.join(" "))))
}

/// How many nodes a client with this fingerprint has.
pub(crate) fn size(fingerprint: &str) -> usize {
    let size = fingerprint.split_once('-').and_then(|(size, _)| size.parse().ok());
    size.unwrap_or(0)
}

/// Tells places apart without naming them at the nodes.
pub(crate) fn place(address: &str) -> String {
    hash(address)
}

fn hash(text: &str) -> String {
    let step = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    let hash = text.bytes().fold(0xcbf2_9ce4_8422_2325, step);
    format!("{hash:016x}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_marker_reads_back_as_it_was_written() {
        for (since, synced) in [(0, true), (1_796_065_102_989_667, false)] {
            let marker = Marker {
                run_id: "abc".into(),
                since,
                synced,
                fingerprint: "f".into(),
                place: "p".into(),
                replication: "r".into(),
            };
            assert_eq!(Marker::parse(&marker.to_string()), Some(marker));
        }
    }

    #[test]
    fn what_is_no_marker_is_not_read_as_one() {
        for text in [
            "",
            "1",
            "2 run 0 synced f p r",
            "1 run x synced f p r",
            "1 run 0 synced f p",
            "1 run -1 synced f p r",
        ] {
            assert_eq!(Marker::parse(text), None, "{text}");
            assert_eq!(Marker::read(text).run_id, "", "{text}");
        }
    }

    #[test]
    fn a_fingerprint_is_of_the_set_and_not_of_its_order() {
        let of = |nodes: &[&str], ttl| fingerprint(nodes.iter().copied(), ttl);
        assert_eq!(of(&["a:1", "b:2"], 60), of(&["b:2", "a:1"], 60));
        assert_ne!(of(&["a:1", "b:2"], 60), of(&["a:1", "b:2"], 61));
        assert_ne!(of(&["a:1", "b:2"], 60), of(&["a:1"], 60));
        assert_eq!(size(&of(&["a:1", "b:2"], 60)), 2);
        assert_eq!(size("nonsense"), 0);
    }

    /// Markers outlive the clients that wrote them.
    #[test]
    fn places_and_fingerprints_stay_what_they_were() {
        assert_eq!(place(""), "cbf29ce484222325");
        assert_eq!(place("a"), "af63dc4c8601ec8c");
        assert_eq!(place("foobar"), "85944171f73967e8");
        assert_eq!(fingerprint(["b", "a"], 60_000), format!("2-{}", place("a b 60000")));
    }
}
