//! An address of one's choice that leads to a server.

use std::net::SocketAddr;

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
        let listener = TcpListener::bind(from.into()).await?;
        let address = listener.local_addr()?;
        let task = tokio::spawn(async move {
            let mut carried = JoinSet::new();
            while let Ok((mut client, _)) = listener.accept().await {
                carried.spawn(async move {
                    let mut server = TcpStream::connect(to).await?;
                    tokio::io::copy_bidirectional(&mut client, &mut server).await
                });
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
