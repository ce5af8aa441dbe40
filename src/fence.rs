//! Fencing tokens: numbers that grow from holder to holder, and who checks them.
//!
//! A lease cannot stop a holder that was paused and goes on after its validity has ended. A *resource* can:
//! it remembers the highest fence that it has seen and refuses whoever comes with a lower one. The holder
//! passes [`Lease::fence`](crate::Lease::fence) along with each write.
//!
//! A counter at each node would not do: two quorums may share one node only, and the highest count may be
//! another's. So a fence is one number that a quorum agrees on. The client proposes microseconds of Unix
//! time by its estimate of the nodes' clocks; a node grants a number only if it is higher than all that it
//! granted before for the key, and near its own clock. Any two quorums share a node, where the later grant
//! came after the earlier one: so each later holder's fence is greater.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Mutex, PoisonError};

use crate::key::Key;

/// A fencing token: greater than that of every earlier holder of the key.
///
/// Near Unix time in microseconds, so that it fits a signed 64-bit integer (SQL `BIGINT`) and a double
/// (JavaScript, Lua). Not a count: gaps are ordinary.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fence(u64);

impl Fence {
    /// The number.
    pub fn get(self) -> u64 {
        self.0
    }
}

impl fmt::Display for Fence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// For who reads a fence that was passed along. Only a lease makes new ones.
impl From<u64> for Fence {
    fn from(number: u64) -> Self {
        Self(number)
    }
}

impl From<Fence> for u64 {
    fn from(fence: Fence) -> Self {
        fence.0
    }
}

impl From<Fence> for i64 {
    fn from(fence: Fence) -> Self {
        // Nodes grant none that is far from their clocks; 2^63 µs are 292,000 years.
        Self::try_from(fence.0).unwrap_or(Self::MAX)
    }
}

/// Checks fences in memory, and shows what a resource does: it remembers the highest fence of each of its
/// parts and refuses older ones.
///
/// It protects what lives in the same process, or behind it. What is on disk or elsewhere must be checked
/// there, in one step with the write: in SQL by a `fence` column in the UPDATE's condition.
///
/// ```
/// use leasehold::fence::Fence;
///
/// let (older, newer) = (Fence::from(41), Fence::from(42)); // of two leases, one after the other
/// let gate = leasehold::fence::Gate::new();
/// assert!(gate.enter("account 7", newer).is_ok());
/// assert!(gate.enter("account 7", newer).is_ok(), "the holder may write again");
/// assert!(gate.enter("account 7", older).is_err(), "a paused holder comes too late");
/// ```
#[derive(Debug, Default)]
pub struct Gate {
    highest: Mutex<HashMap<Key, Fence>>,
}

/// A write came with a fence that is lower than one seen before: its holder has lost the lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("fence {fence} is older than {highest}: another has held the lease since")]
pub struct Stale {
    /// The fence that came.
    pub fence: Fence,
    /// The highest seen.
    pub highest: Fence,
}

impl Gate {
    /// A gate that has seen nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// Lets `fence` through if none higher was seen for `resource`, and remembers it.
    ///
    /// # Errors
    ///
    /// [`Stale`] if a higher one was.
    pub fn enter(&self, resource: impl Into<Key>, fence: Fence) -> Result<(), Stale> {
        let mut seen = self.highest.lock().unwrap_or_else(PoisonError::into_inner);
        let highest = seen.entry(resource.into()).or_insert(fence);
        if fence < *highest {
            return Err(Stale { fence, highest: *highest });
        }
        *highest = fence;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gate_refuses_what_is_lower_than_the_highest_fence_of_that_resource() {
        let (older, newer) = (Fence::from(41), Fence::from(42));
        let gate = Gate::new();
        assert_eq!(gate.enter("a", older), Ok(()));
        assert_eq!(gate.enter("a", newer), Ok(()));
        assert_eq!(gate.enter("a", newer), Ok(()), "the holder may write again");
        assert_eq!(gate.enter("a", older), Err(Stale { fence: older, highest: newer }));
        assert_eq!(gate.enter("a", newer), Ok(()), "a refusal changes nothing");
        assert_eq!(gate.enter("b", older), Ok(()), "another resource has its own");
    }

    #[test]
    fn a_fence_is_the_same_number_wherever_it_is_passed_along() {
        let fence = Fence::from(1_796_065_102_989_667);
        assert_eq!(fence.get(), 1_796_065_102_989_667);
        assert_eq!(u64::from(fence), 1_796_065_102_989_667);
        assert_eq!(i64::from(fence), 1_796_065_102_989_667);
        assert_eq!(fence.to_string(), "1796065102989667");
        assert_eq!(i64::from(Fence::from(u64::MAX)), i64::MAX);
    }
}
