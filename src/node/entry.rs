//! What a new connection goes through before its node may vote.

use std::sync::Arc;
use std::time::Duration;

use super::admission::{self, Admitted, Fleet};
use super::handle::Shared;
use super::state::Standing;
use super::{Connection, NodeError, NodeErrorKind, NodeWarning, Refusal, Report};
use crate::clock::Timestamp;

/// A node's age is measured by its clock and waited for by ours: 1 % for their rates.
const RATE: u32 = 100;

/// Finds out who answers, and since when it remembers. `serial` tells this connection from earlier ones.
pub(super) async fn enter(
    shared: &Shared,
    connection: &dyn Connection,
    serial: u64,
) -> Result<(Standing, Vec<NodeWarning>), NodeError> {
    let mut report = connection.report().clone();
    let admitted = admission::check_role(&report).and_then(|()| shared.enter(&report));
    admitted.map_err(|refusal| refuse(shared, refusal))?;
    if !shared.timing.restart_guard {
        let now = shared.clock.now();
        return Ok((Standing { votes: now, renews: now }, Vec::new()));
    }
    let is_new = is_new_fleet(shared, connection, serial, &mut report).await?;
    let now = shared.clock.now();
    let admitted = admission::admit(&report, Fleet { fingerprint: &shared.roster.fingerprint, is_new });
    write(shared, connection, &report, admitted, now).await
}

fn refuse(shared: &Shared, refusal: Refusal) -> NodeError {
    let error = shared.error(NodeErrorKind::Refused, refusal.to_string());
    shared.lock().refusal = Some(refusal);
    error
}

/// Whether no node of the fleet has a marker, and none can have lost one. Waits for the others, for at most
/// the node timeout, while no marker was seen.
async fn is_new_fleet(
    shared: &Shared,
    connection: &dyn Connection,
    serial: u64,
    report: &mut Report,
) -> Result<bool, NodeError> {
    let (roster, node) = (&shared.roster, shared.index);
    if report.marker != Some(None) || report.run_id.is_none() {
        // A node that may not keep a marker says nothing about the others.
        if report.marker.is_some() {
            roster.marked();
        }
        return Ok(false);
    }
    roster.unmarked(node, serial);
    let find = async {
        if !roster.all_unmarked().await {
            return Ok(false);
        }
        *report = connection.look().await?;
        if report.marker != Some(None) {
            // Another client was faster.
            roster.marked();
            return Ok(false);
        }
        roster.unmarked_again(node, serial);
        Ok(roster.is_new(node, serial).await)
    };
    let is_new = shared.clock.within(shared.timing.node_timeout, find).await.unwrap_or(Ok(false))?;
    roster.marked();
    if !is_new {
        // What another client has made of the node meanwhile.
        *report = connection.look().await?;
    }
    Ok(is_new)
}

/// Writes the marker before the first vote is asked; what then stands says how old the node is.
async fn write(
    shared: &Shared,
    connection: &dyn Connection,
    report: &Report,
    admitted: Admitted,
    now: Timestamp,
) -> Result<(Standing, Vec<NodeWarning>), NodeError> {
    let Admitted { mut age, write, mut warnings } = admitted;
    if let (Some(marker), Some(time)) = (write, report.time) {
        match connection.mark(&marker).await {
            Ok(stands) => age = admission::age(stands.since, time),
            Err(error) if error.kind() == NodeErrorKind::ConnectionLost => return Err(error),
            Err(_) => {
                let unmarked = Report { marker: None, ..report.clone() };
                let admitted = admission::admit(&unmarked, Fleet { fingerprint: "", is_new: false });
                (age, warnings) = (admitted.age, admitted.warnings);
            }
        }
    }
    Ok((standing(shared, age, now), warnings))
}

/// From when on the answers of a node of this age count.
pub(super) fn standing(shared: &Shared, age: Option<Duration>, now: Timestamp) -> Standing {
    let from = |old_enough: Duration| match age {
        Some(age) if age < old_enough => {
            let left = old_enough - age;
            now.after(left).after(left / RATE)
        }
        Some(_) | None => now,
    };
    let round = shared.timing.node_timeout + Duration::from_secs(1);
    Standing { votes: from(shared.timing.max_ttl), renews: from(round) }
}

/// Looks at what may have changed: the node may have become a replica, or be known to be older than we
/// thought. An error ends the connection; the next one is checked anew.
pub(super) async fn look_again(
    shared: &Shared,
    connection: Arc<dyn Connection>,
    epoch: u64,
) -> Result<(), NodeError> {
    let asked = shared.clock.now();
    let report = connection.look().await?;
    admission::check_role(&report).map_err(|refusal| refuse(shared, refusal))?;
    if report.replication != connection.report().replication {
        let reason = "it was a replica in between, and is checked anew";
        return Err(shared.error(NodeErrorKind::Refused, reason));
    }
    let now = shared.clock.now();
    let mut state = shared.lock();
    if shared.timing.restart_guard
        && state.link(epoch).is_some_and(|link| now < link.standing.votes)
        && let (Some(Some(marker)), Some(time)) = (&report.marker, report.time)
        && Some(&marker.run_id) == report.run_id.as_ref()
    {
        let standing = standing(shared, admission::age(marker.since, time), now);
        if let Some(link) = state.link(epoch) {
            link.standing.votes = link.standing.votes.min(standing.votes);
            link.standing.renews = link.standing.renews.min(standing.renews);
        }
    }
    if let Some(time) = report.time {
        state.clock.note(asked, now, time, shared.timing.max_ttl);
    }
    state.round_trip = Some(now.since(asked));
    state.report = report;
    Ok(())
}
