use leasehold::testing::LocalMasters;

use super::support::{end_of, leasehold, run_on};

/// Arguments and a word that the refusal must say.
const WRONG: &[(&[&str], &str)] = &[
    (&[], "Usage"),
    (&["walk"], "walk"),
    (&["run"], "KEY"),
    (&["run", "k"], "CMD"),
    (&["run", "k", "true"], "true"),
    (&["run", "k", "--"], "CMD"),
    (&["run", "k", "--", "true"], "--nodes"),
    (&["run", "--nodes", " , ", "k", "--", "true"], "LEASEHOLD_NODES"),
    (&["run", "--nodes", "redis://127.0.0.1:1,,redis://127.0.0.1:3", "k", "--", "true"], "node 2 is empty"),
    (&["run", "--nodes", "redis://127.0.0.1:1", "--namespace", "leasehold:", "k", "--", "true"], "namespace"),
    (&["run", "--nodes", "http://h", "k", "--", "true"], "http://h"),
    (&["run", "--nodes", "redis://h,redis://h", "k", "--", "true"], "one server"),
    (&["run", "--nodes", "redis://h", "--ttl", "soon", "k", "--", "true"], "--ttl"),
    (&["run", "--nodes", "redis://h", "--ttl", "10 s", "k", "--", "true"], "500ms"),
    (&["run", "--nodes", "redis://h", "--ttl", "1e9", "k", "--", "true"], "--ttl"),
    (&["run", "--nodes", "redis://h", "--ttl", "-1", "k", "--", "true"], "-1"),
    (&["run", "--nodes", "redis://h", "--ttl", "0", "k", "--", "true"], "--ttl"),
    (&["run", "--nodes", "redis://h", "--ttl", "61s", "k", "--", "true"], "max_ttl"),
    (&["run", "--nodes", "redis://h", "--ttl", "9", "--grace", "4s", "k", "--", "true"], "--grace"),
    (&["run", "--nodes", "redis://h", "--wait", "never", "k", "--", "true"], "forever"),
    (&["run", "--nodes", "redis://h", "--node-timeout", "0", "k", "--", "true"], "node_timeout"),
    (&["run", "--nodes", "redis://h", "--max-ttl", "1s", "k", "--", "true"], "max_ttl"),
    (&["run", "--nodes", "redis://127.0.0.1:1", "", "--", "true"], "key"),
    (&["run", "--nodes", "redis://127.0.0.1:1", "leasehold:node", "--", "true"], "reserved"),
    (&["doctor"], "--nodes"),
    (&["doctor", "--nodes", "redis://h", "k"], "k"),
    (&["doctor", "--nodes", "redis://h,redis://H:6379"], "one server"),
    (&["doctor", "--nodes", "redis://h", "--max-ttl", "1s", "--json"], "max_ttl"),
    (&["adopt", "--yes"], "--nodes"),
    (&["adopt", "--yes", "--nodes", "http://h"], "http://h"),
];

#[tokio::test]
async fn wrong_usage_is_2_and_says_what_is_wrong() {
    for (arguments, word) in WRONG {
        let mut command = leasehold();
        command.args(*arguments);
        let ended = end_of(command).await;
        assert_eq!((ended.code, ended.stdout.as_str()), (Some(2), ""), "{arguments:?}: {ended:?}");
        assert!(ended.stderr.contains(word), "{arguments:?}: {ended:?}");
        assert!(!ended.stderr.contains("panicked"), "{ended:?}");
    }
}

#[tokio::test]
async fn help_and_version_are_said_on_standard_output() {
    for (arguments, words) in [
        (&["--help"][..], &["run", "Exit codes", "69", "75", "76"][..]),
        (
            &["run", "--help"],
            &["LEASEHOLD_NODES", "LEASEHOLD_TOKEN", "--grace", "126", "127", "128 + n", "KILL"],
        ),
        (&["doctor", "--help"], &["LEASEHOLD_NODES", "--strict", "--json", "nothing is written", "69"]),
        (&["adopt", "--help"], &["LEASEHOLD_NODES", "--yes", "Only where no lease can be held", "69"]),
        (&["--version"], &[concat!("leasehold ", env!("CARGO_PKG_VERSION"))]),
    ] {
        let mut command = leasehold();
        command.args(arguments);
        let ended = end_of(command).await;
        assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""), "{ended:?}");
        for word in words {
            assert!(ended.stdout.contains(word), "{word}: {ended:?}");
        }
    }
}

#[tokio::test]
async fn a_password_is_never_printed() {
    const SECRET: &str = "s3cr3t";
    let masters = LocalMasters::builder().count(3).arg("--requirepass", SECRET).start().await.unwrap();
    let with = |password: &str| -> Vec<String> {
        masters.urls().iter().map(|url| url.replace("://", &format!("://:{password}@"))).collect()
    };
    let right = end_of(run_on(&with(SECRET), &[], "job", "exit 42")).await;
    assert_eq!((right.code, right.stderr.as_str()), (Some(42), ""), "{right:?}");

    let wrong = end_of(run_on(&with("wr0ng"), &[], "job", "exit 42")).await;
    assert_eq!(wrong.code, Some(69), "{wrong:?}");
    assert!(wrong.stderr.contains(&masters.addr(0).to_string()), "{wrong:?}");
    assert!(!wrong.stderr.contains("wr0ng"), "{wrong:?}");

    let url = format!("redis://u:{SECRET}@h:1");
    let broken = format!("redis://u:{SECRET}@h:port");
    for arguments in [
        &["run", "--nodes", &broken, "k", "--", "true"][..],
        &["run", "k", &url, "--", "true"],
        &["run", "--node", &url, "k", "--", "true"],
        &["run", &format!("--node={url}"), "k", "--", "true"],
        &["run", "--ttl", &url, "k", "--", "true"],
        &[&url],
        &["run", "--help"],
    ] {
        let mut command = leasehold();
        command.args(arguments).env("LEASEHOLD_NODES", &url);
        let ended = end_of(command).await;
        assert!(!ended.stderr.contains(SECRET) && !ended.stdout.contains(SECRET), "{arguments:?}: {ended:?}");
    }
}
