//! placeholder
#![forbid(unsafe_code)]
#[cfg(feature = "testing")]
pub mod testing;
