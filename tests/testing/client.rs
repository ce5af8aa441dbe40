//! A client that sends and reads just what it is told, one connection a value.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Longer than any answer takes on a loaded machine.
pub(super) const PATIENCE: Duration = Duration::from_secs(20);
/// Long enough to say that no answer comes.
pub(super) const SILENCE: Duration = Duration::from_millis(300);

pub(super) struct Client {
    stream: TcpStream,
    unread: Vec<u8>,
}

impl Client {
    pub(super) async fn connect(address: SocketAddr) -> io::Result<Client> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        Ok(Client { stream, unread: Vec::new() })
    }

    /// Sends one command, words parted by spaces, and waits for nothing.
    pub(super) async fn send(&mut self, command: &str) -> io::Result<()> {
        self.stream.write_all(format!("{command}\r\n").as_bytes()).await
    }

    /// The next reply's first line, and the value behind it where it has one.
    pub(super) async fn reply(&mut self) -> io::Result<String> {
        tokio::time::timeout(PATIENCE, self.read_reply()).await?
    }

    /// One command and its reply.
    pub(super) async fn ask(&mut self, command: &str) -> io::Result<String> {
        self.send(command).await?;
        self.reply().await
    }

    /// That nothing comes, not even the end of the connection.
    pub(super) async fn expect_silence(&mut self) {
        let heard = tokio::time::timeout(SILENCE, self.read_reply()).await;
        assert!(heard.is_err(), "expected silence, got {heard:?}");
    }

    /// That the connection is over.
    pub(super) async fn expect_end(&mut self) {
        let heard = self.reply().await.expect_err("the connection should have ended");
        assert!(is_end(&heard), "expected the connection's end, got {heard:?}");
    }

    async fn read_reply(&mut self) -> io::Result<String> {
        let line = self.read_line().await?;
        match line.strip_prefix('$') {
            None | Some("-1") => Ok(line),
            Some(_) => self.read_line().await,
        }
    }

    async fn read_line(&mut self) -> io::Result<String> {
        loop {
            if let Some(end) = self.unread.windows(2).position(|pair| pair == b"\r\n") {
                let line = self.unread.drain(..end + 2).collect::<Vec<u8>>();
                return Ok(String::from_utf8_lossy(&line[..end]).into_owned());
            }
            if self.stream.read_buf(&mut self.unread).await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
    }
}

fn is_end(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset, UnexpectedEof};
    matches!(error.kind(), BrokenPipe | ConnectionAborted | ConnectionReset | UnexpectedEof)
}
