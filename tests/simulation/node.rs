//! One server of the world: what it keeps, what it runs, and what it forgets.

use std::collections::BTreeSet;

use super::world::{Memory, NodePlan};
use crate::node::{NodeError, NodeErrorKind, Report, Role};
use crate::testing::{EPOCH, Store};

use super::message::{Ask, Told};

/// How often what a server that does not sync every write keeps on its disk is brought up to date.
const SYNC: u64 = 1_000_000;

pub(crate) struct SimNode {
    pub(crate) name: std::sync::Arc<str>,
    plan: NodePlan,
    pub(crate) store: Store,
    /// What is on disk, and since when.
    disk: (Store, u64),
    /// Grows with each start.
    run: u64,
    pub(crate) up: bool,
    pub(crate) frozen: bool,
    /// By how many microseconds its clock has jumped.
    stepped: u64,
    /// The numbers of its connections start anew with it.
    clients: u64,
    /// Tokens that were deleted and came back with an older state: nobody's fault.
    restored: BTreeSet<String>,
    /// When it last lost its memory, in whole or in part.
    forgot: Option<u64>,
}

impl SimNode {
    pub(crate) fn new(index: usize, plan: NodePlan) -> Self {
        Self {
            name: format!("n{index}").into(),
            up: plan.up_at == 0,
            plan,
            store: Store::default(),
            disk: (Store::default(), 0),
            run: 0,
            frozen: false,
            stepped: 0,
            clients: 0,
            restored: BTreeSet::new(),
            forgot: None,
        }
    }

    /// Its TIME at `micros` of true time.
    pub(crate) fn time(&self, micros: u64) -> u64 {
        let shown = i128::from(micros) * (1_000_000 + i128::from(self.plan.rate)) / 1_000_000;
        let shown = u64::try_from(shown).unwrap_or(0) + self.stepped;
        (EPOCH + shown).saturating_add_signed(self.plan.clock_off)
    }

    pub(crate) fn step(&mut self, by: u64) {
        self.stepped += by * 1_000;
    }

    pub(crate) fn connect(&mut self) -> u64 {
        self.clients += 1;
        self.clients
    }

    /// Runs what a connection of the server has received.
    pub(crate) fn run(&mut self, ask: &Ask, client: u64, micros: u64) -> Told {
        let time = self.time(micros);
        let told = match ask {
            Ask::Report => Told::Report(Box::new(self.report(client, time))),
            Ask::Mark(marker) => Told::Marker(Box::new(self.store.mark(marker))),
            Ask::Kill(_) => Told::Done,
            Ask::Command(command) => {
                let vote = self.store.run(command, time);
                Told::Vote(vote, time)
            }
        };
        if !self.plan.synced && micros >= self.disk.1 + SYNC {
            self.disk = (self.store.clone(), micros);
        }
        told
    }

    fn report(&self, client: u64, time: u64) -> Report {
        Report {
            run_id: Some(format!("{}-{}", self.name, self.run)),
            client: Some(client),
            role: Some(Role::Master),
            time: Some(time),
            marker: Some(self.store.marker().cloned()),
            appendonly: Some(true),
            fsync: Some(if self.plan.synced { "always" } else { "everysec" }.to_owned()),
            no_fsync_on_rewrite: Some(false),
            tracked: true,
            ..Report::default()
        }
    }

    /// Whether it is one of those that fail: it lost its memory, and cannot be old enough to vote again.
    pub(crate) fn is_forgetful(&self, micros: u64, max_ttl: u64) -> bool {
        let lately = |forgot: u64| micros < forgot + (max_ttl * 11 / 10 + 1_000) * 1_000;
        self.forgot.is_some_and(|forgot| lately(forgot) || self.store.marker().is_none())
    }

    /// The process ends; what comes back after it is decided here.
    pub(crate) fn crash(&mut self, memory: Memory, micros: u64) {
        self.up = false;
        self.frozen = false;
        self.run += 1;
        self.clients = 0;
        match memory {
            Memory::All => {}
            Memory::AllButLast if self.plan.synced => {}
            Memory::AllButLast => {
                let time = self.time(micros);
                let tokens = |store: &Store| -> BTreeSet<String> {
                    store.all_live(time).map(|(_, token)| token.to_owned()).collect()
                };
                let back = &tokens(&self.disk.0) - &tokens(&self.store);
                self.restored.extend(back);
                self.store = self.disk.0.clone();
                self.forgot = Some(micros);
            }
            Memory::Nothing => {
                self.store = Store::default();
                self.disk = (Store::default(), micros);
                self.forgot = Some(micros);
            }
        }
    }

    /// The keys that stand there, and whose they are.
    pub(crate) fn standing(&self, micros: u64) -> impl Iterator<Item = (&[u8], &str)> {
        let live = self.store.all_live(self.time(micros));
        live.filter(|(_, token)| !self.restored.contains(*token))
    }

    /// Its keys are gone, and nobody is told.
    pub(crate) fn forget(&mut self) {
        self.store.forget_keys();
    }
}

/// The error of a command that the server refuses.
pub(crate) fn refused(name: &std::sync::Arc<str>) -> NodeError {
    NodeError::new(name, NodeErrorKind::NoPermission, "NOPERM")
}
