//! Only independent masters vote; what a node does not tell is a warning; and `nodes()` says how each is.

mod common;
mod views;

mod admission {
    mod acl;
    mod coming_up;
    mod failover;
    mod names;
    mod other_fleet;
    mod roles;
    mod same_server;
    mod status;
}
