//! TLS for `rediss://` (feature `tls`), by rustls.

use std::io;
use std::sync::Arc;

use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore, crypto::ring};

/// Speaks TLS with `host` over `stream`; its certificate must be good for that name.
pub(super) async fn wrap(
    host: &str,
    ca: Option<Arc<[u8]>>,
    stream: TcpStream,
) -> io::Result<TlsStream<TcpStream>> {
    let name = ServerName::try_from(host.to_owned()).map_err(io::Error::other)?;
    // Read anew for each connection, which is seldom: a renewed CA is taken in without a restart.
    let config =
        tokio::task::spawn_blocking(move || config(ca.as_deref())).await.map_err(io::Error::other)??;
    let connected = TlsConnector::from(Arc::new(config)).connect(name, stream).await;
    connected.map_err(|error| match error.to_string() {
        text if text.contains("UnknownIssuer") => {
            io::Error::other(format!("{text}: give the certificate of its CA (tls_ca, or SSL_CERT_FILE)"))
        }
        _ => error,
    })
}

fn config(ca: Option<&[u8]>) -> io::Result<ClientConfig> {
    let roots = ca.map_or_else(system_roots, roots)?;
    let versions = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(io::Error::other)?;
    Ok(versions.with_root_certificates(roots).with_no_client_auth())
}

/// The certificates in `pem`, which must be good ones.
pub(crate) fn roots(pem: &[u8]) -> io::Result<RootCertStore> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(pem) {
        roots.add(certificate.map_err(io::Error::other)?).map_err(io::Error::other)?;
    }
    if roots.is_empty() {
        return Err(io::Error::other("no certificate in it: PEM is expected"));
    }
    Ok(roots)
}

/// The system's roots; `SSL_CERT_FILE` and `SSL_CERT_DIR` name others.
fn system_roots() -> io::Result<RootCertStore> {
    let found = rustls_native_certs::load_native_certs();
    let mut roots = RootCertStore::empty();
    let (added, _) = roots.add_parsable_certificates(found.certs);
    if added == 0 {
        let errors: Vec<String> = found.errors.iter().map(ToString::to_string).collect();
        return Err(io::Error::other(format!("no root certificates on this machine: {}", errors.join("; "))));
    }
    Ok(roots)
}
