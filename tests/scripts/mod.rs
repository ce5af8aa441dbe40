//! That a node in memory does with each command what a real server does: the simulation and the tests of the
//! algorithm stand on it. The command goes the way that it goes in production.
//!
//! - `case.rs`: a node and a command, as they are drawn
//! - `twins.rs`: a real server beside a node in memory
//! - `commands.rs`, `marks.rs`: all that a node in memory can hold
//! - `types.rs`: what it cannot hold, value by value

mod case;
mod commands;
mod marks;
mod twins;
mod types;

use twins::Twins;
