//! One connection, as the network sees it.

use std::collections::VecDeque;
use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use super::message::{Answer, Request, Told};
use super::process::Process;

/// One direction between a client and a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Fate {
    #[default]
    Flow,
    Hold,
    Lose,
}

/// One direction of one connection: what comes later does not overtake.
#[derive(Default)]
pub(crate) struct Lane {
    /// When the last message arrives.
    pub(crate) clear: u64,
    /// Nothing gets through any more.
    pub(crate) broken: bool,
}

pub(crate) struct Link {
    pub(crate) process: Arc<Process>,
    pub(crate) node: usize,
    /// The server's number for it.
    pub(crate) number: u64,
    /// The server has it.
    pub(crate) open: bool,
    pub(crate) out: Lane,
    pub(crate) back: Lane,
    pub(crate) held: VecDeque<Request>,
    pub(crate) held_back: VecDeque<(Told, Option<Answer>)>,
    /// What a server that is stopped has not read.
    pub(crate) unread: VecDeque<Request>,
    /// The client sees it broken.
    pub(crate) dropped: CancellationToken,
}
