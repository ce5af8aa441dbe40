//! At a terminal: a pseudoterminal with a session of its own.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::process::Stdio;

use leasehold::Redlock;
use leasehold::testing::LocalMasters;
use rustix::pty::{OpenptFlags, grantpt, ioctl_tiocgptpeer, openpt, unlockpt};
use tokio::process::{Child, Command};
use tokio::sync::mpsc;
use tokio::time::timeout;

use super::support::{PATIENCE, end_of, five, leasehold, run};

const CTRL_C: &str = "\x03";
const CTRL_Z: &str = "\x1a";

/// A session at a terminal.
pub(super) struct Session {
    child: Child,
    keyboard: File,
    output: mpsc::UnboundedReceiver<String>,
    pub(super) screen: String,
    /// How much of the screen was looked at.
    seen: usize,
    folder: tempfile::TempDir,
}

impl Session {
    /// Starts `program` at a new terminal. The scripts are there as `$job/NAME`; `$run` is the command
    /// with its options and key.
    pub(super) fn start(masters: &LocalMasters, program: &[&str], scripts: &[(&str, &str)]) -> Session {
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
        let master = openpt(flags).expect("open a terminal");
        grantpt(&master).expect("grant it");
        unlockpt(&master).expect("unlock it");
        let terminal = || Stdio::from(ioctl_tiocgptpeer(&master, flags).expect("open the other side"));
        let folder = tempfile::tempdir().expect("make a folder");
        for (name, script) in scripts {
            std::fs::write(folder.path().join(name), script).expect("write a script");
        }
        let binary = leasehold().as_std().get_program().to_str().expect("a plain path").to_owned();
        let child = Command::new("setsid")
            .args(["--ctty", "--wait"])
            .args(program)
            .env("LEASEHOLD_NODES", masters.urls().join(","))
            .env("job", folder.path())
            .env("run", format!("{binary} run --ttl 3s key --"))
            .env("PS1", "$ ")
            .stdin(terminal())
            .stdout(terminal())
            .stderr(terminal())
            .kill_on_drop(true)
            .spawn()
            .expect("start a session");
        let keyboard = File::from(master);
        let (shown, output) = mpsc::unbounded_channel();
        let mut reader = keyboard.try_clone().expect("share it");
        std::thread::spawn(move || {
            let mut buffer = [0; 1024];
            // Ends with an error when nobody has the terminal any more.
            while let Ok(count @ 1..) = reader.read(&mut buffer) {
                let text = String::from_utf8_lossy(&buffer[..count]).into_owned();
                if shown.send(text).is_err() {
                    return;
                }
            }
        });
        Session { child, keyboard, output, screen: String::new(), seen: 0, folder }
    }

    fn write(&self, text: &str) {
        (&self.keyboard).write_all(text.as_bytes()).expect("type");
    }

    /// Types a line.
    pub(super) fn line(&self, text: &str) {
        self.write(&format!("{text}\n"));
    }

    /// Waits until `text` is on the screen, behind what was waited for before.
    pub(super) async fn expect(&mut self, text: &str) {
        let shown = timeout(PATIENCE, self.read_until(text)).await;
        assert!(matches!(shown, Ok(true)), "no {text:?} on the screen:\n{}", self.screen);
    }

    async fn read_until(&mut self, text: &str) -> bool {
        loop {
            if let Some(at) = self.screen[self.seen..].find(text) {
                self.seen += at + text.len();
                return true;
            }
            match self.output.recv().await {
                Some(text) => self.screen.push_str(&text),
                None => return false,
            }
        }
    }

    pub(super) async fn exit(&mut self) -> Option<i32> {
        timeout(PATIENCE, self.child.wait()).await.expect("it ends").expect("it can be waited for").code()
    }
}

/// Says what it reads from the terminal.
const READS: (&str, &str) = ("reads", "echo ready; read line </dev/tty; echo \"got $line\"");

/// The command of `script` reads from the terminal, and then the one after it.
async fn two_read_in_turn(script: &str) {
    let masters = five().await;
    let script = ("script", script);
    let mut session = Session::start(&masters, &["sh", "-c", ". $job/script"], &[READS, script]);
    for word in ["one", "two"] {
        session.expect("ready").await;
        session.line(word);
        session.expect(&format!("got {word}")).await;
    }
    assert_eq!(session.exit().await, Some(0), "{}", session.screen);
}

#[tokio::test]
async fn the_command_reads_from_the_terminal_and_so_does_who_comes_after_it() {
    two_read_in_turn("$run sh $job/reads; sh $job/reads").await;
}

#[tokio::test]
async fn in_a_pipeline_the_terminal_is_given_when_it_is_asked_for() {
    two_read_in_turn("$run sh $job/reads | cat; sh $job/reads").await;
}

#[tokio::test]
async fn ctrl_c_is_for_the_command() {
    let masters = five().await;
    let traps = ("traps", "trap 'echo interrupted; exit 9' INT; echo ready; while :; do sleep 0.05; done");
    // With the terminal, and without: then leasehold passes it on.
    for pipe in ["", "| (trap '' INT; cat)"] {
        let script = format!("trap : INT; $run sh $job/traps {pipe}; echo code ${{PIPESTATUS[0]}}");
        let scripts = [traps, ("script", script.as_str())];
        let mut session = Session::start(&masters, &["bash", "-c", ". $job/script"], &scripts);
        session.expect("ready").await;
        session.write(CTRL_C);
        session.expect("interrupted").await;
        session.expect("code 9").await;
        session.exit().await;
    }
}

#[tokio::test]
async fn ctrl_z_stops_it_with_the_command_and_fg_goes_on() {
    let masters = five().await;
    // As a job by itself, and within a script.
    for job in ["$run sh $job/reads", "sh $job/script"] {
        let script = ("script", "$run sh $job/reads");
        let shell = ["bash", "--norc", "--noediting", "-i"];
        let mut session = Session::start(&masters, &shell, &[READS, script]);
        session.expect("$ ").await;
        session.line(job);
        session.expect("ready").await;
        session.write(CTRL_Z);
        session.expect("Stopped").await;
        session.expect("$ ").await;
        session.line("fg");
        session.expect(job).await;
        session.line("one");
        session.expect("got one").await;
        session.expect("$ ").await;
        session.line("echo code $?; exit");
        session.expect("code 0").await;
        session.exit().await;
    }
}

#[tokio::test]
async fn a_command_whose_lease_ended_while_it_was_stopped_never_goes_on() {
    let masters = five().await;
    // It does not mind Ctrl-Z.
    let stubborn = (
        "stubborn",
        "trap '' TSTP TERM; echo >>$job/log; echo ready; while :; do echo >>$job/log; sleep 0.02; done",
    );
    let shell = ["bash", "--norc", "--noediting", "-i"];
    let mut session = Session::start(&masters, &shell, &[stubborn]);
    session.expect("$ ").await;
    // The terminal's own Ctrl-Z stops the shell around it.
    session.line("$run sh -c 'sh $job/stubborn; :'");
    session.expect("ready").await;
    session.write(CTRL_Z);
    session.expect("Stopped").await;

    let rival = Redlock::connect(masters.urls()).await.unwrap();
    let lease = rival.lease("key").acquire().await.expect("nobody renews it");
    let log = || std::fs::read(session.folder.path().join("log")).unwrap().len();
    let before = log();
    session.line("fg");
    session.expect("was lost").await;
    session.expect("$ ").await;
    session.line("echo code $?; exit");
    session.expect("code 76").await;
    session.exit().await;
    let log = std::fs::read(session.folder.path().join("log")).unwrap().len();
    assert_eq!(log, before, "it worked beside the new holder");
    lease.release().await.unwrap();
}

#[tokio::test]
async fn in_the_background_it_leaves_the_terminal_alone() {
    let masters = five().await;
    let shell = ["bash", "--norc", "--noediting", "-i"];
    let quiet = ("quiet", "while ! [ -e $job/end ]; do sleep 0.02; done; echo ended");
    let mut session = Session::start(&masters, &shell, &[READS, quiet]);
    session.expect("$ ").await;
    session.line("$run sh $job/quiet &");
    session.expect("$ ").await;
    session.line("sh $job/reads");
    session.expect("ready").await;
    session.line("one");
    session.expect("got one").await;
    session.line("touch $job/end; wait; exit");
    session.expect("ended").await;
    session.exit().await;
    assert_eq!(end_of(run(&masters, &["--wait", "0"], "key", "")).await.code, Some(0));
}
