//! Nodes that may have forgotten what they granted do not vote; each attack is shown to succeed without
//! the guard. And what the guard must not hinder.

mod common;
mod views;

mod guard {
    mod emptied;
    mod new_fleet;
    mod replicas;
    mod restarts;
    mod scene;
    mod service;
    mod young;
}
