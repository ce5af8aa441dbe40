//! The options that say which nodes, shared by all commands.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt as _;
use std::time::Duration;

use clap::Args;
use leasehold::{Builder, NodeState, NodeStatus, Redlock};

use super::duration;
use super::exit::Failure;

/// Making a connection may take so long, or as long as the node timeout.
const CONNECTING: Duration = Duration::from_secs(2);
/// Between two looks at nodes that are being connected to.
const LOOK: Duration = Duration::from_millis(10);

/// Which nodes, and how to speak to them.
#[derive(Clone, Args)]
pub(crate) struct NodeArgs {
    /// The nodes' addresses, separated by commas: redis://[user:password@]host[:port][/db]
    ///
    /// Each must be an independent master, and every client of a key must be given the same ones. The
    /// arguments of a command can be read by everybody on the machine: where an address holds a password,
    /// use the environment variable.
    #[arg(long, value_name = "URL,URL,…", env = "LEASEHOLD_NODES", hide_env_values = true)]
    nodes: Option<String>,

    /// Put before the key on the nodes
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    namespace: OsString,

    /// How long a node may take to answer
    #[arg(long, value_name = "TIME", default_value = "500ms", value_parser = duration::parse)]
    pub(crate) node_timeout: Duration,

    /// The longest TTL that any client of these nodes asks for; the same for all of them
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = duration::parse)]
    pub(crate) max_ttl: Duration,
}

impl NodeArgs {
    pub(crate) async fn connect(&self) -> Result<Redlock, Failure> {
        Ok(self.builder()?.connect().await?)
    }

    /// A client that only looks at the nodes, also at those that may not vote. Returns when it is known of
    /// each whether it answers.
    pub(crate) async fn observe(&self) -> Result<Redlock, Failure> {
        let redlock = self.builder()?.observe_only().connect().await?;
        self.tried(&redlock).await;
        Ok(redlock)
    }

    /// Waits until the first try to connect to each node is over.
    pub(crate) async fn tried(&self, redlock: &Redlock) {
        let tried = async {
            while redlock.nodes().iter().any(|node| node.state == NodeState::Connecting) {
                tokio::time::sleep(LOOK).await;
            }
        };
        // Who is still connecting then is shown so.
        let _ = tokio::time::timeout(CONNECTING.max(self.node_timeout) + self.node_timeout * 2, tried).await;
    }

    /// The addresses as they were given, passwords and all.
    pub(crate) fn addresses(&self) -> Vec<&str> {
        addresses(self.nodes.as_deref().unwrap_or_default())
    }

    fn builder(&self) -> Result<Builder, Failure> {
        let nodes = self.addresses();
        if nodes.is_empty() {
            let message = "no nodes: name them with --nodes URL,URL,URL or in LEASEHOLD_NODES";
            return Err(Failure::usage(message));
        }
        if let Some(entry) = self.nodes.as_deref().and_then(gap) {
            // Other nodes than all the rest is no exclusion at all.
            let message =
                format!("node {entry} is empty: is a variable unset? Give all clients the same nodes");
            return Err(Failure::usage(message));
        }
        Ok(Redlock::builder()
            .nodes(nodes)
            .namespace(self.namespace.clone().into_vec())
            .node_timeout(self.node_timeout)
            .max_ttl(self.max_ttl))
    }
}

impl std::fmt::Debug for NodeArgs {
    /// Shows no address as it was given: it may hold a password.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NodeArgs").field("namespace", &self.namespace).finish_non_exhaustive()
    }
}

fn addresses(list: &str) -> Vec<&str> {
    list.split(|c: char| c == ',' || c.is_whitespace()).filter(|address| !address.is_empty()).collect()
}

/// Which entry of `list` is left empty, counted from 1; a comma at the end is none.
fn gap(list: &str) -> Option<usize> {
    let entries: Vec<&str> = list.trim_end().trim_end_matches(',').split(',').collect();
    entries.iter().position(|entry| entry.trim().is_empty()).map(|index| index + 1)
}

/// The nodes that do not answer now, and why; empty if all do.
pub(crate) fn failing(nodes: &[NodeStatus]) -> String {
    let failing = nodes.iter().filter_map(|node| Some(format!("{}: {}", node.address, trouble(node)?)));
    failing.collect::<Vec<_>>().join("; ")
}

/// Why a node does not vote now; `None` if it does.
pub(crate) fn trouble(node: &NodeStatus) -> Option<String> {
    let last = node.last_error.as_ref().map(|error| error.reason());
    Some(match &node.state {
        NodeState::Up => return None,
        NodeState::Slow => "no answer in time".to_owned(),
        NodeState::Connecting => "still connecting".to_owned(),
        NodeState::Young(left) => format!("new or restarted, votes in {} s", left.as_secs() + 1),
        NodeState::Refused(refusal) => refusal.to_string(),
        _ => last.unwrap_or("not connected").to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_separated_by_commas_or_blanks() {
        let list = " redis://a, redis://b:1,\nredis://c/2,";
        assert_eq!(addresses(list), ["redis://a", "redis://b:1", "redis://c/2"]);
        assert!(addresses(" ,\n").is_empty());
    }

    #[test]
    fn an_entry_between_two_commas_is_not_left_out() {
        assert_eq!(gap("redis://a,redis://b,\n"), None);
        assert_eq!(gap("redis://a redis://b"), None);
        assert_eq!(gap("redis://a,,redis://b"), Some(2));
        assert_eq!(gap(",redis://a"), Some(1));
        assert_eq!(gap("redis://a, ,redis://b"), Some(2));
    }
}
