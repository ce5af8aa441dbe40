//! Values that a node in memory cannot hold: of another type, and a record that is no number.

use super::case::{Verb, command, key, record, target};
use super::*;
use crate::node::{Form, Marker, NodeErrorKind, Vote};
use crate::token::Token;

const FORMS: [Form; 3] = [Form::Best, Form::Script, Form::ScriptText];

/// What the server says of `verb` for `keys` keys, of which the last is a hash, and that it still is then.
fn with_a_hash(
    twins: &Twins,
    name: &[u8],
    verb: Verb,
    keys: usize,
    form: Form,
) -> Result<Vote, NodeErrorKind> {
    twins.wait(async {
        let () = twins.ask(&[b"FLUSHALL"]).await;
        let () = twins.ask(&[b"HSET", name, b"field", b"untouched"]).await;
        let command =
            command(verb, &target(keys, Token::random().expect("random bytes")), twins.time().await);
        let told = twins.connection.submit(&command, form).await.answer;
        let field: String = twins.ask(&[b"HGET", name, b"field"]).await;
        assert_eq!(field, "untouched", "{command:?}");
        told.map_err(|error| error.kind())
    })
}

fn size(twins: &Twins) -> u64 {
    twins.wait(twins.ask(&[b"DBSIZE"]))
}

#[test]
fn a_key_of_another_type_is_anothers() {
    let twins = Twins::start();
    for (verb, told) in [
        (Verb::Acquire, Ok(Vote::No)),
        (Verb::Grant, Ok(Vote::No)),
        (Verb::Heal, Ok(Vote::No)),
        (Verb::HealFenced, Ok(Vote::No)),
        (Verb::Extend, Err(NodeErrorKind::WrongType)),
        (Verb::Delete, Err(NodeErrorKind::WrongType)),
    ] {
        for (keys, form) in [1, 2].into_iter().flat_map(|keys| FORMS.map(|form| (keys, form))) {
            let mut told = told;
            // The first key is not there, which is said before the second is looked at.
            if verb == Verb::Extend && keys == 2 {
                told = Ok(Vote::No);
            }
            let last = key(keys - 1);
            assert_eq!(with_a_hash(&twins, &last, verb, keys, form), told, "{verb:?} of {keys} as {form:?}");
            assert_eq!(size(&twins), 1, "{verb:?} of {keys} as {form:?} leaves nothing else");
        }
    }
}

#[test]
fn a_record_of_another_type_is_an_error_and_left_as_it_is() {
    let twins = Twins::start();
    for (keys, form) in [1, 2].into_iter().flat_map(|keys| FORMS.map(|form| (keys, form))) {
        let wrong = Err(NodeErrorKind::WrongType);
        let last = record(keys - 1);
        assert_eq!(with_a_hash(&twins, &last, Verb::Grant, keys, form), wrong);
        assert_eq!(size(&twins), 1, "nothing is granted");
        assert_eq!(with_a_hash(&twins, &last, Verb::HealFenced, keys, form), wrong);
        let there: u64 = twins.wait(twins.ask(&[b"EXISTS", &key(0), &key(keys - 1)]));
        assert_eq!(there, 0, "no key is put back");
    }
}

#[test]
fn a_record_that_is_no_number_is_none() {
    let twins = Twins::start();
    for verb in [Verb::Grant, Verb::HealFenced] {
        let (fence, stands): (u64, String) = twins.wait(async {
            let () = twins.ask(&[b"FLUSHALL"]).await;
            let () = twins.ask(&[b"SET", &record(0), b"nonsense"]).await;
            let fence = twins.time().await;
            let command = command(verb, &target(1, Token::random().expect("random bytes")), fence);
            assert_eq!(twins.connection.submit(&command, Form::Best).await.answer.ok(), Some(Vote::Yes));
            (fence, twins.ask(&[b"GET", &record(0)]).await)
        });
        assert_eq!(stands, fence.to_string());
    }
}

#[test]
fn a_marker_of_another_type_is_an_error_and_left_as_it_is() {
    let twins = Twins::start();
    let (told, field): (_, String) = twins.wait(async {
        let () = twins.ask(&[b"HSET", b"leasehold:node", b"field", b"untouched"]).await;
        let told = twins.connection.mark(&Marker::read("1 a 0 synced f p x")).await;
        (told, twins.ask(&[b"HGET", b"leasehold:node", b"field"]).await)
    });
    assert_eq!(told.expect_err("a hash").kind(), NodeErrorKind::WrongType);
    assert_eq!(field, "untouched");
}
