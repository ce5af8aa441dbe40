//! The server program, more of its ports, and small programs that start it in another way.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use leasehold::testing::{LocalMasters, LocalMastersBuilder, TestingError};
use rand::RngExt as _;

/// The server that the tests use: the same that `LocalMasters` would start.
pub(crate) fn server() -> PathBuf {
    if let Some(named) = std::env::var_os("LEASEHOLD_SERVER").filter(|named| !named.is_empty()) {
        return named.into();
    }
    let on_path = ["redis-server", "valkey-server"].into_iter().find_map(on_path);
    on_path.expect("no server on PATH: install `redis-server`")
}

pub(crate) fn on_path(name: &str) -> Option<PathBuf> {
    let folders = std::env::var_os("PATH")?;
    std::env::split_paths(&folders).map(|folder| folder.join(name)).find(|path| path.is_file())
}

/// Writes a shell script that can be run. A process of its own writes it: a file that is still open for
/// writing, perhaps in a child of another test, could not be run.
pub(crate) fn script(path: &Path, text: &str) {
    let mut writer = Command::new("sh")
        .args(["-c", "cat >\"$1\" && chmod +x \"$1\"", "sh"])
        .arg(path)
        .stdin(Stdio::piped())
        .spawn()
        .expect("a shell");
    let mut input = writer.stdin.take().expect("it was asked for");
    std::io::Write::write_all(&mut input, format!("#!/bin/sh\n{text}\n").as_bytes()).expect("write");
    drop(input);
    assert!(writer.wait().expect("it ends").success());
}

/// Starts one server that listens on another port as well; `build` is told which.
pub(crate) async fn with_another_port(
    build: impl Fn(u16) -> LocalMastersBuilder,
) -> Result<(LocalMasters, u16), TestingError> {
    let mut tries = 1;
    loop {
        let port = free_port();
        match build(port).count(1).start().await {
            Ok(master) => return Ok((master, port)),
            // Somebody took it between the look and the start.
            Err(TestingError::Exited { log, .. }) if tries < 10 && log.contains("Failed listening") => {
                tries += 1
            }
            Err(error) => return Err(error),
        }
    }
}

/// Below those that the system gives to outgoing connections.
fn free_port() -> u16 {
    loop {
        let port = rand::rng().random_range(11_000..32_000);
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}
