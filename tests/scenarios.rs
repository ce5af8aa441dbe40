//! The examples run to their ends, and what they tell is what they are there to show. `quickstart` is not among
//! them: it needs the masters of `docker-compose.yml`.

#[allow(dead_code)] // what the examples alone use
#[path = "../examples/common/postgres.rs"]
mod postgres;
#[allow(dead_code)]
#[path = "../examples/common/timeline.rs"]
mod timeline;

use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

/// What a run told, one line each, without times.
struct Story(Vec<String>);

impl Story {
    fn of(example: &str) -> Self {
        let output = run(example, &[]);
        let (told, errors) = (text(&output.stdout), text(&output.stderr));
        println!("{told}{errors}");
        assert!(output.status.success(), "{example} ended with {}: {errors}", output.status);
        Self(told.lines().map(|line| line.split_whitespace().skip(2).collect::<Vec<_>>().join(" ")).collect())
    }

    /// That there are lines with these parts, in this order.
    fn assert_tells(&self, parts: &[&str]) {
        let mut lines = self.0.iter();
        for part in parts {
            assert!(
                lines.any(|line| line.contains(part)),
                "`{part}` is missing or too early in {:#?}",
                self.0
            );
        }
    }

    fn assert_never_tells(&self, part: &str) {
        assert!(self.0.iter().all(|line| !line.contains(part)), "`{part}` in {:#?}", self.0);
    }

    /// The first number of the only line with this part.
    fn number_before(&self, part: &str) -> u64 {
        let lines: Vec<&String> = self.0.iter().filter(|line| line.contains(part)).collect();
        let [line] = lines[..] else { panic!("`{part}` is not in one line of {:#?}", self.0) };
        let (before, _) = line.split_once(part).expect("it is there");
        before.rsplit(' ').next().and_then(|word| word.parse().ok()).expect("a number")
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn run(example: &str, environment: &[(&str, &str)]) -> Output {
    command(example).envs(environment.iter().copied()).output().expect("it can be started")
}

fn command(example: &str) -> Command {
    let mut command = Command::new(path(example));
    command.stdin(Stdio::null());
    command
}

/// Where cargo puts examples: beside the folder of this test. It builds them for `cargo test`, but not for
/// `cargo test --test scenarios`.
fn path(example: &str) -> PathBuf {
    let test = std::env::current_exe().expect("this program has a path");
    let profile = test.parent().and_then(|deps| deps.parent()).expect("it is in a folder of cargo's");
    let path = profile.join("examples").join(example);
    assert!(path.exists(), "{} is not there: run `cargo build --examples` first", path.display());
    path
}

#[test]
fn happy_path_does_the_work_once_and_takes_nothing_from_another() {
    let story = Story::of("happy_path");
    story.assert_tells(&[
        "worker 1 has the lease",
        "worker 1 has written the report",
        "worker 1 has released the lease",
        "worker 3 has the lease, finds the report: nothing to do",
        "worker 4 comes after all of them, has the lease, and finds the report",
        "the report was written 1 time",
        "worker 2 has the lease now",
        "worker 1 releases too late, and is told: the lease on `nightly-report` was lost",
        "the key on the first master holds worker 2's token still",
    ]);
    story.assert_tells(&["worker 2 another has the lease: goes", "worker 1 has released the lease"]);
}

#[test]
fn paused_holder_shows_the_damage() {
    let story = Story::of("paused_holder");
    story.assert_tells(&[
        "worker 1 has the lease, reads 100",
        "worker 1 looks once more before it writes: the lease is valid",
        "worker 1 is paused right there",
        "worker 2 waited, and now has the lease, reads 100",
        "worker 2 writes 100 + 50 = 150",
        "worker 1 goes on (SIGCONT) where it was, and writes 100 + 30 = 130",
        "worker 1 looks again: the lease is lost",
        "DAMAGE: it should hold 180; 50 are lost",
    ]);
}

#[test]
fn fenced_writes_refuse_what_comes_late_and_let_nothing_stale_through() {
    let story = Story::of("fenced_writes");
    story.assert_tells(&[
        "worker 2 writes: PostgreSQL took it, Redis took it",
        "worker 1 goes on (SIGCONT) and writes too: PostgreSQL REFUSED it, Redis REFUSED it",
        "PostgreSQL holds 150, Redis 150",
    ]);
    let turned_away = story.number_before(" came too late to read");
    for store in ["PostgreSQL", "Redis"] {
        let line =
            story.0.iter().find(|line| line.contains(&format!("{store}: "))).expect("a line for each store");
        let numbers: Vec<u64> = line.split(' ').filter_map(|word| word.parse().ok()).collect();
        let [taken, refused, stale] = numbers[..] else { panic!("three numbers in {line}") };
        assert_eq!(taken + refused + turned_away, 200, "{line}");
        assert!(refused > 0, "no write came late: {line}");
        assert_eq!(stale, 0, "{line}");
    }
    assert!(story.number_before(" pauses in") > 0);
}

#[test]
fn advisory_lock_shows_what_each_gives_and_costs() {
    let story = Story::of("advisory_lock");
    story.assert_tells(&[
        "worker 1 has PostgreSQL's lock",
        "worker 2 is told that another has it: goes",
        "and finds 0 lines: the half went with the lock",
        "worker 2 waits all the time: the lock has no TTL",
        "nobody came between",
        "worker 1 has the lease",
        "worker 2 is told that another has it: goes",
        "and finds 1 line: the half stayed",
        "a holder that hangs holds up nobody",
        "two at work, unless a fence stops it",
        "lock and unlock p50",
        "acquire and release p50",
    ]);
    story.assert_never_tells("has the lock too");
    story.assert_never_tells("has the lease too");
}

#[test]
fn a_database_that_is_not_there_is_told_in_a_sentence() {
    let url = "host=127.0.0.1 port=1 user=nobody dbname=none connect_timeout=5";
    let output = run("fenced_writes", &[("DATABASE_URL", url)]);
    assert_eq!(output.status.code(), Some(1));
    let errors = text(&output.stderr);
    assert!(errors.starts_with("error: cannot connect to PostgreSQL: "), "{errors}");
    assert_eq!(errors.lines().count(), 1, "{errors}");
}

#[test]
fn without_any_postgresql_it_is_told_what_to_install() {
    let mut command = command("fenced_writes");
    let output = command.env_remove("DATABASE_URL").env("LEASEHOLD_POSTGRES", "/nowhere").output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let errors = text(&output.stderr);
    assert!(errors.starts_with("error: there is no PostgreSQL server here. Install one ("), "{errors}");
    assert!(errors.contains("name a database in DATABASE_URL"), "{errors}");
    assert_eq!(errors.lines().count(), 1, "{errors}");
}

/// Whether the database has a schema of this name.
async fn has_schema(url: &str, name: &str) -> bool {
    let (client, connection) = tokio_postgres::connect(url, tokio_postgres::NoTls).await.unwrap();
    let connection = tokio::spawn(connection);
    let named = "SELECT count(*) FROM pg_namespace WHERE nspname = $1";
    let count: i64 = client.query_one(named, &[&name]).await.unwrap().get(0);
    drop(client);
    connection.await.unwrap().unwrap();
    count > 0
}

/// `url` with a setting for all sessions.
fn with_setting(url: &str, setting: &str) -> String {
    match (url.contains("://"), url.contains('?')) {
        (false, _) => format!("{url} options='-c {setting}'"),
        (true, false) => format!("{url}?options=-c%20{setting}"),
        (true, true) => format!("{url}&options=-c%20{setting}"),
    }
}

#[tokio::test]
async fn nothing_stays_in_a_database_that_is_named_whether_the_example_fails_or_not() {
    let (url, _server) = postgres::server().await.unwrap();
    let run = async |url: &str| {
        let mut command = command("fenced_writes");
        command.env("DATABASE_URL", url).stdout(Stdio::piped()).stderr(Stdio::piped());
        let child = command.spawn().unwrap();
        // Others may be at work in the same database.
        let schema = format!("leasehold_example_{}", child.id());
        let output = tokio::task::spawn_blocking(|| child.wait_with_output().unwrap()).await.unwrap();
        assert!(!has_schema(url, &schema).await, "{schema}: {}", text(&output.stderr));
        output
    };
    let output = run(&url).await;
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(text(&output.stdout).contains(", of DATABASE_URL"), "{}", text(&output.stdout));
    // No table can be created.
    let output = run(&with_setting(&url, "default_tablespace=pg_global")).await;
    assert_eq!(output.status.code(), Some(1));
    let errors = text(&output.stderr);
    assert!(errors.starts_with("error: "), "{errors}");
    assert_eq!(errors.lines().count(), 1, "{errors}");
}

#[tokio::test]
async fn a_schema_ends_with_a_panic() {
    let (url, _server) = postgres::server().await.unwrap();
    let name = format!("leasehold_panic_{}", std::process::id());
    let panics = async |url: String, name: String| {
        let (_schema, _) = postgres::Schema::create(&url, &name).await.unwrap();
        assert!(has_schema(&url, &name).await);
        panic!("as it should");
    };
    let panicked = tokio::spawn(panics(url.clone(), name.clone())).await.unwrap_err();
    assert!(panicked.is_panic());
    assert!(!has_schema(&url, &name).await);
}
