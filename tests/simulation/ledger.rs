//! The checker: knows the true time, and every lease that was handed out.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use super::history::History;
use super::process::Process;
use crate::clock::Clock;
use crate::hold::Hold;
use crate::node::Target;
use crate::{Fence, Lease};

/// A promise that was broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Breach {
    /// Two leases on one key were valid at one time.
    Overlap,
    /// A lease that was over is valid again.
    Revived,
    /// A loss was not told by the end of validity.
    LateLoss,
    /// Something other than a deletion was sent for what was over.
    Zombie,
    /// A fence is not above the one before it.
    Fence,
    /// A key is left where it should have been deleted or have run out.
    Leftover,
    /// What was owed is not paid.
    Unpaid,
    /// Nobody gets the lock although all is well.
    Stuck,
}

#[derive(Clone, Debug)]
pub(crate) struct Violation {
    pub(crate) breach: Breach,
    pub(crate) what: String,
}

impl std::fmt::Display for Violation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?}: {}", self.breach, self.what)
    }
}

/// How much happened, so that a run in which nothing did shows.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    pub(crate) granted: u64,
    pub(crate) fenced: u64,
    pub(crate) lost: u64,
    pub(crate) renewed: u64,
    pub(crate) given_up: u64,
    /// Extends and releases whose futures were dropped.
    pub(crate) cut_short: [u64; 2],
    pub(crate) faults: u64,
    pub(crate) messages: u64,
}

impl Counts {
    pub(crate) fn add(&mut self, other: &Self) {
        self.granted += other.granted;
        self.fenced += other.fenced;
        self.lost += other.lost;
        self.renewed += other.renewed;
        self.given_up += other.given_up;
        self.cut_short.iter_mut().zip(other.cut_short).for_each(|(ours, others)| *ours += others);
        self.faults += other.faults;
        self.messages += other.messages;
    }
}

/// A lease that was handed out.
struct Entry {
    hold: Weak<Hold>,
    process: Arc<Process>,
    clock: Clock,
    keys: Vec<String>,
    token: String,
    name: String,
    /// It was seen to be over.
    over: bool,
    /// What was promised still stands up to here, though the lease is gone.
    detached: Option<Instant>,
}

#[derive(Default)]
struct State {
    entries: Vec<Entry>,
    fences: BTreeMap<String, Fence>,
    /// The tokens that are over by what their holders did or were told, whatever the code under test says.
    gone: BTreeSet<String>,
    /// Those whose validity has ended, which their holders may not know yet.
    expired: BTreeSet<String>,
    /// Everything that was ever asked for, by its token.
    attempts: BTreeMap<String, (Arc<Process>, Weak<Target>, bool)>,
    violation: Option<Violation>,
    counts: Counts,
}

pub(crate) struct Ledger {
    state: Mutex<State>,
    pub(crate) history: Arc<History>,
    pub(crate) violated: Notify,
}

impl Ledger {
    pub(crate) fn new(history: Arc<History>) -> Arc<Self> {
        Arc::new(Self { state: Mutex::default(), history, violated: Notify::new() })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn count(&self, count: impl FnOnce(&mut Counts)) {
        count(&mut self.lock().counts);
    }

    pub(crate) fn counts(&self) -> Counts {
        self.lock().counts
    }

    pub(crate) fn violation(&self) -> Option<Violation> {
        self.lock().violation.clone()
    }

    pub(crate) fn broken(&self, breach: Breach, what: String) {
        self.history.note("checker", || format!("{breach:?}: {what}"));
        self.lock().violation.get_or_insert(Violation { breach, what });
        self.violated.notify_one();
    }

    /// `lease` was handed to `process`.
    pub(crate) fn granted(&self, process: &Arc<Process>, clock: &Clock, lease: &Lease) {
        let keys: Vec<String> = lease.keys().iter().map(|key| key.to_string()).collect();
        let name = format!("c{} {}", process.client, short(lease.token().as_str()));
        let mut outrun = None;
        {
            let mut state = self.lock();
            state.counts.granted += 1;
            state.counts.fenced += u64::from(lease.fence().is_some());
            if let Some(fence) = lease.fence() {
                for key in &keys {
                    let before = state.fences.insert(key.clone(), fence);
                    outrun =
                        outrun.or(before.filter(|before| *before >= fence).map(|before| (before, fence)));
                }
            }
            state.entries.push(Entry {
                hold: Arc::downgrade(&lease.hold),
                process: process.clone(),
                clock: clock.clone(),
                keys,
                token: lease.token().as_str().to_owned(),
                name: name.clone(),
                over: false,
                detached: None,
            });
        }
        if let Some((before, fence)) = outrun {
            self.broken(Breach::Fence, format!("{name} has fence {fence}, after {before}"));
        }
    }

    /// The holder of `token` gives it back, drops it, leaves it or was told of its loss: nothing more is to be
    /// sent for it but deletions.
    pub(crate) fn gone(&self, token: &str) {
        self.lock().gone.insert(token.to_owned());
    }

    /// The lease with `token` was left to run out within `left` by its holder's clock.
    pub(crate) fn detached(&self, token: &str, left: Duration) {
        let mut state = self.lock();
        if let Some(attempt) = state.attempts.get_mut(token) {
            attempt.2 = true;
        }
        if let Some(entry) = state.entries.iter_mut().find(|entry| entry.token == token) {
            let Clock::Virtual(clock) = &entry.clock else { return };
            entry.detached = Some(Instant::now() + clock.truly(left));
        }
    }

    /// Something is sent for `target`.
    pub(crate) fn sent(&self, process: &Arc<Process>, target: &Arc<Target>) {
        let token = target.token.as_str();
        let is_over = {
            let state = self.lock();
            target.is_over() || state.gone.contains(token) || state.expired.contains(token)
        };
        if is_over {
            self.broken(Breach::Zombie, format!("c{} {} is over", process.client, short(token)));
        }
        let mut state = self.lock();
        if !state.attempts.contains_key(token) {
            state.attempts.insert(token.to_owned(), (process.clone(), Arc::downgrade(target), false));
        }
    }

    /// Looks at every lease, after whatever a client has done.
    pub(crate) fn look(&self) {
        let (mut broken, mut expired) = (Vec::new(), Vec::new());
        let mut guard = self.lock();
        let state = &mut *guard;
        let mut valid: Vec<usize> = Vec::new();
        for (index, entry) in state.entries.iter_mut().enumerate() {
            let was_over = entry.over;
            if let Some(breach) = entry.look() {
                broken.push((breach, entry.name.clone()));
            }
            if entry.is_valid() {
                valid.push(index);
            }
            if entry.over && !was_over {
                expired.push(entry.token.clone());
            }
        }
        state.expired.extend(expired);
        for (place, first) in valid.iter().enumerate() {
            for second in &valid[place + 1..] {
                let (first, second) = (&state.entries[*first], &state.entries[*second]);
                if let Some(key) = first.keys.iter().find(|key| second.keys.contains(key)) {
                    broken.push((Breach::Overlap, format!("{} and {} on {key}", first.name, second.name)));
                }
            }
        }
        state.entries.retain(|entry| !entry.is_done());
        drop(guard);
        broken.into_iter().for_each(|(breach, what)| self.broken(breach, what));
    }

    /// Whether a key with `token` should be nowhere: its attempt or lease is over, and nobody left it to run
    /// out.
    pub(crate) fn should_be_gone(&self, token: &str) -> bool {
        let state = self.lock();
        let Some((process, target, detached)) = state.attempts.get(token) else { return false };
        let over = || target.upgrade().is_none_or(|target| target.is_over());
        !detached && !process.is_dead() && (state.gone.contains(token) || over())
    }
}

impl Entry {
    fn is_valid(&self) -> bool {
        if self.process.is_dead() {
            return false;
        }
        match self.detached {
            Some(until) => Instant::now() < until,
            None => self.hold.upgrade().is_some_and(|hold| hold.promises()),
        }
    }

    /// Nothing more is to be seen of it.
    fn is_done(&self) -> bool {
        match self.detached {
            Some(until) => Instant::now() >= until,
            None => self.process.is_dead() || self.hold.upgrade().is_none_or(|hold| hold.is_ended()),
        }
    }

    fn look(&mut self) -> Option<Breach> {
        let hold = self.hold.upgrade()?;
        if self.detached.is_some() || self.process.is_dead() || hold.is_ended() {
            return None;
        }
        let over = !hold.promises();
        if self.over && !over {
            return Some(Breach::Revived);
        }
        self.over = over;
        let late = self.clock.now() > hold.lock().deadline;
        (late && self.process.is_awake()).then_some(Breach::LateLoss)
    }
}

/// The head of a token: enough to tell one from the other.
pub(crate) fn short(token: &str) -> &str {
    token.get(..6).unwrap_or(token)
}
