//! Where a node is: a URL, taken apart and checked.

use std::fmt;
use std::path::PathBuf;

use redis::{ConnectionAddr, IntoConnectionInfo as _, RedisConnectionInfo};

/// A checked address. `Display` shows neither user nor password.
#[derive(Clone)]
pub(crate) struct Address {
    pub(super) place: Place,
    pub(super) login: RedisConnectionInfo,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Place {
    Tcp { host: String, port: u16, tls: bool },
    Unix(PathBuf),
}

/// Why an address cannot be used.
#[derive(Debug)]
pub(crate) struct BadAddress {
    /// The address without user and password.
    pub(crate) shown: String,
    pub(crate) reason: String,
}

const FORMS: &str = "use redis://[user:password@]host[:port][/db], rediss://… (feature `tls`) or unix:///path[?db=n]; in a password \
     @ : / # ? , are %40 %3A %2F %23 %3F %2C";

impl Address {
    pub(crate) fn parse(text: &str) -> Result<Self, BadAddress> {
        let bad = |reason: String| BadAddress { shown: without_secrets(text), reason };
        let Some(mut url) = redis::parse_redis_url(text) else {
            return Err(bad(format!("not an address of a Redis server: {FORMS}")));
        };
        if url.fragment().is_some() {
            let reason = "`#` is not used in addresses; in a password write it as %23";
            return Err(bad(reason.to_owned()));
        }
        if !url.scheme().ends_with("unix") && url.query().is_some() {
            let reason =
                "`?` is for unix:// alone; a database is /n behind the port, and in a password `?` is %3F";
            return Err(bad(reason.to_owned()));
        }
        let tls = matches!(url.scheme(), "rediss" | "valkeys");
        if tls && cfg!(not(feature = "tls")) {
            return Err(bad("TLS needs the crate's feature `tls`".to_owned()));
        }
        if tls && url.set_scheme("redis").is_err() {
            return Err(bad(FORMS.to_owned()));
        }
        let info = url.into_connection_info().map_err(|error| {
            // The category only: the detail may repeat a part of the address.
            bad(format!("{}: {FORMS}", error.category()))
        })?;
        let place = match info.addr() {
            ConnectionAddr::Tcp(_, 0) => return Err(bad("port 0 cannot be connected to".to_owned())),
            ConnectionAddr::Tcp(host, port) => Place::Tcp { host: host.to_lowercase(), port: *port, tls },
            ConnectionAddr::Unix(path) => Place::Unix(path.clone()),
            _ => return Err(bad(FORMS.to_owned())),
        };
        let login = info.redis_settings().clone();
        if login.db() < 0 {
            return Err(bad(format!("database {} does not exist", login.db())));
        }
        Ok(Self { place, login })
    }

    /// Whether both name one server, by their text.
    pub(crate) fn is_same_server(&self, other: &Self) -> bool {
        match (&self.place, &other.place) {
            (Place::Tcp { host: a, port: p, .. }, Place::Tcp { host: b, port: q, .. }) => a == b && p == q,
            (a, b) => a == b,
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.place {
            Place::Tcp { host, port, .. } if host.contains(':') => write!(f, "[{host}]:{port}"),
            Place::Tcp { host, port, .. } => write!(f, "{host}:{port}"),
            Place::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Address({self})")
    }
}

/// What may be shown of an address that could not be read: nothing before an `@`, nothing after a `?`, and
/// nothing that stands where a port should and is none: it may be a password whose `@` is missing.
fn without_secrets(text: &str) -> String {
    let (scheme, rest) = text.split_once("://").unwrap_or(("", text));
    let rest = rest.rsplit_once('@').or_else(|| rest.rsplit_once("%40")).map_or(rest, |(_, host)| host);
    let rest = rest.split(['?', '#']).next().unwrap_or_default();
    // An IPv6 address stands in brackets.
    let bracket = rest.rfind(']').map_or(0, |end| end + 1);
    let colon = rest[bracket..].find(':').map(|colon| bracket + colon);
    let is_port = |port: &str| port.split('/').next().is_some_and(|port| port.parse::<u16>().is_ok());
    let shown = match colon {
        Some(colon) if !is_port(&rest[colon + 1..]) => format!("{}:…", &rest[..colon]),
        _ => rest.to_owned(),
    };
    if scheme.is_empty() { shown } else { format!("{scheme}://{shown}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_forms_of_an_address_are_read() {
        let shown = |text| Address::parse(text).unwrap().to_string();
        assert_eq!(shown("redis://10.0.0.1"), "10.0.0.1:6379");
        assert_eq!(shown("redis://[::1]:7001/2"), "[::1]:7001");
        assert_eq!(shown("redis://Master.Example:7001"), "master.example:7001");
        assert_eq!(shown("unix:///run/redis.sock?db=3"), "unix:/run/redis.sock");
        assert_eq!(Address::parse("redis+unix:///run/redis.sock?db=3").unwrap().login.db(), 3);
        let address = Address::parse("redis://us%40er:p%3Aa%2Fs%23s@h:1/5").unwrap();
        assert_eq!(address.login.username(), Some("us@er"));
        assert_eq!(address.login.password(), Some("p:a/s#s"));
        assert_eq!(address.login.db(), 5);
        assert_eq!(format!("{address} {address:?}"), "h:1 Address(h:1)");
    }

    #[test]
    fn a_bad_address_is_refused_without_its_password() {
        let bad = [
            "",
            "secret",
            "http://u:secret@h",
            "redis://",
            "redis://:secret@",
            "redis://u:secret@h:notaport",
            "redis://u:secret@h/x",
            "redis://u:secret@h:0",
            "redis://u:secret@h/-1",
            "redis://u:se#secret@h",
            "redis://0.0.0.0",
            "unix:?pass=secret&db=x",
            "unix:///s?db=x&pass=secret",
            "redis://u:sec/secret@h:1",
            "redis://u:secret",
            "redis://u:s,secret",
            "redis://h?db=1&password=secret",
            "rediss://h:1/2?secret",
            "redis://u%3Asecret%40h:1x",
        ];
        for text in bad {
            let error = Address::parse(text).expect_err(text);
            assert!(!error.reason.contains("secret"), "{text}: {error:?}");
            assert!(!error.shown.contains("secret") || text == "secret", "{text}: {error:?}");
            assert!(!error.reason.is_empty());
        }
    }

    #[test]
    fn what_is_no_secret_of_a_bad_address_is_shown() {
        for (text, shown) in [
            ("redis://u:p@h:0", "redis://h:0"),
            ("redis://h:99999", "redis://h:…"),
            ("redis://[::1]:0/2", "redis://[::1]:0/2"),
            ("redis://h:a", "redis://h:…"),
            ("http://h:1", "http://h:1"),
        ] {
            assert_eq!(Address::parse(text).expect_err(text).shown, shown);
        }
    }

    #[test]
    fn one_server_under_two_addresses_is_seen() {
        let same = |a, b| Address::parse(a).unwrap().is_same_server(&Address::parse(b).unwrap());
        assert!(same("redis://h:6379", "redis://u:p@H/3"));
        assert!(same("unix:///a", "unix:///a?db=1"));
        assert!(!same("redis://h:6379", "redis://h:6380"));
        assert!(!same("unix:///a", "unix:///b"));
    }
}
