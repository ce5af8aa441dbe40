//! Chance: the operating system's for tokens, the thread's for delays. Tests may seed both.

use rand::rngs::SysError;
use rand::{RngExt as _, TryRng as _};

/// Fills `bytes` so that nobody can guess them.
pub(crate) fn fill(bytes: &mut [u8]) -> Result<(), SysError> {
    #[cfg(test)]
    if seeded::fill(bytes) {
        return Ok(());
    }
    rand::rngs::SysRng.try_fill_bytes(bytes)
}

/// A number from 0 to 1, both included.
pub(crate) fn fraction() -> f64 {
    #[cfg(test)]
    if let Some(fraction) = seeded::fraction() {
        return fraction;
    }
    rand::rng().random_range(0.0..=1.0)
}

/// Dice of one thread that fall the same for the same seed.
#[cfg(test)]
pub(crate) mod seeded {
    use std::cell::RefCell;

    use rand::rngs::StdRng;
    use rand::{Rng as _, RngExt as _, SeedableRng as _};

    thread_local! {
        static DICE: RefCell<Option<StdRng>> = const { RefCell::new(None) };
    }

    /// Seeds the dice of this thread; `None` gives it unseeded ones again.
    pub(crate) fn seed(seed: Option<u64>) {
        DICE.set(seed.map(StdRng::seed_from_u64));
    }

    pub(super) fn fill(bytes: &mut [u8]) -> bool {
        DICE.with_borrow_mut(|dice| dice.as_mut().map(|dice| dice.fill_bytes(bytes)).is_some())
    }

    pub(super) fn fraction() -> Option<f64> {
        DICE.with_borrow_mut(|dice| Some(dice.as_mut()?.random_range(0.0..=1.0)))
    }
}
