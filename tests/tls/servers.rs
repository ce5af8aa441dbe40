//! Masters that speak TLS, of a server that can.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use leasehold::testing::{LocalMasters, LocalMastersBuilder, TestingError};
use tempfile::TempDir;
use tokio::sync::OnceCell;

use super::certificates::{Authority, Identity};
use crate::views::program;

/// What PATH may have.
const KINDS: [&str; 2] = ["redis-server", "valkey-server"];

/// One master that speaks TLS on a port of its own, and none on another.
pub(super) struct TlsMaster {
    pub(super) plain: LocalMasters,
    pub(super) address: SocketAddr,
    _folder: TempDir,
}

impl TlsMaster {
    /// Shows `identity` to its clients.
    pub(super) async fn start(identity: &Identity) -> Self {
        Self::start_with(identity, |builder| builder).await
    }

    pub(super) async fn start_with(
        identity: &Identity,
        with: impl Fn(LocalMastersBuilder) -> LocalMastersBuilder,
    ) -> Self {
        let server = capable().await;
        let started = try_start(&server, identity, with).await;
        started.unwrap_or_else(|error| panic!("{}: {error}", server.display()))
    }

    /// By the name `host`.
    pub(super) fn url(&self, host: &str) -> String {
        format!("rediss://{host}:{}", self.address.port())
    }
}

/// Three that are known by their addresses, and their authority.
pub(super) async fn three() -> (Authority, Vec<TlsMaster>) {
    let authority = Authority::new();
    let mut masters = Vec::new();
    for _ in 0..3 {
        masters.push(TlsMaster::start(&authority.issue(&["127.0.0.1", "localhost"])).await);
    }
    (authority, masters)
}

pub(super) fn urls(masters: &[TlsMaster]) -> Vec<String> {
    masters.iter().map(|master| master.url("127.0.0.1")).collect()
}

/// The first server on this machine that speaks TLS: found out by starting it.
async fn capable() -> PathBuf {
    static FOUND: OnceCell<PathBuf> = OnceCell::const_new();
    let find = async || {
        let named = [program::server()].into_iter();
        let candidates: Vec<_> = named.chain(KINDS.into_iter().filter_map(program::on_path)).collect();
        let identity = Authority::new().issue(&["127.0.0.1"]);
        let mut tried = Vec::new();
        for server in candidates {
            match try_start(&server, &identity, |builder| builder).await {
                Ok(_) => return server,
                Err(error) => tried.push(format!("{}: {error}", server.display())),
            }
        }
        panic!(
            "no server on this machine speaks TLS: install Debian's package `redis-server`, which does\n{}",
            tried.join("\n")
        );
    };
    FOUND.get_or_init(find).await.clone()
}

async fn try_start(
    server: &Path,
    identity: &Identity,
    with: impl Fn(LocalMastersBuilder) -> LocalMastersBuilder,
) -> Result<TlsMaster, TestingError> {
    let folder = tempfile::tempdir().expect("a folder");
    let write = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).expect("write");
        path.display().to_string()
    };
    let (certificate, key) = (write("cert.pem", &identity.certificate), write("key.pem", &identity.key));
    let build = |port: u16| {
        let builder = LocalMasters::builder()
            .program(server)
            .arg("--tls-port", port.to_string())
            .arg("--tls-cert-file", &certificate)
            .arg("--tls-key-file", &key)
            .arg("--tls-ca-cert-file", &certificate)
            .arg("--tls-auth-clients", "no");
        with(builder)
    };
    let (plain, port) = program::with_another_port(build).await?;
    Ok(TlsMaster { plain, address: ([127, 0, 0, 1], port).into(), _folder: folder })
}
