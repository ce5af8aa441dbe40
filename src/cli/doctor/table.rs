//! The table and the findings for people, a hundred columns wide.

use std::io::IsTerminal as _;

use super::facts::{Facts, Fleet, State};
use super::finding::{Finding, Weight};
use super::voting::seconds;

const WIDTH: usize = 100;
/// Of the columns behind the address.
const STATE: usize = 16;
const SERVER: usize = 16;
const TIMES: usize = 17;
const CLOCK: usize = 10;
/// The longest address that has a column; a longer one has a line of its own.
const ADDRESS: usize = 28;

/// Whether standard output is a terminal whose user has nothing against colours.
pub(super) fn colours_are_welcome() -> bool {
    let unwanted = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty())
        || std::env::var_os("TERM").is_some_and(|term| term == "dumb");
    std::io::stdout().is_terminal() && !unwanted
}

/// Colours, or none.
#[derive(Clone, Copy)]
struct Paint(bool);

impl Paint {
    fn colour(self, colour: &str, text: &str) -> String {
        if self.0 { format!("\x1b[{colour}m{text}\x1b[0m") } else { text.to_owned() }
    }

    fn weight(self, weight: Weight) -> String {
        match weight {
            Weight::Error => self.colour("1;31", "ERROR"),
            Weight::Warning => self.colour("1;33", "WARNING"),
            Weight::Note => self.colour("1", "NOTE"),
        }
    }

    fn state(self, state: &State, text: &str) -> String {
        match state {
            State::Up => self.colour("32", text),
            State::Refused(_) | State::Down => self.colour("31", text),
            State::Young(_) | State::Slow | State::Connecting => self.colour("33", text),
        }
    }
}

pub(super) fn text(fleet: &Fleet, findings: &[Finding], colours: bool) -> String {
    let paint = Paint(colours);
    let width = fleet.nodes.iter().map(|node| node.address.chars().count()).filter(|width| *width <= ADDRESS);
    let width = width.max().unwrap_or(0).max("node".len());
    let mut text = format!(
        "{:<width$}  {:<STATE$}  {:<SERVER$}  {:<TIMES$}  {:<CLOCK$}  owed\n",
        "node", "state", "server", "p50 / p99", "clock"
    );
    for node in &fleet.nodes {
        text += &row(node, width, paint);
    }
    let able = fleet.able();
    text += &format!("\n{able} of {} nodes can vote, {} are needed.\n", fleet.nodes.len(), fleet.quorum());
    for found in findings {
        text += &finding(found, paint);
    }
    text
}

/// Two lines, three where the address is long.
fn row(node: &Facts, width: usize, paint: Paint) -> String {
    let long = if node.address.chars().count() > width { "\n" } else { "" };
    let address = format!("{}{long}{:<width$}", node.address, "");
    let address = if long.is_empty() { format!("{:<width$}", node.address) } else { address };
    let state = paint.state(&node.state, &format!("{:<STATE$}", state(&node.state)));
    let server = cut(node.server.as_deref().unwrap_or("-"), SERVER);
    let times = node.round_trips.map_or("-".to_owned(), |times| {
        let millis = |time: std::time::Duration| time.as_secs_f64() * 1e3;
        format!("{:.2} / {:.2} ms", millis(times.p50), millis(times.p99))
    });
    let clock = node.clock_ahead_micros.map_or("-".to_owned(), offset);
    let first =
        format!("{address}  {state}  {server:<SERVER$}  {times:<TIMES$}  {clock:<CLOCK$}  {}\n", node.owed);
    first + &format!("  {}\n", cut(&details(node), WIDTH - 2))
}

fn state(state: &State) -> String {
    match state {
        State::Up => "up".to_owned(),
        State::Young(left) => format!("young for {:?}", seconds(*left)),
        State::Slow => "slow".to_owned(),
        State::Connecting => "connecting".to_owned(),
        State::Refused(_) => "refused".to_owned(),
        State::Down => "down".to_owned(),
    }
}

/// The second line: what it is like, or why it is not there.
fn details(node: &Facts) -> String {
    match &node.state {
        State::Refused(refusal) => return refusal.to_string(),
        State::Down => return node.trouble().to_owned(),
        State::Connecting => return "no answer yet".to_owned(),
        State::Up | State::Young(_) | State::Slow => {}
    }
    let fsync = node.appendfsync.as_deref().unwrap_or("?");
    let keeps = match node.appendonly {
        Some(true) if node.synced => format!("appendfsync {fsync}, synced"),
        Some(true) => format!("appendfsync {fsync}, not synced"),
        Some(false) => "appendonly no".to_owned(),
        None => "appendonly ?".to_owned(),
    };
    let policy = node.eviction_policy.as_deref().unwrap_or("eviction ?");
    let replicas = node.replicas.map_or("?".to_owned(), |count| count.to_string());
    let native = if node.native_commands.is_empty() { "none" } else { &node.native_commands.join(", ") };
    format!("{keeps}; {policy}; replicas {replicas}; native commands {native}")
}

/// A clock against ours, of so many microseconds.
fn offset(micros: i64) -> String {
    let seconds = micros as f64 / 1e6;
    match seconds.abs() {
        ..1.0 => format!("{:+.1} ms", seconds * 1e3),
        1.0..10_000.0 => format!("{seconds:+.2} s"),
        _ => format!("{:+.1} d", seconds / 86_400.0),
    }
}

/// `text` on one line, with an ellipsis where it is longer than `width`.
fn cut(text: &str, width: usize) -> String {
    let text = text.replace('\n', " ");
    if text.chars().count() <= width {
        return text;
    }
    text.chars().take(width.saturating_sub(1)).chain(['…']).collect()
}

fn finding(finding: &Finding, paint: Paint) -> String {
    let mut text = format!("\n{} {}", paint.weight(finding.weight), finding.code);
    if finding.nodes.is_empty() {
        text.push('\n');
    } else {
        let nodes = wrapped(&finding.nodes.join(", "), WIDTH - 4).join("\n    ");
        let fits = finding.nodes.join(", ").chars().count() + finding.code.len() + 12 <= WIDTH;
        text += &if fits { format!(": {nodes}\n") } else { format!(":\n    {nodes}\n") };
    }
    for line in wrapped(&finding.text, WIDTH - 2) {
        text += &format!("  {line}\n");
    }
    for (index, mend) in finding.mend.iter().enumerate() {
        let head = if index == 0 { "mend:" } else { "" };
        // A command is not broken: it is there to be copied.
        let lines =
            if mend.starts_with("redis-cli ") { vec![mend.clone()] } else { wrapped(mend, WIDTH - 8) };
        text += &format!("  {head:<5} {}\n", lines.join("\n        "));
    }
    text
}

/// `text` in lines of at most `width`, broken at blanks.
fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= width => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}
