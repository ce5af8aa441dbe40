//! What the nodes of one client know of each other: who is who, and whether the fleet is new.
//!
//! A node without a marker is new or has lost its memory. Only if *all* nodes are without one, and each
//! says so again on the same connection after the last of them has said it, is the fleet new and no memory
//! can be lost. A node that connects anew begins anew: what the others have said again came before that, and
//! by now another client may have marked them and been granted what the one node has forgotten.

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
    /// How many times a node has found no marker for the first time on a connection.
    firsts: u64,
    /// The connections on which the fleet was found new.
    new: Option<Vec<Option<u64>>>,
}

impl Views {
    /// Every connection has to say again what it has said again.
    fn make_void(&mut self) {
        self.firsts += 1;
        for view in &mut self.nodes {
            if let Word::Again(serial) = view.word {
                view.word = Word::Unmarked(serial);
            }
        }
    }
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
            views: Mutex::new(Views { nodes, known: false, firsts: 0, new: None }),
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
        let mut views = self.lock();
        if !sabotage::has(Sabotage::NewFleetStale) {
            views.make_void();
        }
        views.nodes[node].word = Word::Unmarked(serial);
        drop(views);
        self.changed.notify_waiters();
    }

    /// Connection `serial` of `node` found none once more, which was asked after the first answers that
    /// `all_unmarked` has told of.
    pub(crate) fn unmarked_again(&self, node: usize, serial: u64, firsts: u64) {
        let mut views = self.lock();
        if views.nodes[node].word == Word::Unmarked(serial) && views.firsts == firsts {
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

    /// Resolves when every node has found no marker, to what tells these answers from later ones; to `None`
    /// when a marker was seen.
    pub(crate) async fn all_unmarked(&self) -> Option<u64> {
        let all = |views: &Views| {
            let unmarked = views.nodes.iter().filter(|view| view.word != Word::None).count();
            unmarked >= needed(views.nodes.len())
        };
        self.decided(all).await.then(|| self.lock().firsts)
    }

    /// Resolves to true when the fleet was found new and connection `serial` of `node` took part in that,
    /// to false when a marker was seen, and to `None` when it has to be asked once more.
    pub(crate) async fn is_new(&self, node: usize, serial: u64) -> Option<bool> {
        let void = |views: &Views| views.nodes[node].word != Word::Again(serial);
        if !self.decided(|views| views.new.is_some() || void(views)).await {
            return Some(false);
        }
        let views = self.lock();
        views.new.as_ref().map(|serials| serials[node] == Some(serial))
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

    fn firsts(roster: &Roster) -> u64 {
        roster.all_unmarked().now_or_never().flatten().expect("all have answered")
    }

    fn again(roster: &Roster, node: usize, serial: u64) {
        roster.unmarked_again(node, serial, firsts(roster));
    }

    fn is_new(roster: &Roster, node: usize, serial: u64) -> Option<Option<bool>> {
        roster.is_new(node, serial).now_or_never()
    }

    fn all_but_last_step(roster: &Roster) {
        (0..3).for_each(|node| roster.unmarked(node, 7));
        (0..2).for_each(|node| again(roster, node, 7));
    }

    #[test]
    fn a_fleet_is_new_when_all_said_so_twice_on_one_connection() {
        let roster = roster(3);
        assert_eq!(roster.all_unmarked().now_or_never(), None);
        all_but_last_step(&roster);
        assert_eq!(is_new(&roster, 0, 7), None);
        again(&roster, 2, 7);
        assert_eq!(is_new(&roster, 2, 7), Some(Some(true)));
        assert_eq!(is_new(&roster, 2, 8), Some(Some(false)), "a later connection took no part");
        roster.marked();
        assert_eq!(is_new(&roster, 0, 7), Some(Some(true)), "it is marked because it was new");
    }

    #[test]
    fn a_marker_that_is_seen_ends_it() {
        let roster = roster(3);
        all_but_last_step(&roster);
        let before = firsts(&roster);
        roster.marked();
        assert_eq!(roster.all_unmarked().now_or_never(), Some(None));
        roster.unmarked_again(2, 7, before);
        assert_eq!(is_new(&roster, 2, 7), Some(Some(false)));
    }

    #[test]
    fn the_word_of_an_older_connection_does_not_count() {
        let roster = roster(3);
        all_but_last_step(&roster);
        roster.leave(1);
        assert_eq!(roster.all_unmarked().now_or_never(), None);
        roster.unmarked(1, 8);
        again(&roster, 1, 7);
        assert_eq!(is_new(&roster, 1, 8), Some(None), "it has not said so again");
    }

    #[test]
    fn a_node_that_connects_anew_makes_void_what_the_others_have_said_again() {
        let roster = roster(3);
        all_but_last_step(&roster);
        let before = firsts(&roster);
        roster.leave(2);
        roster.unmarked(2, 8);
        roster.unmarked_again(2, 8, before);
        assert_eq!(is_new(&roster, 2, 8), Some(None), "asked before the last of the first answers");
        again(&roster, 2, 8);
        assert_eq!(is_new(&roster, 2, 8), None, "the others have not been asked since");
        assert_eq!(is_new(&roster, 0, 7), Some(None), "they have to be");
        again(&roster, 0, 7);
        again(&roster, 1, 7);
        assert_eq!(is_new(&roster, 2, 8), Some(Some(true)));
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

    #[test]
    fn a_fleet_stays_new_for_those_who_took_part_and_for_nobody_else() {
        let roster = roster(3);
        all_but_last_step(&roster);
        again(&roster, 2, 7);
        roster.leave(0);
        roster.unmarked(0, 8);
        again(&roster, 0, 8);
        assert_eq!(is_new(&roster, 0, 8), Some(Some(false)));
        assert_eq!(is_new(&roster, 1, 7), Some(Some(true)));
    }

    #[test]
    fn who_waits_is_stirred_by_another_node_until_a_marker_was_seen() {
        let roster = roster(3);
        let stirred = roster.stirred();
        let mut stirred = std::pin::pin!(stirred);
        assert_eq!(stirred.as_mut().now_or_never(), None);
        roster.unmarked(1, 7);
        assert_eq!(stirred.as_mut().now_or_never(), Some(()));
        let known = roster.stirred();
        let mut known = std::pin::pin!(known);
        assert_eq!(known.as_mut().now_or_never(), None);
        roster.marked();
        assert_eq!(known.as_mut().now_or_never(), None);
        roster.unmarked(2, 7);
        assert_eq!(known.as_mut().now_or_never(), None, "it is no new fleet");
    }
}
