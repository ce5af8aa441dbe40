use std::time::Duration;

use leasehold::Redlock;
use leasehold::testing::{Direction, FaultProxy};
use rustix::process::{Pid, Signal, kill_process};

use super::support::{Log, Running, end_of, five, is_alive, leasehold, run, run_on, state, until};

const FORWARDED: [(Signal, &str); 6] = [
    (Signal::HUP, "HUP"),
    (Signal::INT, "INT"),
    (Signal::QUIT, "QUIT"),
    (Signal::TERM, "TERM"),
    (Signal::USR1, "USR1"),
    (Signal::USR2, "USR2"),
];

#[tokio::test]
async fn signals_are_passed_on_to_the_whole_group() {
    let masters = five().await;
    for (signal, name) in FORWARDED {
        // Both say what they heard; the second is a child of the first, which hears once that has ended.
        let heard = |who: &str| format!("trap 'echo {who} {name}; exit 7' {name}; echo ready");
        let work = "while :; do sleep 0.05; done";
        let script = format!("{}; sh -c \"{}; {work}\"; {work}", heard("child"), heard("grandchild"));
        let mut running = Running::start(run(&masters, &[], "job", &script));
        for _ in 0..2 {
            assert_eq!(running.line().await, "ready");
        }
        running.signal(signal);
        let ended = running.end().await;
        assert_eq!(ended.code, Some(7), "{name}: {ended:?}");
        let mut heard: Vec<&str> = ended.stdout.lines().collect();
        heard.sort_unstable();
        assert_eq!(heard, [format!("child {name}"), format!("grandchild {name}")]);
    }
}

#[tokio::test]
async fn a_command_that_dies_of_a_signal_passed_on_is_128_and_its_number() {
    let masters = five().await;
    for (signal, _) in FORWARDED {
        let mut running = Running::start(run(&masters, &[], "job", "echo $$; exec sleep 60"));
        let pid = running.pid_line().await;
        running.signal(signal);
        let ended = running.end().await;
        assert_eq!((ended.code, ended.stderr.as_str()), (Some(128 + signal.as_raw()), ""), "{ended:?}");
        assert!(!is_alive(pid));
    }
    assert_eq!(end_of(run(&masters, &["--wait", "0"], "job", "")).await.code, Some(0), "released");
}

#[tokio::test]
async fn a_signal_while_waiting_ends_the_wait_and_nothing_is_left() {
    let masters = five().await;
    let redlock = Redlock::connect(masters.urls()).await.unwrap();
    let lease = redlock.lease("job").acquire().await.unwrap();
    for signal in [Signal::HUP, Signal::INT, Signal::QUIT, Signal::TERM] {
        let waiting = Running::start(run(&masters, &["--wait", "forever"], "job", "echo runs"));
        waiting.listens().await;
        // Not meant for one that waits.
        waiting.signal(Signal::USR1);
        waiting.signal(signal);
        let ended = waiting.end().await;
        assert_eq!(ended.code, Some(128 + signal.as_raw()), "{ended:?}");
        assert_eq!((ended.stdout.as_str(), ended.stderr.as_str()), ("", ""));
    }
    lease.release().await.unwrap();
    let next = redlock.lease("job").try_acquire().await.unwrap().expect("nobody has it");
    next.release().await.unwrap();
}

#[tokio::test]
async fn a_command_that_stands_still_is_woken_by_what_is_to_end_it() {
    let masters = five().await;
    for signal in [Signal::HUP, Signal::TERM] {
        let mut running = Running::start(run(&masters, &[], "job", "echo $$; exec sleep 300"));
        let command: i32 = running.line().await.parse().unwrap();
        kill_process(Pid::from_raw(command).unwrap(), Signal::STOP).unwrap();
        until(|| state(command) == Some('T')).await;
        running.signal(signal);
        let ended = running.end().await;
        assert_eq!(ended.code, Some(128 + signal.as_raw()), "{ended:?}");
    }
    assert_eq!(end_of(run(&masters, &["--wait", "0"], "job", "")).await.code, Some(0), "released");
}

/// The signal is there before the votes are: it finds a process that was stopped while all masters had
/// granted, and whose answers were still under way.
#[tokio::test]
async fn a_signal_that_comes_just_as_the_lease_is_won_starts_nothing() {
    let masters = five().await;
    let mut proxies = Vec::new();
    for index in 0..5 {
        proxies.push(FaultProxy::start(masters.addr(index)).await.unwrap());
    }
    let urls: Vec<String> = proxies.iter().map(FaultProxy::url).collect();
    let redlock = Redlock::connect(masters.urls()).await.unwrap();
    let log = Log::new();
    let script = format!("echo started >>{}", log.path().display());
    let options = ["--wait", "forever", "--ttl", "60s", "--node-timeout", "12s"];
    // The last round shows that it would have been won.
    for told in [true, true, true, true, false] {
        let lease = redlock.lease("job").acquire().await.unwrap();
        let asked: Vec<u64> = masters.urls().iter().map(|url| asked_at(url)).collect();
        let waiting = Running::start(run_on(&urls, &options, "job", &script));
        for (url, before) in masters.urls().into_iter().zip(asked) {
            until(|| asked_at(&url) > before).await;
        }
        stop(&waiting).await;
        // What it had asked by now is answered by now, and refused.
        tokio::time::sleep(Duration::from_millis(100)).await;
        proxies.iter().for_each(|proxy| proxy.hold(Direction::ToClient));
        lease.release().await.unwrap();
        waiting.signal(Signal::CONT);
        until(|| masters.urls().iter().all(|url| value_at(url, "job").is_some())).await;
        stop(&waiting).await;
        proxies.iter().for_each(FaultProxy::heal);
        if told {
            waiting.signal(Signal::TERM);
        }
        waiting.signal(Signal::CONT);
        let ended = waiting.end().await;
        let (code, done) = if told { (143, "") } else { (0, "started\n") };
        assert_eq!((ended.code, log.text().as_str()), (Some(code), done), "{ended:?}");
        let next = redlock.lease("job").try_acquire().await.unwrap().expect("nobody has it");
        next.release().await.unwrap();
    }
}

async fn stop(running: &Running) {
    running.signal(Signal::STOP);
    until(|| state(running.pid()) == Some('T')).await;
}

fn query<T: redis::FromRedisValue>(url: &str, command: &[&str]) -> T {
    let mut connection = redis::Client::open(url).unwrap().get_connection().unwrap();
    redis::cmd(command[0]).arg(&command[1..]).query(&mut connection).unwrap()
}

fn value_at(url: &str, key: &str) -> Option<String> {
    query(url, &["GET", key])
}

/// How many SETs a master was asked.
fn asked_at(url: &str) -> u64 {
    let stats: String = query(url, &["INFO", "commandstats"]);
    let sets = stats.lines().find_map(|line| line.strip_prefix("cmdstat_set:calls="));
    sets.and_then(|rest| rest.split(',').next()?.parse().ok()).unwrap_or(0)
}

#[tokio::test]
async fn a_signal_that_is_ignored_stays_ignored_as_under_nohup() {
    let masters = five().await;
    let mut command = tokio::process::Command::new("sh");
    let program = leasehold().as_std().get_program().to_owned();
    command
        .args(["-c", "trap '' HUP; exec \"$0\" run job -- sh -c 'kill -HUP $PPID; kill -HUP $$; echo alive'"])
        .arg(program)
        .env("LEASEHOLD_NODES", masters.urls().join(","))
        .kill_on_drop(true);
    let ended = end_of(command).await;
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(0), "alive\n"), "{ended:?}");
}
