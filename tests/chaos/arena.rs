//! Five masters behind five proxies, and who is in trouble at the moment.

use std::path::PathBuf;
use std::sync::Mutex;

use rand::rngs::StdRng;
use rand::seq::IndexedRandom as _;

use super::journal::Journal;
use super::line::{Event, Line, lines};
use super::moment::{Clock, Moment};
use super::worker::Orders;
use crate::common::{Proxied, raw};

pub(super) struct Arena {
    // All clients go through the proxies: who spells an address otherwise takes each restart for a loss
    // of memory.
    pub(super) proxied: Proxied,
    pub(super) journal: Journal,
    /// Since when each node is well; `None` while it is not.
    well: Mutex<Vec<Option<Moment>>>,
    /// With what all have written; stays where the test fails.
    folder: PathBuf,
}

impl Arena {
    pub(super) async fn start() -> Self {
        let proxied = Proxied::start().await;
        let folder = tempfile::Builder::new().prefix("leasehold-chaos-").tempdir().expect("a folder").keep();
        println!("the history is in {}", folder.display());
        let journal = Journal::open(&folder.join("nemesis"), Clock::start());
        let well = Mutex::new(vec![Some(journal.clock.now()); proxied.masters.len()]);
        Self { proxied, journal, well, folder }
    }

    /// Orders for workers until `end`, with the name and the file to be filled in.
    pub(super) fn orders(&self, seed: u64, end: Moment, keys: usize, guard: bool) -> Orders {
        let file = self.folder.join("name");
        let nodes = self.proxied.urls();
        Orders { name: String::new(), seed, clock: self.journal.clock, end, keys, guard, nodes, file }
    }

    /// Any node that is well: it is in trouble from now on.
    pub(super) fn take(&self, dice: &mut StdRng) -> usize {
        let mut well = self.well.lock().unwrap();
        let of: Vec<usize> = (0..well.len()).filter(|node| well[*node].is_some()).collect();
        let node = *of.choose(dice).expect("a minority is in trouble");
        well[node] = None;
        node
    }

    pub(super) fn give_back(&self, node: usize) {
        self.tell(node, "calm");
        self.well.lock().unwrap()[node] = Some(self.journal.clock.now());
    }

    /// Since when `node` is well.
    pub(super) fn well_since(&self, node: usize) -> Option<Moment> {
        self.well.lock().unwrap()[node]
    }

    /// Writes down what is done to `node`.
    pub(super) fn tell(&self, node: usize, what: &str) {
        self.journal.write(&format!("node{node}"), Event::Fault(what.to_owned()));
    }

    /// Whether a token that begins with `token` stands at `key` on master `node`, past its proxy; `None`
    /// where it does not answer.
    pub(super) async fn stands(&self, node: usize, key: &str, token: &str) -> Option<bool> {
        let answer = raw(&self.proxied.masters, node).say(&["GET", key]).await.ok()?;
        let value: Option<String> = redis::from_redis_value(answer).expect("a string or nothing");
        Some(value.is_some_and(|value| value.starts_with(token)))
    }

    /// What was done.
    pub(super) fn lines(&self) -> Vec<Line> {
        lines(&std::fs::read_to_string(self.folder.join("nemesis")).expect("it was written"))
    }

    /// All was well: removes the history.
    pub(super) fn tidy_up(&self) {
        std::fs::remove_dir_all(&self.folder).expect("remove the history");
    }
}
