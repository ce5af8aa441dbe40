//! What a moment consists of. All times are relative to now, in ticks (what is left of something, or how
//! old it is up to where that no longer matters), so that moments that differ by the date alone are one.

use std::array::from_fn;
use std::fmt;

use crate::Rule;

pub(crate) const NODES: usize = 3;

/// A round that takes longer is lost.
pub(crate) const ROUND_TIMEOUT: u8 = 1;

pub(crate) const CLIENTS: [Client; 2] = [Client::A, Client::B];

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Client {
    A,
    B,
}

/// What one client may do.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Budget {
    pub(crate) rounds: u8,
    /// That its rounds ask for.
    pub(crate) ttl: u8,
    /// How many renewals, and the TTLs that each may ask for.
    pub(crate) extends: u8,
    pub(crate) extend_ttls: &'static [u8],
    pub(crate) heals: u8,
    /// Whether it takes back what it does not need any more.
    pub(crate) deletes: bool,
}

/// What may happen, and the rule that does not hold.
#[derive(Clone, Copy, Debug)]
pub(crate) struct World {
    /// For so long after a restart a node is asked for no grant.
    pub(crate) max_ttl: u8,
    /// For so long its answers to renewals do not count.
    pub(crate) young: u8,
    pub(crate) clients: [Budget; 2],
    /// How many times a node loses its memory.
    pub(crate) restarts: u8,
    pub(crate) off: Option<Rule>,
}

impl World {
    pub(crate) fn keeps(&self, rule: Rule) -> bool {
        self.off != Some(rule)
    }

    pub(crate) fn budget(&self, client: Client) -> &Budget {
        &self.clients[client as usize]
    }

    pub(crate) fn without(&self, rule: Rule) -> Self {
        Self { off: Some(rule), ..*self }
    }

    /// Nothing is held, nothing is under way, and all nodes are old.
    pub(crate) fn start(&self) -> State {
        let node = || Node { key: None, age: self.max_ttl, lanes: Default::default() };
        State { clients: Default::default(), nodes: from_fn(|_| node()), restarts: 0 }
    }
}

/// Each round has its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Token {
    pub(crate) client: Client,
    pub(crate) round: u8,
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}{}", self.client, self.round)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Key {
    pub(crate) token: Token,
    /// Until it runs out by itself.
    pub(crate) left: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Command {
    /// SET NX PX, of a round or of a heal.
    Set,
    /// Compare and expire.
    Extend,
    /// Compare and delete.
    Delete,
}

/// A command under way. One that is never run is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Message {
    pub(crate) command: Command,
    pub(crate) token: Token,
    pub(crate) ttl: u8,
    /// The validity that a yes gives, from now on; 0 if it does not count.
    pub(crate) worth: u8,
}

/// What one client and one node have to do with each other.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Lane {
    /// In the order of sending.
    pub(crate) queue: Vec<Message>,
    /// The best yes to the client's token of now, as in `Message::worth`. It may be on its way for any
    /// time: the client takes it in when it decides, and one that it never takes in is lost.
    pub(crate) vote: u8,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Node {
    pub(crate) key: Option<Key>,
    /// How long it remembers, up to `max_ttl`.
    pub(crate) age: u8,
    pub(crate) lanes: [Lane; 2],
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Phase {
    #[default]
    Idle,
    /// A round is open since so long.
    Trying { age: u8 },
    /// A round was won, and its lease is not ended. It may have run out.
    Holding,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Session {
    pub(crate) phase: Phase,
    /// Of the round or the lease: until its deadline.
    pub(crate) left: u8,
    /// The longest TTL asked of any node for it.
    pub(crate) ttl: u8,
    /// How many there were so far.
    pub(crate) rounds: u8,
    pub(crate) extends: u8,
    pub(crate) heals: u8,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct State {
    pub(crate) clients: [Session; 2],
    pub(crate) nodes: [Node; NODES],
    pub(crate) restarts: u8,
}

impl Node {
    pub(crate) fn lane(&self, client: Client) -> &Lane {
        &self.lanes[client as usize]
    }

    pub(crate) fn lane_mut(&mut self, client: Client) -> &mut Lane {
        &mut self.lanes[client as usize]
    }
}

impl State {
    pub(crate) fn session(&self, client: Client) -> &Session {
        &self.clients[client as usize]
    }

    pub(crate) fn session_mut(&mut self, client: Client) -> &mut Session {
        &mut self.clients[client as usize]
    }

    pub(crate) fn token(&self, client: Client) -> Token {
        Token { client, round: self.session(client).rounds }
    }

    pub(crate) fn holds(&self, client: Client) -> bool {
        let session = self.session(client);
        session.phase == Phase::Holding && session.left > 0
    }

    /// What must never be.
    pub(crate) fn overlaps(&self) -> bool {
        CLIENTS.iter().all(|client| self.holds(*client))
    }

    /// Nodes have no names: which of them is which makes no other moment.
    pub(crate) fn canonical(mut self) -> Self {
        self.nodes.sort_unstable();
        self
    }

    pub(crate) fn tick(&mut self, world: &World) {
        for node in &mut self.nodes {
            node.age = world.max_ttl.min(node.age + 1);
            node.key = node.key.map(|key| Key { left: key.left - 1, ..key }).filter(|key| key.left > 0);
            for lane in &mut node.lanes {
                lane.vote = lane.vote.saturating_sub(1);
                lane.queue.iter_mut().for_each(|message| message.worth = message.worth.saturating_sub(1));
            }
        }
        for session in &mut self.clients {
            session.left = session.left.saturating_sub(1);
            if let Phase::Trying { age } = &mut session.phase {
                *age = (ROUND_TIMEOUT + 1).min(*age + 1);
            }
        }
    }
}
