//! All that clients ask of one server, by `MONITOR`.

use futures::future::join_all;
use leasehold::testing::LocalMasters;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;
use tokio::sync::mpsc;

use super::{raw, soon};

/// What one master is asked, from its start on.
pub(crate) struct Monitor {
    server: super::Raw,
    lines: mpsc::UnboundedReceiver<String>,
    /// Words of each command, as clients sent them; what scripts call is left out.
    seen: Vec<Vec<String>>,
}

/// Monitors of all masters.
pub(crate) async fn monitors(masters: &LocalMasters) -> Vec<Monitor> {
    join_all((0..masters.len()).map(|index| Monitor::start(masters, index))).await
}

impl Monitor {
    pub(crate) async fn start(masters: &LocalMasters, index: usize) -> Self {
        let mut stream = TcpStream::connect(masters.addr(index)).await.expect("connect");
        stream.write_all(b"MONITOR\r\n").await.expect("ask for MONITOR");
        let mut lines = BufReader::new(stream).lines();
        assert_eq!(lines.next_line().await.expect("an answer").as_deref(), Some("+OK"));
        let (tell, told) = mpsc::unbounded_channel();
        tokio::spawn(async move {
            while let Ok(Some(line)) = lines.next_line().await {
                if tell.send(line).is_err() {
                    return;
                }
            }
        });
        Self { server: raw(masters, index), lines: told, seen: Vec::new() }
    }

    /// Takes in all that was asked up to now.
    async fn catch_up(&mut self) {
        static NEXT: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);
        let mark = format!("mark {}", NEXT.fetch_add(1, std::sync::atomic::Ordering::SeqCst));
        self.server.tell(&["ECHO", &mark]).await;
        let caught_up = async {
            loop {
                let line = self.lines.recv().await.expect("the server goes on");
                if line.contains(&mark) {
                    return;
                }
                if !line.contains(" lua] ") {
                    self.seen.push(line.split('"').skip(1).step_by(2).map(str::to_owned).collect());
                }
            }
        };
        soon("MONITOR should show all", caught_up).await;
    }

    /// How often the server was asked to put `token` at a key or to renew it there.
    pub(crate) async fn renewals(&mut self, token: &str) -> usize {
        self.catch_up().await;
        self.seen.iter().filter(|words| is_renewal(words, token)).count()
    }

    /// How often the server was asked to delete what holds `token`.
    pub(crate) async fn deletions(&mut self, token: &str) -> usize {
        self.catch_up().await;
        let mentions = |words: &&Vec<String>| words.iter().any(|word| word == token);
        self.seen.iter().filter(mentions).filter(|words| !is_renewal(words, token)).count()
    }
}

/// `SET key token …`, or a script with the token and a TTL behind it.
fn is_renewal(words: &[String], token: &str) -> bool {
    let Some(at) = words.iter().position(|word| word == token) else { return false };
    words[0].eq_ignore_ascii_case("set") || words.len() > at + 1
}

/// The sum over all masters.
pub(crate) async fn renewals(monitors: &mut [Monitor], token: &str) -> usize {
    join_all(monitors.iter_mut().map(|monitor| monitor.renewals(token))).await.into_iter().sum()
}
