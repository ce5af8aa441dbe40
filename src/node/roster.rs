//! What the nodes of one client know of each other: who is who, and whether the fleet is new.
//!
//! A node without a marker is new or has lost its memory. Only if *all* nodes are without one, and each
//! says so again on the same connection after the last of them has said it, is the fleet new and no memory
//! can be lost.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use super::admission::Refusal;
use super::marker::fingerprint;
use crate::quorum::quorum;
use crate::sabotage::{self, Sabotage};

/// One connection's part in finding out whether the fleet is new.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Word {
    #[default]
    None,
    /// Connection `n` found no marker.
    Unmarked(u64),
    /// Connection `n` found none again, after all had found none.
    Again(u64),
}

#[derive(Debug, Default)]
struct View {
    run_id: Option<String>,
    word: Word,
}

#[derive(Debug)]
struct Views {
    nodes: Vec<View>,
    /// A marker was seen or written: the fleet can no longer be found new.
    known: bool,
    /// The connections on which the fleet was found new.
    new: Option<Vec<Option<u64>>>,
}

pub(crate) struct Roster {
    names: Vec<Arc<str>>,
    pub(crate) fingerprint: String,
    views: Mutex<Views>,
    changed: Notify,
}

impl Roster {
    pub(crate) fn new(names: Vec<Arc<str>>, max_ttl_millis: u128) -> Self {
        let nodes = names.iter().map(|_| View::default()).collect();
        Self {
            fingerprint: fingerprint(names.iter().map(|name| &**name), max_ttl_millis),
            views: Mutex::new(Views { nodes, known: false, new: None }),
            changed: Notify::new(),
            names,
        }
    }

    fn lock(&self) -> MutexGuard<'_, Views> {
        self.views.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Enters `node` as the server with `run_id`, unless another node is that one.
    pub(crate) fn enter(&self, node: usize, run_id: Option<&str>) -> Result<(), Refusal> {
        let mut views = self.lock();
        let same = |view: &View| run_id.is_some() && view.run_id.as_deref() == run_id;
        let twin = (0..views.nodes.len()).find(|other| *other != node && same(&views.nodes[*other]));
        if let Some(other) = twin {
            return Err(Refusal::SameServer { other: self.names[other].to_string() });
        }
        views.nodes[node].run_id = run_id.map(str::to_owned);
        Ok(())
    }

    /// `node` is not connected any more.
    pub(crate) fn leave(&self, node: usize) {
        self.lock().nodes[node] = View::default();
    }

    /// A marker was seen or is being written.
    pub(crate) fn marked(&self) {
        self.lock().known = true;
        self.changed.notify_waiters();
    }

    /// Connection `serial` of `node` found no marker.
    pub(crate) fn unmarked(&self, node: usize, serial: u64) {
        self.lock().nodes[node].word = Word::Unmarked(serial);
        self.changed.notify_waiters();
    }

    /// Connection `serial` of `node` found none once more.
    pub(crate) fn unmarked_again(&self, node: usize, serial: u64) {
        let mut views = self.lock();
        if views.nodes[node].word == Word::Unmarked(serial) {
            views.nodes[node].word = Word::Again(serial);
        }
        let again = |view: &View| match view.word {
            Word::Again(serial) => Some(serial),
            Word::None | Word::Unmarked(_) => None,
        };
        let words: Vec<Option<u64>> = views.nodes.iter().map(again).collect();
        if !views.known && views.new.is_none() && words.iter().flatten().count() >= needed(words.len()) {
            views.new = Some(words);
        }
        drop(views);
        self.changed.notify_waiters();
    }

    /// Resolves when another node has answered and the fleet may still be found new: a node that is down is
    /// best tried again at once, because who starts a fleet starts all of it.
    pub(crate) async fn stirred(&self) {
        loop {
            self.changed.notified().await;
            if !self.lock().known {
                return;
            }
        }
    }

    /// Resolves to true when every node has found no marker, to false when one was seen.
    pub(crate) async fn all_unmarked(&self) -> bool {
        self.decided(|views| {
            let unmarked = views.nodes.iter().filter(|view| view.word != Word::None).count();
            unmarked >= needed(views.nodes.len())
        })
        .await
    }

    /// Resolves to true when the fleet was found new and connection `serial` of `node` took part in that,
    /// to false when a marker was seen.
    pub(crate) async fn is_new(&self, node: usize, serial: u64) -> bool {
        let found = self.decided(|views| views.new.is_some()).await;
        found && self.lock().new.as_ref().is_some_and(|serials| serials[node] == Some(serial))
    }

    async fn decided(&self, yes: impl Fn(&Views) -> bool) -> bool {
        loop {
            let changed = self.changed.notified();
            {
                let views = self.lock();
                // What was found new stays so for those who took part, though it is known from then on.
                if yes(&views) && (!views.known || views.new.is_some()) {
                    return true;
                }
                if views.known {
                    return false;
                }
            }
            changed.await;
        }
    }
}

/// How many of `nodes` have to be without a marker: one alone may remember what all others have lost.
fn needed(nodes: usize) -> usize {
    if sabotage::has(Sabotage::NewFleetByQuorum) { quorum(nodes) } else { nodes }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt as _;

    fn roster(nodes: usize) -> Roster {
        Roster::new((0..nodes).map(|node| format!("n{node}").into()).collect(), 60_000)
    }

    fn all_but_last_step(roster: &Roster) {
        (0..3).for_each(|node| roster.unmarked(node, 7));
        (0..2).for_each(|node| roster.unmarked_again(node, 7));
    }

    #[test]
    fn a_fleet_is_new_when_all_said_so_twice_on_one_connection() {
        let roster = roster(3);
        assert_eq!(roster.all_unmarked().now_or_never(), None);
        all_but_last_step(&roster);
        assert_eq!(roster.all_unmarked().now_or_never(), Some(true));
        assert_eq!(roster.is_new(0, 7).now_or_never(), None);
        roster.unmarked_again(2, 7);
        assert_eq!(roster.is_new(2, 7).now_or_never(), Some(true));
        assert_eq!(roster.is_new(2, 8).now_or_never(), Some(false), "a later connection took no part");
        roster.marked();
        assert_eq!(roster.is_new(0, 7).now_or_never(), Some(true), "it is marked because it was new");
    }

    #[test]
    fn one_marker_or_one_other_connection_and_it_is_not_new() {
        let seen = roster(3);
        all_but_last_step(&seen);
        seen.marked();
        seen.unmarked_again(2, 7);
        assert_eq!(seen.is_new(0, 7).now_or_never(), Some(false));

        let reconnected = roster(3);
        all_but_last_step(&reconnected);
        reconnected.leave(1);
        reconnected.unmarked_again(2, 7);
        assert_eq!(reconnected.is_new(2, 7).now_or_never(), None);
        reconnected.unmarked(1, 8);
        reconnected.unmarked_again(1, 7);
        assert_eq!(reconnected.is_new(2, 7).now_or_never(), None, "the old connection's word does not count");
    }

    #[test]
    fn one_server_behind_two_addresses_enters_once() {
        let roster = roster(3);
        assert_eq!(roster.enter(0, Some("run")), Ok(()));
        assert_eq!(roster.enter(0, Some("run")), Ok(()));
        assert_eq!(roster.enter(2, Some("run")), Err(Refusal::SameServer { other: "n0".into() }));
        assert_eq!(roster.enter(1, None), Ok(()));
        assert_eq!(roster.enter(2, None), Ok(()), "who does not tell is not refused");
        roster.leave(0);
        assert_eq!(roster.enter(2, Some("run")), Ok(()));
    }
}
