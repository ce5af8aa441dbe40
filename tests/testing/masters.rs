use std::collections::HashSet;
use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use leasehold::testing::{LocalMasters, TestingError};
use rustix::process::{Pid, test_kill_process};

use super::client::{Client, PATIENCE};

async fn client(masters: &LocalMasters, index: usize) -> Client {
    Client::connect(masters.addr(index)).await.expect("connect to a master")
}

async fn one_master() -> LocalMasters {
    LocalMasters::start(1).await.expect("start a master")
}

/// Every pid of a set, which is all up.
fn pids(masters: &LocalMasters) -> Vec<u32> {
    (0..masters.len()).map(|index| masters.pid(index).expect("it is up")).collect()
}

fn is_alive(pid: u32) -> bool {
    let pid = Pid::from_raw(pid as i32).expect("a process number");
    test_kill_process(pid).is_ok()
}

#[tokio::test]
async fn each_master_is_a_server_of_its_own_that_syncs_always_and_evicts_nothing() {
    let masters = LocalMasters::start(5).await.unwrap();
    assert_eq!(masters.len(), 5);
    assert_eq!(masters.urls().iter().collect::<HashSet<_>>().len(), 5);
    let wanted = [
        ("appendonly", "yes"),
        ("appendfsync", "always"),
        ("no-appendfsync-on-rewrite", "no"),
        ("maxmemory-policy", "noeviction"),
        ("save", ""),
    ];
    for index in 0..5 {
        assert_eq!(masters.url(index), format!("redis://127.0.0.1:{}", masters.port(index)));
        let mut connection = redis::Client::open(masters.url(index))
            .unwrap()
            .get_multiplexed_async_connection()
            .await
            .unwrap();
        for (name, value) in wanted {
            let got: Vec<String> =
                redis::cmd("CONFIG").arg("GET").arg(name).query_async(&mut connection).await.unwrap();
            assert_eq!(got, [name, value]);
        }
        let info: redis::InfoDict =
            redis::cmd("INFO").arg("server").query_async(&mut connection).await.unwrap();
        assert_eq!(info.get::<u32>("process_id"), masters.pid(index));
        assert!(masters.dir(index).join("server.log").is_file());
    }
}

#[tokio::test]
async fn a_killed_master_is_gone_at_once_and_comes_back_with_its_data() {
    let masters = one_master().await;
    let mut before = client(&masters, 0).await;
    assert_eq!(before.ask("SET key value").await.unwrap(), "+OK");
    let (port, pid) = (masters.port(0), masters.pid(0).unwrap());

    masters.kill(0).await.unwrap();
    assert_eq!(masters.pid(0), None);
    assert!(!is_alive(pid), "killed and reaped");
    before.expect_end().await;
    assert!(Client::connect(masters.addr(0)).await.is_err(), "nobody listens");
    masters.kill(0).await.expect("killing twice is no error");

    masters.restart(0).await.unwrap();
    assert_eq!(masters.port(0), port);
    assert_ne!(masters.pid(0), Some(pid));
    assert_eq!(client(&masters, 0).await.ask("GET key").await.unwrap(), "value");
}

#[tokio::test]
async fn a_master_stopped_in_order_ends_even_while_paused() {
    let masters = one_master().await;
    assert_eq!(client(&masters, 0).await.ask("SET key value").await.unwrap(), "+OK");
    masters.pause(0).await.unwrap();
    masters.stop(0).await.unwrap();
    assert_eq!(masters.pid(0), None);
    masters.restart(0).await.unwrap();
    assert_eq!(client(&masters, 0).await.ask("GET key").await.unwrap(), "value");
}

#[tokio::test]
async fn a_running_master_can_be_restarted() {
    let masters = one_master().await;
    assert_eq!(client(&masters, 0).await.ask("SET key value").await.unwrap(), "+OK");
    let pid = masters.pid(0);
    masters.restart(0).await.unwrap();
    assert_ne!(masters.pid(0), pid);
    assert_eq!(client(&masters, 0).await.ask("GET key").await.unwrap(), "value");
}

#[tokio::test]
async fn a_master_restarted_empty_knows_nothing() {
    let masters = one_master().await;
    assert_eq!(client(&masters, 0).await.ask("SET key value").await.unwrap(), "+OK");
    let port = masters.port(0);
    masters.restart_empty(0).await.unwrap();
    assert_eq!(masters.port(0), port);
    assert_eq!(client(&masters, 0).await.ask("GET key").await.unwrap(), "$-1");
}

#[tokio::test]
async fn a_master_that_does_not_persist_forgets_in_a_restart() {
    let masters = LocalMasters::builder().count(1).persistent(false).start().await.unwrap();
    assert_eq!(client(&masters, 0).await.ask("SET key value").await.unwrap(), "+OK");
    masters.restart(0).await.unwrap();
    assert_eq!(client(&masters, 0).await.ask("GET key").await.unwrap(), "$-1");
}

#[tokio::test]
async fn a_paused_master_answers_nothing_before_it_goes_on() {
    let masters = one_master().await;
    let mut asking = client(&masters, 0).await;
    for value in ["one", "two"] {
        masters.pause(0).await.unwrap();
        masters.pause(0).await.expect("pausing twice is no error");
        asking.send(&format!("SET key {value}")).await.unwrap();
        asking.expect_silence().await;
        masters.resume(0).unwrap();
        assert_eq!(asking.reply().await.unwrap(), "+OK");
    }
}

#[tokio::test]
async fn dropping_the_masters_ends_them_paused_or_not_and_removes_their_folder() {
    let masters = LocalMasters::start(3).await.unwrap();
    let pids = pids(&masters);
    let folder = masters.dir(0).parent().unwrap().to_owned();
    masters.pause(1).await.unwrap();
    drop(masters);
    for pid in pids {
        assert!(!is_alive(pid), "process {pid} should be gone");
    }
    assert!(!folder.exists());
}

#[tokio::test]
async fn a_panic_ends_the_masters() {
    let (tell, told) = tokio::sync::oneshot::channel();
    let panicking = tokio::spawn(async {
        let masters = LocalMasters::start(2).await.unwrap();
        tell.send(pids(&masters)).unwrap();
        panic!("a test fails");
    });
    assert!(panicking.await.unwrap_err().is_panic());
    for pid in told.await.unwrap() {
        assert!(!is_alive(pid), "process {pid} should be gone");
    }
}

/// This test calls itself in a process of its own, which dies without running a destructor.
#[tokio::test]
async fn masters_end_with_a_process_that_is_aborted() {
    const ROLE: &str = "LEASEHOLD_TEST_ABORTS";
    if std::env::var_os(ROLE).is_some() {
        let masters = LocalMasters::start(2).await.unwrap();
        masters.restart(1).await.unwrap();
        masters.pause(0).await.unwrap();
        let folder = masters.dir(0).parent().unwrap();
        println!("\n{ROLE} {} {:?}", folder.display(), pids(&masters));
        std::process::abort();
    }
    let name = "testing::masters::masters_end_with_a_process_that_is_aborted";
    let mut aborting = Command::new(std::env::current_exe().unwrap())
        .args([name, "--exact", "--nocapture"])
        .env(ROLE, "1")
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let lines = BufReader::new(aborting.stdout.take().unwrap()).lines().map_while(Result::ok);
    let told = lines.filter_map(|line| Some(line.strip_prefix(ROLE)?.trim().to_owned()));
    let told = told.last().expect("the other process started its masters");
    assert!(!aborting.wait().unwrap().success());

    let (folder, list) = told.split_once(' ').unwrap();
    let list = list.trim_matches(['[', ']']).split(", ");
    let pids: Vec<u32> = list.map(|pid| pid.parse().unwrap()).collect();
    assert_eq!(pids.len(), 2);
    let started = Instant::now();
    // Nobody tells this process of the end of another's children.
    while pids.iter().any(|pid| is_alive(*pid)) || Path::new(folder).exists() {
        assert!(started.elapsed() < PATIENCE, "{told} should be gone");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn several_sets_live_side_by_side() {
    let start = || LocalMasters::start(3);
    let (one, two, three) = tokio::try_join!(start(), start(), start()).unwrap();
    let ports: HashSet<u16> =
        [&one, &two, &three].iter().flat_map(|set| (0..3).map(|index| set.port(index))).collect();
    assert_eq!(ports.len(), 9);
}

#[tokio::test]
async fn masters_with_a_password_are_started_too() {
    let builder = LocalMasters::builder().count(1).arg("--requirepass", "s3cret");
    let masters = builder.start().await.unwrap();
    let mut asking = client(&masters, 0).await;
    assert!(asking.ask("GET key").await.unwrap().starts_with("-NOAUTH"));
    assert_eq!(asking.ask("AUTH s3cret").await.unwrap(), "+OK");
    masters.restart(0).await.unwrap();
}

#[tokio::test]
async fn masters_can_listen_on_unix_sockets() {
    let masters = LocalMasters::builder().count(2).unix_sockets(true).start().await.unwrap();
    let url = masters.unix_url(1).unwrap();
    let path = url.strip_prefix("unix://").unwrap();
    let mut stream = tokio::net::UnixStream::connect(path).await.unwrap();
    tokio::io::AsyncWriteExt::write_all(&mut stream, b"PING\r\n").await.unwrap();
    let mut pong = [0; 7];
    tokio::io::AsyncReadExt::read_exact(&mut stream, &mut pong).await.unwrap();
    assert_eq!(&pong, b"+PONG\r\n");
    assert_eq!(one_master().await.unix_url(0), None);
}

#[tokio::test]
async fn what_cannot_be_done_says_why() {
    let masters = one_master().await;
    let absent = masters.kill(7).await.unwrap_err();
    assert!(matches!(absent, TestingError::NoSuchMaster { index: 7, count: 1 }));
    assert_eq!(absent.to_string(), "there is no master 7: 1 were started, counted from 0");

    masters.kill(0).await.unwrap();
    assert!(matches!(masters.pause(0).await, Err(TestingError::NotRunning { index: 0 })));
    assert!(matches!(masters.resume(0), Err(TestingError::NotRunning { index: 0 })));

    let squatter = TcpListener::bind(masters.addr(0)).unwrap();
    let taken = masters.restart(0).await.unwrap_err();
    assert!(matches!(taken, TestingError::PortTaken { port } if port == masters.port(0)), "{taken}");
    drop(squatter);
    masters.restart(0).await.expect("the port is free again");
}

#[tokio::test]
async fn a_server_that_cannot_start_says_why() {
    let builder = LocalMasters::builder().count(1);
    let absent = builder.clone().program("/no/such/server").start().await.unwrap_err();
    assert!(absent.to_string().contains("/no/such/server"), "{absent}");

    let refused = builder.arg("--no-such-option", "1").start().await.unwrap_err();
    assert!(matches!(refused, TestingError::Exited { .. }));
    assert!(refused.to_string().contains("no-such-option"), "{refused}");
}
