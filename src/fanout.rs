//! One command to every node, answers as they come: acquire, extend and release all go through here.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::Poll;

use crate::node::{Answer, Command, Node, Reply};

/// Answers outstanding, at most one a node.
pub(crate) struct Fanout {
    slots: Vec<Option<Reply>>,
}

impl Fanout {
    /// Nothing outstanding yet, for `nodes` nodes.
    pub(crate) fn empty(nodes: usize) -> Self {
        Self { slots: (0..nodes).map(|_| None).collect() }
    }

    /// Asks every node for its vote. All is sent when this returns.
    pub(crate) fn ask(nodes: &[Node], command: &Command) -> Self {
        Self { slots: nodes.iter().map(|node| Some(node.vote(command))).collect() }
    }

    /// Awaits `reply` of `node`, and no longer an earlier one.
    pub(crate) fn put(&mut self, node: usize, reply: Reply) {
        self.slots[node] = Some(reply);
    }

    pub(crate) fn is_open(&self, node: usize) -> bool {
        self.slots[node].is_some()
    }

    /// The nodes whose answers are outstanding.
    pub(crate) fn open(&self) -> impl Iterator<Item = (usize, &Reply)> {
        self.slots.iter().enumerate().filter_map(|(node, slot)| Some((node, slot.as_ref()?)))
    }

    /// The next answer, and whose it is; pending for ever if none is outstanding.
    ///
    /// # Cancel safety
    ///
    /// No answer is lost.
    pub(crate) async fn next(&mut self) -> (usize, Answer) {
        poll_fn(|cx| {
            for (node, slot) in self.slots.iter_mut().enumerate() {
                let Some(reply) = slot else { continue };
                if let Poll::Ready(answer) = Pin::new(reply).poll(cx) {
                    *slot = None;
                    return Poll::Ready((node, answer));
                }
            }
            Poll::Pending
        })
        .await
    }

    /// Stops waiting for `node`. True if its command may have been run without an answer.
    pub(crate) fn abandon(&mut self, node: usize) -> bool {
        self.slots[node].take().is_some_and(Reply::abandon)
    }
}
