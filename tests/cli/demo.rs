use std::process::Stdio;

use super::support::{Running, end_of, leasehold};

#[tokio::test]
async fn the_demo_shows_what_it_promises() {
    let mut command = leasehold();
    command.arg("demo");
    let ended = end_of(command).await;
    assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""), "{ended:?}");
    let story = [
        "masters 1 to 5 listen",
        "Night 1",
        "holds the lease",
        "the report is written",
        "nothing to do",
        "Night 2",
        "master 2 (port ",
        "the report is written",
        "Night 3",
        "is killed: nobody renews the lease",
        "takes over",
        "the report is written",
        "ok      3 nights, 3 reports: each was written once",
        "ok      the job was begun 4 times",
        "ok      the lease was held 9 times, never by two at once",
        "LEASEHOLD_NODES",
    ];
    let mut rest = ended.stdout.as_str();
    for scene in story {
        let at = rest.find(scene).unwrap_or_else(|| panic!("no {scene:?} in:\n{rest}"));
        rest = &rest[at..];
    }
}

#[tokio::test]
async fn a_demo_without_a_server_says_what_is_missing() {
    let mut command = leasehold();
    command.arg("demo").env("LEASEHOLD_SERVER", "/no/such/server");
    let ended = end_of(command).await;
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert!(ended.stderr.starts_with("leasehold: "), "{ended:?}");
    assert!(ended.stderr.contains("/no/such/server"), "{ended:?}");
}

#[tokio::test]
async fn a_demo_whose_reader_goes_away_does_not_mind() {
    let mut command = leasehold();
    command.arg("demo").stdin(Stdio::null());
    let mut running = Running::start(command);
    running.line().await;
    let ended = running.end_unread().await;
    assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""), "{ended:?}");
}
