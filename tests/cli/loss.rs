use std::time::Duration;

use leasehold::Redlock;
use leasehold::testing::{FaultProxy, LocalMasters};
use rustix::process::Signal;

use super::support::{Ended, Log, Running, five, is_alive, run, run_on, unix_nanos};

const TTL: Duration = Duration::from_secs(2);

/// A command and its child that ignore TERM and write the time into `log` until they are killed. It first
/// says both process numbers.
fn stubborn(log: &Log) -> String {
    let path = log.path();
    let work =
        format!("trap '' TERM; echo $$; while :; do date +%s%N >>{}; sleep 0.02; done", path.display());
    format!("sh -c \"{}\" & {work}", work.replace('$', "\\$"))
}

/// Starts the stubborn command; returns it with the process numbers.
async fn start_stubborn(urls: &[String], log: &Log) -> (Running, [i32; 2]) {
    let mut running = Running::start(run_on(urls, &["--ttl", "2s"], "job", &stubborn(log)));
    let pids = [running.pid_line().await, running.pid_line().await];
    (running, pids)
}

fn assert_lost(ended: &Ended) {
    assert_eq!(ended.code, Some(76), "{ended:?}");
    // A shell may have its word too.
    let ours: Vec<&str> = ended.stderr.lines().filter(|line| line.starts_with("leasehold: ")).collect();
    let [line] = ours[..] else { panic!("{ended:?}") };
    assert!(line.starts_with("leasehold: the lease on `job` "), "{ended:?}");
    assert!(line.ends_with(": ending CMD"), "{ended:?}");
}

#[tokio::test]
async fn with_all_nodes_silent_the_whole_group_is_gone_before_the_validity_ends() {
    let masters = five().await;
    let log = Log::new();
    let (mut running, pids) = start_stubborn(&masters.urls(), &log).await;
    for index in 0..5 {
        masters.pause(index).await.unwrap();
    }
    // No renewal was sent later, so every validity ends before this and a TTL.
    let paused = unix_nanos();
    assert_eq!(running.exit().await, Some(76));
    assert_eq!(pids.map(is_alive), [false, false], "gone when leasehold is");
    let last = log.numbers().into_iter().max().unwrap();
    assert!(last < paused + TTL.as_nanos(), "it worked {} ns too long", last - paused);
    let ended = running.end().await;
    assert_lost(&ended);
    assert!(ended.stderr.contains("could not be renewed and ends in "), "while it was valid: {ended:?}");

    for index in 0..5 {
        masters.resume(index).unwrap();
    }
    assert_taken_over_after(&masters, &log).await;
}

/// Only the holder is cut off: the masters run on, and a rival waits for the key.
#[tokio::test]
async fn a_rival_that_takes_over_never_works_at_the_same_time() {
    let masters = five().await;
    let mut proxies = Vec::new();
    for index in 0..5 {
        proxies.push(FaultProxy::start(masters.addr(index)).await.unwrap());
    }
    let log = Log::new();
    let urls: Vec<String> = proxies.iter().map(FaultProxy::url).collect();
    let (mut running, pids) = start_stubborn(&urls, &log).await;
    proxies.iter().for_each(FaultProxy::black_hole);
    assert_taken_over_after(&masters, &log).await;
    assert_eq!(pids.map(is_alive), [false, false]);
    assert_eq!(running.exit().await, Some(76));
    assert_lost(&running.end().await);
}

/// Waits for the lease as a rival does; nothing is in the log that is younger.
async fn assert_taken_over_after(masters: &LocalMasters, log: &Log) {
    let rival = Redlock::connect(masters.urls()).await.unwrap();
    let lease = rival.lease("job").acquire().await.unwrap();
    let begun = unix_nanos();
    // Whoever still worked would write within this.
    tokio::time::sleep(Duration::from_millis(200)).await;
    let last = log.numbers().into_iter().max().unwrap();
    assert!(last < begun, "the old holder worked {} ns beside the new one", last - begun);
    lease.release().await.unwrap();
}

#[tokio::test]
async fn with_a_majority_killed_the_command_is_ended_with_76() {
    let masters = five().await;
    let script = "trap 'echo told; exit 0' TERM; echo runs; while :; do sleep 0.05; done";
    let mut running = Running::start(run(&masters, &["--ttl", "2s"], "job", script));
    assert_eq!(running.line().await, "runs");
    for index in 0..3 {
        masters.kill(index).await.unwrap();
    }
    let ended = running.end().await;
    assert_eq!(ended.stdout, "told\n", "{ended:?}");
    assert_lost(&ended);
    for index in 0..5 {
        let named = ended.stderr.contains(&masters.addr(index).to_string());
        assert_eq!(named, index < 3, "{ended:?}");
    }
}

/// Two thirds of the validity are left then, and not waited for.
#[tokio::test]
async fn a_lease_that_the_nodes_deny_ends_the_command_at_once() {
    let masters = five().await;
    let begun = std::time::Instant::now();
    let script = "trap 'echo told; exit 0' TERM; echo runs; while :; do sleep 0.05; done";
    let options = ["--ttl", "15s", "--grace", "5s"];
    let mut running = Running::start(run(&masters, &options, "job", script));
    assert_eq!(running.line().await, "runs");
    for url in masters.urls() {
        let mut connection = redis::Client::open(url).unwrap().get_connection().unwrap();
        let _: () = redis::cmd("DEL").arg("job").query(&mut connection).unwrap();
    }
    let ended = running.end().await;
    assert_eq!(ended.stdout, "told\n", "{ended:?}");
    assert_lost(&ended);
    assert!(ended.stderr.contains("no longer hold it"), "{ended:?}");
    assert!(begun.elapsed() < Duration::from_secs(14), "a renewal is due after five");
}

#[tokio::test]
async fn one_that_was_stopped_too_long_kills_the_command_when_it_goes_on() {
    let masters = five().await;
    let log = Log::new();
    let (mut running, pids) = start_stubborn(&masters.urls(), &log).await;
    running.signal(Signal::STOP);
    let rival = Redlock::connect(masters.urls()).await.unwrap();
    let lease = rival.lease("job").acquire().await.expect("nobody renews it");
    running.signal(Signal::CONT);
    assert_eq!(running.exit().await, Some(76));
    assert_eq!(pids.map(is_alive), [false, false]);
    lease.release().await.unwrap();
}
