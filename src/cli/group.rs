//! The process group in which a command runs, with all that it started and that did not leave it.

use std::process::Command;

use std::os::unix::process::CommandExt as _;

use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitOptions, kill_process_group, test_kill_process_group, wait};

use super::exit::Code;

/// How the command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    Status(i32),
    Signal(i32),
}

impl Exit {
    pub(crate) fn code(self) -> Code {
        match self {
            Exit::Status(status) => Code::of_command(status),
            Exit::Signal(signal) => Code::of_signal(signal),
        }
    }
}

/// A process group and its leader, the command. There is one at a time: it takes note of all children of
/// this process.
pub(crate) struct Group {
    leader: Pid,
    exit: Option<Exit>,
    stopped: Option<i32>,
}

impl Group {
    /// Starts `command` as the leader of a new group.
    pub(crate) fn spawn(command: &mut Command) -> std::io::Result<Group> {
        // Without it, what the command leaves behind is reaped by somebody else, or by nobody where the
        // first process of a container does not care; it would then stay in the group for ever.
        #[cfg(target_os = "linux")]
        let _ = rustix::process::set_child_subreaper(Some(rustix::process::getpid()));
        let child = command.process_group(0).spawn()?;
        let leader = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
        let leader = leader.ok_or(std::io::ErrorKind::InvalidData)?;
        Ok(Group { leader, exit: None, stopped: None })
    }

    pub(crate) fn id(&self) -> Pid {
        self.leader
    }

    /// How the command ended, once it has.
    pub(crate) fn exit(&self) -> Option<Exit> {
        self.exit
    }

    /// The signal that stopped the command since this was last asked.
    pub(crate) fn take_stop(&mut self) -> Option<i32> {
        self.stopped.take()
    }

    /// Takes in what happened to the children of this process.
    pub(crate) fn reap(&mut self) {
        loop {
            match wait(WaitOptions::NOHANG | WaitOptions::UNTRACED) {
                Ok(Some((pid, status))) if pid == self.leader => {
                    if let Some(signal) = status.stopping_signal() {
                        self.stopped = Some(signal);
                    } else if let Some(signal) = status.terminating_signal() {
                        self.exit = Some(Exit::Signal(signal));
                    } else if let Some(status) = status.exit_status() {
                        self.exit = Some(Exit::Status(status));
                    }
                }
                // One that the command had started and left to us.
                Ok(Some(_)) | Err(Errno::INTR) => {}
                Ok(None) | Err(_) => return,
            }
        }
    }

    /// Whether nobody is left in the group, the command included.
    pub(crate) fn is_gone(&self) -> bool {
        self.exit.is_some() && test_kill_process_group(self.leader) == Err(Errno::SRCH)
    }

    /// Sends `signal` to all in the group. None being left is no error.
    pub(crate) fn send(&self, signal: Signal) -> Result<(), Errno> {
        if self.is_gone() {
            // Its number may be another's now.
            return Ok(());
        }
        match kill_process_group(self.leader, signal) {
            Err(Errno::SRCH) => Ok(()),
            sent => sent,
        }
    }
}
