use std::time::{Duration, Instant};

use leasehold::testing::LocalMasters;
use leasehold::{NodeState, Redlock};
use serde_json::Value;

use super::support::{Ended, command_on, end_of, five, tell, until};

async fn doctor(urls: &[String], options: &[&str]) -> Ended {
    end_of(command_on(urls, "doctor", options)).await
}

/// The object that it prints, and its exit codes without and with `--strict`.
async fn examine(urls: &[String]) -> (Value, [i32; 2]) {
    let (plain, strict) = (doctor(urls, &["--json"]).await, doctor(urls, &["--json", "--strict"]).await);
    assert_eq!((plain.stderr.as_str(), strict.stderr.as_str()), ("", ""), "{plain:?}");
    let object = serde_json::from_str(&plain.stdout).unwrap_or_else(|error| panic!("{error}: {plain:?}"));
    (object, [plain, strict].map(|ended| ended.code.expect("it ended by itself")))
}

fn codes(object: &Value) -> Vec<&str> {
    let findings = object["findings"].as_array().expect("a list");
    findings.iter().map(|finding| finding["code"].as_str().expect("a word")).collect()
}

fn find<'a>(object: &'a Value, code: &str) -> &'a Value {
    let findings = object["findings"].as_array().expect("a list");
    findings
        .iter()
        .find(|finding| finding["code"] == code)
        .unwrap_or_else(|| panic!("no {code} in {object:#}"))
}

/// The commands for `redis-cli` among what mends a finding: the port, and the command.
fn commands(finding: &Value) -> Vec<(u16, String)> {
    let lines = finding["mend"].as_array().expect("a list").iter().filter_map(Value::as_str);
    let command = |line: &str| {
        let (port, command) = line.strip_prefix("redis-cli -h 127.0.0.1 -p ")?.split_once(' ')?;
        Some((port.parse().expect("a port"), command.to_owned()))
    };
    lines.filter_map(command).collect()
}

/// Has a client see the nodes, so that they are known and remember.
async fn in_use(urls: &[String]) -> Redlock {
    // Also on a loaded machine.
    let patient = Redlock::builder().nodes(urls).node_timeout(Duration::from_secs(10));
    let redlock = patient.connect().await.expect("connect");
    assert!(redlock.nodes().iter().all(|node| node.state == NodeState::Up), "{redlock:?}");
    redlock
}

const FIT: [&str; 2] = ["slew", "ttl"];

#[tokio::test]
async fn five_good_masters_are_fit_and_nothing_is_written_to_them() {
    let masters = five().await;
    let (object, exits) = examine(&masters.urls()).await;
    assert_eq!((codes(&object), exits), (FIT.to_vec(), [0, 0]), "{object:#}");
    assert_eq!(object["fit"], true);
    assert_eq!(object["quorum"]["able"], 5);
    assert!(object["advice"]["least_ttl_ms"].as_f64() >= Some(2_500.0), "{object:#}");
    for (index, node) in object["nodes"].as_array().unwrap().iter().enumerate() {
        assert_eq!(node["address"], masters.addr(index).to_string());
        assert_eq!((&node["state"], &node["synced"]), (&"up".into(), &true.into()));
        assert!(node["server"].as_str().is_some_and(|server| server.contains(' ')), "{node:#}");
        assert_eq!(node["round_trips"]["count"], 200);
        let clock = node["clock_ahead_us"].as_i64().expect("its clock was seen");
        assert!(clock.abs() < 1_000_000, "{clock}");
        assert_eq!(tell::<u64>(&masters.url(index), "DBSIZE"), 0);
    }

    let shown = doctor(&masters.urls(), &[]).await;
    assert_eq!((shown.code, shown.stderr.as_str()), (Some(0), ""), "{shown:?}");
    assert!(shown.stdout.contains("5 of 5 nodes can vote, 3 are needed."), "{shown:?}");
    assert!(shown.stdout.contains("maxslewrate 5000"), "{shown:?}");
    assert!(shown.stdout.lines().all(|line| line.chars().count() <= 100), "{}", shown.stdout);
}

/// What is set, the finding, and the words of its text.
const SETTINGS: &[(&[&str], &str, &str)] = &[
    (&["CONFIG SET appendfsync everysec"], "not-synced", "60s (max_ttl)"),
    (&["CONFIG SET no-appendfsync-on-rewrite yes"], "not-synced", "60s (max_ttl)"),
    (&["CONFIG SET appendonly no"], "not-persistent", "60s (max_ttl)"),
    (&["CONFIG SET appendonly no", "CONFIG SET appendfsync everysec"], "not-persistent", "60s (max_ttl)"),
    (&["CONFIG SET maxmemory-policy allkeys-lru"], "eviction", "allkeys-lru"),
    (&["CONFIG SET maxmemory-policy volatile-ttl"], "eviction", "volatile-ttl"),
];

#[tokio::test]
async fn a_wrong_setting_is_found_and_the_command_that_is_shown_mends_it() {
    let masters = five().await;
    let weak = [1, 3];
    for (settings, code, text) in SETTINGS {
        for (index, setting) in weak.iter().flat_map(|index| settings.iter().map(move |word| (index, word))) {
            let () = tell(&masters.url(*index), setting);
        }
        let (object, exits) = examine(&masters.urls()).await;
        assert_eq!(exits, [0, 1], "{settings:?}: {object:#}");
        assert_eq!(codes(&object), [&[*code][..], &FIT[..]].concat(), "{settings:?}");
        let finding = find(&object, code);
        assert_eq!(finding["weight"], "warning");
        assert_eq!(finding["nodes"], serde_json::json!(weak.map(|index| masters.addr(index).to_string())));
        assert!(finding["text"].as_str().unwrap().contains(text), "{finding:#}");
        assert_eq!(object["fit"], false);

        for (port, command) in commands(finding) {
            let () = tell(&format!("redis://127.0.0.1:{port}"), &command);
        }
        let (object, exits) = examine(&masters.urls()).await;
        assert_eq!((codes(&object), exits), (FIT.to_vec(), [0, 0]), "{settings:?}: {object:#}");
    }
}

#[tokio::test]
async fn a_replica_is_found_and_so_is_its_master() {
    let masters = five().await;
    in_use(&masters.urls()).await;
    let () = tell(&masters.url(1), "CONFIG SET repl-diskless-sync-delay 0");
    let () = tell(&masters.url(4), &format!("REPLICAOF 127.0.0.1 {}", masters.port(1)));
    let info = || tell::<String>(&masters.url(4), "INFO replication");
    until(|| info().contains("master_link_status:up")).await;
    let (object, exits) = examine(&masters.urls()).await;
    assert_eq!(exits, [1, 1], "{object:#}");
    assert_eq!(codes(&object)[0], "not-a-master", "{object:#}");
    assert_eq!(find(&object, "not-a-master")["nodes"], serde_json::json!([masters.addr(4).to_string()]));
    assert_eq!(find(&object, "replicas")["nodes"], serde_json::json!([masters.addr(1).to_string()]));
    assert_eq!((&object["nodes"][4]["state"], &object["quorum"]["able"]), (&"refused".into(), &4.into()));

    let mend = commands(find(&object, "not-a-master"));
    assert!(mend.contains(&(masters.port(4), "REPLICAOF NO ONE".to_owned())), "{mend:?}");
    let () = tell(&masters.url(4), "REPLICAOF NO ONE");
    let (object, exits) = examine(&masters.urls()).await;
    assert_eq!((codes(&object)[0], exits), ("young", [0, 1]), "it has another's memory: {object:#}");
}

/// Its second port, 10000 above the first, may be taken.
async fn cluster_node() -> LocalMasters {
    let mut tries = 0;
    loop {
        match LocalMasters::builder().count(1).arg("--cluster-enabled", "yes").start().await {
            Ok(node) => return node,
            Err(error) => assert!(tries < 20, "{error}"),
        }
        tries += 1;
    }
}

#[tokio::test]
async fn a_cluster_node_is_found() {
    let masters = LocalMasters::start(4).await.unwrap();
    let cluster = cluster_node().await;
    in_use(&masters.urls()).await;
    let (object, exits) = examine(&[masters.urls(), cluster.urls()].concat()).await;
    assert_eq!(exits, [1, 1], "{object:#}");
    assert_eq!(find(&object, "cluster")["nodes"], serde_json::json!([cluster.addr(0).to_string()]));
    assert!(codes(&object).contains(&"other-fleet"), "four were a fleet of their own: {object:#}");
}

#[tokio::test]
async fn one_server_under_two_names_is_found() {
    let masters = LocalMasters::builder().count(3).unix_sockets(true).start().await.unwrap();
    in_use(&masters.urls()).await;
    let localhost = masters.url(0).replace("127.0.0.1", "localhost");
    for twin in [localhost, masters.unix_url(0).unwrap()] {
        let (object, exits) = examine(&[&masters.urls()[..2], &[twin]].concat()).await;
        assert_eq!(exits, [1, 1], "{object:#}");
        let finding = find(&object, "same-server");
        let nodes: Vec<&str> =
            finding["nodes"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
        assert_eq!(nodes.len(), 2, "{finding:#}");
        assert!(nodes.contains(&masters.addr(0).to_string().as_str()), "{finding:#}");
        assert_eq!(object["quorum"]["able"], 2, "one server has one vote");
    }
}

#[tokio::test]
async fn a_node_that_is_down_is_named_with_its_reason() {
    let masters = five().await;
    in_use(&masters.urls()).await;
    masters.kill(2).await.unwrap();
    let (object, exits) = examine(&masters.urls()).await;
    assert_eq!((codes(&object)[0], exits), ("unreachable", [0, 1]), "{object:#}");
    let finding = find(&object, "unreachable");
    assert_eq!(finding["nodes"], serde_json::json!([masters.addr(2).to_string()]));
    assert!(finding["text"].as_str().unwrap().contains("refused"), "{finding:#}");
    assert_eq!(commands(finding), [(masters.port(2), "PING".to_owned())]);
    assert_eq!(object["nodes"][2]["state"], "down");
}

#[tokio::test]
async fn without_a_quorum_it_is_69_within_a_few_seconds() {
    let masters = five().await;
    in_use(&masters.urls()).await;
    for index in 0..3 {
        masters.pause(index).await.unwrap();
    }
    for frozen in [true, false] {
        if !frozen {
            for index in 0..3 {
                masters.kill(index).await.unwrap();
            }
        }
        for options in [&[][..], &["--strict"]] {
            let begun = Instant::now();
            let ended = doctor(&masters.urls(), options).await;
            assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
            assert_eq!((ended.code, ended.stderr.as_str()), (Some(69), ""), "{ended:?}");
            assert!(ended.stdout.contains("ERROR no-quorum\n"), "{ended:?}");
            assert!(ended.stdout.contains("2 of 5 nodes can vote, 3 are needed"), "{ended:?}");
            for index in 0..3 {
                let finding = format!("WARNING unreachable: {}\n", masters.addr(index));
                assert!(ended.stdout.contains(&finding), "{ended:?}");
            }
        }
    }
}

#[tokio::test]
async fn a_node_that_may_have_forgotten_is_young_and_is_not_made_older() {
    let masters = five().await;
    let client = in_use(&masters.urls()).await;
    drop(client);
    masters.restart_empty(0).await.unwrap();
    let (object, exits) = examine(&masters.urls()).await;
    assert_eq!((codes(&object)[0], exits), ("young", [0, 1]), "{object:#}");
    assert_eq!(object["quorum"]["able"], 4);
    // By itself it looks like a new fleet of one.
    let alone = doctor(&masters.urls()[..1], &[]).await;
    assert_eq!(alone.code, Some(0), "{alone:?}");
    let client = Redlock::connect(masters.urls()).await.unwrap();
    assert!(matches!(client.nodes()[0].state, NodeState::Young(_)), "{client:?}");
}

#[tokio::test]
async fn too_many_young_nodes_are_69_and_it_is_said_for_how_long() {
    let masters = five().await;
    in_use(&masters.urls()).await;
    for index in 0..3 {
        masters.restart_empty(index).await.unwrap();
    }
    let (object, exits) = examine(&masters.urls()).await;
    assert_eq!(exits, [69, 69], "{object:#}");
    assert!(find(&object, "no-quorum")["text"].as_str().unwrap().contains("vote in 6"), "{object:#}");
    assert!(object["quorum"]["ready_in_ms"].as_f64() > Some(50_000.0), "{object:#}");
}

#[tokio::test]
async fn a_wrong_password_is_named_and_not_shown() {
    const SECRET: &str = "s3cr3t";
    let masters = LocalMasters::builder().count(3).arg("--requirepass", SECRET).start().await.unwrap();
    let with = |index: usize, password: &str| masters.url(index).replace("://", &format!("://:{password}@"));
    in_use(&[with(0, SECRET), with(1, SECRET), with(2, SECRET)]).await;
    let () = tell(&with(0, SECRET), "CONFIG SET maxmemory-policy allkeys-lru");
    let urls = [with(0, SECRET), with(1, SECRET), with(2, "wr0ng")];
    for options in [&[][..], &["--json"]] {
        let ended = doctor(&urls, options).await;
        assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""), "{ended:?}");
        assert!(ended.stdout.contains("cannot log in"), "{ended:?}");
        assert!(ended.stdout.contains(&masters.addr(2).to_string()), "{ended:?}");
        assert!(ended.stdout.contains("--askpass CONFIG SET maxmemory-policy noeviction"), "{ended:?}");
        assert!(!ended.stdout.contains(SECRET) && !ended.stdout.contains("wr0ng"), "{ended:?}");
    }
    let missing = doctor(&[with(0, SECRET), with(1, SECRET), masters.url(2)], &[]).await;
    assert!(missing.stdout.contains("cannot log in"), "{missing:?}");
}

#[tokio::test]
async fn what_an_acl_hides_is_a_warning() {
    let masters = LocalMasters::start(3).await.unwrap();
    in_use(&masters.urls()).await;
    let urls: Vec<String> = masters.urls().iter().map(|url| url.replace("://", "://limited:pw@")).collect();
    for (rules, wanted) in [
        ("-info", &["info-forbidden"][..]),
        ("-config", &["persistence-unknown"]),
        ("-get", &["young", "no-marker"]),
        ("-client", &["no-tracking"]),
    ] {
        for url in masters.urls() {
            let () = tell(&url, &format!("ACL SETUSER limited reset on >pw ~* &* +@all {rules}"));
        }
        let (object, exits) = examine(&urls).await;
        for code in wanted {
            assert!(codes(&object).contains(code), "{rules} {code}: {object:#}");
        }
        assert!(exits[1] != 0, "{rules}: {exits:?}");
    }
}

#[tokio::test]
async fn an_even_number_or_one_is_a_warning() {
    let masters = LocalMasters::start(4).await.unwrap();
    for count in [1, 2, 4] {
        let (object, exits) = examine(&masters.urls()[..count]).await;
        assert_eq!((codes(&object)[0], exits), ("node-count", [0, 1]), "{object:#}");
    }
}

#[tokio::test]
async fn clients_that_were_given_something_else_are_a_warning() {
    let masters = LocalMasters::start(3).await.unwrap();
    in_use(&masters.urls()).await;
    let other = doctor(&masters.urls(), &["--max-ttl", "2m", "--strict"]).await;
    assert_eq!(other.code, Some(1), "{other:?}");
    assert!(other.stdout.contains("WARNING other-fleet: "), "{other:?}");
    assert_eq!(doctor(&masters.urls(), &["--strict"]).await.code, Some(0));
}

#[tokio::test]
async fn a_result_that_cannot_be_written_is_a_failure() {
    let masters = five().await;
    for options in [&[][..], &["--json"]] {
        let full = std::fs::OpenOptions::new().write(true).open("/dev/full").expect("/dev/full");
        let mut command = command_on(&masters.urls(), "doctor", options);
        let doctor = command.stdout(full).stderr(std::process::Stdio::piped()).spawn().expect("it starts");
        let ended = doctor.wait_with_output().await.expect("it ends");
        assert_eq!(ended.status.code(), Some(1), "{ended:?}");
        assert!(String::from_utf8_lossy(&ended.stderr).contains("cannot write the result"), "{ended:?}");
    }
}
