//! What a holder that was killed has left: its key is free within the TTL.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;

use super::arena::Arena;
use super::crew::Worker;
use super::line::{Event, Step};
use super::moment::Moment;
use super::worker::LONGEST_TTL;
use crate::common::secs;

/// For a loaded machine: what the dead have sent is on its way for so long at most.
const SLACK: Duration = secs(1);

/// Looks after the keys of the dead; each returns on how many nodes it could look.
pub(super) type Graves = JoinSet<usize>;

/// Kills `worker`, and has somebody look after the key that it held.
pub(super) async fn bury(graves: &mut Graves, arena: &Arc<Arena>, worker: &mut Worker<'_>) {
    let killed = worker.kill().await;
    let last = worker.lines().pop().map(|line| line.what);
    let Some(Event::Lease { step: Step::Won { .. } | Step::Renewed { .. }, key, token }) = last else {
        return;
    };
    graves.spawn(look(arena.clone(), killed, key, token));
}

/// Only nodes that have been well since the death must have let it go by now: others may hear of it later.
async fn look(arena: Arc<Arena>, killed: Moment, key: String, token: String) -> usize {
    let clock = arena.journal.clock;
    clock.sleep_until(killed.after(LONGEST_TTL + SLACK)).await;
    let mut looked = 0;
    for node in 0..arena.proxied.masters.len() {
        let well = || arena.well_since(node).is_some_and(|since| since <= killed);
        if !well() {
            continue;
        }
        let stands = arena.stands(node, &key, &token).await;
        // It may have been troubled just now.
        if well() {
            let stands = stands.expect("a node that is well answers");
            assert!(!stands, "{key} is still {token}'s on node {node}, whose holder died at {killed}");
            looked += 1;
        }
    }
    looked
}
