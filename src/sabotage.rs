//! Faults put into the algorithm on purpose, one at a time: the simulation has to find each. Tests alone can
//! switch one on; elsewhere every question is answered "no" when the crate is compiled.

/// A rule that is not kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(not(feature = "testing"), expect(dead_code, reason = "some are of the nodes in memory"))]
pub(crate) enum Sabotage {
    /// A quorum is half of the nodes.
    SmallQuorum,
    /// A quorum is all nodes.
    AllNeeded,
    /// Nothing is taken off the TTL for clocks of other rates.
    NoDrift,
    /// Validity counts from the first answer.
    FromFirstReply,
    /// Deletions do not compare.
    PlainDelete,
    /// Answers that are missing when a round is won are undone.
    DebtOfWonToken,
    /// An extend asks for less than before, and keeps the deadline.
    ShorterExtend,
    /// An extend counts after the old deadline.
    LateExtend,
    /// A node that forgot votes again after the TTL that is asked of it.
    GuardByOwnTtl,
    /// Answers of young nodes to extends count.
    YoungExtends,
    /// A SET whose answer is lost is not undone.
    LostReplyKept,
    /// A broken connection is not killed before the next one pays.
    OvertakingDeletion,
    /// The validity of a renewal counts from its end.
    FromRenewalEnd,
    /// A loss is told when a renewal has failed, and not before.
    LossAfterRetry,
    /// The heartbeat goes on when its lease is over.
    ZombieHeartbeat,
    /// Release, drop and loss end nothing.
    NeverOver,
    /// The second round of a fenced lease sets the fence and not the TTL.
    OldTtlOnSecondRound,
    /// A fence is what the client's clock says.
    FenceByClientClock,
    /// A fence may run ahead of the highest one instead of the node's clock.
    FenceAheadOfHighest,
    /// Votes count however late.
    SlowRound,
    /// A fleet is new if a quorum of its nodes says so.
    NewFleetByQuorum,
    /// A fleet is new if its nodes say so once.
    NewFleetReadOnce,
    /// What nodes have said again of a new fleet stands though another connects anew.
    NewFleetStale,
}

/// Whether `rule` is not kept in this thread.
#[cfg(not(test))]
pub(crate) const fn has(_rule: Sabotage) -> bool {
    false
}

#[cfg(test)]
thread_local! {
    static RULE: std::cell::Cell<Option<Sabotage>> = const { std::cell::Cell::new(None) };
}

/// Whether `rule` is not kept in this thread.
#[cfg(test)]
pub(crate) fn has(rule: Sabotage) -> bool {
    RULE.get() == Some(rule)
}

/// The rule that is not kept in this thread from now on.
#[cfg(test)]
pub(crate) fn switch(rule: Option<Sabotage>) {
    RULE.set(rule);
}
