//! A client process: takes keys again and again, ends each lease in one of the ways there are, and writes
//! down what it was promised.

use std::path::PathBuf;
use std::pin::pin;
use std::time::Duration;

use leasehold::{AcquireError, ExtendError, Lease, LeaseLost, LossReason, Redlock};
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};

use super::checker::SLACK;
use super::journal::Journal;
use super::line::{Event, Loss, Step};
use super::moment::{Clock, Moment};
use crate::common::{ms, secs};

/// Set in the process of a worker: its orders.
pub(super) const ORDERS: &str = "LEASEHOLD_CHAOS_ORDERS";
/// The shortest that is possible, so that nodes without memory are back soon.
pub(super) const MAX_TTL: Duration = secs(3);
pub(super) const LONGEST_TTL: Duration = secs(2);
const SHORTEST_TTL: Duration = ms(600);
/// Between two looks at what is left.
const LOOK: Duration = ms(4);
/// A deadline that moved by less is noise of the measure.
const MOVED: Duration = ms(1);
/// Who looks after the end of validity announces the loss by that. So nobody looks from so long before the
/// end that is known until it would be told too late: the heartbeat has to tell. But for one lease in three,
/// whose end is to be seen.
const NO_LOOK_BEFORE: Duration = ms(20);
const NO_LOOK_AFTER: Duration = SLACK.saturating_add(ms(200));
/// When a lease that was lost is looked at once more.
const AFTERWARDS: Duration = ms(100);

/// What a worker is to do.
#[derive(Clone, Debug)]
pub(super) struct Orders {
    pub(super) name: String,
    pub(super) seed: u64,
    pub(super) clock: Clock,
    pub(super) end: Moment,
    pub(super) keys: usize,
    pub(super) guard: bool,
    pub(super) nodes: Vec<String>,
    pub(super) file: PathBuf,
}

impl Orders {
    pub(super) fn text(&self) -> String {
        let Self { name, seed, clock, end, keys, guard, nodes, file } = self;
        let (origin, nodes, file) = (clock.origin(), nodes.join(","), file.display());
        format!("{name} {seed} {origin} {end} {keys} {guard} {nodes} {file}")
    }

    fn read(text: &str) -> Self {
        let words: Vec<&str> = text.splitn(8, ' ').collect();
        let [name, seed, origin, end, keys, guard, nodes, file] = words[..] else { panic!("{text}") };
        Self {
            name: name.to_owned(),
            seed: seed.parse().unwrap(),
            clock: Clock::since(origin.parse().unwrap()),
            end: end.parse().unwrap(),
            keys: keys.parse().unwrap(),
            guard: guard.parse().unwrap(),
            nodes: nodes.split(',').map(str::to_owned).collect(),
            file: file.into(),
        }
    }
}

#[tokio::test]
#[ignore = "started by the tests of chaos"]
async fn worker() {
    let Ok(orders) = std::env::var(ORDERS) else { return };
    // Else one that is stopped would stay when the test is killed.
    #[cfg(target_os = "linux")]
    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL)).unwrap();
    let orders = Orders::read(&orders);
    let builder = Redlock::builder().nodes(orders.nodes.clone()).node_timeout(ms(250)).max_ttl(MAX_TTL);
    let redlock = builder.restart_guard(orders.guard).connect().await.expect("the addresses are good");
    let journal = Journal::open(&orders.file, orders.clock);
    let dice = StdRng::seed_from_u64(orders.seed);
    let mut worker = Worker { orders, redlock, journal, dice };
    while worker.goes_on() {
        worker.turn().await;
        let pause = worker.dice.random_range(0..30);
        tokio::time::sleep(ms(pause)).await;
    }
    worker.redlock.close().await;
}

struct Worker {
    orders: Orders,
    redlock: Redlock,
    journal: Journal,
    dice: StdRng,
}

/// What is known of a lease that is held.
struct Held<'a> {
    lease: &'a Lease,
    /// When it was last seen valid.
    valid: Moment,
    until: Moment,
    /// It was seen without validity, or told to be lost.
    over: bool,
}

impl Worker {
    fn goes_on(&self) -> bool {
        self.orders.clock.now() < self.orders.end
    }

    fn one_in(&mut self, count: u32) -> bool {
        self.dice.random_range(0..count) == 0
    }

    fn ttl(&mut self) -> Duration {
        self.dice.random_range(SHORTEST_TTL..=LONGEST_TTL)
    }

    fn write(&self, what: Event) {
        self.journal.write(&self.orders.name, what);
    }

    fn step(&self, at: Moment, lease: &Lease, step: Step) {
        let (key, token) = (lease.key().to_string(), lease.token().as_str()[..8].to_owned());
        self.journal.write_at(at, &self.orders.name, Event::Lease { step, key, token });
    }

    fn fail(&self, what: &dyn std::fmt::Debug) -> ! {
        self.write(Event::Failed(format!("{what:?}")));
        panic!("{what:?}");
    }

    /// One acquire and what comes of it.
    async fn turn(&mut self) {
        let key = format!("job-{}", self.dice.random_range(1..=self.orders.keys));
        let mut request = self.redlock.lease(key.as_str()).ttl(self.ttl()).wait(secs(2));
        if self.dice.random() {
            request = request.fenced();
        }
        let runs_out = self.one_in(6);
        if runs_out {
            request = request.without_heartbeat();
        }
        let patience = if self.one_in(5) { ms(self.dice.random_range(1..400)) } else { secs(60) };
        let why = match tokio::time::timeout(patience, request.acquire()).await {
            Ok(Ok(lease)) => return self.use_up(lease, runs_out).await,
            Ok(Err(AcquireError::TimedOut { .. })) => "timed-out",
            Ok(Err(AcquireError::NoQuorum(too_few))) => {
                println!("{} {too_few}", self.orders.clock.now());
                "no-quorum"
            }
            Ok(Err(error)) => self.fail(&error),
            Err(_) => "dropped",
        };
        self.write(Event::Without { key, why: why.to_owned() });
    }

    async fn use_up(&mut self, lease: Lease, runs_out: bool) {
        let at = self.orders.clock.now();
        let until = at.after(lease.remaining());
        let fence = lease.fence().map(|fence| fence.get());
        self.step(at, &lease, Step::Won { until, fence });
        let mut held = Held { lease: &lease, valid: at, until, over: false };
        let looks_always = self.one_in(3);
        let longest = if runs_out || self.one_in(8) { 4_000 } else { 600 };
        let leaves = at.after(ms(self.dice.random_range(0..longest)));
        let mut lost = pin!(lease.lost());
        while self.goes_on() && self.orders.clock.now() < leaves {
            tokio::select! {
                biased;
                loss = &mut lost => return self.lost(&mut held, &loss).await,
                () = tokio::time::sleep(LOOK) => {}
            }
            if !runs_out && self.one_in(60) {
                let ttl = self.ttl();
                match lease.extend(ttl).await {
                    Ok(()) | Err(ExtendError::NoQuorum(_) | ExtendError::Lost(_)) => {}
                    Err(error) => self.fail(&error),
                }
            }
            let now = self.orders.clock.now();
            let near = now >= held.until.before(NO_LOOK_BEFORE) && now <= held.until.after(NO_LOOK_AFTER);
            if looks_always || !near {
                self.look(&mut held);
            }
        }
        self.look(&mut held);
        if lease.is_valid() {
            return self.leave(lease).await;
        }
        let loss = lost.await;
        self.lost(&mut held, &loss).await;
    }

    /// The clock is read first: that moment and what is left then is never later than the true deadline.
    fn look(&self, held: &mut Held<'_>) {
        let at = self.orders.clock.now();
        let left = held.lease.remaining();
        if left.is_zero() {
            if !held.over {
                held.over = true;
                self.step(at, held.lease, Step::Over);
            }
            return;
        }
        held.valid = at;
        let until = at.after(left);
        if held.over || until > held.until.after(MOVED) {
            held.until = until;
            self.step(at, held.lease, Step::Renewed { until });
        }
    }

    async fn lost(&self, held: &mut Held<'_>, loss: &LeaseLost) {
        let why = match loss.reason {
            LossReason::Expired { .. } => Loss::Expired,
            LossReason::Denied { .. } => Loss::Denied,
            ref other => self.fail(other),
        };
        self.step(self.orders.clock.now(), held.lease, Step::Lost { valid: held.valid, why });
        held.over = true;
        // What was on its way when it was lost may come yet.
        tokio::time::sleep(AFTERWARDS).await;
        self.look(held);
    }

    async fn leave(&mut self, lease: Lease) {
        match self.dice.random_range(0..6) {
            0 => self.detach(lease),
            1 => {
                self.step(self.orders.clock.now(), &lease, Step::Dropping);
                drop(lease);
            }
            _ => {
                self.step(self.orders.clock.now(), &lease, Step::Releasing);
                // Whether it is confirmed, and in time, is not in our hands.
                let _ = lease.release().await;
            }
        }
    }

    fn detach(&self, lease: Lease) {
        let (key, token) = (lease.key().to_string(), lease.token().as_str()[..8].to_owned());
        let at = self.orders.clock.now();
        let until = at.after(lease.detach());
        self.write(Event::Lease { step: Step::Detached { until }, key, token });
    }
}

#[test]
fn orders_read_back_as_they_were_given() {
    let orders = Orders {
        name: "w3.1".into(),
        seed: 7,
        clock: Clock::since(5),
        end: "60.000000".parse().unwrap(),
        keys: 3,
        guard: true,
        nodes: vec!["redis://a".into(), "redis://b".into()],
        file: "/a folder/w3.1".into(),
    };
    assert_eq!(Orders::read(&orders.text()).text(), orders.text());
}
