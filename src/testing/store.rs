//! What a node in memory keeps, and how it runs commands: as the real servers and the scripts do, which
//! `tests/scripts` shows. Pure; the node's TIME, in microseconds, is an argument.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::node::{Command, Marker, Target, Vote};
use crate::proposal::Unfit;
use crate::sabotage::{self, Sabotage};
use crate::validity::Ttl;

/// A key at one node.
#[derive(Clone)]
pub(crate) struct Entry {
    pub(crate) token: String,
    /// By the node's TIME.
    pub(crate) expires: u64,
}

/// The highest fence granted for a key.
#[derive(Clone)]
pub(crate) struct Record {
    pub(crate) fence: u64,
    pub(crate) expires: u64,
}

#[derive(Clone, Default)]
pub(crate) struct Store {
    entries: BTreeMap<Vec<u8>, Entry>,
    records: BTreeMap<Vec<u8>, Record>,
    marker: Option<Marker>,
}

impl Store {
    pub(crate) fn live(&self, key: &[u8], time: u64) -> Option<&Entry> {
        self.entries.get(key).filter(|entry| time < entry.expires)
    }

    pub(crate) fn record(&self, name: &[u8], time: u64) -> Option<&Record> {
        self.records.get(name).filter(|record| time < record.expires)
    }

    pub(crate) fn marker(&self) -> Option<&Marker> {
        self.marker.as_ref()
    }

    /// Writes the node's marker, unless one of the same run and history remembers longer. Returns what stands.
    pub(crate) fn mark(&mut self, marker: &Marker) -> Marker {
        let same =
            |stands: &Marker| stands.run_id == marker.run_id && stands.replication == marker.replication;
        let stands = match self.marker.take() {
            Some(stands) if same(&stands) && stands.since < marker.since => stands,
            _ => marker.clone(),
        };
        self.marker.insert(stands).clone()
    }

    /// Loses everything but the marker, as a running node can.
    #[cfg(test)]
    pub(crate) fn forget_keys(&mut self) {
        *self = Self { marker: self.marker.take(), ..Self::default() };
    }

    /// Runs `command` on a node whose TIME is `time`.
    pub(crate) fn run(&mut self, command: &Command, time: u64) -> Vote {
        match command {
            Command::Ping => Vote::Yes,
            Command::Acquire { target, ttl } | Command::Heal { target, ttl, fence: None } => {
                let settable = match target.keys.as_slice() {
                    // SET NX does not look whose it is.
                    [key] => self.live(key, time).is_none(),
                    _ => self.is_free(target, time),
                };
                self.write(&target.keys, settable, target.token.as_str(), (ttl.duration(), time))
            }
            Command::Grant { target, ttl, fence } => self.grant(target, *ttl, *fence, time),
            Command::Heal { target, ttl, fence: Some(fence) } => self.heal(target, *ttl, *fence, time),
            Command::Extend { target, ttl, .. } => {
                let all = target.keys.iter().all(|key| self.is_ours(key, target, time));
                self.write(&target.keys, all, target.token.as_str(), (ttl.duration(), time))
            }
            Command::Delete { target } => self.delete(target, time),
        }
    }

    fn grant(&mut self, target: &Target, ttl: Ttl, fence: u64, time: u64) -> Vote {
        if !self.is_free(target, time) {
            return Vote::No;
        }
        let highest = self.highest(target, time);
        if !fits(fence, time, highest) {
            return Vote::Unfit(Unfit { time, highest });
        }
        for name in &target.records {
            self.note(name, fence, target.record_ttl, time);
        }
        let again = target.keys.iter().all(|key| self.live(key, time).is_some());
        if again && sabotage::has(Sabotage::OldTtlOnSecondRound) {
            return Vote::Yes;
        }
        self.write(&target.keys, true, target.token.as_str(), (ttl.duration(), time))
    }

    fn heal(&mut self, target: &Target, ttl: Ttl, fence: u64, time: u64) -> Vote {
        if !self.is_free(target, time) {
            return Vote::No;
        }
        for name in &target.records {
            if self.record(name, time).map_or(0, |record| record.fence) < fence {
                self.note(name, fence, target.record_ttl, time);
            }
        }
        self.write(&target.keys, true, target.token.as_str(), (ttl.duration(), time))
    }

    fn delete(&mut self, target: &Target, time: u64) -> Vote {
        let compares = !sabotage::has(Sabotage::PlainDelete);
        let mut all = true;
        for key in &target.keys {
            if self.is_ours(key, target, time) || !compares && self.live(key, time).is_some() {
                self.entries.remove(key);
            } else {
                all = false;
            }
        }
        if all { Vote::Yes } else { Vote::No }
    }

    fn is_ours(&self, key: &[u8], target: &Target, time: u64) -> bool {
        self.live(key, time).is_some_and(|entry| entry.token == target.token.as_str())
    }

    /// Whether no key of `target` is another's.
    fn is_free(&self, target: &Target, time: u64) -> bool {
        target.keys.iter().all(|key| self.live(key, time).is_none() || self.is_ours(key, target, time))
    }

    fn highest(&self, target: &Target, time: u64) -> u64 {
        let records = target.records.iter().filter_map(|name| self.record(name, time));
        records.map(|record| record.fence).max().unwrap_or(0)
    }

    /// Notes `fence` as the highest.
    pub(crate) fn note(&mut self, name: &[u8], fence: u64, ttl: Duration, time: u64) {
        self.records.insert(name.to_vec(), Record { fence, expires: after(time, ttl) });
    }

    fn write(&mut self, keys: &[Vec<u8>], allowed: bool, token: &str, (ttl, time): (Duration, u64)) -> Vote {
        if !allowed {
            return Vote::No;
        }
        let expires = after(time, ttl);
        for key in keys {
            self.entries.insert(key.clone(), Entry { token: token.to_owned(), expires });
        }
        Vote::Yes
    }

    /// Puts a value of somebody else at `key`.
    pub(crate) fn set(&mut self, key: &[u8], value: &str, ttl: Duration, time: u64) {
        self.write(&[key.to_vec()], true, value, (ttl, time));
    }

    pub(crate) fn remove(&mut self, key: &[u8]) {
        self.entries.remove(key);
    }

    /// Every key that stands, and its token.
    #[cfg(test)]
    pub(crate) fn all_live(&self, time: u64) -> impl Iterator<Item = (&[u8], &str)> {
        let live = self.entries.iter().filter(move |(_, entry)| time < entry.expires);
        live.map(|(key, entry)| (key.as_slice(), entry.token.as_str()))
    }
}

fn after(time: u64, ttl: Duration) -> u64 {
    time.saturating_add(u64::try_from(ttl.as_micros()).unwrap_or(u64::MAX))
}

/// Whether a node whose TIME is `time` and that granted `highest` before grants `fence`.
fn fits(fence: u64, time: u64, highest: u64) -> bool {
    let ahead = if sabotage::has(Sabotage::FenceAheadOfHighest) { 1_000_000 } else { 1 };
    let most = (time + 1_000_000).max(highest + ahead);
    let fits = fence > highest && fence >= time.saturating_sub(1_000_000) && fence <= most;
    fits || sabotage::has(Sabotage::FenceByClientClock)
}
