use std::time::{Duration, Instant};

use leasehold::testing::LocalMasters;

use super::support::{command_on, end_of, five, run, tell};

/// A new fleet whose last `missing` masters are not there.
async fn new_fleet(count: usize, missing: usize) -> LocalMasters {
    let masters = LocalMasters::start(count).await.expect("start masters");
    for index in count - missing..count {
        masters.kill(index).await.unwrap();
    }
    masters
}

fn marker(masters: &LocalMasters, index: usize, namespace: &str) -> Option<String> {
    tell(&masters.url(index), &format!("GET {namespace}leasehold:node"))
}

#[tokio::test]
async fn a_new_fleet_of_which_a_node_is_missing_votes_at_once_when_it_is_adopted() {
    let masters = new_fleet(3, 1).await;
    let young = end_of(run(&masters, &["--wait", "0"], "job", "echo runs")).await;
    assert_eq!((young.code, young.stdout.as_str()), (Some(69), ""), "{young:?}");
    for index in 0..2 {
        let word = format!("{}: new or restarted", masters.addr(index));
        assert!(young.stderr.contains(&word) && young.stderr.contains("votes in 6"), "{young:?}");
    }
    assert!(young.stderr.contains(&masters.addr(2).to_string()), "{young:?}");

    let adopted = end_of(command_on(&masters.urls(), "adopt", &["--yes"])).await;
    assert_eq!((adopted.code, adopted.stderr.as_str()), (Some(0), ""), "{adopted:?}");
    let lines: Vec<&str> = adopted.stdout.lines().collect();
    assert_eq!(lines.len(), 3, "{adopted:?}");
    assert_eq!(lines[0], format!("{}: adopted", masters.addr(0)));
    assert_eq!(lines[1], format!("{}: adopted", masters.addr(1)));
    assert!(lines[2].starts_with(&format!("{}: not adopted: ", masters.addr(2))), "{adopted:?}");

    let begun = Instant::now();
    let ended = end_of(run(&masters, &["--wait", "0"], "job", "echo runs")).await;
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(0), "runs\n"), "{ended:?}");
    assert!(begun.elapsed() < Duration::from_secs(10));

    masters.restart_empty(2).await.unwrap();
    let doctor = end_of(command_on(&masters.urls(), "doctor", &[])).await;
    assert!(doctor.stdout.contains(&format!("young: {}\n", masters.addr(2))), "that one waits: {doctor:?}");
}

#[tokio::test]
async fn a_namespace_is_adopted_for_itself() {
    let masters = new_fleet(3, 1).await;
    let adopted = end_of(command_on(&masters.urls(), "adopt", &["--yes", "--namespace", "billing:"])).await;
    assert_eq!(adopted.code, Some(0), "{adopted:?}");
    assert!(marker(&masters, 0, "billing:").is_some_and(|marker| marker.contains(" 0 synced ")));
    assert_eq!(marker(&masters, 0, ""), None);
    let code = |namespace: &'static str| {
        let command = run(&masters, &["--wait", "0", "--namespace", namespace], "job", "");
        async move { end_of(command).await.code }
    };
    assert_eq!(code("billing:").await, Some(0));
    assert_eq!(code("mail:").await, Some(69));
}

#[tokio::test]
async fn fewer_than_a_majority_are_69() {
    let masters = new_fleet(5, 3).await;
    let adopted = end_of(command_on(&masters.urls(), "adopt", &["--yes"])).await;
    assert_eq!(adopted.code, Some(69), "{adopted:?}");
    assert_eq!(adopted.stdout.lines().count(), 5, "{adopted:?}");
    assert!(adopted.stderr.contains("2 of 5 nodes were adopted, 3 are needed"), "{adopted:?}");
}

#[tokio::test]
async fn without_a_terminal_and_without_yes_it_is_refused_and_nothing_is_changed() {
    let masters = new_fleet(3, 1).await;
    let refused = end_of(command_on(&masters.urls(), "adopt", &[])).await;
    assert_eq!((refused.code, refused.stdout.as_str()), (Some(2), ""), "{refused:?}");
    assert!(refused.stderr.contains("--yes") && refused.stderr.contains("no lease"), "{refused:?}");
    assert_eq!((marker(&masters, 0, ""), marker(&masters, 1, "")), (None, None));
}

#[tokio::test]
async fn a_replica_is_not_adopted() {
    let masters = five().await;
    let () = tell(&masters.url(4), &format!("REPLICAOF 127.0.0.1 {}", masters.port(0)));
    let refused = end_of(command_on(&masters.urls(), "adopt", &["--yes"])).await;
    assert_eq!((refused.code, refused.stdout.as_str()), (Some(2), ""), "{refused:?}");
    assert!(refused.stderr.contains("replica"), "{refused:?}");
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn at_a_terminal_it_asks_and_only_yes_is_yes() {
    use super::support::leasehold;
    use super::terminal::Session;

    let masters = new_fleet(3, 1).await;
    let binary = leasehold().as_std().get_program().to_str().expect("a plain path").to_owned();
    for answer in ["no", "", "y", "yes please"] {
        let mut session = Session::start(&masters, &[&binary, "adopt"], &[]);
        session.expect(&format!("{}: new or restarted", masters.addr(0))).await;
        session.expect("only where no lease can be held").await;
        session.expect("Type yes to go on: ").await;
        session.line(answer);
        session.expect("nothing was changed").await;
        assert_eq!(session.exit().await, Some(1), "{}", session.screen);
        assert_eq!((marker(&masters, 0, ""), marker(&masters, 1, "")), (None, None), "{answer}");
    }
    let mut session = Session::start(&masters, &[&binary, "adopt"], &[]);
    session.expect("Type yes to go on: ").await;
    session.line("yes");
    session.expect(&format!("{}: adopted", masters.addr(0))).await;
    assert_eq!(session.exit().await, Some(0), "{}", session.screen);
    assert_eq!(end_of(run(&masters, &["--wait", "0"], "job", "")).await.code, Some(0));
}
