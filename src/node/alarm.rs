//! What the server tells without being asked, on a connection whose client tracks the marker.
//!
//! A server that empties its memory, also to become a replica, says so *before* its next answer on the
//! connection. So a vote that was given after that is known to be one of a node that forgot, at no cost for
//! the others.

use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::Notify;

#[derive(Debug, Default)]
pub(crate) struct Alarm {
    /// How often the memory was emptied.
    emptied: AtomicU64,
    /// How many of these were looked into.
    seen: AtomicU64,
    bell: Notify,
}

impl Alarm {
    /// All keys are gone.
    pub(super) fn emptied(&self) {
        self.emptied.fetch_add(1, Ordering::SeqCst);
        self.bell.notify_one();
    }

    /// The marker was written by another client.
    pub(super) fn marked(&self) {
        self.bell.notify_one();
    }

    /// Whether the memory was emptied and nobody has looked into it yet.
    pub(super) fn is_raised(&self) -> bool {
        self.emptied.load(Ordering::SeqCst) > self.seen.load(Ordering::SeqCst)
    }

    /// What there is to look into now.
    pub(super) fn raised(&self) -> u64 {
        self.emptied.load(Ordering::SeqCst)
    }

    /// All up to `raised` was looked into, and found harmless.
    pub(super) fn answer(&self, raised: u64) {
        self.seen.fetch_max(raised, Ordering::SeqCst);
    }

    /// Resolves when there is something to look at.
    pub(super) async fn rung(&self) {
        self.bell.notified().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_happens_during_a_look_needs_another() {
        let alarm = Alarm::default();
        alarm.marked();
        assert!(!alarm.is_raised());
        alarm.emptied();
        let raised = alarm.raised();
        assert!(alarm.is_raised());
        alarm.emptied();
        alarm.answer(raised);
        assert!(alarm.is_raised());
        alarm.answer(alarm.raised());
        assert!(!alarm.is_raised());
    }
}
