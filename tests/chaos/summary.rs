//! What was done and what came of it, for who reads the output of the test.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use super::checker::by_key;
use super::history::leases;
use super::line::{Event, Line, Loss, Step};

pub(super) struct Summary {
    /// How often each thing was done to nodes.
    faults: BTreeMap<String, usize>,
    /// How often each thing happened to workers and leases.
    events: BTreeMap<String, usize>,
    pub(super) wins: BTreeMap<String, usize>,
    /// The shortest time between the end of one promise and the next.
    closest: Option<Duration>,
    /// The longest time for which a key was nobody's.
    longest_free: Duration,
}

impl Summary {
    pub(super) fn of(lines: &[Line]) -> Self {
        let (mut faults, mut events) = (BTreeMap::new(), BTreeMap::new());
        for line in lines {
            match &line.what {
                Event::Fault(calm) if calm == "calm" => {}
                Event::Fault(fault) => *faults.entry(fault.clone()).or_default() += 1,
                other => *events.entry(name(other)).or_default() += 1,
            }
        }
        let leases = leases(lines);
        let keys = by_key(&leases);
        let pairs = || keys.values().flat_map(|held| held.windows(2));
        let between = || pairs().map(|pair| pair[1].start.since(pair[0].end));
        Self {
            faults,
            events,
            wins: keys.iter().map(|(key, held)| ((*key).to_owned(), held.len())).collect(),
            closest: between().min(),
            longest_free: between().max().unwrap_or_default(),
        }
    }

    pub(super) fn count(&self, event: &str) -> usize {
        self.events.get(event).copied().unwrap_or_default()
    }

    /// How often this was done to nodes.
    pub(super) fn faults(&self, fault: &str) -> usize {
        self.faults.get(fault).copied().unwrap_or_default()
    }
}

fn name(event: &Event) -> String {
    let name = match event {
        Event::Lease { step, .. } => match step {
            Step::Won { fence: None, .. } => "won",
            Step::Won { fence: Some(_), .. } => "won with a fence",
            Step::Renewed { .. } => "seen renewed",
            Step::Over => "seen over",
            Step::Releasing => "released",
            Step::Dropping => "dropped",
            Step::Detached { .. } => "detached",
            Step::Lost { why: Loss::Expired, .. } => "lost: expired",
            Step::Lost { why: Loss::Denied, .. } => "lost: denied",
        },
        Event::Without { why, .. } => return format!("won nothing: {why}"),
        Event::Failed(_) => "failed",
        Event::Stopped => "stopped",
        Event::Continued => "continued",
        Event::Killed => "killed",
        Event::Fault(_) => "fault",
    };
    name.to_owned()
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { faults, events, wins, closest, longest_free } = self;
        writeln!(f, "nodes: {} faults {faults:?}", faults.values().sum::<usize>())?;
        writeln!(f, "workers: {events:?}")?;
        writeln!(f, "held: {wins:?}")?;
        write!(f, "closest handover {closest:?}, longest time without a holder {longest_free:?}")
    }
}
