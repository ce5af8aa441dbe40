//! Real servers on this machine, each an independent master.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};

use futures::future::try_join_all;
use rand::RngExt;
use tempfile::TempDir;

use super::TestingError;
use super::server::{Server, find_binary, program, socket_in};
use super::watchdog::Watchdog;

/// Ports to choose from. They lie below those that systems give to outgoing connections: a client
/// that calls a dead server's port could otherwise be given that very port and reach itself.
const PORTS: std::ops::Range<u16> = 11_000..32_000;
/// How often another port is tried when one was taken meanwhile.
const PORT_TRIES: usize = 20;

/// Real servers on free ports of 127.0.0.1, with their data in a temporary folder.
///
/// The program is the one that `LEASEHOLD_SERVER` names (a path), else `redis-server`, else
/// `valkey-server` on `PATH`. Each server is append-only and always synced and evicts nothing, as
/// the masters of a lock should be; [`builder`](LocalMasters::builder) changes that.
///
/// Dropping the value kills the servers and removes the folder, also when a test panics. Where the
/// whole process is killed they end a moment later.
///
/// All methods take `&self`, so that an `Arc` of it can be shared by the tasks of a test. Masters are
/// counted from 0.
///
/// # Examples
///
/// ```
/// use leasehold::testing::LocalMasters;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), leasehold::testing::TestingError> {
/// let masters = LocalMasters::start(3).await?;
/// assert_eq!(masters.urls().len(), 3);
/// masters.kill(0).await?; // one of three is down
/// masters.restart(0).await?; // and back, with what it knew
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
#[must_use = "the servers end when it is dropped"]
pub struct LocalMasters {
    // In the order they must be dropped: servers, then who watches them, then their folder.
    servers: Vec<Server>,
    watchdog: Watchdog,
    unix_sockets: bool,
    _folder: TempDir,
}

impl LocalMasters {
    /// Starts `count` servers with the defaults and returns when each answers.
    ///
    /// # Errors
    ///
    /// Where there is no server to start, or one does not start: its log is in the error.
    pub async fn start(count: usize) -> Result<LocalMasters, TestingError> {
        LocalMasters::builder().count(count).start().await
    }

    /// Servers that are not the default ones.
    pub fn builder() -> LocalMastersBuilder {
        LocalMastersBuilder {
            count: 5,
            persistent: true,
            unix_sockets: false,
            program: None,
            args: Vec::new(),
        }
    }

    /// How many there are, those that are down included.
    pub fn len(&self) -> usize {
        self.servers.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.servers.is_empty()
    }

    /// The addresses of all, `redis://127.0.0.1:PORT`, those that are down included.
    pub fn urls(&self) -> Vec<String> {
        (0..self.len()).map(|index| self.url(index)).collect()
    }

    /// The address of one, `redis://127.0.0.1:PORT`.
    ///
    /// # Panics
    ///
    /// Where there is no master `index`.
    pub fn url(&self, index: usize) -> String {
        format!("redis://{}", self.addr(index))
    }

    /// The address of one by its Unix socket, `unix:///PATH`; `None` without
    /// [`unix_sockets`](LocalMastersBuilder::unix_sockets).
    ///
    /// # Panics
    ///
    /// Where there is no master `index`.
    pub fn unix_url(&self, index: usize) -> Option<String> {
        let socket = socket_in(&self.servers[index].dir);
        self.unix_sockets.then(|| format!("unix://{}", socket.display()))
    }

    /// The address of one, for a socket or a [`FaultProxy`](super::FaultProxy).
    ///
    /// # Panics
    ///
    /// Where there is no master `index`.
    pub fn addr(&self, index: usize) -> SocketAddr {
        self.servers[index].address()
    }

    /// The port of one; it stays the same through restarts.
    ///
    /// # Panics
    ///
    /// Where there is no master `index`.
    pub fn port(&self, index: usize) -> u16 {
        self.servers[index].port
    }

    /// The folder with one's data and its log, `server.log`.
    ///
    /// # Panics
    ///
    /// Where there is no master `index`.
    pub fn dir(&self, index: usize) -> &Path {
        &self.servers[index].dir
    }

    /// The process of one; `None` while it is down.
    ///
    /// # Panics
    ///
    /// Where there is no master `index`.
    pub fn pid(&self, index: usize) -> Option<u32> {
        self.servers[index].pid()
    }

    /// Kills one (SIGKILL) as a crash does, and returns when it is gone. Its connections are closed
    /// by then. One that is down stays down.
    ///
    /// # Errors
    ///
    /// Where there is no such master, or the system does not let go of it within 20 s.
    pub async fn kill(&self, index: usize) -> Result<(), TestingError> {
        self.server(index)?.kill().await?;
        self.tell_watchdog();
        Ok(())
    }

    /// Ends one in order (SIGTERM) and returns when it is gone. One that is down stays down.
    ///
    /// # Errors
    ///
    /// Where there is no such master, or it has not ended within 20 s.
    pub async fn stop(&self, index: usize) -> Result<(), TestingError> {
        self.server(index)?.stop().await?;
        self.tell_watchdog();
        Ok(())
    }

    /// Starts one again, on the same port and with the same data, and returns when it answers. One
    /// that runs is killed first.
    ///
    /// # Errors
    ///
    /// Where there is no such master, it does not start, or another process took its port.
    pub async fn restart(&self, index: usize) -> Result<(), TestingError> {
        let server = self.server(index)?;
        server.kill().await?;
        let started = server.start().await;
        self.tell_watchdog();
        started
    }

    /// Starts one again on the same port, with nothing of what it knew. One that runs is killed
    /// first.
    ///
    /// # Errors
    ///
    /// As [`restart`](LocalMasters::restart).
    pub async fn restart_empty(&self, index: usize) -> Result<(), TestingError> {
        let server = self.server(index)?;
        server.kill().await?;
        std::fs::remove_dir_all(&server.dir).map_err(TestingError::io("empty a server's folder"))?;
        self.restart(index).await
    }

    /// Makes one stand still (SIGSTOP), as a machine that hangs does: connections stay open, what is
    /// sent is taken by the system and answered only after [`resume`](LocalMasters::resume). Returns
    /// when it stands still.
    ///
    /// # Errors
    ///
    /// Where there is no such master, or it is down.
    pub async fn pause(&self, index: usize) -> Result<(), TestingError> {
        match self.server(index)?.pause().await? {
            true => Ok(()),
            false => Err(TestingError::NotRunning { index }),
        }
    }

    /// Lets a paused one go on (SIGCONT).
    ///
    /// # Errors
    ///
    /// Where there is no such master, or it is down.
    pub fn resume(&self, index: usize) -> Result<(), TestingError> {
        match self.server(index)?.resume()? {
            true => Ok(()),
            false => Err(TestingError::NotRunning { index }),
        }
    }

    fn server(&self, index: usize) -> Result<&Server, TestingError> {
        let count = self.servers.len();
        self.servers.get(index).ok_or(TestingError::NoSuchMaster { index, count })
    }

    fn tell_watchdog(&self) {
        self.watchdog.watch(self.servers.iter().filter_map(Server::pid));
    }
}

/// How [`LocalMasters`] are to be; made by [`LocalMasters::builder`].
#[derive(Clone, Debug)]
#[must_use = "nothing runs before `start`"]
pub struct LocalMastersBuilder {
    count: usize,
    persistent: bool,
    unix_sockets: bool,
    program: Option<PathBuf>,
    args: Vec<String>,
}

impl LocalMastersBuilder {
    /// How many servers; default 5.
    pub fn count(mut self, count: usize) -> Self {
        self.count = count;
        self
    }

    /// Whether they keep their data through a restart (append-only, always synced); default true.
    pub fn persistent(mut self, persistent: bool) -> Self {
        self.persistent = persistent;
        self
    }

    /// Whether each listens on a Unix socket in its folder too; default false.
    pub fn unix_sockets(mut self, unix_sockets: bool) -> Self {
        self.unix_sockets = unix_sockets;
        self
    }

    /// The server program; default as said at [`LocalMasters`].
    pub fn program(mut self, path: impl Into<PathBuf>) -> Self {
        self.program = Some(path.into());
        self
    }

    /// One more option for each server, as `("--requirepass", "secret")`. It comes after those of
    /// this crate and overrides them.
    pub fn arg(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.args.extend([name.into(), value.into()]);
        self
    }

    /// Starts the servers and returns when each answers.
    ///
    /// # Cancel safety
    ///
    /// A dropped future ends what it had started.
    ///
    /// # Errors
    ///
    /// Where there is no server to start, or one does not start: its log is in the error.
    pub async fn start(self) -> Result<LocalMasters, TestingError> {
        let binary = match &self.program {
            Some(path) => program(path)?,
            None => find_binary()?,
        };
        let folder = tempfile::Builder::new()
            .prefix("leasehold-")
            .tempdir()
            .map_err(TestingError::io("make a temporary folder"))?;
        let watchdog = Watchdog::start(folder.path());
        let starting =
            (0..self.count).map(|index| self.start_one(&binary, folder.path().join(index.to_string())));
        let servers = try_join_all(starting).await?;
        let masters = LocalMasters { servers, watchdog, unix_sockets: self.unix_sockets, _folder: folder };
        masters.tell_watchdog();
        Ok(masters)
    }

    async fn start_one(&self, binary: &Path, dir: PathBuf) -> Result<Server, TestingError> {
        let mut tries = 1;
        loop {
            let port = free_port().map_err(TestingError::io("find a free port"))?;
            let server = Server::new(binary.to_owned(), port, dir.clone(), self.options(&dir));
            match server.start().await {
                Ok(()) => return Ok(server),
                // Somebody took it between the look and the start.
                Err(TestingError::PortTaken { .. }) if tries < PORT_TRIES => tries += 1,
                Err(error) => return Err(error),
            }
        }
    }

    fn options(&self, dir: &Path) -> Vec<String> {
        let append_only = if self.persistent { "yes" } else { "no" };
        let mut options: Vec<String> = [
            ("--appendonly", append_only),
            ("--appendfsync", "always"),
            ("--no-appendfsync-on-rewrite", "no"),
            ("--save", ""),
            ("--maxmemory-policy", "noeviction"),
        ]
        .iter()
        .flat_map(|(name, value)| [name.to_string(), value.to_string()])
        .collect();
        if self.unix_sockets {
            options.extend(["--unixsocket".to_owned(), socket_in(dir).display().to_string()]);
        }
        options.extend(self.args.iter().cloned());
        options
    }
}

/// A port on which nobody listens at the moment. Chosen at random, so that test processes that run
/// at the same time seldom choose the same.
fn free_port() -> std::io::Result<u16> {
    let mut result = Err(std::io::ErrorKind::AddrInUse.into());
    for _ in 0..PORT_TRIES {
        let port = rand::rng().random_range(PORTS);
        match TcpListener::bind((Ipv4Addr::LOCALHOST, port)) {
            Ok(_) => return Ok(port),
            Err(error) => result = Err(error),
        }
    }
    result
}
