//! The scene of each attack: one holds a key on the first three of five masters, another asks for it on the
//! last three, and the one in the middle forgets.

use std::time::Duration;

use leasehold::testing::LocalMasters;
use leasehold::{AcquireError, Builder, Lease, NodeErrorKind, Redlock};

use crate::views::raw::{Raw, raw};
use crate::views::{View, ms, secs, until};

/// The master that both can reach.
pub(super) const MIDDLE: usize = 2;
pub(super) const KEY: &str = "job";

/// Longer than a whole attack takes: the lease is valid throughout.
pub(super) const LONG: Duration = secs(60);
/// Short enough to wait for its end.
pub(super) const SHORT: Duration = secs(4);

pub(super) struct Scene {
    pub(super) masters: LocalMasters,
    max_ttl: Duration,
    pub(super) lease: Lease,
    // It cannot reach the last two.
    _view: View,
}

impl Scene {
    /// One client holds the key on the first three for as long as can be, without renewing.
    pub(super) async fn begin(masters: LocalMasters, max_ttl: Duration) -> Self {
        Self::held_by(masters, max_ttl, |builder| builder).await
    }

    /// The same, of clients without the guard.
    pub(super) async fn unguarded(masters: LocalMasters, max_ttl: Duration) -> Self {
        Self::held_by(masters, max_ttl, |builder| builder.restart_guard(false)).await
    }

    async fn held_by(
        masters: LocalMasters,
        max_ttl: Duration,
        with: impl FnOnce(Builder) -> Builder,
    ) -> Self {
        let view = View::of(&masters, &[0, 1, MIDDLE]).await;
        let holder = with(view.builder().max_ttl(max_ttl)).connect().await.expect("connect");
        let request = holder.lease(KEY).ttl(max_ttl).without_heartbeat();
        let lease = request.acquire().await.expect("the first three are a quorum");
        for index in 0..masters.len() {
            assert_eq!(raw(&masters, index).get(KEY).await.is_some(), index <= MIDDLE, "on node {index}");
        }
        Self { masters, max_ttl, lease, _view: view }
    }

    pub(super) fn middle(&self) -> Raw {
        raw(&self.masters, MIDDLE)
    }

    /// A client that reaches the last three only.
    pub(super) async fn rival(&self) -> Rival {
        self.rival_of(&[MIDDLE, 3, 4], true).await
    }

    /// The same without the guard: the control.
    pub(super) async fn unguarded_rival(&self) -> Rival {
        self.rival_of(&[MIDDLE, 3, 4], false).await
    }

    pub(super) async fn rival_of(&self, reached: &[usize], guard: bool) -> Rival {
        let view = View::of(&self.masters, reached).await;
        let builder = view.builder().max_ttl(self.max_ttl).restart_guard(guard);
        Rival { redlock: builder.connect().await.expect("connect"), _view: view }
    }

    /// The attack is one: the middle has forgotten the lease, which is valid.
    pub(super) async fn middle_has_forgotten(&self) {
        assert_eq!(self.middle().get(KEY).await, None, "the middle should have lost the key");
        assert!(self.lease.is_valid(), "the attack took too long to show anything");
    }
}

pub(super) struct Rival {
    pub(super) redlock: Redlock,
    _view: View,
}

impl Rival {
    /// Whatever TTL it asks for, it does not win while the key is held, and is told why.
    pub(super) async fn is_kept_out(&self, scene: &Scene) {
        for ttl in [ms(10), ms(200), secs(1), scene.max_ttl] {
            until("the middle is known to be young", async || {
                let outcome = self.redlock.lease(KEY).ttl(ttl).try_acquire().await;
                let held = scene.lease.is_valid();
                match outcome {
                    Ok(Some(_)) => panic!("two leases on one key, the second for {ttl:?} (valid: {held})"),
                    Ok(None) => panic!("nobody but the middle can have the key"),
                    Err(AcquireError::NoQuorum(too_few)) => {
                        let mut failed = too_few.failed.iter();
                        let address = scene.masters.addr(MIDDLE).to_string();
                        failed.any(|node| node.address() == address && node.kind() == NodeErrorKind::Young)
                    }
                    Err(error) => panic!("{error}"),
                }
                .then_some(())
            })
            .await;
        }
        assert!(scene.lease.is_valid(), "this took too long to show anything");
    }

    /// It wins in the end, and not before the other's validity is over.
    pub(super) async fn wins_only_afterwards(&self, scene: &Scene) {
        let request = self.redlock.lease(KEY).ttl(secs(1)).wait(scene.max_ttl * 5);
        let lease = request.acquire().await.expect("the node has grown old enough");
        assert!(!scene.lease.is_valid(), "two leases on one key");
        lease.release().await.expect("release");
    }

    /// What the guard is for: the second client wins while the first has the key.
    pub(super) async fn wins_while_it_is_held(&self, scene: &Scene) {
        let win = async || self.redlock.lease(KEY).ttl(secs(10)).try_acquire().await.ok().flatten();
        let second = until("the rival wins without the guard", win).await;
        assert!(scene.lease.is_valid() && second.is_valid(), "this took too long to show anything");
    }
}
