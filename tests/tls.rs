//! Masters behind TLS: whom a client believes, and what it says of those it does not.

mod common;
mod views;

mod tls {
    mod certificates;
    mod refused;
    mod servers;
    mod trusted;
}
