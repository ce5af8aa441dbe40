//! libfaketime: stands between a program and the system's clock.

use std::path::PathBuf;

/// Where Debian and others put it.
const FOLDERS: [&str; 6] = [
    "/usr/lib/x86_64-linux-gnu/faketime",
    "/usr/lib/aarch64-linux-gnu/faketime",
    "/usr/lib/faketime",
    "/usr/lib64/faketime",
    "/usr/local/lib/faketime",
    "/usr/lib",
];

pub(crate) fn library() -> PathBuf {
    let found = FOLDERS.iter().map(|folder| PathBuf::from(folder).join("libfaketime.so.1"));
    found.into_iter().find(|path| path.is_file()).unwrap_or_else(|| {
        panic!("libfaketime.so.1 is missing: install the package `faketime` (looked into {FOLDERS:?})")
    })
}
