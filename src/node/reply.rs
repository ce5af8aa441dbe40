//! An answer to come. Whoever drops it loses nothing: what was sent stays sent, and the node's
//! supervisor takes the answer in.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use futures::future::BoxFuture;
use tokio::sync::oneshot;

use super::handle::Shared;
use super::{Alarm, Answer, Command, Form, Heard, NodeError, NodeErrorKind};
use crate::clock::Timestamp;

/// A command that was sent and has no answer yet.
pub(super) struct Pending {
    pub(super) answer: BoxFuture<'static, Heard>,
    pub(super) command: Command,
    pub(super) form: Form,
    /// Of the connection that it was sent on, which may be gone when the answer is looked at.
    pub(super) alarm: Arc<Alarm>,
    pub(super) sent: Timestamp,
    /// Of the connection that it was sent on.
    pub(super) epoch: u64,
    /// The number of the deletion that it pays.
    pub(super) debt: Option<u64>,
}

impl Pending {
    /// Polls for the answer, puts the command once more in another form where the server needs that,
    /// and tells the node of the outcome.
    pub(super) fn poll(&mut self, shared: &Shared, cx: &mut Context<'_>) -> Poll<Answer> {
        loop {
            let heard = ready!(self.answer.as_mut().poll(cx));
            let again = heard.answer.as_ref().err().and_then(|error| shared.submit_again(self, error));
            match again {
                Some(again) => *self = again,
                None => return Poll::Ready(shared.answered(self, heard)),
            }
        }
    }
}

enum Inner {
    Ready(NodeError),
    Queued(oneshot::Receiver<Result<Pending, NodeError>>),
    Sent(Pending),
    Done,
}

/// The answer of one node to one command.
///
/// # Cancel safety
///
/// Dropping it does not take the command back.
pub(crate) struct Reply {
    inner: Inner,
    shared: Arc<Shared>,
}

impl Reply {
    pub(super) fn failed(shared: &Arc<Shared>, error: NodeError) -> Self {
        Self { inner: Inner::Ready(error), shared: shared.clone() }
    }

    pub(super) fn queued(
        shared: &Arc<Shared>,
        pending: oneshot::Receiver<Result<Pending, NodeError>>,
    ) -> Self {
        Self { inner: Inner::Queued(pending), shared: shared.clone() }
    }

    pub(super) fn sent(shared: &Arc<Shared>, pending: Pending) -> Self {
        Self { inner: Inner::Sent(pending), shared: shared.clone() }
    }

    /// Stops waiting. True if the command may have reached the node without an answer.
    pub(crate) fn abandon(mut self) -> bool {
        self.give_up()
    }

    /// The error of a node whose answer did not come in time.
    pub(crate) fn overdue(&self) -> NodeError {
        match self.inner {
            Inner::Queued(_) => self.shared.error(NodeErrorKind::Connecting, "still connecting"),
            Inner::Ready(_) | Inner::Sent(_) | Inner::Done => self.shared.overdue(),
        }
    }

    fn give_up(&mut self) -> bool {
        match std::mem::replace(&mut self.inner, Inner::Done) {
            Inner::Ready(_) | Inner::Done => false,
            Inner::Queued(mut receiver) => {
                receiver.close();
                let Ok(Ok(pending)) = receiver.try_recv() else { return false };
                self.shared.orphan(pending);
                true
            }
            Inner::Sent(pending) => {
                self.shared.orphan(pending);
                true
            }
        }
    }
}

impl Future for Reply {
    type Output = Answer;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Answer> {
        let this = &mut *self;
        loop {
            match &mut this.inner {
                Inner::Ready(error) => {
                    let error = error.clone();
                    this.inner = Inner::Done;
                    return Poll::Ready(Err(error));
                }
                Inner::Queued(receiver) => {
                    let gone =
                        || NodeError::new(&this.shared.address, NodeErrorKind::ConnectionLost, "closed");
                    let outcome = ready!(Pin::new(receiver).poll(cx)).unwrap_or_else(|_| Err(gone()));
                    this.inner = match outcome {
                        Ok(pending) => Inner::Sent(pending),
                        Err(error) => Inner::Ready(error),
                    };
                }
                Inner::Sent(pending) => {
                    let answer = ready!(pending.poll(&this.shared, cx));
                    this.inner = Inner::Done;
                    return Poll::Ready(answer);
                }
                // Polled once more after the answer: there will be no other.
                Inner::Done => return Poll::Pending,
            }
        }
    }
}

impl Drop for Reply {
    fn drop(&mut self) {
        self.give_up();
    }
}
