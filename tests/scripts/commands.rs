//! Each command in each form, on whatever stands.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::time::Duration;

use proptest::prelude::*;
use proptest::test_runner::{Config, TestError, TestRunner};

use super::case::{Case, Verb, cases};
use super::twins::{agree, standing_in};
use super::*;
use crate::node::{Command, Vote};
use crate::sabotage::{self, Sabotage};
use crate::testing::Store;
use crate::token::Token;

const CASES: u32 = 3_000;
/// So many are there: each command has a yes and a no, a grant a number too.
const ANSWERS: usize = 6 * 2 + 1;
/// Servers count expiries in whole milliseconds, by a time that they look up now and then.
const COARSE: Duration = Duration::from_millis(100);

#[test]
fn a_server_does_with_each_command_what_a_node_in_memory_does() {
    let seen = compare(&Twins::start()).unwrap_or_else(|failure| panic!("{failure}"));
    assert_eq!(seen.len(), ANSWERS, "too little happens: {seen:?}");
}

#[test]
fn a_node_in_memory_that_drops_a_rule_is_noticed() {
    use Sabotage::{FenceAheadOfHighest, FenceByClientClock, OldTtlOnSecondRound, PlainDelete};
    let twins = Twins::start();
    for rule in [FenceAheadOfHighest, FenceByClientClock, OldTtlOnSecondRound, PlainDelete] {
        sabotage::switch(Some(rule));
        let noticed = compare(&twins).is_err();
        sabotage::switch(None);
        assert!(noticed, "{rule:?}");
    }
}

/// Plays case after case until one differs. Returns which answers there were.
fn compare(twins: &Twins) -> Result<BTreeSet<(Verb, &'static str)>, TestError<Case>> {
    let seen = RefCell::new(BTreeSet::new());
    let config = Config { cases: CASES, failure_persistence: None, ..Config::default() };
    TestRunner::new(config).run(&cases(), |case| {
        let vote = twins.wait(play(twins, &case))?;
        seen.borrow_mut().insert((case.verb, word(vote)));
        Ok(())
    })?;
    Ok(seen.into_inner())
}

fn word(vote: Vote) -> &'static str {
    match vote {
        Vote::Yes => "yes",
        Vote::No => "no",
        Vote::Unfit(_) => "unfit",
    }
}

/// Puts `case` to both, and holds what they answer and what then stands against each other.
async fn play(twins: &Twins, case: &Case) -> Result<Vote, TestCaseError> {
    let ours = Token::random().expect("random bytes");
    let before = twins.time().await;
    let store = twins.set(&case.slots, &ours, before).await;
    let command = case.command(before, ours);
    let heard = twins.connection.submit(&command, case.form).await;
    let standing = twins.standing(case.slots.len()).await;
    let after = twins.time().await;
    let vote = heard.answer.map_err(|error| TestCaseError::fail(error.to_string()))?;
    let ran = before..=after;
    prop_assert_eq!(heard.time.is_some_and(|time| ran.contains(&time)), case.verb == Verb::Extend);
    // When it ran is known if it says so; else in between, where a slow machine may cross a bound.
    let times = if let Vote::Unfit(unfit) = vote { vec![unfit.time] } else { vec![before, after] };
    let expected: Vec<_> = times.iter().map(|time| run(&store, &command, case, *time)).collect();
    prop_assert!(times.iter().all(|time| ran.contains(time)), "{:?} not in {:?}", times, ran);
    let slack = Duration::from_micros(after - before) + COARSE;
    let agrees = expected.iter().any(|(told, stands)| *told == vote && agree(stands, &standing, slack));
    prop_assert!(
        agrees,
        "when TIME was {} to {}\nthe server: {:?}\nin memory: {:?}",
        before,
        after,
        (vote, standing),
        expected
    );
    Ok(vote)
}

/// What a node in memory answers, and what then stands there.
fn run(store: &Store, command: &Command, case: &Case, time: u64) -> (Vote, Vec<Option<twins::Standing>>) {
    let mut store = store.clone();
    let vote = store.run(command, time);
    let standing = standing_in(&store, case.slots.len(), time);
    (vote, standing)
}
