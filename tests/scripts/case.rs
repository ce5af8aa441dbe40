//! What is drawn. Times and fences are microseconds from the node's TIME on.

use std::sync::Arc;
use std::time::Duration;

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;

use crate::clock::Clock;
use crate::node::{Command, Form, Target};
use crate::token::Token;
use crate::validity::Ttl;

const SECOND: i64 = 1_000_000;
const HOUR: i64 = 3_600 * SECOND;

/// What is asked for a key, and for a record.
const TTL: Duration = Duration::from_secs(1_000);
const RECORD_TTL: Duration = Duration::from_secs(10_000);
/// What stands has one of these left: one that is not set anew is seen.
const LEFT: [Duration; 2] = [Duration::from_secs(100), Duration::from_secs(100_000)];
/// Near enough to grant or not, far ahead (side by side), and long past.
const RECORDS: [i64; 6] = [-HOUR, -SECOND / 2, 3 * SECOND, HOUR - 1, HOUR, HOUR + 1];
const AFTER_HIGHEST: [i64; 5] = [-1, 0, 1, 2, SECOND];
/// Clear of the bounds, one second on either side: time passes until the server runs the command.
const AFTER_TIME: [i64; 9] =
    [-HOUR, -3_000_000, -1_300_000, -700_000, 0, 700_000, 1_300_000, 3_000_000, HOUR];

#[derive(Clone, Debug)]
pub(super) struct Case {
    pub(super) slots: Vec<Slot>,
    pub(super) verb: Verb,
    fence: Proposal,
    pub(super) form: Form,
}

/// A key, and the record of its highest fence.
#[derive(Clone, Debug)]
pub(super) struct Slot {
    holder: Option<Holder>,
    left: Duration,
    record: Option<i64>,
    pub(super) record_left: Duration,
}

#[derive(Clone, Copy, Debug)]
enum Holder {
    Us,
    Another(&'static str),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Verb {
    Acquire,
    Grant,
    Heal,
    HealFenced,
    Extend,
    Delete,
}

#[derive(Clone, Copy, Debug)]
enum Proposal {
    AfterHighest(i64),
    AfterTime(i64),
}

pub(super) fn cases() -> impl Strategy<Value = Case> {
    use Verb::{Acquire, Delete, Extend, Grant, Heal, HealFenced};
    let verb =
        prop_oneof![4 => Just(Grant), 2 => Just(HealFenced), 4 => select(&[Acquire, Heal, Extend, Delete])];
    let slots = prop_oneof![vec(slot(), 1), vec(slot(), 2..=3)];
    let fence = prop_oneof![
        select(&AFTER_HIGHEST).prop_map(Proposal::AfterHighest),
        select(&AFTER_TIME).prop_map(Proposal::AfterTime),
    ];
    (slots, verb, fence, forms()).prop_map(|(slots, verb, fence, form)| Case { slots, verb, fence, form })
}

pub(super) fn forms() -> impl Strategy<Value = Form> {
    select(&[Form::Best, Form::Script, Form::ScriptText])
}

fn slot() -> impl Strategy<Value = Slot> {
    let holder = prop_oneof![
        3 => Just(None),
        3 => Just(Some(Holder::Us)),
        1 => select(&["", "another's"]).prop_map(|value| Some(Holder::Another(value))),
    ];
    (holder, select(&LEFT), option::of(select(&RECORDS)), select(&LEFT))
        .prop_map(|(holder, left, record, record_left)| Slot { holder, left, record, record_left })
}

impl Slot {
    /// What stands at the key, and how long still.
    pub(super) fn value<'a>(&self, ours: &'a Token) -> Option<(&'a str, Duration)> {
        let value = match self.holder? {
            Holder::Us => ours.as_str(),
            Holder::Another(value) => value,
        };
        Some((value, self.left))
    }

    /// The highest fence at a node whose TIME is `time`, and how long it stands still.
    pub(super) fn highest(&self, time: u64) -> Option<(u64, Duration)> {
        Some((time.saturating_add_signed(self.record?), self.record_left))
    }
}

impl Case {
    /// The command at a node whose TIME is `time`.
    pub(super) fn command(&self, time: u64, token: Token) -> Command {
        let fence = self.fence(time);
        command(self.verb, &target(self.slots.len(), token), fence)
    }

    fn fence(&self, time: u64) -> u64 {
        match self.fence {
            Proposal::AfterTime(micros) => time.saturating_add_signed(micros),
            Proposal::AfterHighest(micros) => {
                let records = self.slots.iter().filter_map(|slot| slot.highest(time));
                let highest = records.map(|(fence, _)| fence).max().unwrap_or(0);
                highest.saturating_add_signed(micros)
            }
        }
    }
}

/// All have records: what is not fenced leaves them alone.
pub(super) fn target(keys: usize, token: Token) -> Arc<Target> {
    let (keys, records) = (0..keys).map(|index| (key(index), record(index))).unzip();
    Arc::new(Target::new(keys, token).fenced(records, RECORD_TTL))
}

pub(super) fn key(index: usize) -> Vec<u8> {
    format!("key:{index}").into_bytes()
}

pub(super) fn record(index: usize) -> Vec<u8> {
    format!("record:{index}").into_bytes()
}

pub(super) fn command(verb: Verb, target: &Arc<Target>, fence: u64) -> Command {
    let target = target.clone();
    let ttl = Ttl::new(TTL, TTL).expect("it leaves validity");
    let now = Clock::System(None).now();
    match verb {
        Verb::Acquire => Command::Acquire { target, ttl },
        Verb::Grant => Command::Grant { target, ttl, fence },
        Verb::Heal => Command::Heal { target, ttl, fence: None },
        Verb::HealFenced => Command::Heal { target, ttl, fence: Some(fence) },
        Verb::Extend => Command::Extend { target, ttl, grown: now, since: now },
        Verb::Delete => Command::Delete { target },
    }
}
