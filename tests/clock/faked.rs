//! A master whose clock can be set.

use std::path::PathBuf;

use leasehold::testing::LocalMasters;
use tempfile::TempDir;

use crate::views::faketime::library;
use crate::views::{masters, program};

/// Some masters, the last of which believes what a file says of the time.
pub(super) struct Scene {
    pub(super) masters: LocalMasters,
    pub(super) faked: LocalMasters,
    clock: PathBuf,
    _folder: TempDir,
}

impl Scene {
    /// `count` masters in all.
    pub(super) async fn start(count: usize) -> Self {
        Self::start_with(count, true).await
    }

    /// The same with or without their data after a restart.
    pub(super) async fn start_with(count: usize, persistent: bool) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let clock = folder.path().join("clock");
        let start = folder.path().join("server");
        std::fs::write(&clock, "+0").expect("write");
        let lines = [
            // The C library again, before the server's own allocator: that one asks for the time before
            // libfaketime is ready to answer.
            format!("export LD_PRELOAD='{} libc.so.6'", library().display()),
            format!("export FAKETIME_TIMESTAMP_FILE='{}'", clock.display()),
            "export FAKETIME_NO_CACHE=1 DONT_FAKE_MONOTONIC=1 FAKETIME_DISABLE_SHM=1".to_owned(),
            format!("exec '{}' \"$@\"", program::server().display()),
        ];
        program::script(&start, &lines.join("\n"));
        let faked = masters(1).persistent(persistent).program(start).start().await;
        let rest = masters(count - 1).persistent(persistent).start().await;
        let (faked, masters) = (faked.expect("a master with a faked clock"), rest.expect("local masters"));
        Self { masters, faked, clock, _folder: folder }
    }

    pub(super) fn urls(&self) -> Vec<String> {
        [self.masters.urls(), self.faked.urls()].concat()
    }

    /// Sets the clock so far ahead of the machine's; behind, where it is negative.
    pub(super) fn ahead(&self, millis: i64) {
        let new = self.clock.with_extension("new");
        std::fs::write(&new, format!("{:+.3}", millis as f64 / 1_000.0)).expect("write");
        // At once: it is read at any time.
        std::fs::rename(new, &self.clock).expect("rename");
    }
}
