//! What is written down, a line each: `12.345678 w3.1 won job-1 5f0c2a77 until 13.900000`.

use std::fmt;
use std::str::FromStr;

use super::moment::Moment;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Line {
    pub(super) at: Moment,
    /// A life of a worker (`w3.1` is the first of the third), or a node.
    pub(super) who: String,
    pub(super) what: Event,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Event {
    /// Of a lease, which has a token of its own.
    Lease {
        step: Step,
        key: String,
        token: String,
    },
    /// An acquire that gave no lease, and why.
    Without {
        key: String,
        why: String,
    },
    /// What may never happen.
    Failed(String),
    /// Signals to a worker.
    Stopped,
    Continued,
    Killed,
    /// A fault of a node, or `calm`.
    Fault(String),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    Won {
        until: Moment,
        fence: Option<u64>,
    },
    Renewed {
        until: Moment,
    },
    /// Seen with nothing left.
    Over,
    /// Written before the call.
    Releasing,
    Dropping,
    /// Written after the call, which sends nothing.
    Detached {
        until: Moment,
    },
    /// `valid` is when it was last seen valid.
    Lost {
        valid: Moment,
        why: Loss,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Loss {
    Expired,
    Denied,
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { at, who, what } = self;
        write!(f, "{at} {who} {what}")
    }
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lease { step, key, token } => step.write(f, key, token),
            Self::Without { key, why } => write!(f, "without {key} {why}"),
            Self::Failed(what) => write!(f, "failed {}", what.replace('\n', " ")),
            Self::Stopped => f.write_str("stopped"),
            Self::Continued => f.write_str("continued"),
            Self::Killed => f.write_str("killed"),
            Self::Fault(fault) => write!(f, "fault {fault}"),
        }
    }
}

impl Step {
    fn write(self, f: &mut fmt::Formatter<'_>, key: &str, token: &str) -> fmt::Result {
        match self {
            Self::Won { until, fence: None } => write!(f, "won {key} {token} until {until}"),
            Self::Won { until, fence: Some(fence) } => {
                write!(f, "won {key} {token} until {until} fence {fence}")
            }
            Self::Renewed { until } => write!(f, "renewed {key} {token} until {until}"),
            Self::Over => write!(f, "over {key} {token}"),
            Self::Releasing => write!(f, "releasing {key} {token}"),
            Self::Dropping => write!(f, "dropping {key} {token}"),
            Self::Detached { until } => write!(f, "detached {key} {token} until {until}"),
            Self::Lost { valid, why: Loss::Expired } => {
                write!(f, "lost {key} {token} valid {valid} expired")
            }
            Self::Lost { valid, why: Loss::Denied } => write!(f, "lost {key} {token} valid {valid} denied"),
        }
    }

    fn parse(verb: &str, rest: &[&str]) -> Result<Self, String> {
        Ok(match (verb, rest) {
            ("won", ["until", until]) => Self::Won { until: until.parse()?, fence: None },
            ("won", ["until", until, "fence", fence]) => {
                let fence = fence.parse().map_err(|_| format!("`{fence}` is no fence"))?;
                Self::Won { until: until.parse()?, fence: Some(fence) }
            }
            ("renewed", ["until", until]) => Self::Renewed { until: until.parse()? },
            ("over", []) => Self::Over,
            ("releasing", []) => Self::Releasing,
            ("dropping", []) => Self::Dropping,
            ("detached", ["until", until]) => Self::Detached { until: until.parse()? },
            ("lost", ["valid", valid, "expired"]) => Self::Lost { valid: valid.parse()?, why: Loss::Expired },
            ("lost", ["valid", valid, "denied"]) => Self::Lost { valid: valid.parse()?, why: Loss::Denied },
            _ => return Err(format!("`{verb} … {}` is no event", rest.join(" "))),
        })
    }
}

impl FromStr for Line {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut words = text.splitn(3, ' ');
        let (Some(at), Some(who), Some(what)) = (words.next(), words.next(), words.next()) else {
            return Err(format!("`{text}` is no line"));
        };
        Ok(Self { at: at.parse()?, who: who.to_owned(), what: what.parse()? })
    }
}

impl FromStr for Event {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let words: Vec<&str> = text.split(' ').collect();
        Ok(match words[..] {
            ["stopped"] => Self::Stopped,
            ["continued"] => Self::Continued,
            ["killed"] => Self::Killed,
            ["fault", fault] => Self::Fault(fault.to_owned()),
            ["failed", ..] => Self::Failed(text["failed".len()..].trim_start().to_owned()),
            ["without", key, why] => Self::Without { key: key.to_owned(), why: why.to_owned() },
            [verb, key, token, ref rest @ ..] => {
                let step = Step::parse(verb, rest)?;
                Self::Lease { step, key: key.to_owned(), token: token.to_owned() }
            }
            _ => return Err(format!("`{text}` is no event")),
        })
    }
}

/// All lines of a text.
pub(super) fn lines(text: &str) -> Vec<Line> {
    text.lines().map(|line| line.parse().unwrap_or_else(|error| panic!("{line}: {error}"))).collect()
}

#[test]
fn a_line_reads_back_as_it_was_written() {
    for text in [
        "1.000000 w3.1 won job-1 5f0c2a77 until 2.900000",
        "1.000000 w3.1 won job-1 5f0c2a77 until 2.900000 fence 1796065102989667",
        "1.200000 w3.1 renewed job-1 5f0c2a77 until 3.100000",
        "1.200000 w3.1 over job-1 5f0c2a77",
        "1.200000 w3.1 releasing job-1 5f0c2a77",
        "1.200000 w3.1 dropping job-1 5f0c2a77",
        "1.200000 w3.1 detached job-1 5f0c2a77 until 3.100000",
        "1.200000 w3.1 lost job-1 5f0c2a77 valid 1.100000 expired",
        "1.200000 w3.1 lost job-1 5f0c2a77 valid 1.100000 denied",
        "1.200000 w3.1 without job-1 timed-out",
        "1.200000 w3.1 failed the key is empty",
        "1.200000 w3.1 stopped",
        "1.200000 w3.1 continued",
        "1.200000 w3.1 killed",
        "1.200000 node2 fault black-hole",
    ] {
        assert_eq!(text.parse::<Line>().unwrap().to_string(), text);
    }
    for text in ["", "1.000000 w3.1", "1.000000 w3.1 won job-1 t", "1.0 w3.1 stopped"] {
        assert!(text.parse::<Line>().is_err(), "{text}");
    }
}
