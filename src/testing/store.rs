//! What a node in memory keeps, and how it runs commands: as the real servers and the scripts do. Pure; the
//! node's TIME, in microseconds, is an argument.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::node::{Command, Marker, Target, Vote};
use crate::proposal::Unfit;
use crate::sabotage::{self, Sabotage};

/// A key at one node.
#[derive(Clone)]
pub(crate) struct Entry {
    pub(crate) token: String,
    /// By the node's TIME.
    pub(crate) expires: u64,
}

#[derive(Clone, Default)]
pub(crate) struct Store {
    entries: BTreeMap<Vec<u8>, Entry>,
    /// The highest fence by its record.
    fences: BTreeMap<Vec<u8>, u64>,
    marker: Option<Marker>,
}

impl Store {
    pub(crate) fn live(&self, key: &[u8], time: u64) -> Option<&Entry> {
        self.entries.get(key).filter(|entry| time < entry.expires)
    }

    pub(crate) fn marker(&self) -> Option<&Marker> {
        self.marker.as_ref()
    }

    /// Writes the node's marker, unless one of the same run remembers longer. Returns what stands.
    pub(crate) fn mark(&mut self, marker: &Marker) -> Marker {
        let stands = match self.marker.take() {
            Some(stands) if stands.run_id == marker.run_id && stands.since < marker.since => stands,
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
            Command::Grant { target, ttl, fence } => {
                let token = target.token.as_str();
                if target
                    .keys
                    .iter()
                    .any(|key| self.live(key, time).is_some_and(|entry| entry.token != token))
                {
                    return Vote::No;
                }
                let highest = self.highest(target);
                if !fits(*fence, time, highest) {
                    return Vote::Unfit(Unfit { time, highest });
                }
                self.note_fence(target, *fence);
                let again = target.keys.iter().all(|key| self.live(key, time).is_some());
                if again && sabotage::has(Sabotage::OldTtlOnSecondRound) {
                    return Vote::Yes;
                }
                self.write(&target.keys, true, token, (ttl.duration(), time))
            }
            Command::Acquire { target, ttl } | Command::Heal { target, ttl, .. } => {
                let token = target.token.as_str();
                let free = |key: &Vec<u8>| self.live(key, time).is_none_or(|entry| entry.token == token);
                let only = |key: &Vec<u8>| self.live(key, time).is_none();
                let all = if target.keys.len() == 1 {
                    target.keys.iter().all(only)
                } else {
                    target.keys.iter().all(free)
                };
                if let (true, Command::Heal { fence: Some(fence), .. }) = (all, command) {
                    self.note_fence(target, (*fence).max(self.highest(target)));
                }
                self.write(&target.keys, all, token, (ttl.duration(), time))
            }
            Command::Extend { target, ttl, .. } => {
                let token = target.token.as_str();
                let all = target
                    .keys
                    .iter()
                    .all(|key| self.live(key, time).is_some_and(|entry| entry.token == token));
                self.write(&target.keys, all, token, (ttl.duration(), time))
            }
            Command::Delete { target } => {
                let token = target.token.as_str();
                let compares = !sabotage::has(Sabotage::PlainDelete);
                let ours = |entry: &Entry| entry.token == token || !compares;
                let held = |key: &&Vec<u8>| self.live(key, time).is_some_and(ours);
                let ours: Vec<Vec<u8>> = target.keys.iter().filter(held).cloned().collect();
                ours.iter().for_each(|key| drop(self.entries.remove(key)));
                if ours.len() == target.keys.len() { Vote::Yes } else { Vote::No }
            }
        }
    }

    fn highest(&self, target: &Target) -> u64 {
        let records = target.records.iter().filter_map(|record| self.fences.get(record));
        records.copied().max().unwrap_or(0)
    }

    fn note_fence(&mut self, target: &Target, fence: u64) {
        for record in &target.records {
            self.fences.insert(record.clone(), fence);
        }
    }

    fn write(&mut self, keys: &[Vec<u8>], allowed: bool, token: &str, (ttl, time): (Duration, u64)) -> Vote {
        if !allowed {
            return Vote::No;
        }
        let expires = time.saturating_add(u64::try_from(ttl.as_micros()).unwrap_or(u64::MAX));
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

/// Whether a node whose TIME is `time` and that granted `highest` before grants `fence`.
fn fits(fence: u64, time: u64, highest: u64) -> bool {
    let ahead = if sabotage::has(Sabotage::FenceAheadOfHighest) { 1_000_000 } else { 1 };
    let most = (time + 1_000_000).max(highest + ahead);
    let fits = fence > highest && fence >= time.saturating_sub(1_000_000) && fence <= most;
    fits || sabotage::has(Sabotage::FenceByClientClock)
}
