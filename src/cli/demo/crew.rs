//! The workers of the demo as seen from outside: processes that are told of nights and say what they do.

use std::fmt;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::sync::mpsc;

use crate::cli::exit::{Code, Failure};
use crate::cli::watch::now;

/// Workers are heard through one pipe each: so long is waited before what they said is put in order.
const SORTING: Duration = Duration::from_millis(20);

/// What a worker did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum News {
    /// It is connected.
    Ready,
    /// It has the lease.
    Held { validity: Duration },
    /// It begins the job.
    Begun,
    /// It has done the job.
    Done,
    /// The job was done already.
    Nothing,
    /// It gives the lease back, and is done with the night.
    Over,
    /// It is done with the night, for a reason that should not be.
    Failed(String),
}

impl fmt::Display for News {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            News::Ready => f.write_str("ready"),
            News::Held { validity } => write!(f, "held {}", validity.as_millis()),
            News::Begun => f.write_str("begun"),
            News::Done => f.write_str("done"),
            News::Nothing => f.write_str("nothing"),
            News::Over => f.write_str("over"),
            News::Failed(why) => write!(f, "failed {}", why.replace('\n', " ")),
        }
    }
}

impl News {
    fn parse(text: &str) -> Option<Self> {
        let (word, rest) = text.split_once(' ').unwrap_or((text, ""));
        Some(match word {
            "ready" => News::Ready,
            "held" => News::Held { validity: Duration::from_millis(rest.parse().ok()?) },
            "begun" => News::Begun,
            "done" => News::Done,
            "nothing" => News::Nothing,
            "over" => News::Over,
            "failed" => News::Failed(rest.to_owned()),
            _ => return None,
        })
    }
}

/// What a worker did, and when.
#[derive(Clone, Debug)]
pub(super) struct Event {
    pub(super) worker: String,
    pub(super) at: Duration,
    pub(super) news: News,
}

impl Event {
    fn parse(worker: &str, line: &str) -> Option<Self> {
        let (nanos, news) = line.split_once(' ')?;
        let at = Duration::from_nanos(nanos.parse().ok()?);
        Some(Self { worker: worker.to_owned(), at, news: News::parse(news)? })
    }
}

struct Member {
    name: String,
    process: Child,
    orders: ChildStdin,
    busy: bool,
}

pub(super) struct Crew {
    members: Vec<Member>,
    events: mpsc::UnboundedReceiver<Event>,
}

impl Crew {
    /// Starts workers that write their reports into `folder`.
    pub(super) fn start(names: &[&str], nodes: &[String], folder: &Path) -> Result<Self, Failure> {
        let failed = |error| Failure::system("start a worker", error);
        let program = std::env::current_exe().map_err(failed)?;
        let (sender, events) = mpsc::unbounded_channel();
        let mut members = Vec::new();
        for name in names {
            let mut process = Command::new(&program)
                .arg("demo-worker")
                .arg(folder)
                .args(nodes)
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .kill_on_drop(true)
                .spawn()
                .map_err(failed)?;
            let pipes = process.stdin.take().zip(process.stdout.take());
            let (orders, output) = pipes.ok_or_else(|| failed(std::io::ErrorKind::BrokenPipe.into()))?;
            tokio::spawn(listen((*name).to_owned(), output, sender.clone()));
            members.push(Member { name: (*name).to_owned(), process, orders, busy: true });
        }
        Ok(Self { members, events })
    }

    /// Waits until all workers are connected.
    pub(super) async fn ready(&mut self) -> Result<(), Failure> {
        while !self.is_idle() {
            self.events().await?;
        }
        Ok(())
    }

    /// Tells all of a night.
    pub(super) async fn tell(&mut self, night: usize, work: Duration) {
        for member in &mut self.members {
            let order = format!("{night} {}\n", work.as_millis());
            // Who does not hear it does not answer, which is noticed.
            let _ = member.orders.write_all(order.as_bytes()).await;
            member.busy = true;
        }
    }

    /// Whether nobody is at work.
    pub(super) fn is_idle(&self) -> bool {
        self.members.iter().all(|member| !member.busy)
    }

    /// What was done since it was last asked, in the order it was done in.
    pub(super) async fn events(&mut self) -> Result<Vec<Event>, Failure> {
        let gone = || Failure::new(Code::FAILURE, "all workers of the demo have ended");
        let mut events = vec![self.events.recv().await.ok_or_else(gone)?];
        tokio::time::sleep(SORTING).await;
        while let Ok(event) = self.events.try_recv() {
            events.push(event);
        }
        // Who was killed has ended, and that is no news.
        let killed = |name: &str| self.members.iter().all(|member| member.name != name);
        events.retain(|event| !(matches!(event.news, News::Failed(_)) && killed(&event.worker)));
        events.sort_by_key(|event| event.at);
        for event in &events {
            if matches!(event.news, News::Ready | News::Over | News::Failed(_)) {
                self.set_idle(&event.worker);
            }
        }
        Ok(events)
    }

    /// Kills a worker; returns its process number.
    pub(super) async fn kill(&mut self, name: &str) -> u32 {
        let Some(at) = self.members.iter().position(|member| member.name == name) else { return 0 };
        let mut member = self.members.remove(at);
        let id = member.process.id().unwrap_or(0);
        // Fails only when it is dead already.
        let _ = member.process.kill().await;
        id
    }

    fn set_idle(&mut self, name: &str) {
        if let Some(member) = self.members.iter_mut().find(|member| member.name == name) {
            member.busy = false;
        }
    }
}

/// Passes on what a worker says until its end.
async fn listen(name: String, output: ChildStdout, events: mpsc::UnboundedSender<Event>) {
    let mut lines = BufReader::new(output).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        if let Some(event) = Event::parse(&name, &line) {
            // Nobody hears it once the demo is over.
            let _ = events.send(event);
        }
    }
    let news = News::Failed("has ended".to_owned());
    let _ = events.send(Event { worker: name, at: now(), news });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_worker_says_is_understood() {
        let all = [
            News::Ready,
            News::Held { validity: Duration::from_millis(1_978) },
            News::Begun,
            News::Done,
            News::Nothing,
            News::Over,
            News::Failed("no lease: 2 of 5".to_owned()),
        ];
        for news in all {
            let event = Event::parse("Ann", &format!("5000000 {news}")).unwrap();
            assert_eq!((event.at, event.news), (Duration::from_millis(5), news));
        }
        for nonsense in ["", "5", "x ready", "5 dance", "5 held long"] {
            assert!(Event::parse("Ann", nonsense).is_none(), "{nonsense}");
        }
    }
}
