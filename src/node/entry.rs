//! What a new connection goes through before its node may vote.

use std::sync::Arc;
use std::time::Duration;

use super::admission::{self, Admitted};
use super::handle::Shared;
use super::state::Standing;
use super::{Connection, Marker, NodeError, NodeErrorKind, NodeWarning, Refusal, Report};
use crate::clock::Timestamp;
use crate::sabotage::{self, Sabotage};

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
        return Ok((Standing { votes: now, renews: now, marked: false, since: None }, Vec::new()));
    }
    let is_new = is_new_fleet(shared, connection, serial, &mut report).await?;
    let now = shared.clock.now();
    let admitted = admission::admit(&report, shared.fleet(is_new));
    let (standing, mut warnings) = write(shared, connection, &report, admitted, now).await?;
    if !report.tracked {
        warnings.push(NodeWarning::NoTracking);
    }
    if report.run_id.is_some() && !report.tells_synced() {
        warnings.push(NodeWarning::NoConfig);
    }
    Ok((standing, warnings))
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
        while let Some(firsts) = roster.all_unmarked().await {
            if !sabotage::has(Sabotage::NewFleetReadOnce) {
                *report = connection.look().await?;
            }
            if report.marker != Some(None) {
                // Another client was faster.
                roster.marked();
                break;
            }
            roster.unmarked_again(node, serial, firsts);
            if let Some(is_new) = roster.is_new(node, serial).await {
                return Ok(is_new);
            }
        }
        Ok(false)
    };
    let is_new = shared.clock.within(shared.timing.node_timeout, find).await.unwrap_or(Ok(false))?;
    roster.marked();
    if !is_new {
        // What another client has made of the node meanwhile.
        *report = connection.look().await?;
    }
    Ok(is_new)
}

/// Writes the marker before the first vote is asked; what then stands says how old the node is. Who only
/// observes asks for no vote.
async fn write(
    shared: &Shared,
    connection: &dyn Connection,
    report: &Report,
    admitted: Admitted,
    now: Timestamp,
) -> Result<(Standing, Vec<NodeWarning>), NodeError> {
    let Admitted { mut age, write, mut warnings } = admitted;
    let write = write.filter(|_| !shared.timing.observe_only);
    let mut marked = write.is_some() || report.marker_of_now().is_some();
    let mut since = report.marker_of_now().map(|marker| marker.since);
    if let Some(marker) = write {
        match connection.mark(&marker).await {
            Ok(stands) => {
                since = Some(stands.since);
                let standing = Report { marker: Some(Some(stands)), ..report.clone() };
                age = admission::admit(&standing, shared.fleet(false)).age;
            }
            Err(error) if error.kind() == NodeErrorKind::ConnectionLost => return Err(error),
            Err(_) => {
                let unmarked = Report { marker: None, ..report.clone() };
                let admitted = admission::admit(&unmarked, shared.fleet(false));
                (age, warnings, marked) = (admitted.age, admitted.warnings, false);
            }
        }
    }
    Ok((Standing { marked, since, ..standing(shared, age, now) }, warnings))
}

/// From when on the answers of a node of this age count.
fn standing(shared: &Shared, age: Option<Duration>, now: Timestamp) -> Standing {
    let from = |old_enough: Duration| match age {
        Some(age) if age < old_enough => {
            let left = old_enough - age;
            now.after(left).after(left / RATE)
        }
        Some(_) | None => now,
    };
    let round = shared.timing.node_timeout + Duration::from_secs(1);
    let renews = if sabotage::has(Sabotage::YoungExtends) { now } else { from(round) };
    Standing { votes: from(shared.timing.max_ttl), renews, marked: true, since: None }
}

/// Looks at what may have changed: the node may have become a replica, or lost its memory, or be known to be
/// older than we thought. An error of kind `Refused` ends the connection; the next one is checked anew.
pub(super) async fn look_again(
    shared: &Shared,
    connection: Arc<dyn Connection>,
    epoch: u64,
) -> Result<(), NodeError> {
    let asked = shared.clock.now();
    let raised = connection.alarm().raised();
    let report = connection.look().await?;
    let now = shared.clock.now();
    admission::check_role(&report).map_err(|refusal| refuse(shared, refusal))?;
    let anew = |what: &str| Err(shared.error(NodeErrorKind::Refused, format!("{what}: it is checked anew")));
    if report.replication != connection.report().replication {
        return anew("it may have been a replica in between");
    }
    let marked = shared.lock().link(epoch).is_some_and(|link| link.standing.marked);
    if shared.timing.restart_guard {
        match report.marker_of_now() {
            Some(_) if marked || shared.timing.observe_only => {
                follow(shared, &*connection, epoch, &report, now).await?;
            }
            None if marked && report.marker.is_some() => return anew("its memory was emptied"),
            Some(_) | None => {}
        }
    }
    let mut state = shared.lock();
    if let Some(time) = report.time {
        shared.note_time(&mut state, asked, now, time);
    }
    state.round_trip = Some(now.since(asked));
    state.report = report;
    connection.alarm().answer(raised);
    Ok(())
}

/// Takes the node for as old as its marker says, which another client may have written.
async fn follow(
    shared: &Shared,
    connection: &dyn Connection,
    epoch: u64,
    report: &Report,
    now: Timestamp,
) -> Result<(), NodeError> {
    let Admitted { age, write, .. } = admission::admit(report, shared.fleet(false));
    let since = report.marker_of_now().map(|marker| marker.since);
    if let Some(link) = shared.lock().link(epoch)
        && link.standing.since != since
    {
        // Else our own clock goes on counting, whatever the node's does.
        link.standing = Standing { since, ..standing(shared, age, now) };
    }
    // A replica has come: what is there after a restart may be that. Raising it again is left to the next
    // connection, or clients that know more and less of the node would write in turns.
    let stands = report.marker_of_now().is_some_and(|marker| marker.synced);
    let lowered = |write: &Marker| stands && !write.synced && !shared.timing.observe_only;
    if let Some(unsynced) = write.filter(lowered) {
        match connection.mark(&unsynced).await {
            Err(error) if error.kind() == NodeErrorKind::ConnectionLost => return Err(error),
            Ok(_) | Err(_) => {}
        }
    }
    Ok(())
}
