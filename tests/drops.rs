//! Leases dropped anywhere, and holders that were stopped: no panic, no hang, and no harm to others.

mod common;

mod drops {
    mod process;
    mod threads;
    mod unfinished;
}
