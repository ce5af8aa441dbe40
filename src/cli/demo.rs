//! `leasehold demo`: five masters, three workers, one job; a master and a holder die on the way.
//!
//! - `worker.rs`: a worker, a process of its own, so that killing it is real
//! - `crew.rs`: starts workers, tells them what to do, hears what they did
//! - `ledger.rs`: what was heard, and whether it is as promised

mod crew;
mod ledger;
mod worker;

use std::time::Duration;

use clap::Args;
use leasehold::testing::LocalMasters;

use super::exit::{Code, Failure, print};
use super::watch::now;
use crew::{Crew, Event, News};
use ledger::Ledger;
pub(super) use worker::{WorkerArgs, main as worker_main};

/// What the workers contend for.
const KEY: &str = "nightly-report";
/// How long a lease lives without its holder.
const TTL: Duration = Duration::from_secs(2);
/// How long the job takes.
const WORK: Duration = Duration::from_millis(800);
/// The job that is interrupted takes longer, so that it is interrupted on a slow machine too.
const LONG_WORK: Duration = Duration::from_millis(1_500);
/// How long after its begin it is interrupted.
const INTO_THE_WORK: Duration = Duration::from_millis(300);
/// Nothing takes so long, unless something is broken.
const PATIENCE: Duration = Duration::from_secs(60);
/// Which master dies.
const MASTER: usize = 1;
const WORKERS: [&str; 3] = ["Ann", "Ben", "Cleo"];

const MORE: &str = "\
Needs redis-server or valkey-server on PATH, or the path of one in LEASEHOLD_SERVER. The masters and all
that they stored are gone at the end.

Exit codes:
  0    everything was as promised
  1    it was not, or the demo could not be shown";

/// Watch rival workers do one job: five local masters, a master and a holder are killed on the way
#[derive(Debug, Args)]
#[command(after_long_help = MORE)]
pub(super) struct DemoArgs {}

pub(super) fn main(_: &DemoArgs) -> Code {
    let runtime = match tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return Failure::system("start the runtime", error).report(),
    };
    let shown = runtime.block_on(async {
        let overdue =
            |_| Err(Failure::new(Code::FAILURE, format!("the demo did not end within {PATIENCE:?}")));
        tokio::time::timeout(PATIENCE, show()).await.unwrap_or_else(overdue)
    });
    match shown {
        Ok(true) => Code::SUCCESS,
        Ok(false) => Code::FAILURE,
        Err(failure) => failure.report(),
    }
}

/// What dies in a night, once the job has begun.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Death {
    Nobody,
    Master,
    Holder,
}

/// Shows it; returns whether everything was as promised.
async fn show() -> Result<bool, Failure> {
    print(INTRODUCTION);
    let mut stage = Stage::set().await?;
    let nights = [
        ("all three want the job", Death::Nobody),
        ("a master dies while the job is done", Death::Master),
        ("the holder dies while it does the job", Death::Holder),
    ];
    for (night, (title, death)) in (1..).zip(nights) {
        print(&format!("\nNight {night}: {title}\n"));
        stage.night(night, death).await?;
    }
    let findings = stage.ledger.findings(nights.len());
    let well = findings.iter().all(|finding| finding.well);
    print("\nWhat became of it\n");
    for finding in &findings {
        print(&format!("  {:<6}  {}\n", if finding.well { "ok" } else { "WRONG" }, finding.text));
    }
    print(if well { NEXT } else { "\nThis should not happen: please report it, with all of the above.\n" });
    Ok(well)
}

const INTRODUCTION: &str = "\
Five Redis masters that know nothing of each other; three workers, each a process of its own. Every
night all three want to write the report, and just one may: the one that holds the lease, that is, the
key `nightly-report` on a majority (three) of the masters, for two seconds at a time.

";

const NEXT: &str = "
What to try next
  docker compose up -d        # five masters on the ports 7001 to 7005
  export LEASEHOLD_NODES=redis://127.0.0.1:7001,redis://127.0.0.1:7002,redis://127.0.0.1:7003,redis://127.0.0.1:7004,redis://127.0.0.1:7005
  leasehold run nightly-report -- sleep 20                       # in one terminal
  leasehold run --wait 0 nightly-report -- echo never both       # in another: exit code 75
  leasehold run --help
";

/// Masters and workers, and what they did.
struct Stage {
    begun: Duration,
    masters: LocalMasters,
    crew: Crew,
    ledger: Ledger,
    /// When the holder was killed, until somebody took over.
    killed: Option<Duration>,
}

impl Stage {
    /// Starts all of them.
    async fn set() -> Result<Self, Failure> {
        let begun = now();
        let masters = LocalMasters::start(5).await;
        let masters = masters.map_err(|error| Failure::new(Code::FAILURE, error.to_string()))?;
        let ports: Vec<String> = (0..masters.len()).map(|index| masters.port(index).to_string()).collect();
        let mut stage = Self {
            begun,
            // The reports go with the data of the masters, however the demo ends.
            crew: Crew::start(&WORKERS, &masters.urls(), masters.dir(0))?,
            masters,
            ledger: Ledger::default(),
            killed: None,
        };
        stage.line(now(), "", &format!("masters 1 to 5 listen on the ports {}", ports.join(", ")));
        stage.crew.ready().await?;
        stage.line(now(), "", &format!("workers {} are connected", WORKERS.join(", ")));
        Ok(stage)
    }

    /// One night, until all who live are done with it.
    async fn night(&mut self, night: usize, death: Death) -> Result<(), Failure> {
        let work = if death == Death::Holder { LONG_WORK } else { WORK };
        self.crew.tell(night, work).await;
        let mut to_come = death;
        while !self.crew.is_idle() {
            for event in self.crew.events().await? {
                self.note(night, &event);
                if matches!(event.news, News::Begun) && to_come != Death::Nobody {
                    tokio::time::sleep(INTO_THE_WORK).await;
                    match std::mem::replace(&mut to_come, Death::Nobody) {
                        Death::Master => self.kill_master().await?,
                        Death::Holder => self.kill_worker(&event.worker).await,
                        Death::Nobody => {}
                    }
                }
            }
        }
        Ok(())
    }

    async fn kill_master(&mut self) -> Result<(), Failure> {
        let port = self.masters.port(MASTER);
        let killed = self.masters.kill(MASTER).await;
        killed.map_err(|error| Failure::new(Code::FAILURE, error.to_string()))?;
        let what = format!("master {} (port {port}) is killed: four are left, three are enough", MASTER + 1);
        self.line(now(), "*", &what);
        Ok(())
    }

    async fn kill_worker(&mut self, worker: &str) {
        let process = self.crew.kill(worker).await;
        let at = now();
        self.ledger.died(worker, at);
        self.killed = Some(at);
        let what = format!(
            "{worker} (process {process}) is killed: nobody renews the lease, it runs out within 2 s"
        );
        self.line(at, "*", &what);
    }

    /// Writes down what a worker did, and says it.
    fn note(&mut self, night: usize, event: &Event) {
        let (worker, at) = (event.worker.as_str(), event.at);
        let what = match &event.news {
            News::Ready => return,
            News::Held { validity } => {
                self.ledger.held(worker, at);
                let valid = validity.as_secs_f64();
                match self.killed.take() {
                    Some(killed) => {
                        let later = at.saturating_sub(killed).as_secs_f64();
                        format!("takes over {later:.2} s later: holds the lease, valid for {valid:.2} s")
                    }
                    None => format!("holds the lease, valid for {valid:.2} s unless it is renewed"),
                }
            }
            News::Begun => {
                self.ledger.begun(night);
                "the report is not there yet: writes it".to_owned()
            }
            News::Done => {
                self.ledger.done(night);
                "the report is written".to_owned()
            }
            News::Nothing => "the report is there already: nothing to do".to_owned(),
            News::Over => {
                self.ledger.over(worker, at);
                "gives the lease back".to_owned()
            }
            News::Failed(why) => {
                self.ledger.over(worker, at);
                why.clone()
            }
        };
        self.line(at, worker, &what);
    }

    fn line(&self, at: Duration, who: &str, what: &str) {
        print(&format!("  {:>6.2} s  {who:<5} {what}\n", at.saturating_sub(self.begun).as_secs_f64()));
    }
}
