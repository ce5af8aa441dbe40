//! Clocks and round trips. Pure.

use std::time::Duration;

use super::facts::{Facts, Fleet};
use super::finding::{Finding, Weight};

/// Nodes whose clocks differ by more than half of what a fence stands are named.
const APART: i64 = 500_000;

/// The shortest node timeout that is advised: schedulers and garbage collectors pause, too.
const LEAST_NODE_TIMEOUT: Duration = Duration::from_millis(50);
/// The drift allowance is 2 ms and 1 % of the TTL; from here on the 2 ms do not matter.
const LEAST_TTL: Duration = Duration::from_millis(200);

pub(super) fn clocks(fleet: &Fleet) -> Vec<Finding> {
    let note = "the clocks of the nodes must be slewed by less than 0.5 %, and never be stepped while leases \
                are held: keys run out early otherwise";
    let note = Finding::new("slew", Weight::Note, note).mend(
        "chrony: `maxslewrate 5000` in chrony.conf (its default is far above), `makestep` only at boot",
    );
    apart(fleet).into_iter().chain([note]).collect()
}

fn apart(fleet: &Fleet) -> Option<Finding> {
    let known: Vec<(&Facts, i64)> =
        fleet.nodes.iter().filter_map(|node| Some((node, node.clock_ahead_micros?))).collect();
    let median = median(known.iter().map(|(_, ahead)| *ahead))?;
    let off = |ahead: i64| ahead.saturating_sub(median);
    let nodes: Vec<(&Facts, i64)> = known
        .into_iter()
        .map(|(node, ahead)| (node, off(ahead)))
        .filter(|(_, off)| off.abs() > APART)
        .collect();
    let words: Vec<String> = nodes.iter().map(|(node, off)| words(node, *off)).collect();
    let text = format!(
        "clocks differ: {} of the others. That is harmless for plain leases; but a fence can only be had \
         from nodes within a second of each other, and who sets such a clock right steps it",
        words.join(", ")
    );
    let finding = Finding::about(nodes.iter().map(|(node, _)| *node), "clock-offset", Weight::Warning, text)?;
    Some(finding.mend("on its machine: chronyc tracking; let it be set right while no lease is held"))
}

fn words(node: &Facts, off: i64) -> String {
    let side = if off > 0 { "ahead" } else { "behind" };
    let seconds = Duration::from_micros(off.unsigned_abs()).as_secs_f64();
    format!("{} is {seconds:.1} s {side}", node.address)
}

/// Of an even number the mean of the two in the middle.
fn median(values: impl Iterator<Item = i64>) -> Option<i64> {
    let mut values: Vec<i64> = values.collect();
    values.sort_unstable();
    let (low, high) = (values.get(values.len().checked_sub(1)? / 2)?, values.get(values.len() / 2)?);
    Some(i64::midpoint(*low, *high))
}

/// What node timeout and TTL follow from the round trips.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Advice {
    /// The greatest p99 of a node.
    pub(super) p99: Duration,
    /// The shortest node timeout that makes sense.
    pub(super) node_timeout: Duration,
    /// The shortest TTL that makes sense with it.
    pub(super) ttl: Duration,
    /// The shortest TTL that makes sense with the node timeout in use.
    pub(super) ttl_now: Duration,
}

impl Advice {
    pub(super) fn new(fleet: &Fleet) -> Option<Self> {
        let p99 = fleet.p99()?;
        let node_timeout = round_up(p99 * 5).max(LEAST_NODE_TIMEOUT);
        // A round waits for a node no longer than a fifth of the TTL.
        let ttl = |node_timeout: Duration| round_up((p99 * 10).max(node_timeout * 5)).max(LEAST_TTL);
        Some(Self { p99, node_timeout, ttl: ttl(node_timeout), ttl_now: ttl(fleet.node_timeout) })
    }
}

/// To whole hundredths of a second.
fn round_up(time: Duration) -> Duration {
    let hundredths = time.as_micros().div_ceil(10_000);
    Duration::from_millis(u64::try_from(hundredths).unwrap_or(u64::MAX).saturating_mul(10))
}

pub(super) fn times(fleet: &Fleet) -> Vec<Finding> {
    let Some(advice) = Advice::new(fleet) else { return Vec::new() };
    let p99 = advice.p99.as_secs_f64() * 1e3;
    let mut found = Vec::new();
    if fleet.node_timeout < advice.p99 * 3 {
        let text = format!(
            "a node timeout of {:?} is short for a round trip with a p99 of {p99:.2} ms: late answers are no \
             votes",
            fleet.node_timeout
        );
        let finding = Finding::new("node-timeout", Weight::Warning, text);
        found.push(finding.mend(format!("--node-timeout {:?}, or longer", advice.node_timeout)));
    }
    let text = format!(
        "by the round trip (p99 {p99:.2} ms) and the node timeout ({:?}), use a TTL of {:?} or longer; a node \
         timeout of {:?} would do, and with it a TTL of {:?}",
        fleet.node_timeout, advice.ttl_now, advice.node_timeout, advice.ttl
    );
    found.push(Finding::new("ttl", Weight::Note, text));
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_in_the_middle() {
        let of = |values: &[i64]| median(values.iter().copied());
        assert_eq!(of(&[]), None);
        assert_eq!(of(&[7]), Some(7));
        assert_eq!(of(&[9, -1]), Some(4));
        assert_eq!(of(&[9, 1, -1]), Some(1));
        assert_eq!(of(&[i64::MAX, i64::MAX]), Some(i64::MAX));
        assert_eq!(of(&[i64::MIN, i64::MAX]), Some(0));
    }

    #[test]
    fn times_are_rounded_up_to_what_people_write() {
        assert_eq!(round_up(Duration::from_micros(61_001)), Duration::from_millis(70));
        assert_eq!(round_up(Duration::from_millis(2_500)), Duration::from_millis(2_500));
        assert_eq!(round_up(Duration::ZERO), Duration::ZERO);
    }
}
