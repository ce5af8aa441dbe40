//! One server process: started, signalled, and ended with its value.

use std::fs::{File, OpenOptions};
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};

use super::TestingError;
use super::probe;

/// A server answers within some 20 ms of its start; a loaded machine and a large file take longer.
const START_PATIENCE: Duration = Duration::from_secs(30);
/// How long a signal may take to do its work.
const SIGNAL_PATIENCE: Duration = Duration::from_secs(20);
/// Between two looks at a process.
const TICK: Duration = Duration::from_millis(3);

#[derive(Debug)]
pub(super) struct Server {
    pub(super) port: u16,
    pub(super) dir: PathBuf,
    binary: PathBuf,
    args: Vec<String>,
    password: Option<String>,
    // None while it is down. Never locked across an await.
    child: Mutex<Option<Child>>,
}

impl Server {
    pub(super) fn new(binary: PathBuf, port: u16, dir: PathBuf, args: Vec<String>) -> Server {
        let password = value_of("--requirepass", &args);
        Server { port, dir, binary, args, password, child: Mutex::new(None) }
    }

    pub(super) fn address(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.port).into()
    }

    pub(super) fn pid(&self) -> Option<u32> {
        self.child().as_ref().map(Child::id)
    }

    /// Starts the process and returns when it answers.
    pub(super) async fn start(&self) -> Result<(), TestingError> {
        let pid = self.spawn()?;
        let started = Instant::now();
        loop {
            if let Some(status) = self.reap()? {
                return Err(self.ended(status));
            }
            if probe::answers(self.address(), pid, self.password.as_deref()).await && self.reap()?.is_none() {
                return Ok(());
            }
            if started.elapsed() > START_PATIENCE {
                self.kill().await?;
                return Err(TestingError::NotReady {
                    port: self.port,
                    within: START_PATIENCE,
                    log: self.log_tail(),
                });
            }
            tokio::time::sleep(TICK).await;
        }
    }

    fn spawn(&self) -> Result<u32, TestingError> {
        std::fs::create_dir_all(&self.dir).map_err(TestingError::io("make a server's folder"))?;
        let log = self.open_log().map_err(TestingError::io("write a server's log"))?;
        let log_too = log.try_clone().map_err(TestingError::io("write a server's log"))?;
        let child = Command::new(&self.binary)
            .args(["--bind", "127.0.0.1", "--port", &self.port.to_string()])
            .arg("--dir")
            .arg(&self.dir)
            .args(&self.args)
            .current_dir(&self.dir)
            .stdin(Stdio::null())
            .stdout(log)
            .stderr(log_too)
            // A Ctrl-C at the terminal is for the owner, who ends the servers in its own order.
            .process_group(0)
            .spawn()
            .map_err(TestingError::io("start a server"))?;
        let pid = child.id();
        *self.child() = Some(child);
        Ok(pid)
    }

    fn open_log(&self) -> std::io::Result<File> {
        OpenOptions::new().create(true).append(true).open(self.log_path())
    }

    fn log_path(&self) -> PathBuf {
        self.dir.join("server.log")
    }

    fn log_tail(&self) -> String {
        let bytes = std::fs::read(self.log_path()).unwrap_or_default();
        let text = String::from_utf8_lossy(&bytes);
        let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
        lines[lines.len().saturating_sub(6)..].join("\n")
    }

    fn ended(&self, status: ExitStatus) -> TestingError {
        let log = self.log_tail();
        if log.contains(&format!("Failed listening on port {}", self.port)) {
            return TestingError::PortTaken { port: self.port };
        }
        TestingError::Exited { port: self.port, status, log }
    }

    /// SIGKILL, also to a paused one; returns when it is reaped. Nothing to do where it is down.
    pub(super) async fn kill(&self) -> Result<(), TestingError> {
        self.signal(Signal::KILL)?;
        self.wait_for_end("KILL").await
    }

    /// SIGTERM; returns when it is reaped. Nothing to do where it is down.
    pub(super) async fn stop(&self) -> Result<(), TestingError> {
        self.signal(Signal::TERM)?;
        // A paused process takes a SIGTERM only when it goes on.
        self.signal(Signal::CONT)?;
        self.wait_for_end("TERM").await
    }

    /// SIGSTOP; returns when it stands still. False where it is down.
    pub(super) async fn pause(&self) -> Result<bool, TestingError> {
        if !self.signal(Signal::STOP)? {
            return Ok(false);
        }
        let started = Instant::now();
        // The system only promises to stop it soon; a command sent now might still be answered.
        while !self.is_stopped()? {
            if self.reap()?.is_some() {
                return Ok(false);
            }
            if started.elapsed() > SIGNAL_PATIENCE {
                return Err(self.not_obeyed("STOP"));
            }
            tokio::time::sleep(TICK).await;
        }
        Ok(true)
    }

    /// SIGCONT. False where it is down.
    pub(super) fn resume(&self) -> Result<bool, TestingError> {
        self.signal(Signal::CONT)
    }

    fn is_stopped(&self) -> Result<bool, TestingError> {
        let child = self.child();
        let Some(child) = child.as_ref() else {
            return Ok(false);
        };
        // NOWAIT leaves the state to be read again: it is one already when paused twice.
        let options = WaitIdOptions::STOPPED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        let status = waitid(WaitId::Pid(Pid::from_child(child)), options)
            .map_err(|errno| TestingError::io("ask for a server's state")(errno.into()))?;
        Ok(status.is_some())
    }

    /// False where there is no process to signal.
    fn signal(&self, signal: Signal) -> Result<bool, TestingError> {
        // The lock keeps the process from being reaped, and its number from being given away.
        let child = self.child();
        let Some(child) = child.as_ref() else {
            return Ok(false);
        };
        kill_process(Pid::from_child(child), signal)
            .map_err(|errno| TestingError::io("signal a server")(errno.into()))?;
        Ok(true)
    }

    async fn wait_for_end(&self, signal: &'static str) -> Result<(), TestingError> {
        let started = Instant::now();
        while self.reap()?.is_none() && self.pid().is_some() {
            if started.elapsed() > SIGNAL_PATIENCE {
                return Err(self.not_obeyed(signal));
            }
            tokio::time::sleep(TICK).await;
        }
        Ok(())
    }

    fn not_obeyed(&self, signal: &'static str) -> TestingError {
        TestingError::NotObeyed { port: self.port, signal, within: SIGNAL_PATIENCE }
    }

    /// The exit status, once, if the process has ended by now.
    fn reap(&self) -> Result<Option<ExitStatus>, TestingError> {
        let mut child = self.child();
        let Some(process) = child.as_mut() else {
            return Ok(None);
        };
        let status = process.try_wait().map_err(TestingError::io("wait for a server"))?;
        if status.is_some() {
            *child = None;
        }
        Ok(status)
    }

    fn child(&self) -> MutexGuard<'_, Option<Child>> {
        self.child.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(mut child) = self.child().take() {
            let _ = child.kill();
            // A killed process is gone within a moment, so this does not block for long.
            let _ = child.wait();
        }
    }
}

/// Where a server with this folder has its Unix socket.
pub(super) fn socket_in(dir: &Path) -> PathBuf {
    dir.join("sock")
}

/// The value behind the last `name` in a list of arguments.
fn value_of(name: &str, args: &[String]) -> Option<String> {
    let at = args.iter().rposition(|arg| arg == name)?;
    args.get(at + 1).cloned()
}

/// The server to start: `LEASEHOLD_SERVER`, else what PATH has.
pub(super) fn find_binary() -> Result<PathBuf, TestingError> {
    if let Some(named) = std::env::var_os("LEASEHOLD_SERVER").filter(|value| !value.is_empty()) {
        return program(Path::new(&named));
    }
    ["redis-server", "valkey-server"]
        .iter()
        .find_map(|name| on_path(Path::new(name)))
        .ok_or(TestingError::NoServer)
}

/// `path` as a program that can be run from any folder; a bare name is looked for on PATH.
pub(super) fn program(path: &Path) -> Result<PathBuf, TestingError> {
    let found = if path.components().count() == 1 { on_path(path) } else { None };
    let found = found.or_else(|| is_program(path).then(|| path.to_owned()));
    found
        .and_then(|path| std::path::absolute(path).ok())
        .ok_or_else(|| TestingError::NotAProgram { path: path.to_owned() })
}

fn on_path(name: &Path) -> Option<PathBuf> {
    let folders = std::env::var_os("PATH")?;
    std::env::split_paths(&folders).map(|folder| folder.join(name)).find(|path| is_program(path))
}

fn is_program(path: &Path) -> bool {
    path.metadata().is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o111 != 0)
}
