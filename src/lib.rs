//! placeholder

mod acquire;
mod clock;
mod config;
mod error;
mod fanout;
mod fleet;
mod heartbeat;
mod hold;
mod key;
mod lease;
mod node;
mod quorum;
mod redlock;
mod release;
mod request;
mod retry;
mod seats;
#[cfg(feature = "testing")]
pub mod testing;
mod token;
mod validity;
mod watchdog;

pub use config::Builder;
pub use error::{
    AcquireError, ConnectError, ExtendError, InvalidRequest, LeaseLost, LossReason, NodeErrors, ReleaseError,
    TooFewNodes, WithLeaseError,
};
pub use key::Key;
pub use lease::Lease;
pub use node::{NodeError, NodeErrorKind, NodeState, NodeStatus};
pub use redlock::Redlock;
pub use request::LeaseRequest;
pub use token::Token;
