//! TLS for `rediss://` (feature `tls`), by rustls with the system's root certificates.

use std::io;
use std::sync::Arc;

use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::rustls::{ClientConfig, RootCertStore, crypto::ring};

/// Speaks TLS with `host` over `stream`; its certificate must be good for that name.
pub(super) async fn wrap(host: &str, stream: TcpStream) -> io::Result<TlsStream<TcpStream>> {
    let name = ServerName::try_from(host.to_owned()).map_err(io::Error::other)?;
    // Read anew for each connection, which is seldom: a renewed CA is taken in without a restart.
    let config = tokio::task::spawn_blocking(config).await.map_err(io::Error::other)??;
    TlsConnector::from(Arc::new(config)).connect(name, stream).await
}

/// The system's roots; `SSL_CERT_FILE` and `SSL_CERT_DIR` name others.
fn config() -> io::Result<ClientConfig> {
    let found = rustls_native_certs::load_native_certs();
    let mut roots = RootCertStore::empty();
    let (added, _) = roots.add_parsable_certificates(found.certs);
    if added == 0 {
        let errors: Vec<String> = found.errors.iter().map(ToString::to_string).collect();
        return Err(io::Error::other(format!("no root certificates on this machine: {}", errors.join("; "))));
    }
    let versions = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(io::Error::other)?;
    Ok(versions.with_root_certificates(roots).with_no_client_auth())
}
