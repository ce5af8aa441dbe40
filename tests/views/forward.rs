//! An address of one's choice that leads to a server.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, JoinSet};

/// Ends with its connections when it is dropped.
pub(crate) struct Forward {
    pub(crate) address: SocketAddr,
    task: JoinHandle<()>,
}

impl Forward {
    /// Leads from `from` to `to`; port 0 is a free one.
    pub(crate) async fn start(from: impl Into<SocketAddr>, to: SocketAddr) -> std::io::Result<Self> {
        Self::start_far(from, to, || Duration::ZERO).await
    }

    /// Each connection is as far away as `distance` then says: that much later the server hears of all.
    pub(crate) async fn start_far(
        from: impl Into<SocketAddr>,
        to: SocketAddr,
        mut distance: impl FnMut() -> Duration + Send + 'static,
    ) -> std::io::Result<Self> {
        let listener = TcpListener::bind(from.into()).await?;
        let address = listener.local_addr()?;
        let task = tokio::spawn(async move {
            let mut carried = JoinSet::new();
            while let Ok((client, _)) = listener.accept().await {
                carried.spawn(carry(client, to, distance()));
            }
        });
        Ok(Self { address, task })
    }

    /// Ends it, and returns when nobody listens there any more.
    pub(crate) async fn end(mut self) {
        self.task.abort();
        // It was cancelled, as it was to be.
        let _ = (&mut self.task).await;
    }
}

impl Drop for Forward {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn carry(mut client: TcpStream, to: SocketAddr, distance: Duration) -> std::io::Result<()> {
    let mut server = TcpStream::connect(to).await?;
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    let (mut requests, mut replies) = (Vec::new(), Vec::new());
    loop {
        tokio::select! {
            read = client.read_buf(&mut requests) => {
                if read? == 0 {
                    return Ok(());
                }
                tokio::time::sleep(distance).await;
                server.write_all(&requests).await?;
                requests.clear();
            }
            read = server.read_buf(&mut replies) => {
                if read? == 0 {
                    return Ok(());
                }
                client.write_all(&replies).await?;
                replies.clear();
            }
        }
    }
}
