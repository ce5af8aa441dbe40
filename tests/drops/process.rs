//! A holder *process* that is stopped beyond its TTL: it learns that it lost, renews no more, and does
//! nothing to the key of the one who took over.
//!
//! The test calls itself in a process of its own, which holds the lease and tells what it sees.

use std::process::Stdio;
use std::time::Duration;

use leasehold::Redlock;
use rustix::process::{Pid, Signal, kill_process};
use tokio::io::{AsyncBufReadExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};

use crate::common::*;

/// Set in the process of the holder: the addresses of the nodes.
const NODES: &str = "LEASEHOLD_TEST_HOLDER";
/// Before each line that the holder tells.
const MARK: &str = "holder: ";
const TTL: Duration = secs(2);

struct Holder {
    process: Child,
    told: Lines<BufReader<ChildStdout>>,
}

impl Holder {
    /// Runs the test called `name` as a holder.
    fn start(name: &str, nodes: &[String]) -> Self {
        let mut process = Command::new(std::env::current_exe().unwrap())
            .args([name, "--exact", "--nocapture"])
            .env(NODES, nodes.join(","))
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let told = BufReader::new(process.stdout.take().unwrap()).lines();
        Self { process, told }
    }

    /// The next thing that it tells.
    async fn tells(&mut self) -> String {
        let next = async {
            loop {
                let line = self.told.next_line().await.unwrap().expect("the holder goes on");
                if let Some((_, told)) = line.split_once(MARK) {
                    return told.to_owned();
                }
            }
        };
        soon("the holder should tell something", next).await
    }

    fn signal(&self, signal: Signal) {
        let pid = i32::try_from(self.process.id().expect("it runs")).unwrap();
        kill_process(Pid::from_raw(pid).unwrap(), signal).unwrap();
    }
}

/// The nodes, in the process of the holder.
fn nodes_of_holder() -> Option<Vec<String>> {
    let nodes = std::env::var(NODES).ok()?;
    Some(nodes.split(',').map(str::to_owned).collect())
}

fn tell(what: impl std::fmt::Display) {
    println!("\n{MARK}{what}");
}

/// Holds the lease until it is lost, and then tries to use it all the same.
async fn hold_and_tell(nodes: Vec<String>, ttl: Duration) {
    let redlock = connect(Redlock::builder().nodes(nodes).node_timeout(ms(300))).await;
    let lease = redlock.lease("job").ttl(ttl).acquire().await.unwrap();
    tell(lease.token());
    let lost = lease.lost().await;
    tell(format_args!("lost: {lost}"));
    assert!(!lease.is_valid() && lease.remaining().is_zero());
    assert!(lease.extend(ttl).await.is_err());
    // A heartbeat that outlived its lease would show.
    tokio::time::sleep(ttl).await;
    assert!(lease.release().await.is_err());
    tokio::time::sleep(ms(500)).await;
    tell("all was refused");
}

#[tokio::test]
async fn learns_that_it_lost_and_does_nothing_to_the_next_holder() {
    if let Some(nodes) = nodes_of_holder() {
        return hold_and_tell(nodes, TTL).await;
    }
    let masters = five().await;
    let redlock = client(&masters).await;
    let name = "drops::process::learns_that_it_lost_and_does_nothing_to_the_next_holder";
    let mut holder = Holder::start(name, &masters.urls());
    let old = holder.tells().await;
    until_held_by_all(&masters, "job", &old).await;
    // Past a renewal or two, so that stopping meets it in the middle of its life.
    tokio::time::sleep(TTL).await;
    assert!(key_is(&masters, "job", &old).await);

    holder.signal(Signal::STOP);
    let request = redlock.lease("job").ttl(secs(60)).wait(PATIENCE).without_heartbeat();
    let next = request.acquire().await.expect("its key runs out");
    let token = next.token().to_string();
    until_held_by_all(&masters, "job", &token).await;
    let mut monitors = monitors(&masters).await;

    holder.signal(Signal::CONT);
    let woken = std::time::Instant::now();
    let lost = holder.tells().await;
    assert!(lost.starts_with("lost: "), "{lost}");
    // Its timers ran on while it was stopped, so it learns with its first step.
    assert!(woken.elapsed() < secs(1), "{:?}", woken.elapsed());
    throughout(secs(3), "the next holder's key should stay", async || key_is(&masters, "job", &token).await)
        .await;
    assert_eq!(holder.tells().await, "all was refused");
    let status = soon("the holder should end", holder.process.wait()).await.unwrap();
    assert!(status.success(), "{status}");
    assert!(key_is(&masters, "job", &token).await);
    assert!(next.is_valid());
    for (raw, monitor) in raws(&masters).iter().zip(&mut monitors) {
        assert!(raw.pttl("job").await > 30_000, "nobody has changed its expiry");
        assert_eq!(monitor.renewals(&old).await, 0, "a lost lease is never renewed");
    }
}

#[tokio::test]
async fn stopped_for_less_than_its_validity_goes_on() {
    if let Some(nodes) = nodes_of_holder() {
        return hold_and_tell(nodes, TTL).await;
    }
    let masters = five().await;
    let name = "drops::process::stopped_for_less_than_its_validity_goes_on";
    let mut holder = Holder::start(name, &masters.urls());
    let token = holder.tells().await;
    until_held_by_all(&masters, "job", &token).await;
    for _ in 0..3 {
        holder.signal(Signal::STOP);
        tokio::time::sleep(TTL / 4).await;
        holder.signal(Signal::CONT);
        throughout(TTL, "it should keep its key", async || key_is(&masters, "job", &token).await).await;
    }
    holder.process.start_kill().unwrap();
    let crashed = std::time::Instant::now();
    until_free(&masters, "job").await;
    assert!(crashed.elapsed() < TTL + secs(1), "{:?}: a dead holder's key is free", crashed.elapsed());
}

/// Its timers say that all nodes have been silent, and its sockets hold their answers.
#[tokio::test]
async fn stopped_for_longer_than_a_silent_node_is_waited_for_goes_on() {
    const LONG: Duration = secs(12);
    if let Some(nodes) = nodes_of_holder() {
        return hold_and_tell(nodes, LONG).await;
    }
    let masters = five().await;
    let name = "drops::process::stopped_for_longer_than_a_silent_node_is_waited_for_goes_on";
    let mut holder = Holder::start(name, &masters.urls());
    let token = holder.tells().await;
    until_held_by_all(&masters, "job", &token).await;
    for _ in 0..2 {
        holder.signal(Signal::STOP);
        tokio::time::sleep(secs(5)).await;
        holder.signal(Signal::CONT);
        throughout(secs(5), "it should keep its key", async || key_is(&masters, "job", &token).await).await;
    }
    for raw in raws(&masters) {
        assert!(raw.pttl("job").await > 5_000, "it goes on renewing");
    }
}
