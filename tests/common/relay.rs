//! A network that delivers what was sent on an old connection after what was sent on a new one.
//!
//! [`FaultProxy`](leasehold::testing::FaultProxy) treats all connections alike. Here the present ones
//! can be held, while new ones pass: so a client's request can arrive long after the client has given
//! the connection up and made another.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

use super::until;

pub(crate) struct Relay {
    address: SocketAddr,
    control: watch::Sender<Control>,
    kept: Arc<AtomicUsize>,
    accepted: Arc<AtomicUsize>,
}

/// Connections are numbered by the number of holds before them.
#[derive(Clone, Copy, Default)]
struct Control {
    /// Connections below this deliver no requests, for now.
    held: u64,
    /// Connections below this were reset for the client; their requests still come.
    reset: u64,
    /// Connections below this deliver after all.
    delivered: u64,
}

impl Relay {
    pub(crate) async fn start(upstream: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("its number");
        let (control, seen) = watch::channel(Control::default());
        let kept = Arc::new(AtomicUsize::new(0));
        let accepted = Arc::new(AtomicUsize::new(0));
        let (counted, calls) = (kept.clone(), accepted.clone());
        tokio::spawn(async move {
            let mut ended = seen.clone();
            loop {
                tokio::select! {
                    accepted = listener.accept() => {
                        let Ok((client, _)) = accepted else { continue };
                        calls.fetch_add(1, Ordering::SeqCst);
                        tokio::spawn(carry(client, upstream, seen.clone(), counted.clone()));
                    }
                    // The handle is gone.
                    _ = ended.wait_for(|_| false) => return,
                }
            }
        });
        Self { address, control, kept, accepted }
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://{}", self.address)
    }

    /// How many bytes were kept so far.
    pub(crate) fn kept(&self) -> usize {
        self.kept.load(Ordering::SeqCst)
    }

    /// Keeps what is sent on present connections from now on.
    pub(crate) fn hold_present(&self) {
        self.control.send_modify(|control| control.held += 1);
    }

    /// Resets held connections for the client, and returns when it has called again; the server hears
    /// nothing of it.
    pub(crate) async fn reset_held(&self) {
        let before = self.accepted.load(Ordering::SeqCst);
        self.control.send_modify(|control| control.reset = control.held);
        let again = async || self.accepted.load(Ordering::SeqCst) > before;
        until("the client should call again", again).await;
    }

    /// Delivers what was kept.
    pub(crate) fn deliver_held(&self) {
        self.control.send_modify(|control| control.delivered = control.held);
    }
}

async fn carry(
    client: TcpStream,
    upstream: SocketAddr,
    mut control: watch::Receiver<Control>,
    counted: Arc<AtomicUsize>,
) {
    let number = control.borrow_and_update().held;
    let Ok(mut server) = TcpStream::connect(upstream).await else { return };
    let _ = (client.set_nodelay(true), server.set_nodelay(true));
    let mut client = Some(client);
    let mut kept = Vec::new();
    let mut answers = Vec::new();
    loop {
        let requests = async {
            match &mut client {
                Some(client) => client.read_buf(&mut kept).await.unwrap_or(0),
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            count = requests => {
                if count == 0 {
                    client = None;
                }
                if number < control.borrow().held {
                    counted.fetch_add(count, Ordering::SeqCst);
                }
            },
            count = server.read_buf(&mut answers) => if count.unwrap_or(0) == 0 {
                return;
            },
            changed = control.changed() => if changed.is_err() {
                return;
            },
        }
        let now = *control.borrow();
        if number < now.reset
            && let Some(client) = client.take()
        {
            let _ = socket2::SockRef::from(&client).set_linger(Some(std::time::Duration::ZERO));
        }
        if let Some(client) = &mut client {
            let _ = client.write_all(&answers).await;
        }
        answers.clear();
        if number >= now.held || number < now.delivered {
            let _ = server.write_all(&kept).await;
            kept.clear();
            if client.is_none() {
                // Not closed: the server has to read it all first, and this side reads its answers.
                let _ = server.shutdown().await;
            }
        }
    }
}
