//! Leases on five real masters, as their user sees them.

mod common;

mod lease {
    mod addresses;
    mod holding;
    mod refusals;
    mod requests;
    mod scripts;
    mod several;
}
