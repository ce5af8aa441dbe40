//! What follows from the facts. Pure.

use serde::Serialize;

use super::facts::{Facts, Fleet};
use super::{memory, timing, voting};

/// How much a finding matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Weight {
    /// Good to know.
    Note,
    /// Something is weaker than it should be.
    Warning,
    /// Clients cannot work so.
    Error,
}

/// Something to know about the nodes, and what mends it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Finding {
    /// The same in every version, for programs.
    pub(super) code: &'static str,
    pub(super) weight: Weight,
    /// The addresses of the nodes that it is about; empty if it is about all of them together.
    pub(super) nodes: Vec<String>,
    pub(super) text: String,
    /// Commands, or what to do in words.
    pub(super) mend: Vec<String>,
}

impl Finding {
    /// About all nodes together.
    pub(super) fn new(code: &'static str, weight: Weight, text: impl Into<String>) -> Self {
        Self { code, weight, nodes: Vec::new(), text: text.into(), mend: Vec::new() }
    }

    /// About `nodes`; `None` if there are none of them.
    pub(super) fn about<'a>(
        nodes: impl IntoIterator<Item = &'a Facts>,
        code: &'static str,
        weight: Weight,
        text: impl Into<String>,
    ) -> Option<Self> {
        let nodes: Vec<String> = nodes.into_iter().map(|node| node.address.clone()).collect();
        (!nodes.is_empty()).then(|| Self { nodes, ..Self::new(code, weight, text) })
    }

    pub(super) fn mend(mut self, what: impl Into<String>) -> Self {
        self.mend.push(what.into());
        self
    }

    /// `command` at each of `nodes`.
    pub(super) fn mend_each<'a>(mut self, nodes: impl IntoIterator<Item = &'a Facts>, command: &str) -> Self {
        self.mend.extend(nodes.into_iter().map(|node| node.cli.with(command)));
        self
    }
}

/// All findings, the heaviest first.
pub(super) fn findings(fleet: &Fleet) -> Vec<Finding> {
    let rules: [fn(&Fleet) -> Vec<Finding>; 12] = [
        voting::no_quorum,
        voting::unreachable,
        voting::slow,
        voting::refused,
        voting::young,
        memory::replicas,
        memory::persistence,
        memory::eviction,
        voting::count,
        memory::warnings,
        timing::clocks,
        timing::times,
    ];
    let mut found: Vec<Finding> = rules.iter().flat_map(|rule| rule(fleet)).collect();
    found.sort_by_key(|finding| std::cmp::Reverse(finding.weight));
    found
}

/// The heaviest weight among `findings`.
pub(super) fn heaviest(findings: &[Finding]) -> Weight {
    findings.iter().map(|finding| finding.weight).max().unwrap_or(Weight::Note)
}
