//! The scene of each attack: one holds a key on the first three of five masters and cannot reach the others;
//! another asks for it on the last three; and the one in the middle forgets.

use std::time::{Duration, Instant};

use leasehold::testing::LocalMasters;
use leasehold::{AcquireError, NodeErrorKind, Redlock};

use crate::common::{Raw, ms, raw, secs, until};
use crate::views::{Network, builder, meet, until_some};

/// The master that both can reach.
pub(super) const MIDDLE: usize = 2;
pub(super) const KEY: &str = "job";

/// Longer than a whole attack takes: the lease is valid throughout.
pub(super) const LONG: Duration = secs(60);
/// Short enough to wait for its end.
pub(super) const SHORT: Duration = secs(4);

pub(super) struct Scene {
    pub(super) masters: LocalMasters,
    pub(super) network: Network,
    max_ttl: Duration,
    /// The first client's token, and when its validity ends.
    token: String,
    valid_until: Instant,
}

impl Scene {
    /// Masters that have served before, and a lease of `max_ttl` on the first three.
    pub(super) async fn begin(masters: LocalMasters, max_ttl: Duration) -> Self {
        let network = met(&masters, max_ttl).await;
        Self::hold(masters, network, max_ttl, true).await
    }

    /// The same of masters the last two of which nobody has ever seen.
    pub(super) async fn begin_with_three(masters: LocalMasters, max_ttl: Duration, guard: bool) -> Self {
        let network = Network::before(&masters).await;
        Self::hold(masters, network, max_ttl, guard).await
    }

    /// The lease alone.
    pub(super) async fn hold(
        masters: LocalMasters,
        network: Network,
        max_ttl: Duration,
        guard: bool,
    ) -> Self {
        network.reach(&[0, 1, MIDDLE]);
        let holder = builder(network.urls()).max_ttl(max_ttl).restart_guard(guard).connect().await;
        let holder = holder.expect("connect");
        let lease = holder.lease(KEY).ttl(max_ttl).acquire().await.expect("the first three are a quorum");
        for index in 0..masters.len() {
            let expected = (index <= MIDDLE).then(|| lease.token().as_str().to_owned());
            assert_eq!(raw(&masters, index).get(KEY).await, expected, "on node {index}");
        }
        let token = lease.token().as_str().to_owned();
        // Neither renewed nor put elsewhere: its holder uses what it has, and reaches nobody any more.
        let valid_until = Instant::now() + lease.detach();
        Self { masters, network, max_ttl, token, valid_until }
    }

    pub(super) fn middle(&self) -> Raw {
        raw(&self.masters, MIDDLE)
    }

    /// What the first client is entitled to.
    pub(super) fn is_held(&self) -> bool {
        Instant::now() < self.valid_until
    }

    /// A client that reaches the last three only.
    pub(super) async fn rival(&self) -> Rival<'_> {
        self.rival_of(&[MIDDLE, 3, 4], true).await
    }

    /// The same without the guard: the control.
    pub(super) async fn unguarded_rival(&self) -> Rival<'_> {
        self.rival_of(&[MIDDLE, 3, 4], false).await
    }

    pub(super) async fn rival_of(&self, reached: &[usize], guard: bool) -> Rival<'_> {
        self.network.reach(reached);
        let builder = builder(self.network.urls()).max_ttl(self.max_ttl).restart_guard(guard);
        Rival { redlock: builder.connect().await.expect("connect"), scene: self }
    }

    /// The attack is one: the middle has forgotten the lease, which is valid.
    pub(super) async fn middle_has_forgotten(&self) {
        assert_ne!(
            self.middle().get(KEY).await.as_ref(),
            Some(&self.token),
            "the middle should have lost it"
        );
        assert!(self.is_held(), "the attack took too long to show anything");
    }
}

/// The network before masters that a client has met through it.
pub(super) async fn met(masters: &LocalMasters, max_ttl: Duration) -> Network {
    let network = Network::before(masters).await;
    meet(network.urls(), max_ttl).await;
    network
}

pub(super) struct Rival<'a> {
    pub(super) redlock: Redlock,
    scene: &'a Scene,
}

impl Rival<'_> {
    /// Whatever TTL it asks for, it does not win while the key is held, and is told why.
    pub(super) async fn is_kept_out(&self) {
        for ttl in [self.scene.max_ttl, secs(1), ms(200), ms(10)] {
            until("the middle should be known to be young", async || {
                let outcome = self.redlock.lease(KEY).ttl(ttl).try_acquire().await;
                let held = self.scene.is_held();
                match outcome {
                    Ok(Some(_)) => panic!("two leases on one key, the second for {ttl:?} (valid: {held})"),
                    Ok(None) => panic!("nobody but the middle can have the key"),
                    Err(AcquireError::NoQuorum(too_few)) => {
                        let middle = self.scene.network.name(MIDDLE);
                        let mut failed = too_few.failed.iter();
                        failed.any(|node| node.address() == middle && node.kind() == NodeErrorKind::Young)
                    }
                    Err(error) => panic!("{error}"),
                }
            })
            .await;
        }
        assert!(self.scene.is_held(), "this took too long to show anything");
    }

    /// It wins in the end, and not before the other's validity is over.
    pub(super) async fn wins_only_afterwards(&self) {
        let request = self.redlock.lease(KEY).ttl(secs(1)).wait(self.scene.max_ttl * 5);
        let lease = request.acquire().await.expect("the node has grown old enough");
        assert!(!self.scene.is_held(), "two leases on one key");
        lease.release().await.expect("release");
    }

    /// What the guard is for: the second client wins while the first has the key.
    pub(super) async fn wins_while_it_is_held(&self) {
        let win = async || self.redlock.lease(KEY).ttl(secs(10)).try_acquire().await.ok().flatten();
        let second = until_some("the rival should win without the guard", win).await;
        assert!(self.scene.is_held() && second.is_valid(), "this took too long to show anything");
    }
}
