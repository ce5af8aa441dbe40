//! Commands ↔ Redis: what is sent for each, and what an answer means.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock};

use redis::{Cmd, RedisError, Script, Value};

use super::{Answer, Command, Form, NodeError, NodeErrorKind, Target, Vote};
use crate::proposal::Unfit;
use crate::validity::Ttl;

static ACQUIRE: LazyLock<Lua> = LazyLock::new(|| Lua::new(0, include_str!("lua/acquire.lua")));
static EXTEND: LazyLock<Lua> = LazyLock::new(|| Lua::new(1, include_str!("lua/extend.lua")));
static DELETE: LazyLock<Lua> = LazyLock::new(|| Lua::new(2, include_str!("lua/delete.lua")));
static GRANT: LazyLock<Lua> = LazyLock::new(|| Lua::new(3, include_str!("lua/grant.lua")));
static HEAL: LazyLock<Lua> = LazyLock::new(|| Lua::new(4, include_str!("lua/heal.lua")));

/// Which scripts a connection has sent by their text. The first use is always by text: a NOSCRIPT would
/// cost a deletion its place in the queue.
#[derive(Debug, Default)]
pub(super) struct Known([AtomicBool; 5]);

struct Lua {
    number: usize,
    text: &'static str,
    hash: String,
}

impl Lua {
    fn new(number: usize, text: &'static str) -> Self {
        Self { number, text, hash: Script::new(text).get_hash().to_owned() }
    }

    fn call(&self, known: &Known, form: Form, target: &Target, ttl: Option<u64>) -> Cmd {
        let mut cmd = self.begin(known, form, target);
        cmd.arg(target.keys.len()).arg(&target.keys).arg(target.token.as_str()).arg(ttl);
        cmd
    }

    fn begin(&self, known: &Known, form: Form, target: &Target) -> Cmd {
        let mut cmd = sized(7 + 2 * target.keys.len(), target);
        let known = known.0[self.number].swap(true, Ordering::Relaxed);
        match form {
            Form::Best | Form::Script if known => cmd.arg("EVALSHA").arg(&self.hash),
            Form::Best | Form::Script | Form::ScriptText => cmd.arg("EVAL").arg(self.text),
        };
        cmd
    }

    /// The same with a fence, and the keys of its records.
    fn call_fenced(&self, known: &Known, form: Form, target: &Target, ttl: Ttl, fence: u64) -> Cmd {
        let mut cmd = self.begin(known, form, target);
        cmd.arg(target.keys.len() + target.records.len()).arg(&target.keys).arg(&target.records);
        cmd.arg(target.token.as_str()).arg(ttl.millis()).arg(fence);
        cmd.arg(u64::try_from(target.record_ttl.as_millis()).unwrap_or(u64::MAX));
        cmd
    }
}

/// Native commands that a connection was found to understand.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Native {
    /// `SET … IFEQ` (Valkey 8.1, Redis 8.4).
    pub(super) set_ifeq: bool,
    pub(super) delete: Option<NativeDelete>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NativeDelete {
    /// `DELEX … IFEQ` (Redis 8.4).
    Delex,
    /// `DELIFEQ` (Valkey 9.0).
    Delifeq,
}

impl Native {
    /// The commands by name.
    pub(super) fn names(self) -> Vec<&'static str> {
        let set = self.set_ifeq.then_some("SET IFEQ");
        let delete = self.delete.map(|delete| match delete {
            NativeDelete::Delex => "DELEX",
            NativeDelete::Delifeq => "DELIFEQ",
        });
        set.into_iter().chain(delete).collect()
    }
}

/// What is sent for `command`.
pub(super) fn encode(command: &Command, form: Form, native: Native, known: &Known) -> Cmd {
    match command {
        Command::Ping => redis::cmd("PING"),
        Command::Grant { target, ttl, fence } => GRANT.call_fenced(known, form, target, *ttl, *fence),
        Command::Heal { target, ttl, fence: Some(fence) } => {
            HEAL.call_fenced(known, form, target, *ttl, *fence)
        }
        Command::Acquire { target, ttl } | Command::Heal { target, ttl, fence: None } => {
            match target.keys.as_slice() {
                [key] => set(key, target, &["NX"], ttl.millis()),
                _ => ACQUIRE.call(known, form, target, Some(ttl.millis())),
            }
        }
        Command::Extend { target, ttl, .. } => match target.keys.as_slice() {
            [key] if form == Form::Best && native.set_ifeq => {
                set(key, target, &["IFEQ", target.token.as_str()], ttl.millis())
            }
            _ => EXTEND.call(known, form, target, Some(ttl.millis())),
        },
        Command::Delete { target } => match (target.keys.as_slice(), native.delete) {
            ([key], Some(delete)) if form == Form::Best => delete_native(key, target, delete),
            _ => DELETE.call(known, form, target, None),
        },
    }
}

fn set(key: &[u8], target: &Target, condition: &[&str], millis: u64) -> Cmd {
    let mut cmd = sized(6, target);
    cmd.arg("SET").arg(key).arg(target.token.as_str()).arg(condition).arg("PX").arg(millis);
    cmd
}

fn delete_native(key: &[u8], target: &Target, delete: NativeDelete) -> Cmd {
    let mut cmd = sized(4, target);
    match delete {
        NativeDelete::Delex => cmd.arg("DELEX").arg(key).arg("IFEQ"),
        NativeDelete::Delifeq => cmd.arg("DELIFEQ").arg(key),
    };
    cmd.arg(target.token.as_str());
    cmd
}

/// A command with room for `words` words about `target`: it grows on no hot path.
fn sized(words: usize, target: &Target) -> Cmd {
    let keys: usize = target.keys.iter().map(Vec::len).sum();
    Cmd::with_capacity(words, keys + 128)
}

/// What the answer to `command` means.
pub(super) fn decode(address: &Arc<str>, command: &Command, answer: Result<Value, RedisError>) -> Answer {
    match (command, answer.and_then(Value::extract_error)) {
        (_, Err(error)) => Err(failure(address, &error)),
        (Command::Ping, Ok(_)) => Ok(Vote::Yes),
        (_, Ok(Value::Okay | Value::Int(1))) => Ok(Vote::Yes),
        (_, Ok(Value::Nil | Value::Int(0))) => Ok(Vote::No),
        (Command::Grant { .. }, Ok(Value::Array(words))) => match words[..] {
            [Value::Int(time), Value::Int(highest)] => {
                Ok(Vote::Unfit(Unfit { time: time.unsigned_abs(), highest: highest.unsigned_abs() }))
            }
            _ => Err(nonsense(address)),
        },
        (_, Ok(_)) => Err(nonsense(address)),
    }
}

pub(super) fn nonsense(address: &Arc<str>) -> NodeError {
    let reason = "an answer that makes no sense: is this a Redis server?";
    NodeError::new(address, NodeErrorKind::Unexpected, reason)
}

/// The form to try after `form` failed.
pub(super) fn next_form(command: &Command, form: Form, error: NodeErrorKind) -> Option<Form> {
    match (command, form, error) {
        (_, Form::Best | Form::Script, NodeErrorKind::NoScript) => Some(Form::ScriptText),
        // SET is refused where memory is full, PEXPIRE is not.
        (Command::Extend { .. }, Form::Best, NodeErrorKind::OutOfMemory) => Some(Form::Script),
        _ => None,
    }
}

/// The error of a node, from the client library's.
pub(super) fn failure(address: &Arc<str>, error: &RedisError) -> NodeError {
    let Some(code) = error.code() else {
        if error.kind() == redis::ErrorKind::AuthenticationFailed {
            return NodeError::new(address, NodeErrorKind::Authentication, reason(error));
        }
        return NodeError::new(address, NodeErrorKind::ConnectionLost, reason(error));
    };
    let kind = match code {
        "NOAUTH" | "WRONGPASS" => NodeErrorKind::Authentication,
        "NOPERM" => NodeErrorKind::NoPermission,
        "WRONGTYPE" => NodeErrorKind::WrongType,
        "READONLY" => NodeErrorKind::ReadOnly,
        "LOADING" => NodeErrorKind::Loading,
        "MISCONF" => NodeErrorKind::CannotPersist,
        "OOM" => NodeErrorKind::OutOfMemory,
        "MOVED" | "ASK" | "CROSSSLOT" | "CLUSTERDOWN" | "TRYAGAIN" => NodeErrorKind::Cluster,
        "NOSCRIPT" => NodeErrorKind::NoScript,
        "ERR" => uncoded(error.detail().unwrap_or_default()),
        _ => NodeErrorKind::Server,
    };
    NodeError::new(address, kind, reason(error))
}

/// The kind of what has no code of its own: by the words of the servers.
fn uncoded(detail: &str) -> NodeErrorKind {
    // Of a command in a script, by Redis 7.0 and by all since.
    let forbidden = ["The user executing the script can't", "ACL failure in script"];
    if forbidden.iter().any(|words| detail.starts_with(words)) {
        return NodeErrorKind::NoPermission;
    }
    // Of DELEX.
    if detail.contains("should be of string type") {
        return NodeErrorKind::WrongType;
    }
    NodeErrorKind::Server
}

/// The server's or system's words, cut before they repeat arguments of the command: one is the token.
fn reason(error: &RedisError) -> String {
    let text = error.to_string();
    let line = text.lines().next().unwrap_or_default();
    let end = line.find(", with args").unwrap_or(line.len());
    line[..end].trim_end_matches(['`', '\'', ' ']).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Clock;
    use crate::token::Token;
    use crate::validity::Ttl;
    use std::time::Duration;

    fn target(keys: &[&str]) -> Arc<Target> {
        let keys = keys.iter().map(|key| key.as_bytes().to_vec()).collect();
        Arc::new(Target::new(keys, Token::random().unwrap()))
    }

    fn ttl() -> Ttl {
        Ttl::new(Duration::from_secs(10), Duration::from_secs(60)).unwrap()
    }

    fn words(cmd: &Cmd) -> Vec<String> {
        let args = cmd.args_iter().map(|arg| match arg {
            redis::Arg::Simple(bytes) => String::from_utf8_lossy(bytes).into_owned(),
            _ => String::new(),
        });
        args.collect()
    }

    #[test]
    fn a_plain_acquire_is_exactly_the_set_of_the_specification() {
        let target = target(&["k"]);
        let command = Command::Acquire { target: target.clone(), ttl: ttl() };
        for native in [Native::default(), Native { set_ifeq: true, delete: Some(NativeDelete::Delex) }] {
            let sent = words(&encode(&command, Form::Best, native, &Known::default()));
            assert_eq!(sent, ["SET", "k", target.token.as_str(), "NX", "PX", "10000"]);
        }
    }

    #[test]
    fn native_commands_are_used_where_they_are_and_only_for_one_key() {
        let one = target(&["k"]);
        let token = one.token.as_str();
        let native = Native { set_ifeq: true, delete: Some(NativeDelete::Delifeq) };
        let extend = Command::Extend {
            target: one.clone(),
            ttl: ttl(),
            grown: Clock::System(None).now(),
            since: Clock::System(None).now(),
        };
        let delete = Command::Delete { target: one.clone() };
        let known = Known::default();
        let sent = words(&encode(&extend, Form::Best, native, &known));
        assert_eq!(sent, ["SET", "k", token, "IFEQ", token, "PX", "10000"]);
        assert_eq!(words(&encode(&delete, Form::Best, native, &known)), ["DELIFEQ", "k", token]);
        let native = Native { delete: Some(NativeDelete::Delex), ..native };
        assert_eq!(words(&encode(&delete, Form::Best, native, &known)), ["DELEX", "k", "IFEQ", token]);
        let two = Command::Delete { target: target(&["a", "b"]) };
        assert_eq!(words(&encode(&two, Form::Best, native, &known))[2..5], ["2", "a", "b"]);
    }

    #[test]
    fn the_first_use_of_a_script_on_a_connection_is_by_its_text() {
        let (known, native) = (Known::default(), Native { set_ifeq: true, delete: None });
        let extend = Command::Extend {
            target: target(&["k"]),
            ttl: ttl(),
            grown: Clock::System(None).now(),
            since: Clock::System(None).now(),
        };
        let delete = Command::Delete { target: target(&["k"]) };
        let word = |command, form| words(&encode(command, form, native, &known))[0].clone();
        assert_eq!(word(&delete, Form::Best), "EVAL");
        assert_eq!(word(&delete, Form::Best), "EVALSHA");
        assert_eq!(word(&delete, Form::ScriptText), "EVAL");
        assert_eq!(word(&extend, Form::Best), "SET");
        assert_eq!(word(&extend, Form::Script), "EVAL");
        assert_eq!(word(&extend, Form::Script), "EVALSHA");
    }

    #[test]
    fn a_grant_is_answered_by_a_word_or_by_what_would_fit() {
        let command = Command::Grant { target: target(&["k"]), ttl: ttl(), fence: 7 };
        let decode = |answer| decode(&"h:1".into(), &command, Ok(answer));
        assert_eq!(decode(Value::Int(1)).unwrap(), Vote::Yes);
        assert_eq!(decode(Value::Int(0)).unwrap(), Vote::No);
        let [time, highest] = [1_796_065_102_989_667, 1_796_065_102_989_668];
        let unfit = Value::Array(vec![Value::Int(time as i64), Value::Int(highest as i64)]);
        assert_eq!(decode(unfit).unwrap(), Vote::Unfit(Unfit { time, highest }));
        for nonsense in [Value::Int(2), Value::Array(vec![Value::Int(1)]), Value::Array(vec![])] {
            assert_eq!(decode(nonsense).unwrap_err().kind(), NodeErrorKind::Unexpected);
        }
    }

    #[test]
    fn a_missing_script_is_sent_by_its_text_and_a_full_node_renews_by_script() {
        let delete = Command::Delete { target: target(&["k"]) };
        let extend = Command::Extend {
            target: target(&["k"]),
            ttl: ttl(),
            grown: Clock::System(None).now(),
            since: Clock::System(None).now(),
        };
        let no_script = NodeErrorKind::NoScript;
        assert_eq!(next_form(&delete, Form::Best, no_script), Some(Form::ScriptText));
        assert_eq!(next_form(&delete, Form::ScriptText, no_script), None);
        assert_eq!(next_form(&extend, Form::Best, NodeErrorKind::OutOfMemory), Some(Form::Script));
        assert_eq!(next_form(&delete, Form::Best, NodeErrorKind::OutOfMemory), None);
    }

    #[test]
    fn a_servers_error_does_not_repeat_the_token() {
        let error = RedisError::from((
            redis::ErrorKind::Extension,
            "An error was signalled by the server",
            "unknown command 'DELEX', with args beginning with: 'k' 'IFEQ' 'secret'".to_owned(),
        ));
        let failure = failure(&"h:1".into(), &error);
        assert!(!failure.to_string().contains("secret"), "{failure}");
        assert!(failure.to_string().contains("DELEX"), "{failure}");
    }
}
