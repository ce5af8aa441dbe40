//! The marker that a node keeps of itself.

use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;
use proptest::test_runner::{Config, TestRunner};

use super::*;
use crate::node::Marker;
use crate::testing::Store;

const CASES: u32 = 500;
const NAME: &[u8] = b"leasehold:node";
const NOW: u64 = 1_796_065_102_989_667;
/// Of a later version, of an earlier one that had fewer words, and of nobody.
const STRANGE: [&str; 4] = ["2 a 0 synced f p x", "1 a 0 synced f p", "1 a -1 synced f p x", ""];

#[test]
fn a_server_keeps_the_marker_that_a_node_in_memory_keeps() {
    let twins = Twins::start();
    let config = Config { cases: CASES, failure_persistence: None, ..Config::default() };
    let stands =
        option::of(prop_oneof![9 => markers().prop_map(|marker| marker.to_string()), 1 => strange()]);
    let outcome = TestRunner::new(config)
        .run(&(stands, markers()), |(stands, marker)| twins.wait(play(&twins, stands, &marker)));
    outcome.unwrap_or_else(|failure| panic!("{failure}"));
}

fn strange() -> impl Strategy<Value = String> {
    select(&STRANGE).prop_map(str::to_owned)
}

fn markers() -> impl Strategy<Value = Marker> {
    let word = |words: &'static [&'static str]| select(words).prop_map(str::to_owned);
    let since = select(&[0, 1, NOW - 1, NOW, NOW + 1]);
    (word(&["a", "b"]), since, any::<bool>(), word(&["f", "g"]), word(&["p", "q"]), word(&["x", "y"]))
        .prop_map(|(run_id, since, synced, fingerprint, place, replication)| Marker {
            run_id,
            since,
            synced,
            fingerprint,
            place,
            replication,
        })
}

async fn play(twins: &Twins, stands: Option<String>, marker: &Marker) -> Result<(), TestCaseError> {
    let mut store = Store::default();
    let () = twins.ask(&[b"FLUSHALL"]).await;
    if let Some(text) = &stands {
        store.mark(&Marker::read(text));
        let () = twins.ask(&[b"SET", NAME, text.as_bytes()]).await;
    }
    let told = twins.connection.mark(marker).await;
    let expected = store.mark(marker);
    prop_assert_eq!(told.map_err(|error| TestCaseError::fail(error.to_string()))?, expected.clone());
    let stands: (String, i64) = (twins.ask(&[b"GET", NAME]).await, twins.ask(&[b"PTTL", NAME]).await);
    prop_assert_eq!(stands, (expected.to_string(), -1));
    Ok(())
}
