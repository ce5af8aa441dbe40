//! Ends servers whose owner died without a word.
//!
//! A destructor ends the servers when a test returns or panics. It does not run when the process is
//! killed or aborted, nor for values in statics. For these a small shell waits at the other end of a
//! pipe, which the operating system closes whatever way the owner went.

use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;

/// Each line names the processes that run now, in place of all earlier ones.
const SCRIPT: &str = r#"
while read -r line; do pids=$line; done
kill -9 $pids
rm -rf "$1" || { sleep 1; rm -rf "$1"; }
"#;

#[derive(Debug)]
pub(super) struct Watchdog {
    // None where there is no shell: the destructors still do their work.
    shell: Option<Mutex<Child>>,
}

impl Watchdog {
    pub(super) fn start(folder: &Path) -> Watchdog {
        let shell = Command::new("sh")
            .args(["-c", SCRIPT, "leasehold-watchdog"])
            .arg(folder)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            // A Ctrl-C at the terminal is for the owner; the watchdog must outlive it.
            .process_group(0)
            .spawn();
        Watchdog { shell: shell.ok().map(Mutex::new) }
    }

    /// Takes note of the processes to end.
    pub(super) fn watch(&self, pids: impl Iterator<Item = u32>) {
        let Some(shell) = &self.shell else { return };
        let mut line: String = pids.map(|pid| format!("{pid} ")).collect();
        line.push('\n');
        let mut shell = shell.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if let Some(pipe) = &mut shell.stdin {
            // Fails only when somebody ended the shell; then there is nobody to tell.
            let _ = pipe.write_all(line.as_bytes());
        }
    }
}

impl Drop for Watchdog {
    /// The owner cleans up by itself: the watchdog goes without doing anything.
    fn drop(&mut self) {
        if let Some(shell) = &mut self.shell {
            let shell = shell.get_mut().unwrap_or_else(|poisoned| poisoned.into_inner());
            let _ = shell.kill();
            let _ = shell.wait();
        }
    }
}
