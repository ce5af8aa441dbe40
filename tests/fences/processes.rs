//! Eight processes want one key, again and again, and write down their fences while they hold it. The clock of
//! one is an hour ahead, that of another an hour behind.

use std::io::Write as _;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use leasehold::testing::LocalMasters;
use leasehold::{AcquireError, Lease, Redlock, ReleaseError};
use tokio::process::Command;

use super::support::KEY;
use crate::views::builder;
use crate::views::faketime::library;

/// Where a worker writes, the grants that it is to win, and the nodes.
const WORK: [&str; 3] = ["LEASEHOLD_FENCES_FILE", "LEASEHOLD_FENCES_QUOTA", "LEASEHOLD_FENCES_NODES"];
/// How many grants there are in all, where this is set.
const GRANTS: &str = "LEASEHOLD_FENCES_GRANTS";
const DEFAULT_GRANTS: u64 = 20_000;
const PROCESSES: u64 = 8;
/// How far off the clocks of the first are.
const CLOCKS: [&str; 2] = ["+3600", "-3600"];
const PATIENCE: Duration = Duration::from_secs(600);
/// The longest pause after a release.
const PAUSE: Duration = Duration::from_millis(4);

#[tokio::test]
async fn fences_grow_in_the_order_of_holding_over_eight_processes() {
    let grants = std::env::var(GRANTS).map_or(DEFAULT_GRANTS, |grants| grants.parse().expect("a number"));
    // Nothing is restarted here, so nothing need be kept.
    let masters = LocalMasters::builder().count(3).persistent(false).start().await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("fences");
    let begun = Instant::now();
    let workers: Vec<_> =
        (0..PROCESSES).map(|index| start_worker(index, &file, grants / PROCESSES, &masters)).collect();
    for worker in workers {
        let ended =
            tokio::time::timeout(PATIENCE, worker.wait_with_output()).await.expect("it ends").unwrap();
        assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stdout));
    }
    let text = std::fs::read_to_string(&file).unwrap();
    let lines: Vec<[u64; 3]> = text.lines().map(parse).collect();
    let handovers = lines.windows(2).filter(|pair| pair[0][0] != pair[1][0]).count();
    println!("{} grants in {:.1?}, {handovers} handovers", lines.len(), begun.elapsed());
    assert_eq!(lines.len() as u64, grants / PROCESSES * PROCESSES);
    for (index, pair) in lines.windows(2).enumerate() {
        assert!(pair[0][1] < pair[1][1], "line {}: {:?} after {:?}", index + 2, pair[1], pair[0]);
    }
    let [_, last, _] = lines[lines.len() - 1];
    assert!(unix_micros().abs_diff(last) < 60_000_000, "{last} is nowhere near the time");
    let hour = |line: &&[u64; 3]| line[1].abs_diff(line[2]) > 3_500_000_000;
    assert_eq!(
        lines.iter().filter(hour).count() as u64,
        grants / PROCESSES * 2,
        "two clocks were an hour off"
    );
    assert!(handovers as u64 > grants / 4, "the processes took turns: {handovers} handovers");
}

fn start_worker(index: u64, file: &Path, quota: u64, masters: &LocalMasters) -> tokio::process::Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["fences::processes::worker", "--exact", "--ignored"]);
    command.env(WORK[0], file).env(WORK[1], quota.to_string()).env(WORK[2], masters.urls().join(","));
    if let Some(clock) = CLOCKS.get(index as usize) {
        command.env("LD_PRELOAD", library()).env("FAKETIME", clock);
        command.envs([("DONT_FAKE_MONOTONIC", "1"), ("FAKETIME_DISABLE_SHM", "1")]);
    }
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
    command.spawn().unwrap()
}

/// `PROCESS FENCE CLOCK`.
fn parse(line: &str) -> [u64; 3] {
    let numbers: Vec<u64> = line.split(' ').map(|word| word.parse().expect("a plain integer")).collect();
    numbers.try_into().expect("three numbers")
}

/// Unix time by the clock of this process.
fn unix_micros() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_micros() as u64
}

#[tokio::test]
#[ignore = "started by the test of eight processes"]
async fn worker() {
    let [Ok(file), Ok(quota), Ok(nodes)] = WORK.map(std::env::var) else { return };
    let redlock = builder(nodes.split(',')).connect().await.unwrap();
    let mut file = std::fs::File::options().create(true).append(true).open(file).unwrap();
    for _ in 0..quota.parse().unwrap() {
        let lease = acquire(&redlock).await;
        let line = format!("{} {} {}\n", std::process::id(), lease.fence().unwrap(), unix_micros());
        // One write: lines of two processes never mix.
        file.write_all(line.as_bytes()).unwrap();
        match lease.release().await {
            // On a machine that is busy enough. It is given back behind our back.
            Ok(()) | Err(ReleaseError::NoQuorum(_)) => {}
            Err(error) => panic!("{error}"),
        }
        // Who has just released is quicker than those who wait: it would win many in a row.
        tokio::time::sleep(PAUSE.mul_f64(rand::random())).await;
    }
}

async fn acquire(redlock: &Redlock) -> Lease {
    loop {
        match redlock.lease(KEY).fenced().wait(PATIENCE).acquire().await {
            Ok(lease) => return lease,
            Err(AcquireError::NoQuorum(_)) => {}
            Err(error) => panic!("{error}"),
        }
    }
}
