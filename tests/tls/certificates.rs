//! Certificates for a day, signed by an authority of a test's own.

use std::time::{Duration, SystemTime};

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, IsCa, Issuer, KeyPair, KeyUsagePurpose,
};

const DAY: Duration = Duration::from_secs(86_400);

pub(super) struct Authority {
    /// Its own certificate, in PEM.
    pub(super) pem: String,
    issuer: Issuer<'static, KeyPair>,
}

/// What a server shows, in PEM.
pub(super) struct Identity {
    pub(super) certificate: String,
    pub(super) key: String,
}

impl Authority {
    pub(super) fn new() -> Self {
        let key = KeyPair::generate().expect("a key");
        let mut params = params(&[], "test authority");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let pem = params.self_signed(&key).expect("a certificate").pem();
        Self { pem, issuer: Issuer::new(params, key) }
    }

    /// Good for these names and addresses.
    pub(super) fn issue(&self, names: &[&str]) -> Identity {
        self.sign(params(names, "test server"))
    }

    /// Good until yesterday.
    pub(super) fn issue_expired(&self, names: &[&str]) -> Identity {
        let mut params = params(names, "test server");
        params.not_before = (SystemTime::now() - 3 * DAY).into();
        params.not_after = (SystemTime::now() - DAY).into();
        self.sign(params)
    }

    fn sign(&self, params: CertificateParams) -> Identity {
        let key = KeyPair::generate().expect("a key");
        let certificate = params.signed_by(&key, &self.issuer).expect("a certificate");
        Identity { certificate: certificate.pem(), key: key.serialize_pem() }
    }
}

fn params(names: &[&str], subject: &str) -> CertificateParams {
    let names: Vec<_> = names.iter().map(|name| (*name).to_owned()).collect();
    let mut params = CertificateParams::new(names).expect("names");
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, subject);
    params.not_before = (SystemTime::now() - DAY).into();
    params.not_after = (SystemTime::now() + DAY).into();
    params
}
