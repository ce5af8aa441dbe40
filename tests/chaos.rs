//! Whatever happens to two of five nodes and to the clients at a time, two leases on one key never overlap.
//!
//! Five masters, eight client processes, and somebody who stops, kills and cuts off both. Each process writes
//! down what it was promised and when, by the clock that all of them share; a checker reads it all.
//!
//! `LEASEHOLD_CHAOS_SECONDS` says for how long (60), `LEASEHOLD_SEED` with which dice.

mod common;
mod views;

mod chaos {
    mod arena;
    mod beyond;
    mod checker;
    mod crew;
    mod deck;
    mod grave;
    mod history;
    mod journal;
    mod line;
    mod moment;
    mod nemesis;
    mod run;
    mod summary;
    mod worker;
}
