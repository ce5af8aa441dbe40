//! The programs `docker` and `docker compose`, each call with an end.

use std::process::{Command, Stdio};
use std::time::Duration;

/// For calls that only ask.
const PATIENCE: Duration = Duration::from_secs(30);

/// Fails with what to do where no engine answers.
pub(super) async fn check() {
    let asked = run(docker(&["version", "--format", "{{.Server.Version}}"]), PATIENCE).await;
    if let Err(error) = asked {
        panic!(
            "this test needs a container engine that answers: start Docker, or leave out \
             `--test compose`\n{error}"
        );
    }
}

/// `docker` with these arguments.
pub(super) fn docker(args: &[&str]) -> Command {
    let mut command = Command::new("docker");
    command.args(args);
    command
}

/// `docker compose`, else the older `docker-compose`, in the crate's folder.
pub(super) async fn compose() -> Command {
    let mut command = docker(&["compose"]);
    if run(docker(&["compose", "version"]), PATIENCE).await.is_err() {
        command = Command::new("docker-compose");
    }
    command.current_dir(env!("CARGO_MANIFEST_DIR"));
    command
}

/// What a command printed that only asks.
pub(super) async fn ask(args: &[&str]) -> Result<String, String> {
    run(docker(args), PATIENCE).await
}

/// What the command printed; an error with all that it said when it failed or did not end in time.
pub(super) async fn run(command: Command, within: Duration) -> Result<String, String> {
    let shown = format!("{command:?}");
    let mut command = tokio::process::Command::from(command);
    let ended = command.stdin(Stdio::null()).kill_on_drop(true).output();
    let output = tokio::time::timeout(within, ended)
        .await
        .map_err(|_| format!("{shown}: did not end within {within:?}"))?
        .map_err(|error| format!("{shown}: {error}"))?;
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    if output.status.success() {
        return Ok(printed);
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(format!("{shown}: {}\n{printed}{said}", output.status))
}
