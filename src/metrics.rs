//! Names of the metrics that are counted (feature `metrics`), for any recorder of the `metrics` crate.
//!
//! Without the feature nothing is counted.

use std::sync::Arc;

use crate::error::LossReason;
use crate::quorum::Verdict;

/// Acquire rounds, by `outcome`: `won`, `held`, `no_quorum`.
pub const ACQUIRE_ROUNDS: &str = "leasehold_acquire_rounds_total";
/// Leases that were lost, by `reason`: `expired`, `denied`, `closed`.
pub const LOST: &str = "leasehold_lost_total";
/// Answers that did not count because the clock of `node` was stepped forward.
pub const CLOCK_STEPS: &str = "leasehold_clock_steps_total";
/// Connections to a `node` whose marker was written for another set of nodes or another `max_ttl`.
pub const OTHER_FLEET: &str = "leasehold_other_fleet_total";

pub(crate) fn round(verdict: Verdict) {
    let outcome = match verdict {
        Verdict::Won => "won",
        Verdict::Refused => "held",
        Verdict::NoQuorum | Verdict::Open => "no_quorum",
    };
    count(ACQUIRE_ROUNDS, "outcome", || outcome.to_owned());
}

pub(crate) fn lost(reason: &LossReason) {
    let reason = match reason {
        LossReason::Expired { .. } => "expired",
        LossReason::Denied { .. } => "denied",
        LossReason::Closed => "closed",
    };
    count(LOST, "reason", || reason.to_owned());
}

pub(crate) fn clock_step(node: &Arc<str>) {
    count(CLOCK_STEPS, "node", || node.to_string());
}

pub(crate) fn other_fleet(node: &Arc<str>) {
    count(OTHER_FLEET, "node", || node.to_string());
}

#[cfg(feature = "metrics")]
fn count(name: &'static str, label: &'static str, value: impl FnOnce() -> String) {
    ::metrics::counter!(name, label => value()).increment(1);
}

#[cfg(not(feature = "metrics"))]
fn count(_: &'static str, _: &'static str, _: impl FnOnce() -> String) {}
