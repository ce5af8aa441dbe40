//! What an attempt may have set is taken back: from every node, however late, and never by waiting for
//! the key to run out. All keys here have a TTL that no test outlives.

mod common;

mod undo {
    mod closing;
    mod dropped;
    mod frozen;
    mod late;
    mod lost;
}
