//! Whether a node's clock was stepped: its TIME against the lease clock. Pure.
//!
//! A node whose clock jumps forward lets keys run out early. A jump back only keeps them longer.

use std::collections::VecDeque;
use std::time::Duration;

use crate::clock::Timestamp;
use crate::validity::drift;

/// Samples closer together than this are one.
const APART: Duration = Duration::from_millis(50);
/// The TIME that went along with a command was taken so soon after it was asked.
const ALONG: Duration = Duration::from_millis(5);

/// A node's TIME, and between which readings of ours it was taken.
#[derive(Clone, Copy, Debug)]
struct Sample {
    sent: Timestamp,
    received: Timestamp,
    time: u64,
}

impl Sample {
    /// By how much the node's clock has gained on ours since `earlier`, at the least.
    fn gained(&self, earlier: &Self) -> Duration {
        let theirs = Duration::from_micros(self.time.saturating_sub(earlier.time));
        let ours = self.received.since(earlier.sent);
        theirs.saturating_sub(ours)
    }
}

#[derive(Debug, Default)]
pub(super) struct ClockWatch {
    /// Oldest first.
    samples: VecDeque<Sample>,
}

impl ClockWatch {
    /// Notes that the node's TIME was `time` at a moment between `sent` and `received`; forgets what is older
    /// than `keep`. Returns by how much the clock was stepped forward since the last sample, if that is more
    /// than the drift allowed in `keep`.
    pub(super) fn note(
        &mut self,
        sent: Timestamp,
        received: Timestamp,
        time: u64,
        keep: Duration,
    ) -> Option<Duration> {
        let sample = Sample { sent, received, time };
        let gained = self.samples.back().map(|last| (sample.gained(last), received.since(last.sent)));
        let allowed = |time: Duration| drift(keep).max(time / 100);
        let stepped = gained.and_then(|(gained, time)| (gained > allowed(time)).then_some(gained));
        // The last one at hand that is older than `keep` is kept: leases may be as old.
        while self.samples.get(1).is_some_and(|next| received.since(next.received) > keep) {
            self.samples.pop_front();
        }
        let mut newest = self.samples.iter().rev();
        let (last, before) = (newest.next(), newest.next());
        if let (Some(last), Some(before)) = (last, before)
            && last.received.since(before.received) < APART
            // One that shows a step is the base of what comes after it.
            && last.gained(before) <= Duration::from_millis(2)
        {
            self.samples.pop_back();
        }
        self.samples.push_back(sample);
        stepped
    }

    /// By how much the node's clock gained between `since`, when a command was asked, and the newest sample,
    /// if that is more than `drift`. Counts from the sample that went along with the command, else from the
    /// last before it.
    pub(super) fn stepped(&self, since: Timestamp, drift: Duration) -> Option<Duration> {
        let newest = self.samples.back()?;
        let along = |sample: &&Sample| sample.sent >= since && sample.sent.since(since) <= ALONG;
        let before = |sample: &&Sample| sample.received <= since;
        let older = || self.samples.iter().rev().skip(1).rev();
        let base = older().find(along).or_else(|| older().rev().find(before));
        let gained = newest.gained(base.or(self.samples.front())?);
        (gained > drift).then_some(gained)
    }

    /// The newest sample: the node's TIME, and when it was received.
    pub(super) fn newest(&self) -> Option<(u64, Timestamp)> {
        self.samples.back().map(|sample| (sample.time, sample.received))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Clock;

    const DRIFT: Duration = Duration::from_millis(102);
    const KEEP: Duration = Duration::from_secs(60);

    struct Node {
        watch: ClockWatch,
        start: Timestamp,
        ahead: i64,
        stepped: bool,
    }

    impl Node {
        fn new() -> Self {
            Self { watch: ClockWatch::default(), start: Clock::System(None).now(), ahead: 0, stepped: false }
        }

        fn at(&self, millis: u64) -> Timestamp {
            self.start.after(Duration::from_millis(millis))
        }

        fn sample(&mut self, millis: u64, round_trip: u64) {
            let time = 1_000_000_000 + (millis as i64 + self.ahead) * 1_000;
            let (sent, received) = (self.at(millis - round_trip / 2), self.at(millis + round_trip / 2));
            self.stepped = self.watch.note(sent, received, time as u64, KEEP).is_some();
        }
    }

    #[test]
    fn a_step_forward_is_seen_by_leases_from_before_it_only() {
        let mut node = Node::new();
        node.sample(1_000, 2);
        node.sample(4_000, 2);
        assert!(!node.stepped);
        node.ahead = 5_000;
        node.sample(7_000, 2);
        assert!(node.stepped, "told whether there is a lease or not");
        assert!(
            node.watch
                .stepped(node.at(4_500), DRIFT)
                .is_some_and(|gained| gained > Duration::from_millis(4_990))
        );
        node.sample(10_000, 2);
        assert!(!node.stepped);
        assert_eq!(node.watch.stepped(node.at(7_100), DRIFT), None);
        assert_eq!(
            node.watch.stepped(node.at(6_998), DRIFT),
            None,
            "its expiry is from the sample along with it"
        );
        assert!(node.watch.stepped(node.at(4_500), DRIFT).is_some(), "its expiry is from before the step");
    }

    #[test]
    fn a_step_back_a_slew_and_a_slow_answer_are_none() {
        let mut node = Node::new();
        node.sample(1_000, 2);
        node.ahead = -60_000;
        node.sample(4_000, 2);
        assert_eq!(node.watch.stepped(node.at(2_000), DRIFT), None);
        node.ahead -= 100 - 115;
        node.sample(7_000, 2);
        assert_eq!(node.watch.stepped(node.at(4_100), DRIFT), None);
        node.ahead += 300;
        node.sample(10_000, 900);
        assert_eq!(node.watch.stepped(node.at(7_100), DRIFT), None, "as likely as a slow answer");
    }

    #[test]
    fn few_samples_are_kept() {
        let mut node = Node::new();
        (1_000..200_000).for_each(|millis| node.sample(millis, 2));
        assert!(node.watch.samples.len() < 1_300, "{}", node.watch.samples.len());
        assert_eq!(node.watch.stepped(node.at(150_000), DRIFT), None);
    }

    #[test]
    fn a_step_is_told_beyond_the_drift_allowed_and_not_at_it() {
        for (ahead, stepped) in [(602, false), (603, true)] {
            let mut node = Node::new();
            node.sample(1_000, 0);
            node.ahead = ahead;
            node.sample(4_000, 0);
            assert_eq!(node.stepped, stepped, "{ahead}");
            let gained = Duration::from_millis(ahead as u64);
            assert_eq!(node.watch.stepped(node.at(2_000), gained), None);
            let less = gained - Duration::from_millis(1);
            assert_eq!(node.watch.stepped(node.at(2_000), less), Some(gained));
        }
    }

    #[test]
    fn one_sample_from_before_what_is_kept_stays_and_no_more() {
        let kept = |millis: &[u64]| {
            let mut node = Node::new();
            millis.iter().for_each(|millis| node.sample(*millis, 0));
            let sent = |sample: &Sample| sample.sent.since(node.start).as_millis() as u64;
            node.watch.samples.iter().map(sent).collect::<Vec<_>>()
        };
        assert_eq!(kept(&[1_000, 2_000, 62_000]), [1_000, 2_000, 62_000]);
        assert_eq!(kept(&[1_000, 2_000, 62_001]), [2_000, 62_001]);
        assert_eq!(kept(&[1_000, 2_000, 3_000, 90_000]), [3_000, 90_000]);
    }

    #[test]
    fn samples_within_fifty_milliseconds_are_one_but_the_first_after_a_step_stays() {
        let mut node = Node::new();
        [1_000, 1_049, 1_060, 1_110, 1_160].iter().for_each(|millis| node.sample(*millis, 0));
        let sent: Vec<_> =
            node.watch.samples.iter().map(|sample| sample.sent.since(node.start).as_millis()).collect();
        assert_eq!(sent, [1_000, 1_060, 1_110, 1_160]);
        node.ahead = 5_000;
        node.sample(1_170, 0);
        node.sample(1_180, 0);
        assert_eq!(node.watch.stepped(node.at(1_175), DRIFT), None, "asked after the step");
        assert!(node.watch.stepped(node.at(1_164), DRIFT).is_some(), "asked before it");
    }

    #[test]
    fn the_newest_sample_tells_the_nodes_time() {
        let mut node = Node::new();
        assert_eq!(node.watch.newest(), None);
        node.sample(1_000, 0);
        node.sample(1_010, 0);
        assert_eq!(node.watch.newest(), Some((1_001_010_000, node.at(1_010))));
    }
}
