//! The heartbeat: what keeps a lease, what it puts back, and when it ends.

mod common;

mod heartbeat {
    mod end;
    mod heal;
    mod loss;
    mod pace;
}
