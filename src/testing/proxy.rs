//! A network that can be made bad: a TCP proxy before one server.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use socket2::SockRef;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

use super::TestingError;
use super::lane::{Fate, Lane, carry};

/// Which way bytes go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Direction {
    /// From the client to the server: requests.
    ToServer,
    /// From the server to the client: replies.
    ToClient,
}

/// A TCP proxy before one server, whose faults are set while it runs.
///
/// | fault | what the client sees | bytes under way |
/// |---|---|---|
/// | [`latency`](FaultProxy::latency) | everything comes later, in order | delivered, each after the latency |
/// | [`black_hole`](FaultProxy::black_hole), [`hold`](FaultProxy::hold) | silence, also on new connections | kept, delivered in order by [`heal`](FaultProxy::heal) |
/// | [`lose`](FaultProxy::lose), [`lose_replies`](FaultProxy::lose_replies) | requests are executed, no reply comes | gone for ever |
/// | [`cut`](FaultProxy::cut) | connections are reset | gone, but what the server was sent it still executes |
/// | [`refuse`](FaultProxy::refuse) | new connections are reset at once | |
///
/// A fault holds for present and for new connections until it is replaced or healed; latency can be
/// combined with each of the others. What a black hole keeps it keeps in memory, without a bound.
///
/// The proxy listens on a free port of 127.0.0.1, adds no delay of its own (`TCP_NODELAY` on both
/// sides), and ends with its value: all its connections are reset then. It runs on the runtime in
/// which it was started.
///
/// # Examples
///
/// ```
/// use leasehold::testing::{FaultProxy, LocalMasters};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), leasehold::testing::TestingError> {
/// let masters = LocalMasters::start(1).await?;
/// let proxy = FaultProxy::start(masters.addr(0)).await?;
/// assert!(proxy.url().starts_with("redis://127.0.0.1:")); // give this to the client
/// proxy.black_hole(); // the server is silent now
/// proxy.heal(); // and answers what it was asked meanwhile
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
#[must_use = "the proxy ends when it is dropped"]
pub struct FaultProxy {
    address: SocketAddr,
    // The tasks hold receivers: they end when this is dropped.
    faults: watch::Sender<Faults>,
    connections: Arc<AtomicUsize>,
}

/// All that the tasks of a proxy need to know.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Faults {
    to_server: Lane,
    to_client: Lane,
    refuse: bool,
    /// How often the connections were cut; one that began under another count is over.
    cuts: u64,
}

impl Faults {
    pub(super) fn lane(&self, direction: Direction) -> Lane {
        match direction {
            Direction::ToServer => self.to_server,
            Direction::ToClient => self.to_client,
        }
    }

    fn lane_mut(&mut self, direction: Direction) -> &mut Lane {
        match direction {
            Direction::ToServer => &mut self.to_server,
            Direction::ToClient => &mut self.to_client,
        }
    }
}

impl FaultProxy {
    /// Starts a proxy before the server at `upstream`, without faults. The server need not be up: it
    /// is called anew for each connection.
    ///
    /// # Errors
    ///
    /// Where the system gives no port.
    pub async fn start(upstream: impl Into<SocketAddr>) -> Result<FaultProxy, TestingError> {
        let upstream = upstream.into();
        let cannot = || TestingError::io("listen for a proxy");
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.map_err(cannot())?;
        let address = listener.local_addr().map_err(cannot())?;
        let (faults, seen) = watch::channel(Faults::default());
        let connections = Arc::default();
        tokio::spawn(accept(listener, upstream, seen, Arc::clone(&connections)));
        Ok(FaultProxy { address, faults, connections })
    }

    /// Where it listens.
    pub fn addr(&self) -> SocketAddr {
        self.address
    }

    /// Where it listens, as `redis://127.0.0.1:PORT`.
    pub fn url(&self) -> String {
        format!("redis://{}", self.address)
    }

    /// How many connections it carries at the moment.
    pub fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }

    /// Delivers what goes in `direction` this much later; zero ends it. Each piece is delayed by
    /// itself, so that many requests may be under way at once.
    pub fn latency(&self, direction: Direction, latency: Duration) {
        self.faults.send_modify(|faults| faults.lane_mut(direction).latency = latency);
    }

    /// Delivers nothing any more, in both directions; connections are still taken. All of it is
    /// delivered in order by [`heal`](FaultProxy::heal), as by a network that stalled. The end of a
    /// connection waits in that order too: a request is delivered even when its client has gone.
    pub fn black_hole(&self) {
        self.faults.send_modify(|faults| {
            faults.to_server.fate = Fate::Hold;
            faults.to_client.fate = Fate::Hold;
        });
    }

    /// Is a [`black_hole`](FaultProxy::black_hole) in one direction only.
    pub fn hold(&self, direction: Direction) {
        self.faults.send_modify(|faults| faults.lane_mut(direction).fate = Fate::Hold);
    }

    /// Drops what goes in `direction`. A connection that has lost something stays silent in that
    /// direction until it is closed, also after [`heal`](FaultProxy::heal): a stream with a hole in it
    /// would give its reader the answer to another question. New connections are well.
    pub fn lose(&self, direction: Direction) {
        self.faults.send_modify(|faults| faults.lane_mut(direction).fate = Fate::Lose);
    }

    /// Drops replies: requests are executed and nobody hears of it. Short for
    /// [`lose`](FaultProxy::lose)`(Direction::ToClient)`.
    pub fn lose_replies(&self) {
        self.lose(Direction::ToClient);
    }

    /// Resets all present connections. New ones are taken, unless [`refuse`](FaultProxy::refuse) says
    /// otherwise.
    pub fn cut(&self) {
        self.faults.send_modify(|faults| faults.cuts += 1);
    }

    /// Whether new connections are reset at once, before any byte of theirs is read.
    pub fn refuse(&self, refuse: bool) {
        self.faults.send_modify(|faults| faults.refuse = refuse);
    }

    /// Ends all faults; what a black hole or a latency kept is delivered now.
    pub fn heal(&self) {
        self.faults.send_modify(|faults| *faults = Faults { cuts: faults.cuts, ..Faults::default() });
    }
}

/// Takes connections until the handle is dropped.
async fn accept(
    listener: TcpListener,
    upstream: SocketAddr,
    mut faults: watch::Receiver<Faults>,
    connections: Arc<AtomicUsize>,
) {
    loop {
        let client = tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((client, _)) => client,
                Err(_) => {
                    // The system is short of something; asking at once again would not help.
                    tokio::time::sleep(Duration::from_millis(10)).await;
                    continue;
                }
            },
            changed = faults.changed() => match changed {
                Ok(()) => continue,
                Err(_) => return,
            },
        };
        if faults.borrow().refuse {
            reset_on_close(&client);
            continue;
        }
        let cuts = faults.borrow_and_update().cuts;
        let counted = Counted::new(&connections);
        let faults = faults.clone();
        tokio::spawn(async move {
            let _counted = counted;
            connection(client, upstream, faults, cuts).await;
        });
    }
}

/// Carries one connection until both sides have closed it, or it is cut.
async fn connection(mut client: TcpStream, upstream: SocketAddr, faults: watch::Receiver<Faults>, cuts: u64) {
    let _ = client.set_nodelay(true);
    let mut for_cut = faults.clone();
    let closed_by_both = tokio::select! {
        closed = carry_both(&mut client, upstream, &faults) => closed,
        // An error says that the handle is gone.
        _ = for_cut.wait_for(|faults| faults.cuts != cuts) => false,
    };
    if !closed_by_both {
        reset_on_close(&client);
    }
}

/// False when there is no server to call.
async fn carry_both(client: &mut TcpStream, upstream: SocketAddr, faults: &watch::Receiver<Faults>) -> bool {
    let Ok(mut server) = TcpStream::connect(upstream).await else {
        // Not even this may be heard through a black hole.
        let _ = faults.clone().wait_for(|faults| faults.to_client.fate != Fate::Hold).await;
        return false;
    };
    let _ = server.set_nodelay(true);
    let (from_client, to_client) = client.split();
    let (from_server, to_server) = server.split();
    tokio::join!(
        carry(from_client, to_server, Direction::ToServer, faults.clone()),
        carry(from_server, to_client, Direction::ToClient, faults.clone()),
    );
    true
}

/// Makes closing a reset, which no peer can take for an orderly end.
fn reset_on_close(stream: &TcpStream) {
    let _ = SockRef::from(stream).set_linger(Some(Duration::ZERO));
}

/// One connection in the count, for as long as it is carried.
struct Counted(Arc<AtomicUsize>);

impl Counted {
    fn new(count: &Arc<AtomicUsize>) -> Counted {
        count.fetch_add(1, Ordering::SeqCst);
        Counted(Arc::clone(count))
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}
