//! How `redis-cli` is called for a node, without its password.

/// Its command line up to the command.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct RedisCli(String);

impl RedisCli {
    /// For the node at `url`, as it was given, whose `address` may be shown.
    pub(super) fn new(url: &str, address: &str) -> Self {
        let (scheme, rest) = url.split_once("://").unwrap_or(("", url));
        let mut line = "redis-cli".to_owned();
        if matches!(scheme, "rediss" | "valkeys") {
            line.push_str(" --tls");
        }
        line.push_str(&place(address));
        let login = rest.rsplit_once('@').map(|(login, _)| login);
        if login.is_some_and(|login| !login.starts_with(':')) || rest.contains("user=") {
            line.push_str(" --user …");
        }
        if login.is_some() || rest.contains("pass=") {
            line.push_str(" --askpass");
        }
        Self(line)
    }

    /// The command line with a command.
    pub(super) fn with(&self, command: &str) -> String {
        format!("{} {command}", self.0)
    }
}

fn place(address: &str) -> String {
    if let Some(path) = address.strip_prefix("unix:") {
        return format!(" -s {}", quoted(path));
    }
    let (host, port) = address.rsplit_once(':').unwrap_or((address, "6379"));
    format!(" -h {} -p {port}", host.trim_start_matches('[').trim_end_matches(']'))
}

/// A word for a shell.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+:@%".contains(c);
    if word.chars().all(plain) { word.to_owned() } else { format!("'{}'", word.replace('\'', r"'\''")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form_of_an_address_has_its_command_line() {
        for (url, address, line) in [
            ("redis://h:7001/2", "h:7001", "redis-cli -h h -p 7001 PING"),
            ("redis://[::1]:7001", "[::1]:7001", "redis-cli -h ::1 -p 7001 PING"),
            ("rediss://:secret@h", "h:6379", "redis-cli --tls -h h -p 6379 --askpass PING"),
            ("redis://me:secret@h", "h:6379", "redis-cli -h h -p 6379 --user … --askpass PING"),
            ("unix:///run/a.sock?db=1", "unix:/run/a.sock", "redis-cli -s /run/a.sock PING"),
            ("unix:///a b?user=me&pass=secret", "unix:/a b", "redis-cli -s '/a b' --user … --askpass PING"),
        ] {
            assert_eq!(RedisCli::new(url, address).with("PING"), line);
        }
    }
}
