use std::process::Stdio;
use std::time::{Duration, Instant};

use leasehold::Redlock;
use tokio::io::AsyncWriteExt as _;

use super::support::{Log, Running, end_of, five, is_alive, leasehold, run, run_on};

#[tokio::test]
async fn the_exit_code_is_that_of_the_command() {
    let masters = five().await;
    for code in [0, 1, 42, 255] {
        let ended = end_of(run(&masters, &[], "job", &format!("exit {code}"))).await;
        assert_eq!(ended.code, Some(code), "{ended:?}");
        assert_eq!(ended.stderr, "");
    }
    for signal in [1, 9, 15] {
        let ended = end_of(run(&masters, &[], "job", &format!("kill -{signal} $$"))).await;
        assert_eq!(ended.code, Some(128 + signal), "{ended:?}");
    }
}

#[tokio::test]
async fn the_command_has_its_streams_and_knows_key_token_and_nodes() {
    let masters = five().await;
    let mut command = leasehold();
    command.args(["run", "--nodes", &masters.urls().join(","), "a job", "--"]);
    command.args(["sh", "-c", "cat; echo $LEASEHOLD_KEY/$LEASEHOLD_TOKEN/$LEASEHOLD_NODES; echo error >&2"]);
    let mut running = Running::start(command);
    let mut stdin = running.child.stdin.take().unwrap();
    stdin.write_all(b"from standard input\n").await.unwrap();
    drop(stdin);
    let ended = running.end().await;
    let (input, environment) = ended.stdout.split_once('\n').unwrap();
    assert_eq!(input, "from standard input");
    let [key, token, nodes] = environment.trim_end().split('/').collect::<Vec<_>>()[..] else {
        panic!("{ended:?}")
    };
    assert_eq!(key, "a job");
    assert!(token.len() == 40 && token.bytes().all(|digit| digit.is_ascii_hexdigit()), "{token}");
    assert_eq!(nodes, "", "options are not passed on");
    assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), "error\n"));

    let ended = end_of(run(&masters, &[], "job", "echo $LEASEHOLD_NODES")).await;
    assert_eq!(ended.stdout.trim_end(), masters.urls().join(","), "the environment is");
}

#[tokio::test]
async fn clients_of_other_nodes_are_warned_of() {
    let masters = five().await;
    let ended = end_of(run(&masters, &[], "job", "true")).await;
    assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""));
    let ended = end_of(run_on(&masters.urls()[..3], &[], "job", "true")).await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(ended.stderr.contains("warning") && ended.stderr.contains("other nodes"), "{ended:?}");
    assert_eq!(ended.stderr.lines().count(), 1, "{ended:?}");
}

#[tokio::test]
async fn the_token_stands_at_the_namespaced_key_while_the_command_runs() {
    let masters = five().await;
    let mut running =
        Running::start(run(&masters, &["--namespace", "billing:"], "job", "echo $LEASEHOLD_TOKEN; cat"));
    let token = running.line().await;
    let mut held = 0;
    for url in masters.urls() {
        let mut connection = redis::Client::open(url).unwrap().get_connection().unwrap();
        let value: Option<String> = redis::cmd("GET").arg("billing:job").query(&mut connection).unwrap();
        held += usize::from(value == Some(token.clone()));
    }
    assert!(held >= 3, "{held}");
    assert_eq!(running.end().await.code, Some(0));
}

#[tokio::test]
async fn a_second_one_beside_it_is_refused_with_75_and_the_next_one_is_not() {
    let masters = five().await;
    let mut first = Running::start(run(&masters, &[], "job", "echo runs; cat"));
    assert_eq!(first.line().await, "runs");
    for wait in ["0", "200ms"] {
        let begun = Instant::now();
        let second = end_of(run(&masters, &["--wait", wait], "job", "echo runs too")).await;
        assert_eq!((second.code, second.stdout.as_str()), (Some(75), ""), "{second:?}");
        assert!(second.stderr.starts_with("leasehold: `job` "), "{second:?}");
        assert_eq!(second.stderr.lines().count(), 1);
        assert!(begun.elapsed() < Duration::from_secs(10));
    }
    let other = end_of(run(&masters, &["--wait", "0"], "another job", "")).await;
    assert_eq!(other.code, Some(0), "{other:?}");

    assert_eq!(first.end().await.code, Some(0));
    let next = end_of(run(&masters, &["--wait", "0"], "job", "echo runs")).await;
    assert_eq!((next.code, next.stdout.as_str()), (Some(0), "runs\n"), "{next:?}");
}

#[tokio::test]
async fn one_that_waits_starts_when_the_first_has_ended() {
    let masters = five().await;
    let mut first = Running::start(run(&masters, &[], "job", "echo runs; cat"));
    assert_eq!(first.line().await, "runs");
    let waiting = Running::start(run(&masters, &["--wait", "forever"], "job", "echo runs"));
    waiting.listens().await;
    assert_eq!(first.end().await.code, Some(0));
    let ended = waiting.end().await;
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(0), "runs\n"), "{ended:?}");
}

#[tokio::test]
async fn a_command_that_cannot_be_started_is_127_or_126_and_gives_the_lease_back() {
    let masters = five().await;
    let folder = tempfile::tempdir().unwrap();
    for (program, code) in [("no-such-program-here", 127), (folder.path().to_str().unwrap(), 126)] {
        let mut command = leasehold();
        command.args(["run", "--wait", "0", "--nodes", &masters.urls().join(","), "job", "--", program]);
        let ended = end_of(command).await;
        assert_eq!(ended.code, Some(code), "{ended:?}");
        assert!(ended.stderr.starts_with("leasehold: cannot run `"), "{ended:?}");
        assert!(ended.stderr.contains(program), "{ended:?}");
    }
    assert_eq!(end_of(run(&masters, &["--wait", "0"], "job", "")).await.code, Some(0));
}

/// The promise is two seconds; the machine may be loaded.
/// Five masters that a client has seen: a new fleet of which some are away is young.
async fn five_in_use() -> leasehold::testing::LocalMasters {
    let masters = five().await;
    assert_eq!(end_of(run(&masters, &["--node-timeout", "10s"], "first", "true")).await.code, Some(0));
    masters
}

#[tokio::test]
async fn with_three_of_five_masters_away_it_is_69_within_two_seconds() {
    let masters = five_in_use().await;
    for index in 0..3 {
        masters.pause(index).await.unwrap();
    }
    for (wait, stopped) in [("30s", true), ("0", true), ("30s", false), ("0", false)] {
        if !stopped {
            for index in 0..3 {
                masters.kill(index).await.unwrap();
            }
        }
        let begun = Instant::now();
        let ended = end_of(run(&masters, &["--wait", wait], "job", "echo runs")).await;
        let took = begun.elapsed();
        assert_eq!((ended.code, ended.stdout.as_str()), (Some(69), ""), "{ended:?}");
        assert!(took < Duration::from_secs(5), "{took:?}");
        assert_eq!(ended.stderr.lines().count(), 1, "{ended:?}");
        for index in 0..5 {
            let named = ended.stderr.contains(&masters.addr(index).to_string());
            assert_eq!(named, index < 3, "{ended:?}");
        }
    }
}

#[tokio::test]
async fn with_two_of_five_masters_away_all_is_well() {
    let masters = five_in_use().await;
    masters.pause(0).await.unwrap();
    masters.kill(1).await.unwrap();
    for _ in 0..2 {
        let ended = end_of(run(&masters, &["--wait", "0"], "job", "exit 42")).await;
        assert_eq!((ended.code, ended.stderr.as_str()), (Some(42), ""), "{ended:?}");
    }
}

#[tokio::test]
async fn a_release_that_fails_is_a_warning() {
    let masters = five().await;
    let mut running =
        Running::start(run(&masters, &["--ttl", "30s"], "job", "echo runs; read line; exit 42"));
    assert_eq!(running.line().await, "runs");
    for index in 0..5 {
        masters.pause(index).await.unwrap();
    }
    running.child.stdin.take().unwrap().write_all(b"end\n").await.unwrap();
    let ended = running.end().await;
    assert_eq!(ended.code, Some(42), "{ended:?}");
    assert!(ended.stderr.starts_with("leasehold: warning: "), "{ended:?}");
    assert!(ended.stderr.contains(&masters.addr(0).to_string()), "{ended:?}");
}

#[tokio::test]
async fn what_the_command_leaves_behind_in_its_group_is_ended_before_the_release() {
    let masters = five().await;
    let log = Log::new();
    let path = log.path();
    // One ignores TERM, one is a job of its own.
    let script = format!(
        "trap '' TERM; sh -c 'while :; do date +%s%N >>{0}; sleep 0.02; done' >/dev/null 2>&1 & \
         setsid sleep 30 >/dev/null 2>&1 & \
         while ! [ -s {0} ]; do sleep 0.02; done; echo $!; exit 42",
        path.display()
    );
    let mut running = Running::start(run(&masters, &["--ttl", "2s"], "job", &script));
    let daemon = running.pid_line().await;
    let redlock = Redlock::connect(masters.urls()).await.unwrap();
    let lease = redlock.lease("job").acquire().await.unwrap();
    let taken_over = super::support::unix_nanos();
    let ended = running.end().await;
    assert_eq!(ended.code, Some(42), "{ended:?}");
    assert!(ended.stderr.contains("ending what is left"), "{ended:?}");
    let last = log.numbers().last().copied().unwrap();
    assert!(last < taken_over, "it still worked when another had the lease");
    lease.release().await.unwrap();

    assert!(is_alive(daemon), "what left the group is left alone");
    super::support::kill(daemon, rustix::process::Signal::KILL);
}

#[tokio::test]
async fn what_ends_by_itself_soon_after_the_command_is_let_finish() {
    let masters = five().await;
    let log = Log::new();
    // As with a `tee` that drains its pipe.
    let script = format!("(sleep 0.2; echo last words >{}) & exit 0", log.path().display());
    let mut command = run(&masters, &[], "job", &script);
    command.stdout(Stdio::null());
    let ended = end_of(command).await;
    assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""), "{ended:?}");
    assert_eq!(log.text(), "last words\n");
}

#[tokio::test]
async fn a_fenced_command_has_a_greater_fence_than_the_one_before_it() {
    let masters = five().await;
    let mut last = 0;
    for _ in 0..3 {
        let ended = end_of(run(&masters, &["--fenced"], "job", "echo $LEASEHOLD_FENCE")).await;
        let fence: u64 = ended.stdout.trim_end().parse().expect("a plain integer");
        assert!(fence > last, "{fence} after {last}");
        last = fence;
    }
    let mut plain = run(&masters, &[], "job", "echo $LEASEHOLD_FENCE");
    plain.env("LEASEHOLD_FENCE", "7");
    assert_eq!(end_of(plain).await.stdout, "\n", "a plain one has none");
}
