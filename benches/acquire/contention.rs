//! How often a fenced round is followed by a second one where eight contend for one key: seen from the nodes,
//! by MONITOR. Each round has a token of its own; a second round brings another fence with the same token.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use futures::StreamExt as _;
use leasehold::Redlock;
use leasehold::testing::LocalMasters;
use tokio::task::JoinSet;

use super::TTL;

const CONTENDERS: usize = 8;
const LEASES: usize = 250;
/// The longest pause after a release, so that another wins next.
const PAUSE: Duration = Duration::from_millis(12);
/// What was done last is told of within this.
const SETTLED: Duration = Duration::from_millis(500);

/// The fences that came with each token, on any node.
type Rounds = Arc<Mutex<HashMap<String, HashSet<String>>>>;

pub(crate) struct Contention {
    nodes: usize,
    time: Duration,
    won: usize,
    won_again: usize,
    rounds: usize,
    again: usize,
}

pub(crate) async fn measure(nodes: usize) -> Contention {
    let masters = LocalMasters::builder().count(nodes).persistent(false).start().await;
    let masters = masters.expect("a redis-server or valkey-server can be started");
    let rounds = Rounds::default();
    let mut watchers = JoinSet::new();
    for url in masters.urls() {
        watch(&url, &rounds, &mut watchers).await;
    }
    let mut clients = Vec::new();
    for _ in 0..CONTENDERS {
        clients.push(Redlock::connect(masters.urls()).await.expect("the masters are up"));
    }
    let begun = Instant::now();
    let tokens: HashSet<String> = clients
        .into_iter()
        .map(contend)
        .collect::<JoinSet<_>>()
        .join_all()
        .await
        .concat()
        .into_iter()
        .collect();
    let time = begun.elapsed();
    tokio::time::sleep(SETTLED).await;
    let rounds = rounds.lock().expect("nobody panicked");
    let again = |(_, fences): &(&String, &HashSet<String>)| fences.len() > 1;
    Contention {
        nodes,
        time,
        won: tokens.len(),
        won_again: rounds.iter().filter(again).filter(|(token, _)| tokens.contains(*token)).count(),
        rounds: rounds.len(),
        again: rounds.iter().filter(again).count(),
    }
}

/// Wins its leases, one after the other, and tells their tokens.
async fn contend(redlock: Redlock) -> Vec<String> {
    let mut tokens = Vec::new();
    for _ in 0..LEASES {
        let request = redlock.lease("contended").ttl(TTL).wait(Duration::MAX).fenced();
        let lease = request.acquire().await.expect("a quorum answers");
        tokens.push(lease.token().to_string());
        lease.release().await.expect("a quorum confirms");
        tokio::time::sleep(PAUSE.mul_f64(rand::random())).await;
    }
    tokens
}

/// Takes note of the grants that one master is asked for.
async fn watch(url: &str, rounds: &Rounds, watchers: &mut JoinSet<()>) {
    let client = redis::Client::open(url).expect("a good address");
    let monitor = client.get_async_monitor().await.expect("the master is up");
    let (mut lines, rounds) = (monitor.into_on_message::<String>(), rounds.clone());
    watchers.spawn(async move {
        while let Some(line) = lines.next().await {
            if let Some((token, fence)) = grant(&line) {
                rounds.lock().expect("nobody panicked").entry(token).or_default().insert(fence);
            }
        }
    });
}

/// Token and fence of `… "evalsha" HASH "2" KEY RECORD TOKEN TTL FENCE TTL`.
fn grant(line: &str) -> Option<(String, String)> {
    let (_, command) = line.split_once("] ")?;
    let words: Vec<&str> = command.split(' ').map(|word| word.trim_matches('"')).collect();
    match words[..] {
        [_, _, "2", _, record, token, _, fence, _] if record.starts_with("leasehold:fence:") => {
            Some((token.to_owned(), fence.to_owned()))
        }
        _ => None,
    }
}

impl fmt::Display for Contention {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let share = |part: usize, whole: usize| 100.0 * part as f64 / whole as f64;
        write!(
            f,
            "{CONTENDERS} contenders, {} nodes: {} fenced leases in {:.1?}, {} of them ({:.1} %) by a second round; \
             {} rounds in all, {} of them ({:.1} %) with a second one",
            self.nodes,
            self.won,
            self.time,
            self.won_again,
            share(self.won_again, self.won),
            self.rounds,
            self.again,
            share(self.again, self.rounds),
        )
    }
}
