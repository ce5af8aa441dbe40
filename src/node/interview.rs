//! What a new connection asks the node about itself, all in one round trip, and what is looked at again
//! later.

use std::collections::HashMap;

use redis::aio::SendError;
use redis::{Cmd, PushInfo, PushKind, Value, from_redis_value};

use super::Alarm;
use super::command::{Native, NativeDelete};
use super::marker::{MARKER, Marker};
use super::report::Report;

/// Probes of native commands name this key, behind the namespace. Nothing is ever stored there.
const PROBE: &[u8] = b"leasehold:probe";

#[derive(Clone, Copy, Debug)]
pub(super) enum Question {
    Client,
    Info,
    Replication,
    Role,
    Setting(&'static str),
    Time,
    Tracking,
    Marker,
    Delex,
    Delifeq,
    SetIfeq,
}

/// Asked on a new connection. TIME and the marker last: they are to be as new as can be.
const ALL: [Question; 13] = [
    Question::Client,
    Question::Info,
    Question::Role,
    Question::Setting("appendonly"),
    Question::Setting("appendfsync"),
    Question::Setting("no-appendfsync-on-rewrite"),
    Question::Setting("maxmemory-policy"),
    Question::Delex,
    Question::Delifeq,
    Question::SetIfeq,
    Question::Tracking,
    Question::Time,
    Question::Marker,
];

/// What is asked on a new connection. A server that does not know a command repeats what came with it, and
/// where that is no text, its answer cannot be read.
pub(super) fn all(namespace: &[u8]) -> Vec<Question> {
    let told = |question: &Question| !matches!(question, Question::Delex | Question::Delifeq);
    let is_text = std::str::from_utf8(namespace).is_ok();
    ALL.into_iter().filter(|question| is_text || told(question)).collect()
}

/// Asked again now and then: a node can be told to sync otherwise while it runs.
pub(super) const AGAIN: [Question; 7] = [
    Question::Replication,
    Question::Role,
    Question::Setting("appendonly"),
    Question::Setting("appendfsync"),
    Question::Setting("no-appendfsync-on-rewrite"),
    Question::Time,
    Question::Marker,
];

impl Question {
    pub(super) fn cmd(self, namespace: &[u8]) -> Cmd {
        let probe = [namespace, PROBE].concat();
        let (name, words): (&str, Vec<Vec<u8>>) = match self {
            Self::Client => ("CLIENT", vec![b"ID".to_vec()]),
            Self::Info => ("INFO", vec![]),
            Self::Replication => ("INFO", vec![b"replication".to_vec()]),
            Self::Role => ("ROLE", vec![]),
            Self::Setting(name) => ("CONFIG", vec![b"GET".to_vec(), name.into()]),
            Self::Time => ("TIME", vec![]),
            // A broadcast of this one key, which needs no reading of it anew.
            Self::Tracking => {
                let words =
                    ["TRACKING", "ON", "BCAST", "NOLOOP", "PREFIX"].map(|word| word.as_bytes().to_vec());
                ("CLIENT", words.into_iter().chain([[namespace, MARKER].concat()]).collect())
            }
            Self::Marker => ("GET", vec![[namespace, MARKER].concat()]),
            Self::Delex => ("DELEX", vec![probe, b"IFEQ".to_vec(), vec![]]),
            Self::Delifeq => ("DELIFEQ", vec![probe, vec![]]),
            // Sets nothing: the key does not exist.
            Self::SetIfeq => {
                ("SET", vec![probe, vec![], b"IFEQ".to_vec(), b"x".to_vec(), b"PX".to_vec(), b"1".to_vec()])
            }
        };
        let mut cmd = redis::cmd(name);
        for word in words {
            cmd.arg(word);
        }
        cmd
    }

    /// Takes in the answer; `None` where the server refuses or does not know the question.
    pub(super) fn take(self, report: &mut Report, native: &mut Native, answer: Option<Value>) {
        match self {
            Self::Marker => report.marker = answer.and_then(|value| marker(&value)),
            Self::Delex if answer.is_some() => native.delete = Some(NativeDelete::Delex),
            Self::Delifeq if answer.is_some() => {
                native.delete = native.delete.or(Some(NativeDelete::Delifeq))
            }
            Self::SetIfeq => native.set_ifeq = answer.is_some(),
            Self::Client => report.client = answer.and_then(|value| from_redis_value(value).ok()),
            Self::Time => report.time = answer.and_then(time),
            Self::Tracking => report.tracked = answer.is_some(),
            Self::Info | Self::Replication => {
                if let Some(text) = answer.and_then(|value| from_redis_value::<String>(value).ok()) {
                    report.info(&text);
                }
            }
            Self::Role => {
                if let Some(Value::Array(words)) = answer
                    && let Some(Value::BulkString(word)) = words.first()
                {
                    report.role(&String::from_utf8_lossy(word));
                }
            }
            Self::Setting(name) => {
                let pairs = answer.and_then(|value| from_redis_value::<HashMap<String, String>>(value).ok());
                if let Some(value) = pairs.as_ref().and_then(|pairs| pairs.get(name)) {
                    report.setting(name, value);
                }
            }
            Self::Delex | Self::Delifeq => {}
        }
    }
}

/// Writes `marker` unless a better one stands.
pub(super) fn mark(namespace: &[u8], marker: &Marker) -> Cmd {
    let mut cmd = redis::cmd("EVAL");
    cmd.arg(include_str!("lua/mark.lua")).arg(1).arg([namespace, MARKER].concat());
    cmd.arg(&marker.run_id).arg(marker.since).arg(&marker.replication).arg(marker.to_string());
    cmd
}

/// The marker in an answer: `None` if it makes no sense at all, `Some(None)` if there is none.
pub(super) fn marker(answer: &Value) -> Option<Option<Marker>> {
    match answer {
        Value::Nil => Some(None),
        Value::BulkString(text) => Some(Some(Marker::read(&String::from_utf8_lossy(text)))),
        Value::SimpleString(text) => Some(Some(Marker::read(text))),
        _ => None,
    }
}

/// TIME in microseconds.
pub(super) fn time(answer: Value) -> Option<u64> {
    let (seconds, micros): (u64, u64) = from_redis_value(answer).ok()?;
    seconds.checked_mul(1_000_000)?.checked_add(micros)
}

/// Takes in what the server says without being asked.
pub(super) fn heard(alarm: &Alarm, push: &PushInfo) -> Result<(), SendError> {
    if push.kind == PushKind::Invalidate {
        match push.data.first() {
            // Of no key in particular: all are gone.
            None | Some(Value::Nil) => alarm.emptied(),
            Some(_) => alarm.marked(),
        }
    }
    Ok(())
}
