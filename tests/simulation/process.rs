//! The process of a client: its tasks run, stand still, or end all at once.

use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::task::{Context, Poll, Waker};

use futures::future::BoxFuture;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::ledger::Ledger;
use crate::fleet::Fleet;

pub(crate) struct Process {
    /// Of the client.
    pub(crate) client: usize,
    state: Mutex<State>,
    pub(crate) died: Notify,
    fleet: OnceLock<Weak<Fleet>>,
}

#[derive(Default)]
struct State {
    paused: bool,
    dead: bool,
    /// When it went on last.
    resumed: Option<Instant>,
    waiting: Vec<Waker>,
}

impl Process {
    pub(crate) fn new(client: usize) -> Arc<Self> {
        Arc::new(Self { client, state: Mutex::default(), died: Notify::new(), fleet: OnceLock::new() })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn connected(&self, fleet: &Arc<Fleet>) {
        // A process connects once.
        let _ = self.fleet.set(Arc::downgrade(fleet));
    }

    /// How many deletions it owes to `node`, if it still can tell.
    pub(crate) fn owes(&self, node: usize) -> Option<usize> {
        Some(self.fleet.get()?.upgrade()?.nodes[node].status().owed)
    }

    pub(crate) fn pause(&self) {
        self.lock().paused = true;
    }

    pub(crate) fn resume(&self) {
        let waiting = {
            let mut state = self.lock();
            state.paused = false;
            state.resumed = Some(Instant::now());
            std::mem::take(&mut state.waiting)
        };
        waiting.into_iter().for_each(Waker::wake);
    }

    /// Nothing of it runs any more, and nothing that it would still do reaches the network.
    pub(crate) fn kill(&self) {
        self.lock().dead = true;
        self.resume();
        self.died.notify_one();
    }

    pub(crate) fn is_dead(&self) -> bool {
        self.lock().dead
    }

    /// Whether its tasks had the chance to act on what was due before now.
    pub(crate) fn is_awake(&self) -> bool {
        let state = self.lock();
        !state.paused && !state.dead && state.resumed.is_none_or(|resumed| resumed < Instant::now())
    }
}

/// A task of a process.
pub(crate) struct Tied {
    pub(crate) process: Arc<Process>,
    pub(crate) ledger: Arc<Ledger>,
    pub(crate) task: BoxFuture<'static, ()>,
}

impl Future for Tied {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        {
            let mut state = self.process.lock();
            if state.dead {
                return Poll::Ready(());
            }
            if state.paused {
                state.waiting.push(cx.waker().clone());
                return Poll::Pending;
            }
        }
        let outcome = self.task.as_mut().poll(cx);
        self.ledger.look();
        outcome
    }
}
