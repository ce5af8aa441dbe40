//! All that is decided before a run: a value, drawn from a seed, that shrinks.

use proptest::strategy::{Strategy as _, ValueTree};
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

use super::draw::worlds;

/// What a world is made to show. All have a little of everything that keeps within the assumptions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Many clients of few keys on nodes that are well.
    Crowded,
    /// Clocks at the ends of what is allowed.
    Clocks,
    /// Answers late and lost, connections cut.
    Network,
    /// The same where connections cannot be killed.
    Unkillable,
    /// Nodes stop and go on, crash and come back.
    Crashes,
    /// Nodes that forget and are back at once, slow rounds, short leases beside long ones.
    Amnesia,
    /// Clients pause and die.
    Pauses,
    /// Nodes and clients that come up one by one.
    StartUp,
    /// Fenced leases and clocks an hour apart.
    Fences,
}

pub(crate) const KINDS: [Kind; 9] = [
    Kind::Crowded,
    Kind::Clocks,
    Kind::Network,
    Kind::Unkillable,
    Kind::Crashes,
    Kind::Amnesia,
    Kind::Pauses,
    Kind::StartUp,
    Kind::Fences,
];

#[derive(Clone, Debug)]
pub(crate) struct World {
    /// Of delays and of all dice within the run.
    pub(crate) seed: u64,
    /// In milliseconds, as all times here that do not say otherwise.
    pub(crate) max_ttl: u64,
    pub(crate) node_timeout: u64,
    pub(crate) keys: usize,
    pub(crate) guard: bool,
    /// Only a minority of the nodes forgets at a time.
    pub(crate) few_forget: bool,
    /// The assumption that does not hold in this world.
    pub(crate) outside: Option<&'static str>,
    /// CLIENT KILL is allowed.
    pub(crate) kill: bool,
    pub(crate) delays: Delays,
    pub(crate) nodes: Vec<NodePlan>,
    pub(crate) clients: Vec<ClientPlan>,
    pub(crate) faults: Vec<Fault>,
}

/// Of each message: most take up to `usual`, some up to a thousand times as long.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Delays {
    /// In microseconds.
    pub(crate) usual: u64,
    /// How many of a thousand are in the tail.
    pub(crate) tail: u32,
}

#[derive(Clone, Debug)]
pub(crate) struct NodePlan {
    /// By how many millionths its clock runs fast.
    pub(crate) rate: i32,
    /// How far off its clock is, in microseconds.
    pub(crate) clock_off: i64,
    pub(crate) up_at: u64,
    /// Every write is on disk before it is answered.
    pub(crate) synced: bool,
}

#[derive(Clone, Debug)]
pub(crate) struct ClientPlan {
    pub(crate) rate: i32,
    /// How far off its Unix time is, in seconds.
    pub(crate) clock_off: i64,
    pub(crate) start: u64,
    /// How much longer answers take to it, in microseconds.
    pub(crate) back: u64,
    pub(crate) steps: Vec<Step>,
}

/// One attempt of a client, and what it does with the lease.
#[derive(Clone, Debug)]
pub(crate) struct Step {
    pub(crate) pause: u64,
    pub(crate) key: usize,
    /// On all keys at once.
    pub(crate) all: bool,
    pub(crate) fenced: bool,
    pub(crate) ttl: u64,
    /// 0 is one round.
    pub(crate) wait: u64,
    pub(crate) heartbeat: bool,
    pub(crate) hold: u64,
    /// After how long, and to which TTL.
    pub(crate) extend: Option<(u64, u64)>,
    pub(crate) end: End,
    /// The future of the attempt is dropped.
    pub(crate) give_up: Option<GiveUp>,
    /// So is that of the extend or the release.
    pub(crate) cut_short: Option<GiveUp>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum GiveUp {
    After(u64),
    AtPoll(u32),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Release,
    Drop,
    Detach,
    /// Keeps it until it is lost, with a limit of `hold`.
    Keep,
}

#[derive(Clone, Debug)]
pub(crate) struct Fault {
    pub(crate) at: u64,
    pub(crate) what: Trouble,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    ToServer,
    ToClient,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Memory {
    All,
    /// Without the last second, if the node does not sync every write.
    AllButLast,
    Nothing,
}

/// Clients and nodes are taken modulo their numbers.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Trouble {
    /// The process of a node is stopped.
    Freeze {
        node: usize,
        time: u64,
    },
    Crash {
        node: usize,
        time: u64,
        memory: Memory,
    },
    /// The client's end of a connection breaks; what is under way arrives so much later.
    Cut {
        client: usize,
        node: usize,
        late: u64,
    },
    /// Nothing arrives for a while; then it does.
    Hold {
        client: usize,
        node: usize,
        way: Way,
        time: u64,
    },
    /// What is sent meanwhile, and all behind it on the same connection, never arrives.
    Lose {
        client: usize,
        node: usize,
        way: Way,
        time: u64,
    },
    /// A node cannot be reached by anybody.
    Isolate {
        node: usize,
        time: u64,
    },
    /// The process of a client is stopped.
    Pause {
        client: usize,
        time: u64,
    },
    /// The process of a client is killed, and started anew.
    Die {
        client: usize,
        time: u64,
    },
    /// Outside of the assumptions: a running node loses its keys.
    Forget {
        node: usize,
    },
    /// Outside of the assumptions: a node's clock jumps ahead.
    Step {
        node: usize,
        by: u64,
    },
}

/// The world of `seed`.
pub(crate) fn world(seed: u64) -> World {
    tree(seed).current()
}

/// The kind of the world of `seed`.
pub(crate) fn kind(seed: u64) -> Kind {
    KINDS[usize::try_from(seed % KINDS.len() as u64).unwrap_or(0)]
}

/// The world of `seed`, to be shrunk.
pub(crate) fn tree(seed: u64) -> impl ValueTree<Value = World> {
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    let config = Config { failure_persistence: None, ..Config::default() };
    let mut runner = TestRunner::new_with_rng(config, TestRng::from_seed(RngAlgorithm::ChaCha, &bytes));
    worlds(kind(seed)).new_tree(&mut runner).expect("every draw is a world")
}
