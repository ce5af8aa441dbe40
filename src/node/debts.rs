//! What a node owes: deletions that it has not confirmed. Pure; time is an argument.
//!
//! A SET whose answer never came is *maybe set*, so its deletion must reach the node, however late.
//! On one connection order settles that: the deletion runs behind its SET. A SET in the buffer of a
//! *broken* connection has no such order: a server that was frozen may run it after a deletion that came
//! on a newer connection. So a broken connection with answers outstanding is *stale* until the server
//! was told to kill it, or has restarted; where neither can be had, deletions are repeated for a time.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::{Answer, NodeErrorKind, Report, Target};
use crate::clock::Timestamp;
use crate::sabotage::{self, Sabotage};

/// Between two tries of a deletion that the server answered with an error.
const RETRY: Duration = Duration::from_millis(500);

/// Which process is at the other end of a connection, and which of its connections that is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Identity {
    pub(super) run_id: Option<String>,
    pub(super) client: Option<u64>,
}

impl From<&Report> for Identity {
    fn from(report: &Report) -> Self {
        Self { run_id: report.run_id.clone(), client: report.client }
    }
}

/// One deletion that is not confirmed.
#[derive(Debug)]
struct Debt {
    target: Arc<Target>,
    /// When its SET was first sent at the earliest.
    sent: Timestamp,
    /// When the key has run out by itself, if nothing of it is under way.
    until: Timestamp,
    due: Due,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Due {
    /// The next connection pays it.
    OnConnect,
    /// Sent; its answer is outstanding.
    Submitted,
    /// To be sent (again) at this moment.
    At(Timestamp),
}

/// A broken connection whose last commands may still be run.
#[derive(Debug)]
struct Stale {
    identity: Identity,
    lost_at: Timestamp,
    /// Set when it turned out that it cannot be killed: after this nothing of it can be under way.
    until: Option<Timestamp>,
}

impl Stale {
    fn may_run(&self, sent: Timestamp, now: Timestamp) -> bool {
        sent <= self.lost_at && self.until.is_none_or(|until| now < until)
    }
}

#[derive(Debug, Default)]
pub(super) struct Debts {
    owed: BTreeMap<u64, Debt>,
    stale: Vec<Stale>,
    next: u64,
}

impl Debts {
    /// Notes a deletion that the next connection pays. Returns its number.
    pub(super) fn add(&mut self, target: Arc<Target>, sent: Timestamp, until: Timestamp) -> u64 {
        let number = self.next;
        self.next += 1;
        self.owed.insert(number, Debt { target, sent, until, due: Due::OnConnect });
        number
    }

    pub(super) fn submitted(&mut self, number: u64) {
        if let Some(debt) = self.owed.get_mut(&number) {
            debt.due = Due::Submitted;
        }
    }

    /// Takes an answer to deletion `number`. True if it has to be sent again.
    pub(super) fn answered(&mut self, number: u64, answer: &Answer, now: Timestamp) -> bool {
        let stale = &self.stale;
        let Some(debt) = self.owed.get_mut(&number) else { return false };
        match answer {
            Err(error) if error.kind() == NodeErrorKind::ConnectionLost => debt.due = Due::OnConnect,
            // "Not there" alone confirms nothing while its SET may be under way.
            Ok(_) if !stale.iter().any(|stale| stale.may_run(debt.sent, now)) => {
                self.owed.remove(&number);
                return false;
            }
            Ok(_) | Err(_) => debt.due = Due::At(now.after(RETRY)),
        }
        true
    }

    /// The connection is gone. `outstanding`: whether answers were.
    pub(super) fn disconnected(&mut self, identity: &Identity, outstanding: bool, now: Timestamp) {
        for debt in self.owed.values_mut() {
            debt.due = Due::OnConnect;
        }
        if outstanding && !sabotage::has(Sabotage::OvertakingDeletion) {
            let identity = identity.clone();
            self.stale.push(Stale { identity, lost_at: now, until: None });
        }
    }

    /// Client numbers to be killed, now that the server is `identity`. What died with an earlier run of
    /// the server is forgotten.
    pub(super) fn killable(&mut self, identity: &Identity) -> Vec<u64> {
        self.stale.retain(|stale| {
            let (Some(then), Some(now)) = (&stale.identity.run_id, &identity.run_id) else {
                return true;
            };
            then == now
        });
        // Numbers start anew with the server: without a run_id the number may be a stranger's.
        let known = self.stale.iter().filter(|stale| stale.identity.run_id.is_some());
        known.filter_map(|stale| stale.identity.client).collect()
    }

    pub(super) fn killed(&mut self, client: u64) {
        self.stale.retain(|stale| stale.identity.client != Some(client));
    }

    /// All that could be killed was: what is left is waited out, for `rest` from when it was lost and
    /// for `after_connect` from now at least.
    pub(super) fn wait_out(&mut self, rest: Duration, after_connect: Duration, now: Timestamp) {
        for stale in &mut self.stale {
            let until = stale.lost_at.after(rest).max(now.after(after_connect));
            stale.until.get_or_insert(until);
        }
    }

    /// Whether something shorter than what is asked since `grown` may still be run.
    pub(super) fn outgrown(&self, grown: Timestamp, now: Timestamp) -> bool {
        let shorter = |stale: &Stale| stale.lost_at <= grown && stale.may_run(stale.lost_at, now);
        self.stale.iter().any(shorter)
    }

    /// What a new connection has to pay, in order.
    pub(super) fn all(&self) -> Vec<(u64, Arc<Target>)> {
        self.owed.iter().map(|(number, debt)| (*number, debt.target.clone())).collect()
    }

    /// What is to be sent now on the connection that is up.
    pub(super) fn due(&mut self, now: Timestamp) -> Vec<(u64, Arc<Target>)> {
        self.forget(now);
        let due = |debt: &Debt| matches!(debt.due, Due::At(at) if at <= now);
        let due = self.owed.iter().filter(|(_, debt)| due(debt));
        due.map(|(number, debt)| (*number, debt.target.clone())).collect()
    }

    /// When the next one is to be sent on the connection that is up.
    pub(super) fn next_due(&self) -> Option<Timestamp> {
        let at = |debt: &Debt| match debt.due {
            Due::At(at) => Some(at),
            Due::OnConnect | Due::Submitted => None,
        };
        self.owed.values().filter_map(at).min()
    }

    /// Forgets what has run out by itself and cannot come back.
    pub(super) fn forget(&mut self, now: Timestamp) {
        self.stale.retain(|stale| stale.until.is_none_or(|until| now < until));
        let stale = &self.stale;
        self.owed.retain(|_, debt| {
            debt.due == Due::Submitted
                || now < debt.until
                || stale.iter().any(|stale| stale.may_run(debt.sent, now))
        });
    }

    pub(super) fn len(&self) -> usize {
        self.owed.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.owed.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Clock;
    use crate::node::{NodeError, Vote};
    use crate::token::Token;

    const SECOND: Duration = Duration::from_secs(1);
    const MAX_TTL: Duration = Duration::from_secs(60);

    struct World {
        debts: Debts,
        start: Timestamp,
    }

    impl World {
        fn new() -> Self {
            Self { debts: Debts::default(), start: Clock::System(None).now() }
        }

        fn at(&self, seconds: u32) -> Timestamp {
            self.start.after(SECOND * seconds)
        }

        /// A deletion of a SET that was sent at `sent` and runs out ten seconds later.
        fn owe(&mut self, sent: u32) -> u64 {
            let target = Arc::new(Target::new(vec![b"k".to_vec()], Token::random().unwrap()));
            let number = self.debts.add(target, self.at(sent), self.at(sent + 10));
            self.debts.submitted(number);
            number
        }
    }

    fn server(run_id: &str, client: u64) -> Identity {
        Identity { run_id: Some(run_id.to_owned()), client: Some(client) }
    }

    fn error(kind: NodeErrorKind) -> Answer {
        Err(NodeError::new(&"node".into(), kind, "failed"))
    }

    #[test]
    fn an_answer_settles_a_debt_whichever_it_is() {
        for vote in [Vote::Yes, Vote::No] {
            let mut world = World::new();
            let number = world.owe(0);
            assert!(!world.debts.answered(number, &Ok(vote), world.at(1)));
            assert!(world.debts.is_empty());
        }
    }

    #[test]
    fn an_error_is_tried_again_until_the_key_has_run_out() {
        let mut world = World::new();
        let number = world.owe(0);
        assert!(world.debts.answered(number, &error(NodeErrorKind::Loading), world.at(1)));
        assert!(world.debts.due(world.at(1)).is_empty());
        assert_eq!(world.debts.next_due(), Some(world.at(1).after(RETRY)));
        assert_eq!(world.debts.due(world.at(2)).len(), 1);
        assert!(world.debts.due(world.at(10)).is_empty());
        assert!(world.debts.is_empty());
    }

    #[test]
    fn a_broken_connection_leaves_all_to_the_next() {
        let mut world = World::new();
        world.owe(0);
        let answered = world.owe(0);
        world.debts.answered(answered, &error(NodeErrorKind::Loading), world.at(1));
        world.debts.disconnected(&server("run", 1), true, world.at(1));
        assert!(world.debts.due(world.at(5)).is_empty());
        world.debts.forget(world.at(1_000_000));
        assert_eq!(world.debts.all().len(), 2, "a frozen server may run the SET at any time");
    }

    #[test]
    fn a_debt_of_an_idle_connection_runs_out() {
        let mut world = World::new();
        world.owe(0);
        world.debts.disconnected(&server("run", 1), false, world.at(1));
        world.debts.forget(world.at(9));
        assert_eq!(world.debts.len(), 1);
        world.debts.forget(world.at(10));
        assert!(world.debts.is_empty());
    }

    #[test]
    fn broken_connections_of_the_same_run_are_killed_and_then_settle() {
        let mut world = World::new();
        let number = world.owe(0);
        world.debts.disconnected(&server("run", 7), true, world.at(1));
        assert_eq!(world.debts.killable(&server("run", 8)), [7]);
        world.debts.killed(7);
        world.debts.submitted(number);
        assert!(!world.debts.answered(number, &Ok(Vote::No), world.at(2)));
    }

    #[test]
    fn numbers_of_another_run_or_of_an_unknown_one_are_never_killed() {
        let mut world = World::new();
        world.owe(0);
        world.debts.disconnected(&server("old", 7), true, world.at(1));
        world.debts.disconnected(&Identity { run_id: None, client: Some(8) }, true, world.at(1));
        assert_eq!(world.debts.killable(&server("new", 9)), [0; 0]);
    }

    #[test]
    fn what_cannot_be_killed_is_deleted_again_until_nothing_can_be_under_way() {
        let mut world = World::new();
        let old = world.owe(0);
        world.debts.disconnected(&Identity::default(), true, world.at(2));
        assert!(world.debts.killable(&server("run", 9)).is_empty());
        world.debts.wait_out(MAX_TTL, SECOND, world.at(3));
        world.debts.submitted(old);
        let new = world.owe(3);
        assert!(world.debts.answered(old, &Ok(Vote::No), world.at(4)), "its SET may still be under way");
        assert!(!world.debts.answered(new, &Ok(Vote::No), world.at(4)), "sent after the connection broke");
        assert_eq!(world.debts.due(world.at(61)).len(), 1, "beyond the TTL, as long as the SET may come");
        world.debts.submitted(old);
        assert!(!world.debts.answered(old, &Ok(Vote::No), world.at(62)));
    }

    #[test]
    fn a_late_reconnect_waits_out_as_well() {
        let mut world = World::new();
        let number = world.owe(0);
        world.debts.disconnected(&Identity::default(), true, world.at(1));
        world.debts.wait_out(MAX_TTL, SECOND, world.at(600));
        world.debts.submitted(number);
        assert!(world.debts.answered(number, &Ok(Vote::No), world.at(600)));
        world.debts.submitted(number);
        assert!(!world.debts.answered(number, &Ok(Vote::No), world.at(601)));
    }

    #[test]
    fn a_ttl_that_grew_after_the_break_is_not_counted_while_a_shorter_one_may_come() {
        let mut world = World::new();
        world.debts.disconnected(&Identity::default(), true, world.at(10));
        assert!(!world.debts.outgrown(world.at(5), world.at(11)), "the same TTL was under way");
        assert!(world.debts.outgrown(world.at(10), world.at(11)));
        world.debts.wait_out(MAX_TTL, SECOND, world.at(12));
        assert!(world.debts.outgrown(world.at(20), world.at(69)));
        assert!(!world.debts.outgrown(world.at(20), world.at(70)));
    }

    #[test]
    fn a_connection_is_named_by_its_server_and_its_number_there() {
        let report = Report { run_id: Some("run".into()), client: Some(7), ..Report::default() };
        assert_eq!(Identity::from(&report), server("run", 7));
    }

    #[test]
    fn a_deletion_whose_connection_broke_waits_for_the_next_connection() {
        let mut world = World::new();
        let number = world.owe(0);
        assert!(world.debts.answered(number, &error(NodeErrorKind::ConnectionLost), world.at(1)));
        assert_eq!(world.debts.next_due(), None);
        assert!(world.debts.due(world.at(9)).is_empty());
        assert_eq!(world.debts.all().len(), 1);
    }

    #[test]
    fn a_deletion_that_is_under_way_is_kept_until_its_answer() {
        let mut world = World::new();
        let number = world.owe(0);
        world.debts.forget(world.at(1_000));
        assert_eq!((world.debts.len(), world.debts.is_empty()), (1, false));
        world.debts.answered(number, &error(NodeErrorKind::ConnectionLost), world.at(1_000));
        world.debts.forget(world.at(1_000));
        assert_eq!((world.debts.len(), world.debts.is_empty()), (0, true));
    }

    #[test]
    fn a_connection_that_was_waited_out_is_not_killed_any_more() {
        let mut world = World::new();
        world.debts.disconnected(&server("run", 7), true, world.at(1));
        world.debts.wait_out(MAX_TTL, SECOND, world.at(2));
        world.debts.forget(world.at(60));
        assert_eq!(world.debts.killable(&server("run", 8)), [7]);
        world.debts.forget(world.at(61));
        assert_eq!(world.debts.killable(&server("run", 8)), [0; 0]);
    }
}
