//! What a node in memory does with requests.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use super::memory::MemoryNode;
use crate::node::{Command, Heard, Vote};

/// How a node in memory treats requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Gate {
    /// Runs them at once.
    Grant,
    /// Answers "held by another" and changes nothing.
    Held,
    /// Answers with an error of the server and changes nothing.
    Error,
    /// Runs and answers them so much later.
    Slow(Duration),
    /// Neither runs nor answers them until the gate changes: a server that is stopped. It accepts
    /// connections but greets nobody.
    Never,
    /// Runs them at once, but answers so much later.
    Late(Duration),
    /// Runs them at once; the answer never comes.
    ReplyLost,
}

/// A command on its way to a node.
pub(super) struct Request {
    pub(super) command: Command,
    pub(super) at: Instant,
    pub(super) reply: oneshot::Sender<Heard>,
}

/// The server's end of one connection.
pub(super) struct Server {
    node: Arc<MemoryNode>,
    requests: mpsc::UnboundedReceiver<Request>,
    dropped: CancellationToken,
}

impl Server {
    pub(super) fn new(
        node: Arc<MemoryNode>,
        requests: mpsc::UnboundedReceiver<Request>,
        dropped: CancellationToken,
    ) -> Self {
        Self { node, requests, dropped }
    }

    pub(super) async fn run(mut self) {
        let (answered, mut answers) = mpsc::unbounded_channel::<(Instant, Heard, oneshot::Sender<Heard>)>();
        tokio::spawn(async move {
            // Answers leave in order.
            while let Some((at, answer, reply)) = answers.recv().await {
                sleep_until(at).await;
                let _ = reply.send(answer);
            }
        });
        let mut lost = Vec::new();
        let dropped = self.dropped.clone();
        let serve = async {
            while let Some(request) = self.requests.recv().await {
                let gate = self.open_gate(request.at).await;
                let answer = match gate {
                    Gate::Held => {
                        self.node.note(&request.command);
                        Ok(Vote::No)
                    }
                    Gate::Error => {
                        self.node.note(&request.command);
                        Err(self.node.failure())
                    }
                    _ => Ok(self.node.run(&request.command)),
                };
                let at = match gate {
                    Gate::Late(delay) => request.at + delay,
                    _ => Instant::now(),
                };
                if gate == Gate::ReplyLost {
                    lost.push(request.reply);
                    continue;
                }
                // Fails only when the runtime ends.
                let heard = Heard { answer, time: Some(self.node.time()) };
                let _ = answered.send((at, heard, request.reply));
            }
            // The client is gone; what it sent was run.
            std::future::pending::<()>().await;
        };
        tokio::select! {
            biased;
            () = dropped.cancelled() => {}
            () = serve => {}
        }
    }

    /// Waits for as long as the gate keeps a request that came at `at`, and returns the gate then.
    async fn open_gate(&self, at: Instant) -> Gate {
        let mut changes = self.node.gate();
        loop {
            let gate = *changes.borrow_and_update();
            match gate {
                Gate::Never => {
                    // The sender lives as long as the node.
                    let _ = changes.changed().await;
                }
                Gate::Slow(delay) => {
                    sleep_until(at + delay).await;
                    return gate;
                }
                gate => return gate,
            }
        }
    }
}
