//! The worker processes, and what is done to them.

use std::fs::File;
use std::path::PathBuf;
use std::process::Stdio;

use rustix::process::{Pid, Signal, kill_process};
use tokio::process::{Child, Command};

use super::journal::Journal;
use super::line::{Event, Line, lines};
use super::moment::Moment;
use super::worker::{ORDERS, Orders};
use crate::common::{PATIENCE, within};

/// One worker, through all its lives. Ends with its value, also when it is stopped.
pub(super) struct Worker<'a> {
    name: String,
    lives: u64,
    orders: Orders,
    process: Child,
    journal: &'a Journal,
}

impl<'a> Worker<'a> {
    /// Starts the worker called `name` with `orders`, in which the name and the file are filled in. What is
    /// done to it goes into `journal`.
    pub(super) fn start(name: String, orders: &Orders, journal: &'a Journal) -> Self {
        let orders = life(&name, 1, orders);
        let process = spawn(&orders);
        Self { name, lives: 1, orders, process, journal }
    }

    /// This life of it.
    pub(super) fn name(&self) -> &str {
        &self.orders.name
    }

    /// What this life of it has written.
    pub(super) fn lines(&self) -> Vec<Line> {
        // It may not have begun yet.
        lines(&std::fs::read_to_string(&self.orders.file).unwrap_or_default())
    }

    fn signal(&self, signal: Signal) {
        // Nobody reaps it meanwhile, so that the number is its own.
        let pid = self.process.id().unwrap_or_else(|| panic!("{} has ended:\n{}", self.name(), self.said()));
        let pid = Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
        kill_process(pid, signal).unwrap();
    }

    pub(super) fn stop(&self) {
        self.journal.write(self.name(), Event::Stopped);
        self.signal(Signal::STOP);
    }

    pub(super) fn go_on(&self) {
        self.signal(Signal::CONT);
        self.journal.write(self.name(), Event::Continued);
    }

    /// Kills it, and returns when it is gone with the moment from which on it counts as dead: before it is.
    pub(super) async fn kill(&mut self) -> Moment {
        let ended = self.process.try_wait().unwrap();
        assert!(ended.is_none(), "{} has ended by itself:\n{}", self.name(), self.said());
        let at = self.journal.clock.now();
        self.journal.write_at(at, self.name(), Event::Killed);
        self.process.kill().await.unwrap();
        at
    }

    /// Begins its next life.
    pub(super) fn start_again(&mut self) {
        self.lives += 1;
        self.orders = life(&self.name, self.lives, &self.orders);
        self.process = spawn(&self.orders);
    }

    /// Waits until it has ended by itself, and returns what all its lives have written.
    pub(super) async fn end(mut self) -> Vec<Line> {
        let status = within(PATIENCE * 3, "a worker should end", self.process.wait()).await.unwrap();
        assert!(status.success(), "{} {status}:\n{}", self.name(), self.said());
        (1..=self.lives)
            .flat_map(|number| {
                let file = self.orders.file.with_file_name(format!("{}.{number}", self.name));
                lines(&std::fs::read_to_string(file).unwrap_or_default())
            })
            .collect()
    }

    fn said(&self) -> String {
        std::fs::read_to_string(said(&self.orders)).unwrap_or_default()
    }
}

fn life(name: &str, number: u64, orders: &Orders) -> Orders {
    let name = format!("{name}.{number}");
    let file = orders.file.with_file_name(&name);
    Orders { seed: orders.seed.wrapping_add(number), name, file, ..orders.clone() }
}

/// Where a life of a worker says why it fails.
fn said(orders: &Orders) -> PathBuf {
    orders.file.with_file_name(format!("{}.out", orders.name))
}

fn spawn(orders: &Orders) -> Child {
    let out = File::create(said(orders)).expect("a file in the folder");
    let out_too = out.try_clone().expect("a second handle");
    Command::new(std::env::current_exe().unwrap())
        .args(["chaos::worker::worker", "--exact", "--ignored", "--nocapture"])
        .env(ORDERS, orders.text())
        .stdin(Stdio::null())
        .stdout(out)
        .stderr(out_too)
        .kill_on_drop(true)
        .spawn()
        .unwrap()
}
