//! Nodes that are slow, silent, frozen or gone: what the others still do, and in what time.

mod common;

mod outages {
    mod frozen;
    mod quorum;
    mod restarts;
    mod slow;
}
