//! Servers and faults for tests (feature `testing`).
//!
//! - [`LocalMasters`] starts real servers on this machine and ends them again. They can be killed,
//!   restarted with or without their memory, and paused.
//! - [`FaultProxy`] stands between a client and one server and makes the network slow, silent,
//!   lossy or gone.
//!
//! - [`MemoryNodes`] are no servers at all: they run the algorithm in paused time.
//!
//! All are meant for the tests of programs that use this crate, as they are for its own. Unix only.

mod clock;
mod error;
mod gate;
mod lane;
mod masters;
mod memory;
mod probe;
mod proxy;
mod server;
mod store;
mod watchdog;

#[cfg(test)]
pub(crate) use clock::EPOCH;
pub(crate) use clock::VirtualClock;
pub use error::TestingError;
pub use gate::Gate;
pub use masters::{LocalMasters, LocalMastersBuilder};
pub use memory::MemoryNodes;
pub use proxy::{Direction, FaultProxy};
#[cfg(test)]
pub(crate) use store::Store;
