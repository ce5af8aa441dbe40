//! The time in which a command runs under a lease: it ends by itself, or is ended before the validity is.

use std::process::Command;
use std::time::Duration;

use leasehold::{Lease, LeaseLost, Redlock};
use rustix::io::Errno;
use rustix::process::Signal;
use tokio::signal::unix::{self, SignalKind};
use tokio::task::JoinSet;

use super::exit::say;
use super::group::{Exit, Group};
use super::limits::Limits;
use super::nodes::failing;
use super::signals::Signals;
use super::terminal::{Stop, Terminal};
use super::watch::{Watch, now};

/// How often it is looked whether the group is gone: nobody tells of processes that are not our children.
const LOOK: Duration = Duration::from_millis(20);
/// What the command leaves behind has so long to end by itself.
const SETTLE: Duration = Duration::from_secs(1);
/// A process that is still there so long after KILL is stuck in the system, and no more can be done.
const KILL_PATIENCE: Duration = Duration::from_secs(5);
/// How long messages may take that nobody reads.
const SAY_PATIENCE: Duration = Duration::from_secs(1);

/// What became of the command.
pub(crate) enum Outcome {
    /// It ended by itself, under the lease.
    Ended(Exit),
    /// It was ended for the lease, or had not ended when that was lost.
    Lost,
}

pub(crate) struct Supervisor<'a> {
    redlock: &'a Redlock,
    lease: &'a Lease,
    watch: Watch<'a>,
    group: Group,
    signals: &'a mut Signals,
    terminal: Terminal,
    /// SIGCHLD: a child ended or was stopped.
    children: unix::Signal,
    /// SIGTSTP: Ctrl-Z while the command does not have the terminal.
    suspends: unix::Signal,
    messages: JoinSet<()>,
}

impl<'a> Supervisor<'a> {
    /// Starts the command.
    pub(crate) fn start(
        command: &mut Command,
        redlock: &'a Redlock,
        lease: &'a Lease,
        limits: Limits,
        signals: &'a mut Signals,
    ) -> std::io::Result<Self> {
        // Before the start, so that nothing is missed.
        let children = unix::signal(SignalKind::child())?;
        let suspends = unix::signal(SignalKind::from_raw(Signal::TSTP.as_raw()))?;
        let terminal = Terminal::open();
        let group = Group::spawn(command)?;
        terminal.give_at_start(&group);
        Ok(Self {
            redlock,
            lease,
            watch: Watch::new(lease, limits),
            group,
            signals,
            terminal,
            children,
            suspends,
            messages: JoinSet::new(),
        })
    }

    /// Returns when the command and its group are gone.
    pub(crate) async fn run(mut self) -> Outcome {
        let mut trouble = self.until_exit_or_trouble().await;
        if trouble.is_none() && !self.lease.is_valid() {
            // What ran on after the end of the validity did not run under the lease.
            trouble = Some(Some(self.lease.lost().await));
        }
        let outcome = match (self.group.exit(), &trouble) {
            (Some(exit), None) => Outcome::Ended(exit),
            _ => Outcome::Lost,
        };
        match trouble {
            Some(lost) => {
                let message = self.tell(lost);
                self.end_group(message).await;
            }
            None if self.has_ended_by_itself().await => {}
            None => {
                let left =
                    "CMD has ended, but not all that it started: ending what is left in its process group";
                self.end_group(left.to_owned()).await;
            }
        }
        self.terminal.take_back();
        // A reader that does not read must not keep the lease.
        let messages = std::mem::take(&mut self.messages);
        let _ = tokio::time::timeout(SAY_PATIENCE, messages.join_all()).await;
        outcome
    }

    /// `None` once the command has ended, else why it must go.
    async fn until_exit_or_trouble(&mut self) -> Option<Option<LeaseLost>> {
        loop {
            self.group.reap();
            if self.group.exit().is_some() {
                return None;
            }
            if let Some(signal) = self.group.take_stop()
                && self.terminal.stopped(signal, &self.group) == Stop::Suspended
            {
                self.resume();
            }
            tokio::select! {
                biased;
                trouble = self.watch.trouble() => {
                    self.group.reap();
                    let in_time = self.group.exit().is_some() && self.lease.is_valid();
                    return if in_time { None } else { Some(trouble) };
                }
                Some(()) = self.children.recv() => {}
                signal = self.signals.next() => self.send(signal),
                Some(()) = self.suspends.recv() => {
                    self.terminal.suspend(&self.group, false);
                    self.resume();
                }
            }
        }
    }

    /// Lets a command that stands still go on, unless it must be ended first.
    fn resume(&mut self) {
        if !self.watch.kill_in(Duration::ZERO).is_zero() {
            self.send(Signal::CONT);
        }
    }

    /// Whether all that the command left behind ends by itself: a `tee` at the end of a pipe does.
    async fn has_ended_by_itself(&mut self) -> bool {
        let begun = now();
        while now().saturating_sub(begun) < SETTLE {
            self.group.reap();
            if self.group.is_gone() {
                return true;
            }
            tokio::select! {
                biased;
                _ = self.watch.trouble() => return false,
                signal = self.signals.next() => self.send(signal),
                () = tokio::time::sleep(LOOK) => {}
            }
        }
        false
    }

    /// TERM, then KILL when it is due; returns when nobody is left in the group.
    async fn end_group(&mut self, message: String) {
        let begun = now();
        if !self.watch.kill_in(Duration::ZERO).is_zero() {
            self.send(Signal::TERM);
        }
        self.say(message);
        let mut killed = None;
        loop {
            self.group.reap();
            if self.group.is_gone() {
                return;
            }
            let due = self.watch.kill_in(now().saturating_sub(begun));
            let mut pause = LOOK;
            match killed {
                None if due.is_zero() => {
                    self.send(Signal::KILL);
                    killed = Some(now());
                }
                None => pause = due.min(LOOK),
                Some(at) if now().saturating_sub(at) > KILL_PATIENCE => {
                    let id = self.group.id().as_raw_nonzero();
                    self.say(format!(
                        "process group {id} is still there after KILL: it may work without the lease"
                    ));
                    return;
                }
                Some(_) => {}
            }
            tokio::select! {
                biased;
                signal = self.signals.next(), if killed.is_none() => self.send(signal),
                () = tokio::time::sleep(pause) => {}
            }
        }
    }

    /// What is to end a command that stands still also wakes it: the lease would else be kept for as long as it
    /// stands.
    fn send(&mut self, signal: Signal) {
        self.send_alone(signal);
        if matches!(signal, Signal::HUP | Signal::TERM) {
            self.send_alone(Signal::CONT);
        }
    }

    fn send_alone(&mut self, signal: Signal) {
        if let Err(error) = self.group.send(signal) {
            let name = signal.as_raw();
            let hint = if error == Errno::PERM { "; does it run as another user?" } else { "" };
            self.say(format!("cannot send signal {name} to CMD: {error}{hint}"));
        }
    }

    /// Why the command must go, in words.
    fn tell(&mut self, lost: Option<LeaseLost>) -> String {
        if let Some(lost) = lost {
            return match self.group.exit() {
                Some(_) => format!("{lost}; CMD was still running then"),
                None => format!("{lost}: ending CMD"),
            };
        }
        let (key, left) = (self.lease.key(), self.watch.left());
        let failing = failing(&self.redlock.nodes());
        let failing = if failing.is_empty() { "no answer in time".to_owned() } else { failing };
        format!("the lease on `{key}` could not be renewed and ends in {left:.1?} ({failing}): ending CMD")
    }

    /// Says it from another thread: a full pipe must not hold up an ending.
    fn say(&mut self, message: String) {
        self.messages.spawn_blocking(move || say(&message));
    }
}
