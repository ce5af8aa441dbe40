//! The algorithm as a model, small enough to be looked through completely: three nodes, two clients,
//! commands and answers that are late or lost, a node that loses its memory, and time in ticks. With all
//! rules no way through it leads to two leases at one time; with any one of them dropped, some way does.
//!
//! It is a model of the rules and not of the code: it shows that the rules are enough and that none is
//! idle; that the code keeps them is for the other tests. Where a client has a choice (when to give up, to
//! renew, to heal) the model takes each. It knows no drift of clocks, no fences, no deletion that is sent
//! again and no change of the set of nodes.
//!
//! ```sh
//! cargo test --test model -- --nocapture             # shows a shortest way to two leases for each rule
//! cargo test --release --test model -- --ignored     # larger worlds
//! ```

mod model {
    pub(crate) mod search;
    pub(crate) mod state;
    pub(crate) mod step;
    pub(crate) mod story;
}

use model::search::search;
use model::state::{Budget, ROUND_TIMEOUT, State, World};
use model::story::{replay, tell};

/// What keeps leases apart, and what is done instead where it is dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rule {
    /// A quorum is ⌊N/2⌋+1 of the nodes. Instead: ⌊N/2⌋.
    Majority,
    /// Validity is counted from the send. Instead: from the decision.
    FromTheSend,
    /// An acquire round is decided within the round timeout. Instead: at any time before its deadline.
    RoundTimeout,
    /// A node that lost its memory is asked for no grant for a time. Instead: it is asked at once.
    Guard,
    /// That time is `max_ttl`. Instead: the TTL of the request.
    GuardForMaxTtl,
    /// The answer of such a node to a renewal counts only once a round that was open at the restart is over.
    /// Instead: it counts at once.
    YoungNodesDoNotRenew,
    /// A lease that ran out is over. Instead: its client renews and heals it as if it were not.
    NoRevival,
    /// A renewal that was sent in time is decided in time, too. Instead: also after the deadline.
    NoLateRenewal,
    /// A node runs the commands of a client in the order of their sending, or never. Instead: in any order,
    /// as behind a broken connection that was not killed.
    Order,
    /// A renewal asks for no shorter TTL than any before. Instead: for what its caller says.
    Growth,
    /// What is deleted is a lease no more. Instead: the client deletes, and goes on until its deadline.
    DeadTokensOnly,
    /// A deletion deletes its own token. Instead: whatever stands there.
    CompareAndDelete,
}

/// A round, and no more.
const RIVAL: Budget = Budget { rounds: 1, ttl: 2, extends: 0, extend_ttls: &[], heals: 0, deletes: false };

/// A client that keeps its lease up.
const HOLDER: Budget = Budget { extends: 1, extend_ttls: &[2], heals: 1, ..RIVAL };

/// A node loses its memory, and gets the key back.
const RESTART: World = World {
    max_ttl: 4,
    young: ROUND_TIMEOUT + 1,
    clients: [HOLDER, Budget { ttl: 4, ..RIVAL }],
    restarts: 1,
    off: None,
};

/// The same where both renew, with times as short as will do.
const BOTH_RENEW: World = World {
    max_ttl: 3,
    young: ROUND_TIMEOUT,
    clients: [HOLDER, Budget { ttl: 3, extends: 1, extend_ttls: &[3], ..RIVAL }],
    ..RESTART
};

/// One renewal after the other, for longer or shorter.
const RENEWALS: World =
    World { clients: [Budget { extends: 2, extend_ttls: &[1, 3], ..RIVAL }, RIVAL], restarts: 0, ..RESTART };

/// A client gives up or back, and comes again.
const DELETIONS: World =
    World { clients: [Budget { rounds: 2, deletes: true, ..RIVAL }, RIVAL], restarts: 0, ..RESTART };

impl Rule {
    /// The least world that shows what it is for.
    fn world(self) -> World {
        match self {
            Rule::Majority
            | Rule::FromTheSend
            | Rule::RoundTimeout
            | Rule::Guard
            | Rule::GuardForMaxTtl
            | Rule::YoungNodesDoNotRenew
            | Rule::NoRevival => RESTART,
            Rule::NoLateRenewal => BOTH_RENEW,
            Rule::Order | Rule::Growth => RENEWALS,
            Rule::DeadTokensOnly | Rule::CompareAndDelete => DELETIONS,
        }
    }
}

/// Asserts that no way leads to two leases at one time, in a world of at least so many states.
fn keeps_leases_apart(world: World, floor: usize) {
    let found = search(&world);
    if let Some(steps) = found.overlap {
        panic!("two leases at one time:\n{}", tell(&world, &steps));
    }
    println!("{} states, in {:?} of them A and B hold the lock: no overlap", found.states, found.held);
    assert!(found.states >= floor, "only {} states: was anything possible?", found.states);
    assert!(found.held.iter().all(|states| *states > 0), "{:?}: one never wins", found.held);
}

/// Asserts that the same world without `rule` has a way to two leases at one time.
fn is_needed(rule: Rule) {
    let world = rule.world();
    let without = world.without(rule);
    let found = search(&without);
    let steps = found.overlap.unwrap_or_else(|| panic!("{} states, and no overlap", found.states));
    println!("Without {rule:?}, found as state {}:\n{}", found.states, tell(&without, &steps));
    let states = replay(&without, &steps).expect("steps that are possible");
    let overlaps: Vec<bool> = states.iter().map(State::overlaps).collect();
    assert!(overlaps[steps.len()] && !overlaps[..steps.len()].contains(&true), "{overlaps:?}");
    // With the rule the same steps cannot be gone, or lead to something else.
    let kept = replay(&world, &steps).unwrap_or_default();
    assert!(!kept.iter().any(State::overlaps), "the rule makes no difference");
}

#[test]
fn leases_stay_apart_where_a_node_restarts() {
    keeps_leases_apart(RESTART, 40_000);
}

#[test]
fn leases_stay_apart_where_a_node_restarts_and_both_are_renewed() {
    keeps_leases_apart(BOTH_RENEW, 60_000);
}

#[test]
fn leases_stay_apart_where_they_are_renewed() {
    keeps_leases_apart(RENEWALS, 30_000);
}

#[test]
fn leases_stay_apart_where_they_are_deleted() {
    keeps_leases_apart(DELETIONS, 15_000);
}

#[test]
fn half_of_the_nodes_are_no_quorum() {
    is_needed(Rule::Majority);
}

#[test]
fn validity_is_counted_from_the_send() {
    is_needed(Rule::FromTheSend);
}

#[test]
fn a_slow_round_is_lost() {
    is_needed(Rule::RoundTimeout);
}

#[test]
fn a_node_that_forgot_is_not_asked_for_a_grant() {
    is_needed(Rule::Guard);
}

#[test]
fn a_node_that_forgot_waits_for_the_longest_ttl() {
    is_needed(Rule::GuardForMaxTtl);
}

#[test]
fn a_node_that_forgot_does_not_renew_at_once() {
    is_needed(Rule::YoungNodesDoNotRenew);
}

#[test]
fn a_lease_is_never_revived() {
    is_needed(Rule::NoRevival);
}

#[test]
fn a_renewal_that_is_late_is_none() {
    is_needed(Rule::NoLateRenewal);
}

#[test]
fn commands_keep_their_order() {
    is_needed(Rule::Order);
}

#[test]
fn ttls_only_grow() {
    is_needed(Rule::Growth);
}

#[test]
fn what_is_held_is_not_deleted() {
    is_needed(Rule::DeadTokensOnly);
}

#[test]
fn a_deletion_compares() {
    is_needed(Rule::CompareAndDelete);
}

#[test]
#[ignore = "four million states: a minute in a release build, and 700 MB"]
fn leases_stay_apart_in_larger_worlds() {
    let [holder, rival] = RESTART.clients;
    let long = Budget { ttl: 4, extend_ttls: &[4], ..HOLDER };
    let longer = Budget { extends: 2, extend_ttls: &[2, 4], ..HOLDER };
    let again = Budget { rounds: 2, deletes: true, ..RIVAL };
    let all = Budget { rounds: 2, deletes: true, ..HOLDER };
    let worlds = [
        ("two restarts", World { restarts: 2, ..RESTART }),
        ("young for no longer than a round", World { young: ROUND_TIMEOUT, ..RESTART }),
        ("both keep it up", World { clients: [holder, long], ..RESTART }),
        ("two renewals of any length", World { clients: [longer, rival], ..RESTART }),
        ("two rounds each", World { clients: [again, again], ..DELETIONS }),
        ("all that one can do", World { clients: [all, rival], ..RESTART }),
    ];
    for (name, world) in worlds {
        println!("{name}:");
        keeps_leases_apart(world, 50_000);
    }
}
