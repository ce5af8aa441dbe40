//! One run of one world, from its beginning to the last check.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::oneshot;

use super::client::Client;
use super::history::History;
use super::ledger::{Breach, Counts, Ledger, Violation, short};
use super::nemesis;
use super::network::Network;
use super::process::{Process, Tied};
use super::world::World;
use crate::dice::seeded;
use crate::sabotage::{self, Sabotage};

/// Longer than any client's steps take.
const SPAN: Duration = Duration::from_secs(120);
/// Longer than it takes until all that is well is connected.
const RECONNECT: Duration = Duration::from_secs(10);

pub(crate) struct Outcome {
    pub(crate) violation: Option<Violation>,
    pub(crate) counts: Counts,
    pub(crate) history: String,
}

/// Plays `world` to its end or to the first promise that is broken, and does not keep the rule `without`.
pub(crate) fn play(world: &World, without: Option<Sabotage>, recorded: bool) -> Outcome {
    seeded::seed(Some(world.seed));
    sabotage::switch(without);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    let outcome = runtime.expect("a runtime").block_on(story(Arc::new(world.clone()), recorded));
    sabotage::switch(None);
    seeded::seed(None);
    outcome
}

async fn story(world: Arc<World>, recorded: bool) -> Outcome {
    let history = Arc::new(History::new(recorded));
    if let Some(assumption) = world.outside {
        history.note("world", || format!("outside of the assumptions: {assumption}"));
    }
    let ledger = Ledger::new(history.clone());
    let network = Network::new(&world, &ledger);
    tokio::spawn(network.clone().run());
    nemesis::plan(&network, &world);
    tokio::select! {
        biased;
        () = ledger.violated.notified() => {}
        () = live(&network, &world) => {}
    }
    Outcome { violation: ledger.violation(), counts: ledger.counts(), history: history.text() }
}

/// Clients take their steps among faults; then all is well, and what they leave behind is looked at.
async fn live(network: &Arc<Network>, world: &Arc<World>) {
    let lives = (0..world.clients.len()).map(|index| life(network.clone(), world.clone(), index));
    let mut lives = std::pin::pin!(futures::future::join_all(lives));
    let mut clients = tokio::time::timeout(SPAN, &mut lives).await.ok();
    if clients.is_none() {
        nemesis::heal(network);
        clients = tokio::time::timeout(SPAN, &mut lives).await.ok();
    }
    let Some(clients) = clients else {
        network.ledger.broken(Breach::Stuck, "a client never ends".to_owned());
        return;
    };
    let clients: Vec<Client> = clients.into_iter().filter(|client| !client.process().is_dead()).collect();
    nemesis::heal_a_quorum(network, world.seed);
    everything_is_won(network, world).await;
    nemesis::heal(network);
    leave(network, world, clients).await;
}

/// The processes of client `index`, one after the other, until its steps are taken.
async fn life(network: Arc<Network>, world: Arc<World>, index: usize) -> Client {
    let taken = Arc::new(AtomicUsize::new(0));
    tokio::time::sleep(Duration::from_millis(world.clients[index].start)).await;
    loop {
        let process = Process::new(index);
        let (done, ended) = oneshot::channel();
        let (network_of, process_of, world_of) = (network.clone(), process.clone(), world.clone());
        let taken = taken.clone();
        start(&network, &process, async move {
            let client = Client::connect(network_of, process_of, &world_of).await;
            while let Some(step) = world_of.clients[index].steps.get(taken.fetch_add(1, Ordering::Relaxed)) {
                client.step(step, world_of.keys).await;
            }
            let _ = done.send(client);
        });
        tokio::select! {
            biased;
            Ok(client) = ended => return client,
            () = process.died.notified() => {}
        }
        network.history.note(format_args!("c{index}"), || "is dead");
        let gone = network.lock().gone[index];
        tokio::time::sleep(Duration::from_millis(gone)).await;
    }
}

/// Runs `task` as the first of `process`.
fn start(network: &Network, process: &Arc<Process>, task: impl Future<Output = ()> + Send + 'static) {
    network.lock().processes[process.client] = Some(process.clone());
    let (process, ledger) = (process.clone(), network.ledger.clone());
    tokio::spawn(Tied { process, ledger, task: Box::pin(task) });
}

/// The promises about the end: debts are paid and leave nothing, and one TTL later no key is anywhere.
async fn leave(network: &Arc<Network>, world: &Arc<World>, clients: Vec<Client>) {
    let ledger = &network.ledger;
    let max_ttl = Duration::from_millis(world.max_ttl);
    // Where connections cannot be killed, what they may still do is waited out.
    let paid_within = if world.kill { RECONNECT } else { max_ttl * 2 + RECONNECT };
    for client in &clients {
        client.settle(paid_within).await;
    }
    let standing = network.lock().standing(network.history.now());
    for (node, key, token) in standing.into_iter().filter(|(_, _, token)| ledger.should_be_gone(token)) {
        ledger.broken(Breach::Leftover, format!("{} is still at {key} of n{node}", short(&token)));
    }
    drop(clients);
    tokio::time::sleep(max_ttl * 11 / 10).await;
    for (node, key, token) in network.lock().standing(network.history.now()) {
        ledger.broken(Breach::Leftover, format!("{} outlives its TTL at {key} of n{node}", short(&token)));
    }
}

/// A new process wins every key, within a bound.
async fn everything_is_won(network: &Arc<Network>, world: &Arc<World>) {
    let process = Process::new(0);
    let (network_of, process_of, world_of) = (network.clone(), process.clone(), world.clone());
    let (done, ended) = oneshot::channel();
    start(network, &process, async move {
        let client = Client::connect(network_of, process_of, &world_of).await;
        for key in 0..world_of.keys {
            while client.win(key).await.is_none() {}
        }
        let _ = done.send(());
    });
    let bound = Duration::from_millis(world.max_ttl) * 11 / 10 + RECONNECT;
    if tokio::time::timeout(bound, ended).await.is_err() {
        network.ledger.broken(Breach::Stuck, format!("a key is not won within {bound:?}"));
    }
}
