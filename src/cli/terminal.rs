//! Job control: the command is a process group of its own, and a terminal obeys and serves one group at a
//! time.
//!
//! A command that is typed at a shell gets the terminal at once; one in a pipeline when it first asks for
//! it, because the others in the pipeline may need it. A command that is stopped stops `leasehold` too, so
//! that the shell takes notice.

use std::cell::Cell;
use std::fs::File;
use std::io::IsTerminal as _;

use nix::sys::signal::SigSet;
use rustix::process::{Pid, Signal, getpgid, getpgrp, getpid, getppid, getsid};
use rustix::process::{kill_current_process_group, kill_process};
use rustix::termios::{tcgetpgrp, tcsetpgrp};

use super::group::Group;

/// The controlling terminal, if there is one.
pub(crate) struct Terminal {
    tty: Option<File>,
    /// The command has it.
    given: Cell<bool>,
}

/// What a stopped command means for `leasehold`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stop {
    /// It was stopped by hand, not by a terminal: no concern of ours.
    Ignored,
    /// It goes on, with the terminal.
    Resumed,
    /// The whole job was stopped, and goes on now if the lease lets it.
    Suspended,
}

impl Terminal {
    /// Must be called before other threads are started: they inherit what is blocked here.
    pub(crate) fn prepare() {
        // A process in the background that changes the terminal's group, or writes to a terminal that
        // minds it, would be stopped. Commands are started with nothing blocked.
        let mut background = SigSet::empty();
        background.add(nix::sys::signal::Signal::SIGTTOU);
        // Cannot fail with a valid set.
        let _ = background.thread_block();
    }

    pub(crate) fn open() -> Self {
        Self { tty: File::open("/dev/tty").ok(), given: Cell::new(false) }
    }

    /// Gives the terminal to a command that was just started, if it is alone at it.
    pub(crate) fn give_at_start(&self, group: &Group) {
        if std::io::stdin().is_terminal() && std::io::stdout().is_terminal() && self.give(group) {
            // It may have been stopped for reading too early.
            let _ = group.send(Signal::CONT);
        }
    }

    /// Gives the terminal to the command if it is ours to give.
    fn give(&self, group: &Group) -> bool {
        let Some(tty) = &self.tty else { return false };
        let ours = tcgetpgrp(tty).is_ok_and(|foreground| foreground == getpgrp());
        if ours && tcsetpgrp(tty, group.id()).is_ok() {
            self.given.set(true);
        }
        ours
    }

    /// Takes the terminal back if the command had it.
    pub(crate) fn take_back(&self) {
        if let (Some(tty), true) = (&self.tty, self.given.take()) {
            // One that was hung up serves nobody any more.
            let _ = tcsetpgrp(tty, getpgrp());
        }
    }

    /// The command was stopped by `signal`.
    pub(crate) fn stopped(&self, signal: i32, group: &Group) -> Stop {
        if self.tty.is_none() {
            return Stop::Ignored;
        }
        let asks = [Signal::TTIN, Signal::TTOU].iter().any(|asking| asking.as_raw() == signal);
        if asks && (self.give(group) || self.has(group)) {
            let _ = group.send(Signal::CONT);
            return Stop::Resumed;
        }
        if self.given.get() || asks || signal == Signal::TSTP.as_raw() {
            self.suspend(group, true);
            return Stop::Suspended;
        }
        Stop::Ignored
    }

    fn has(&self, group: &Group) -> bool {
        self.tty.as_ref().is_some_and(|tty| tcgetpgrp(tty).is_ok_and(|foreground| foreground == group.id()))
    }

    /// Stops the command, then this process, `with_job` also the others that the shell started with it.
    /// Returns when the shell lets it go on. The command stands still then: its lease may be over.
    pub(crate) fn suspend(&self, group: &Group, with_job: bool) {
        if !can_be_continued() {
            return;
        }
        // Also those that do not mind Ctrl-Z: nobody works while nobody looks after the lease.
        let _ = group.send(Signal::STOP);
        self.take_back();
        // Cannot fail: this process is there and its own.
        let _ = if with_job {
            kill_current_process_group(Signal::STOP)
        } else {
            kill_process(getpid(), Signal::STOP)
        };
        self.give(group);
    }
}

/// Whether a shell would notice that this process is stopped: whether the group has a parent outside of
/// it, in the same session.
fn can_be_continued() -> bool {
    let Ok(session) = getsid(None) else { return false };
    let mut ancestor = getppid();
    while let Some(pid) = ancestor {
        if getsid(Some(pid)) != Ok(session) {
            return false;
        }
        if getpgid(Some(pid)) != Ok(getpgrp()) {
            return true;
        }
        ancestor = parent(pid);
    }
    false
}

fn parent(pid: Pid) -> Option<Pid> {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).ok()?;
    parent_in(&stat)
}

/// The fourth field; the second is a name in parentheses that may hold blanks and parentheses.
fn parent_in(stat: &str) -> Option<Pid> {
    let (_, rest) = stat.rsplit_once(')')?;
    Pid::from_raw(rest.split_ascii_whitespace().nth(1)?.parse().ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parent_is_read_behind_any_name() {
        assert_eq!(parent_in("12 (a) b (c)) S 7 12 12 0"), Pid::from_raw(7));
        assert_eq!(parent_in("12 (init) S 0 1 1"), None);
        assert_eq!(parent_in(""), None);
        assert!(parent(getpid()).is_some());
    }
}
