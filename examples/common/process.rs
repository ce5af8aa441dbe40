//! A process of its own that can be stopped or killed: the example starts itself again with an argument, gives
//! it orders, a line each, and gets an answer, a line each.

use std::io::Write as _;
use std::process::Stdio;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

use crate::timeline::Result;

/// Longer than any answer takes on a loaded machine.
const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) struct Process {
    child: Child,
    orders: ChildStdin,
    answers: Lines<BufReader<ChildStdout>>,
}

impl Process {
    /// Starts this program as `worker ARGS`. It ends with the value.
    pub(crate) fn start(args: &[String]) -> Result<Self> {
        let mut command = Command::new(std::env::current_exe()?);
        command.arg("worker").args(args).stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
        let mut child = command.spawn()?;
        let orders = child.stdin.take().ok_or("the process has no standard input")?;
        let answers = child.stdout.take().ok_or("the process has no standard output")?;
        Ok(Self { child, orders, answers: BufReader::new(answers).lines() })
    }

    pub(crate) async fn send(&mut self, order: &str) -> Result<()> {
        Ok(self.orders.write_all(format!("{order}\n").as_bytes()).await?)
    }

    pub(crate) async fn answer(&mut self) -> Result<String> {
        let answer = tokio::time::timeout(PATIENCE, self.answers.next_line()).await??;
        Ok(answer.ok_or("the process ended before it answered")?)
    }

    pub(crate) async fn ask(&mut self, order: &str) -> Result<String> {
        self.send(order).await?;
        self.answer().await
    }

    /// SIGSTOP: it stands still with all its threads, as under a long pause of any other kind, until SIGCONT.
    pub(crate) fn signal(&self, signal: Signal) -> Result<()> {
        Ok(kill_process(self.pid()?, signal)?)
    }

    pub(crate) fn pid(&self) -> Result<Pid> {
        let pid = self.child.id().and_then(|pid| Pid::from_raw(pid.cast_signed()));
        Ok(pid.ok_or("the process has ended")?)
    }
}

/// The other side: takes orders from standard input until it ends. The thread waits in the system as a program
/// does that works without a pause: heartbeats go on, on the other threads of the runtime.
pub(crate) fn orders() -> impl Iterator<Item = String> {
    std::io::stdin().lines().map_while(std::io::Result::ok)
}

/// Answers an order.
pub(crate) fn answer(answer: impl std::fmt::Display) -> Result<()> {
    Ok(writeln!(std::io::stdout(), "{answer}")?)
}
