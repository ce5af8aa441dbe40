//! Where a process writes its lines.

use std::fs::File;
use std::io::Write as _;
use std::path::Path;

use super::line::{Event, Line};
use super::moment::{Clock, Moment};

pub(super) struct Journal {
    pub(super) clock: Clock,
    file: File,
}

impl Journal {
    pub(super) fn open(path: &Path, clock: Clock) -> Self {
        let file = File::options().create(true).append(true).open(path).expect("open a journal");
        Self { clock, file }
    }

    /// Writes what happens now.
    pub(super) fn write(&self, who: &str, what: Event) {
        self.write_at(self.clock.now(), who, what);
    }

    pub(super) fn write_at(&self, at: Moment, who: &str, what: Event) {
        let line = format!("{}\n", Line { at, who: who.to_owned(), what });
        // One write: a process that is killed leaves no half of a line.
        (&self.file).write_all(line.as_bytes()).expect("write to a journal");
    }
}
