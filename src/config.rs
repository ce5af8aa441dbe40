//! The builder, all defaults, and their validation.

use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;

use crate::clock::Clock;
use crate::error::ConnectError;
use crate::fleet::Fleet;
use crate::key::{Key, RESERVED};
use crate::node::address::Address;
use crate::node::connection::RedisConnector;
use crate::node::{Connector, Node, Roster, Timing};
use crate::redlock::Redlock;

/// The TTL of a lease.
pub(crate) const DEFAULT_TTL: Duration = Duration::from_secs(10);
/// How long `acquire` waits.
pub(crate) const DEFAULT_WAIT: Duration = Duration::from_secs(30);
/// How long a round waits for a node.
const DEFAULT_NODE_TIMEOUT: Duration = Duration::from_millis(500);
/// The longest TTL that may be asked.
const DEFAULT_MAX_TTL: Duration = Duration::from_secs(60);
/// How long the record of a key's highest fence is kept.
const DEFAULT_FENCE_TTL: Duration = Duration::from_secs(24 * 3600);
/// The longest time that may be set: sums of times stay in range.
const LONGEST: Duration = Duration::from_secs(10 * 365 * 86_400);
/// The least `max_ttl`.
const LEAST_MAX_TTL: Duration = Duration::from_secs(3);

/// How to reach the nodes; made by [`Redlock::builder`].
#[must_use = "nothing is connected before `connect()` is awaited"]
#[derive(Clone)]
pub struct Builder {
    nodes: Vec<String>,
    namespace: Vec<u8>,
    node_timeout: Duration,
    max_ttl: Duration,
    restart_guard: bool,
    /// None was given.
    fence_ttl: Option<Duration>,
    observe_only: bool,
    #[cfg(feature = "tls")]
    tls_ca: Option<Arc<[u8]>>,
}

impl Builder {
    pub(crate) fn new() -> Self {
        Self {
            nodes: Vec::new(),
            namespace: Vec::new(),
            node_timeout: DEFAULT_NODE_TIMEOUT,
            max_ttl: DEFAULT_MAX_TTL,
            restart_guard: true,
            fence_ttl: None,
            observe_only: false,
            #[cfg(feature = "tls")]
            tls_ca: None,
        }
    }

    /// The addresses of the nodes, each an independent master: `redis://`, `rediss://` (feature `tls`)
    /// or `unix://`, with user, password (percent-encoded) and database number where needed. Replaces
    /// those given before.
    ///
    /// Every client of a key must be given the same nodes: clients with different sets do not exclude
    /// each other.
    pub fn nodes<I>(mut self, addresses: I) -> Self
    where
        I: IntoIterator,
        I::Item: Into<String>,
    {
        self.nodes = addresses.into_iter().map(Into::into).collect();
        self
    }

    /// Put before each key on the nodes; default none. A namespace is a world of its own: all that is
    /// written stands behind it, so that the ACL pattern `~namespace*` suffices. It may not begin with
    /// `leasehold:`. One that begins as another does, and keys of that one that look like it, can meet.
    pub fn namespace(mut self, namespace: impl Into<Key>) -> Self {
        self.namespace = namespace.into().as_bytes().to_vec();
        self
    }

    /// How long a round waits for a node, at most; default 500 ms. No round waits longer than a fifth of
    /// its TTL.
    pub fn node_timeout(mut self, timeout: Duration) -> Self {
        self.node_timeout = timeout;
        self
    }

    /// The longest TTL that may be asked; default 60 s, at least 3 s. It must be the same for all clients
    /// of the nodes.
    pub fn max_ttl(mut self, ttl: Duration) -> Self {
        self.max_ttl = ttl;
        self
    }

    /// Whether a node that may have forgotten leases is kept from voting for `max_ttl`; default on.
    ///
    /// Each node keeps a marker, `leasehold:node` behind the namespace. A node that lost its memory in a
    /// restart has lost the marker too, or carries one that says that it does not sync every write; it votes
    /// again once every lease that it may have forgotten is over. Without the guard such a node can give a
    /// second client a quorum.
    pub fn restart_guard(mut self, on: bool) -> Self {
        self.restart_guard = on;
        self
    }

    /// How long each node keeps the record of a key's highest fence; default 24 h, at least
    /// `max_ttl`.
    ///
    /// A record is a key at each node (`leasehold:fence:` and the key, behind the namespace), so that there
    /// are as many of them as keys that were fenced within this time, held or not. Each grant begins the time
    /// anew. After it, time in the number alone keeps fences growing: a node whose clock was set back by more
    /// could then grant a lower one.
    pub fn fence_ttl(mut self, ttl: Duration) -> Self {
        self.fence_ttl = Some(ttl);
        self
    }

    /// A client that only looks, for monitoring: it writes nothing to the nodes, not even the marker, and
    /// gives no lease ([`InvalidRequest::ObserveOnly`]). A node that may not vote is no error of
    /// [`connect`](Self::connect) then, but shown by [`Redlock::nodes`].
    ///
    /// Other clients mark nodes that have no marker yet, and one that was given a part of the nodes only
    /// could take that part for a new fleet, and a node that has lost its memory for one that has not.
    ///
    /// [`InvalidRequest::ObserveOnly`]: crate::InvalidRequest::ObserveOnly
    pub fn observe_only(mut self) -> Self {
        self.observe_only = true;
        self
    }

    /// The root certificates for `rediss://` nodes, in PEM; default those of the system (or of
    /// `SSL_CERT_FILE`). Feature `tls`.
    #[cfg(feature = "tls")]
    pub fn tls_ca(mut self, pem: impl AsRef<[u8]>) -> Self {
        self.tls_ca = Some(pem.as_ref().into());
        self
    }

    /// Starts to connect to all nodes, and waits until each was tried, for at most the node timeout.
    ///
    /// The nodes need not be up: one that comes up later is taken in. Must be awaited within a tokio runtime
    /// with I/O and time enabled, which must live as long as the leases: it runs the heartbeats and the
    /// connections, and when it has ended nobody is told of a loss. So do not share a client between tests
    /// that have a runtime each.
    ///
    /// # Errors
    ///
    /// What is wrong in itself: no node, a bad address, one server twice, an option out of its range, a
    /// node that answers and is a replica, a cluster node, a sentinel or the same server as another (these
    /// not for a client that [only observes](Self::observe_only)).
    ///
    /// # Panics
    ///
    /// In a runtime whose time is not enabled. In one whose I/O is not, its background tasks do, and no node is
    /// ever connected: use `enable_all()`.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future ends what it started.
    pub async fn connect(self) -> Result<Redlock, ConnectError> {
        let runtime = Handle::try_current().map_err(|_| ConnectError::NoRuntime)?;
        self.check_options()?;
        #[cfg(feature = "tls")]
        if let Some(Err(error)) = self.tls_ca.as_deref().map(crate::node::tls::roots) {
            return Err(ConnectError::InvalidOption { option: "tls_ca", reason: error.to_string() });
        }
        let addresses = parse(&self.nodes)?;
        let connectors = addresses.into_iter().map(|address| {
            let name: Arc<str> = address.to_string().into();
            #[cfg_attr(not(feature = "tls"), expect(unused_mut, reason = "only TLS has more to set"))]
            let mut connector = RedisConnector::new(name.clone(), address, self.namespace.clone());
            #[cfg(feature = "tls")]
            connector.ca.clone_from(&self.tls_ca);
            (name, Arc::new(connector) as Arc<dyn Connector>)
        });
        self.clone().start(connectors.collect(), Clock::System(Some(runtime))).await
    }

    /// Starts the nodes, and waits until each was tried.
    pub(crate) async fn start(
        self,
        connectors: Vec<(Arc<str>, Arc<dyn Connector>)>,
        clock: Clock,
    ) -> Result<Redlock, ConnectError> {
        let (node_timeout, max_ttl) = (self.node_timeout, self.max_ttl);
        let (restart_guard, observe_only) = (self.restart_guard, self.observe_only);
        let timing = Timing { node_timeout, max_ttl, restart_guard, observe_only };
        let names = connectors.iter().map(|(name, _)| name.clone()).collect();
        let roster = Arc::new(Roster::new(names, max_ttl.as_millis()));
        let start = |(index, (name, connector))| {
            Node::start((index, name), connector, roster.clone(), clock.clone(), timing)
        };
        let nodes: Vec<Node> = connectors.into_iter().enumerate().map(start).collect();
        let tried = futures::future::join_all(nodes.iter().map(Node::tried));
        // Whoever needs longer is taken in when it is there. In a fleet with a new node, the others are
        // waited for once more.
        clock.within(node_timeout + node_timeout / 2, tried).await;
        for (index, node) in nodes.iter().enumerate() {
            if let Some(refusal) = node.refusal().filter(|_| !observe_only) {
                let address = node.status().address;
                return Err(ConnectError::Refused { position: index + 1, address, refusal });
            }
        }
        let fence_ttl = self.fence_ttl.unwrap_or(DEFAULT_FENCE_TTL.max(max_ttl));
        let mut fleet = Fleet::new(nodes, clock, self.namespace, node_timeout, max_ttl, fence_ttl);
        fleet.observe_only = observe_only;
        Ok(Redlock::new(fleet))
    }

    fn check_options(&self) -> Result<(), ConnectError> {
        let invalid = |option, reason| Err(ConnectError::InvalidOption { option, reason });
        if self.namespace.starts_with(RESERVED) {
            let reason =
                "names that begin with `leasehold:` are the library's own: choose another".to_owned();
            return invalid("namespace", reason);
        }
        if self.max_ttl < LEAST_MAX_TTL {
            let reason = format!("{:?} is too short: use at least {LEAST_MAX_TTL:?}", self.max_ttl);
            return invalid("max_ttl", reason);
        }
        // A round must end long before the longest lease; this also keeps sums of times in range.
        if self.max_ttl > Duration::from_secs(365 * 86_400) {
            return invalid("max_ttl", format!("{:?} is above a year", self.max_ttl));
        }
        if let Some(ttl) = self.fence_ttl.filter(|ttl| *ttl < self.max_ttl || *ttl > LONGEST) {
            let reason = format!("{ttl:?} is out of range: use between max_ttl and ten years");
            return invalid("fence_ttl", reason);
        }
        if self.node_timeout < Duration::from_millis(1) || self.node_timeout > self.max_ttl {
            let reason = format!(
                "{:?} is out of range: use between 1 ms and max_ttl ({:?})",
                self.node_timeout, self.max_ttl
            );
            return invalid("node_timeout", reason);
        }
        Ok(())
    }
}

fn parse(urls: &[String]) -> Result<Vec<Address>, ConnectError> {
    if urls.is_empty() {
        return Err(ConnectError::NoNodes);
    }
    let mut addresses: Vec<Address> = Vec::new();
    for (index, url) in urls.iter().enumerate() {
        let address = Address::parse(url).map_err(|bad| ConnectError::BadAddress {
            position: index + 1,
            address: bad.shown,
            reason: bad.reason,
        })?;
        if let Some(first) = addresses.iter().position(|other| other.is_same_server(&address)) {
            let address = address.to_string();
            return Err(ConnectError::SameNode { first: first + 1, second: index + 1, address });
        }
        addresses.push(address);
    }
    Ok(addresses)
}

impl std::fmt::Debug for Builder {
    /// Shows no address as it was given: it may hold a password.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Builder")
            .field("nodes", &self.nodes.len())
            .field("node_timeout", &self.node_timeout)
            .field("max_ttl", &self.max_ttl)
            .finish_non_exhaustive()
    }
}
