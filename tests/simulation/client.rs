//! What a client does: takes keys, keeps them, gives them back, and drops futures on the way.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;

use super::connection::SimConnector;
use super::ledger::{Breach, short};
use super::network::Network;
use super::process::{Process, Tied};
use super::world::{ClientPlan, End, GiveUp, Step, World};
use crate::clock::Clock;
use crate::node::Connector;
use crate::testing::VirtualClock;
use crate::{Lease, Redlock};

/// The machine of one client, and the process on it.
pub(crate) struct Client {
    network: Arc<Network>,
    process: Arc<Process>,
    clock: Clock,
    redlock: Redlock,
}

fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

impl Client {
    /// What `process` does first. Everything of it runs in tasks that are tied to it.
    pub(crate) async fn connect(network: Arc<Network>, process: Arc<Process>, world: &World) -> Self {
        let index = process.client;
        let clock = clock(&network, &process, &world.clients[index]);
        let connector = |node: usize| {
            let name: Arc<str> = format!("n{node}").into();
            let (network, process) = (network.clone(), process.clone());
            let connector: Arc<dyn Connector> =
                Arc::new(SimConnector { network, process, node, name: name.clone() });
            (name, connector)
        };
        let builder = Redlock::builder()
            .node_timeout(millis(world.node_timeout))
            .max_ttl(millis(world.max_ttl))
            .restart_guard(world.guard);
        let connectors = (0..world.nodes.len()).map(connector).collect();
        let redlock = builder.start(connectors, clock.clone()).await.expect("nobody is refused");
        process.connected(&redlock.fleet);
        network.history.note(format_args!("c{index}"), || "is there");
        Self { network, process, clock, redlock }
    }

    pub(crate) fn process(&self) -> &Arc<Process> {
        &self.process
    }

    fn note(&self, what: impl FnOnce() -> String) {
        self.network.history.note(format_args!("c{}", self.process.client), what);
    }

    /// One attempt, and what comes of it.
    pub(crate) async fn step(&self, step: &Step, keys: usize) {
        tokio::time::sleep(millis(step.pause)).await;
        let request = if step.all {
            self.redlock.lease_all((0..keys).map(|key| format!("k{key}")))
        } else {
            self.redlock.lease(format!("k{}", step.key % keys))
        };
        let mut request = request.ttl(millis(step.ttl)).wait(millis(step.wait));
        if step.fenced {
            request = request.fenced();
        }
        if !step.heartbeat {
            request = request.without_heartbeat();
        }
        if step.end == End::Keep {
            request = request.max_hold(millis(step.hold));
        }
        self.note(|| format!("asks for {}", shown(step, keys)));
        let attempt = async {
            if step.wait == 0 {
                request.try_acquire().await.map_err(|error| error.to_string())
            } else {
                request.acquire().await.map(Some).map_err(|error| error.to_string())
            }
        };
        match give_up(attempt, step.give_up).await {
            None => {
                self.network.ledger.count(|counts| counts.given_up += 1);
                self.note(|| "gives up".to_owned());
            }
            Some(Err(error)) => self.note(|| format!("gets nothing: {error}")),
            Some(Ok(None)) => self.note(|| "finds it held".to_owned()),
            Some(Ok(Some(lease))) => {
                self.network.ledger.granted(&self.process, &self.clock, &lease);
                self.network.ledger.look();
                self.keep(lease, step).await;
            }
        }
    }

    async fn keep(&self, lease: Lease, step: &Step) {
        let token = *lease.token();
        let name = short(token.as_str());
        self.note(|| format!("has {name} for {:?}, fence {:?}", lease.remaining(), lease.fence()));
        if let Some((after, ttl)) = step.extend {
            tokio::time::sleep(millis(after)).await;
            let extended = give_up(lease.extend(millis(ttl)), step.cut_short).await;
            self.network.ledger.count(|counts| {
                counts.renewed += u64::from(matches!(extended, Some(Ok(()))));
                counts.cut_short[0] += u64::from(extended.is_none());
            });
            self.note(|| format!("extends {name} to {ttl} ms: {extended:?}"));
        }
        let kept = lease.lost();
        let lost = match step.end {
            End::Keep => Some(kept.await),
            _ => tokio::time::timeout(millis(step.hold), kept).await.ok(),
        };
        if let Some(lost) = lost {
            self.network.ledger.count(|counts| counts.lost += 1);
            self.note(|| format!("loses {name}: {lost}"));
        }
        self.network.ledger.gone(token.as_str());
        match step.end {
            End::Release => {
                self.note(|| format!("releases {name}"));
                let released = give_up(lease.release(), step.cut_short).await;
                self.network.ledger.count(|counts| counts.cut_short[1] += u64::from(released.is_none()));
                self.note(|| format!("released {name}: {released:?}"));
            }
            End::Drop | End::Keep => {
                self.note(|| format!("drops {name}"));
                drop(lease);
            }
            End::Detach => {
                let left = lease.detach();
                self.network.ledger.detached(token.as_str(), left);
                self.note(|| format!("leaves {name} for {left:?}"));
            }
        }
    }

    /// Takes `key` and gives it back at once.
    pub(crate) async fn win(&self, key: usize) -> Option<()> {
        let request = self.redlock.lease(format!("k{key}")).ttl(millis(1_000)).wait(millis(2_000)).fenced();
        let lease = request.acquire().await.inspect_err(|error| self.note(|| error.to_string())).ok()?;
        self.network.ledger.granted(&self.process, &self.clock, &lease);
        self.note(|| format!("wins k{key}"));
        lease.release().await.ok()
    }

    /// Waits until nothing is owed to any node, for at most `limit`.
    pub(crate) async fn settle(&self, limit: Duration) {
        let settled =
            futures::future::join_all(self.redlock.fleet.nodes.iter().map(crate::node::Node::settled));
        if tokio::time::timeout(limit, settled).await.is_err() {
            let owed: Vec<_> =
                self.redlock.nodes().iter().map(|node| (node.address.clone(), node.owed)).collect();
            self.network.ledger.broken(Breach::Unpaid, format!("c{}: {owed:?}", self.process.client));
        }
    }
}

/// The clock of a client's machine, which runs the process's tasks.
fn clock(network: &Arc<Network>, process: &Arc<Process>, plan: &ClientPlan) -> Clock {
    let (ledger, process) = (network.ledger.clone(), process.clone());
    let spawn = move |task| {
        drop(tokio::spawn(Tied { process: process.clone(), ledger: ledger.clone(), task }));
    };
    Clock::Virtual(Arc::new(VirtualClock::of_machine(plan.rate, plan.clock_off * 1_000_000, spawn)))
}

/// What `future` comes to, unless it is dropped before.
async fn give_up<F: Future>(future: F, when: Option<GiveUp>) -> Option<F::Output> {
    match when {
        None => Some(future.await),
        Some(GiveUp::After(time)) => tokio::time::timeout(millis(time), future).await.ok(),
        Some(GiveUp::AtPoll(polls)) => {
            let mut future = pin!(future);
            let mut polled = 0;
            std::future::poll_fn(|cx| {
                if polled > polls {
                    return std::task::Poll::Ready(None);
                }
                polled += 1;
                future.poll_unpin(cx).map(Some)
            })
            .await
        }
    }
}

fn shown(step: &Step, keys: usize) -> String {
    let key = if step.all { "all keys".to_owned() } else { format!("k{}", step.key % keys) };
    let fenced = if step.fenced { ", fenced" } else { "" };
    let renewed = if step.heartbeat { "" } else { ", not renewed" };
    format!("{key} for {} ms{fenced}{renewed}, waits {} ms", step.ttl, step.wait)
}
