//! What happened, a line an event, in true time.

use std::fmt::Display;
use std::sync::{Mutex, PoisonError};

use tokio::time::Instant;

/// Lines are kept only where somebody will read them.
pub(crate) struct History {
    begun: Instant,
    lines: Option<Mutex<String>>,
}

impl History {
    pub(crate) fn new(recorded: bool) -> Self {
        Self { begun: Instant::now(), lines: recorded.then(Mutex::default) }
    }

    /// Microseconds since the world began.
    pub(crate) fn now(&self) -> u64 {
        u64::try_from(self.begun.elapsed().as_micros()).unwrap_or(u64::MAX)
    }

    pub(crate) fn begun(&self) -> Instant {
        self.begun
    }

    /// Notes `what` of `who`.
    pub(crate) fn note<T: Display>(&self, who: impl Display, what: impl FnOnce() -> T) {
        self.note_at(self.now(), who, what);
    }

    /// The same for what happened at `micros`.
    pub(crate) fn note_at<T: Display>(&self, micros: u64, who: impl Display, what: impl FnOnce() -> T) {
        let Some(lines) = &self.lines else { return };
        let line = format!("{:>5}.{:06} s  {who}  {}\n", micros / 1_000_000, micros % 1_000_000, what());
        lines.lock().unwrap_or_else(PoisonError::into_inner).push_str(&line);
    }

    pub(crate) fn text(&self) -> String {
        let lines = self.lines.as_ref().map(|lines| lines.lock().unwrap_or_else(PoisonError::into_inner));
        lines.map(|lines| lines.clone()).unwrap_or_default()
    }
}
