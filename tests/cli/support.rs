//! Starting the command and watching what it does. Nothing here sleeps where it can await.

use std::path::PathBuf;
use std::process::{Output, Stdio};
use std::time::Duration;

use leasehold::testing::LocalMasters;
use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStderr, ChildStdout, Command};
use tokio::time::timeout;

/// Longer than anything takes on a loaded machine.
pub(super) const PATIENCE: Duration = Duration::from_secs(60);

pub(super) async fn five() -> LocalMasters {
    LocalMasters::start(5).await.expect("start five masters")
}

/// `leasehold` with nothing of the environment's nodes.
pub(super) fn leasehold() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_leasehold"));
    command.env_remove("LEASEHOLD_NODES").kill_on_drop(true);
    command
}

/// `leasehold run OPTIONS KEY -- sh -c SCRIPT` on the nodes at `urls`.
pub(super) fn run_on(urls: &[String], options: &[&str], key: &str, script: &str) -> Command {
    let mut command = leasehold();
    command.env("LEASEHOLD_NODES", urls.join(",")).arg("run").args(options);
    command.args([key, "--", "sh", "-c", script]);
    command
}

/// `leasehold run OPTIONS KEY -- sh -c SCRIPT` on `masters`.
pub(super) fn run(masters: &LocalMasters, options: &[&str], key: &str, script: &str) -> Command {
    run_on(&masters.urls(), options, key, script)
}

/// `leasehold NAME OPTIONS` on the nodes at `urls`.
pub(super) fn command_on(urls: &[String], name: &str, options: &[&str]) -> Command {
    let mut command = leasehold();
    command.env("LEASEHOLD_NODES", urls.join(",")).arg(name).args(options);
    command
}

/// Sends one command to a server, its words separated by blanks.
pub(super) fn tell<T: redis::FromRedisValue>(url: &str, words: &str) -> T {
    let mut connection = redis::Client::open(url).expect("an address").get_connection().expect("it is up");
    let mut words = words.split(' ');
    let mut cmd = redis::cmd(words.next().expect("a command"));
    words.for_each(|word| {
        cmd.arg(word);
    });
    cmd.query(&mut connection).expect("it does so")
}

/// How a command ended.
#[derive(Debug)]
pub(super) struct Ended {
    pub(super) code: Option<i32>,
    pub(super) stdout: String,
    pub(super) stderr: String,
}

impl From<Output> for Ended {
    fn from(output: Output) -> Ended {
        Ended {
            code: output.status.code(),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }
}

/// Runs `command` to its end.
pub(super) async fn end_of(mut command: Command) -> Ended {
    command.stdin(Stdio::null());
    timeout(PATIENCE, command.output()).await.expect("it ends").expect("it starts").into()
}

/// A command that runs.
pub(super) struct Running {
    pub(super) child: Child,
    stdout: Lines<BufReader<ChildStdout>>,
    stderr: ChildStderr,
}

impl Running {
    pub(super) fn start(mut command: Command) -> Running {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("it starts");
        let stdout = BufReader::new(child.stdout.take().expect("it was piped")).lines();
        let stderr = child.stderr.take().expect("it was piped");
        Running { child, stdout, stderr }
    }

    pub(super) fn pid(&self) -> i32 {
        self.child.id().expect("it was not waited for").try_into().expect("a process number")
    }

    pub(super) fn signal(&self, signal: Signal) {
        kill(self.pid(), signal);
    }

    /// The next line of its standard output.
    pub(super) async fn line(&mut self) -> String {
        let line = timeout(PATIENCE, self.stdout.next_line()).await.expect("a line comes");
        line.expect("it can be read").expect("there is a line")
    }

    /// A line that is a process number.
    pub(super) async fn pid_line(&mut self) -> i32 {
        self.line().await.trim().parse().expect("a process number")
    }

    /// Waits for its end, with what it said since the last line that was read.
    pub(super) async fn end(mut self) -> Ended {
        drop(self.child.stdin.take());
        let code = self.exit().await;
        let (mut stdout, mut stderr) = (String::new(), String::new());
        let reading = async {
            while let Some(line) = self.stdout.next_line().await.expect("it can be read") {
                stdout.push_str(&line);
                stdout.push('\n');
            }
            self.stderr.read_to_string(&mut stderr).await.expect("it can be read");
        };
        timeout(PATIENCE, reading).await.expect("nobody holds its pipes");
        Ended { code, stdout, stderr }
    }

    /// Goes away from its standard output, then waits for its end.
    pub(super) async fn end_unread(mut self) -> Ended {
        let (mut child, mut stderr) = (self.child, String::new());
        drop(self.stdout);
        let status = timeout(PATIENCE, child.wait()).await.expect("it ends").expect("it can be waited for");
        self.stderr.read_to_string(&mut stderr).await.expect("it can be read");
        Ended { code: status.code(), stdout: String::new(), stderr }
    }

    /// Waits for its end only: what it started may hold its pipes.
    pub(super) async fn exit(&mut self) -> Option<i32> {
        timeout(PATIENCE, self.child.wait()).await.expect("it ends").expect("it can be waited for").code()
    }

    /// Waits until it listens to SIGTERM: from there on it is in the hands of its own code.
    pub(super) async fn listens(&self) {
        let bit = 1_u64 << (Signal::TERM.as_raw() - 1);
        until(|| status(self.pid(), "SigCgt").is_some_and(|bits| bits & bit != 0)).await;
    }
}

pub(super) fn kill(pid: i32, signal: Signal) {
    kill_process(Pid::from_raw(pid).expect("a process number"), signal).expect("it is there");
}

/// Whether a process is there, other than as one that was not waited for yet.
pub(super) fn is_alive(pid: i32) -> bool {
    test_kill_process(Pid::from_raw(pid).expect("a process number")).is_ok() && state(pid) != Some('Z')
}

/// The state of a process, as `ps` shows it.
pub(super) fn state(pid: i32) -> Option<char> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(") ")?.1.chars().next()
}

fn status(pid: i32, field: &str) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'))?;
    u64::from_str_radix(line.trim(), 16).ok()
}

/// Looks until `done`: for what nobody tells of.
pub(super) async fn until(mut done: impl FnMut() -> bool) {
    let looking = async {
        while !done() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(PATIENCE, looking).await.expect("it comes about");
}

/// A file into which commands write.
pub(super) struct Log {
    folder: TempDir,
}

impl Log {
    pub(super) fn new() -> Log {
        Log { folder: tempfile::tempdir().expect("make a folder") }
    }

    pub(super) fn path(&self) -> PathBuf {
        self.folder.path().join("log")
    }

    pub(super) fn text(&self) -> String {
        std::fs::read_to_string(self.path()).unwrap_or_default()
    }

    /// The numbers in it; a last line that is not complete is left out.
    pub(super) fn numbers(&self) -> Vec<u128> {
        let text = self.text();
        let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
        whole.lines().map(|line| line.parse().expect("a number")).collect()
    }
}

/// Nanoseconds of Unix time, as `date +%s%N` has them.
pub(super) fn unix_nanos() -> u128 {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("after 1970").as_nanos()
}
