//! The masters of `docker-compose.yml`, up under a name of their own.

use std::net::TcpListener;
use std::process::Command;
use std::time::{Duration, Instant};

use super::engine;

/// Where the file publishes its masters.
pub(super) const PORTS: [u16; 5] = [7001, 7002, 7003, 7004, 7005];
/// To bring five containers up, or down; takes seconds.
const PATIENCE: Duration = Duration::from_secs(180);

/// Fails where something listens on a port already: the engine's own message hides which.
pub(super) fn check_ports() {
    for port in PORTS {
        if let Err(error) = TcpListener::bind(("127.0.0.1", port)) {
            panic!(
                "port {port} of 127.0.0.1 cannot be used ({error}): end what listens there; where \
                 it is this file's masters, `docker compose down`"
            );
        }
    }
}

pub(super) struct Project {
    name: String,
    is_down: bool,
}

impl Project {
    pub(super) async fn up() -> Project {
        // Made first: what came up before a failure is taken down too.
        let project = Project { name: format!("leasehold-test-{}", std::process::id()), is_down: false };
        project.compose(&["up", "-d"]).await;
        project
    }

    /// Returns when the engine calls all five healthy.
    pub(super) async fn wait_until_healthy(&self) {
        let ids = self.compose(&["ps", "-q"]).await;
        let ids: Vec<&str> = ids.split_whitespace().collect();
        assert_eq!(ids.len(), PORTS.len(), "containers: {ids:?}");
        let started = Instant::now();
        loop {
            let mut asking = vec!["inspect", "--format", "{{.State.Health.Status}}"];
            asking.extend(&ids);
            let states = engine::ask(&asking).await.unwrap();
            if states.lines().all(|state| state == "healthy") {
                return;
            }
            if started.elapsed() > PATIENCE || states.contains("unhealthy") {
                let log = self.compose(&["logs", "--tail", "20"]).await;
                panic!("not all healthy after {:?}:\n{states}\n{log}", started.elapsed());
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }

    pub(super) async fn stop(&self, service: &str) {
        self.compose(&["stop", service]).await;
    }

    /// Ends the containers and forgets their data, and checks that nothing is left.
    pub(super) async fn down(mut self) {
        self.compose(&DOWN).await;
        self.is_down = true;
        let label = format!("label=com.docker.compose.project={}", self.name);
        for kind in ["container", "volume", "network"] {
            let mut asking = vec![kind, "ls", "-q", "--filter", &label];
            if kind == "container" {
                asking.push("--all");
            }
            assert_eq!(engine::ask(&asking).await.unwrap(), "", "a {kind} is left");
        }
    }

    async fn compose(&self, args: &[&str]) -> String {
        let mut command = engine::compose().await;
        command.args(["-p", &self.name]).args(args);
        engine::run(command, PATIENCE).await.unwrap()
    }
}

const DOWN: [&str; 4] = ["down", "--volumes", "--timeout", "5"];

impl Drop for Project {
    /// The way out of a failed test. A destructor cannot wait for a future, so it calls both kinds of
    /// the program: the one that is not there, or finds nothing to end, does no harm.
    fn drop(&mut self) {
        if self.is_down {
            return;
        }
        let plugin = engine::docker(&["compose"]);
        for mut command in [plugin, Command::new("docker-compose")] {
            command.current_dir(env!("CARGO_MANIFEST_DIR")).args(["-p", &self.name]).args(DOWN);
            if command.output().is_ok_and(|output| output.status.success()) {
                return;
            }
        }
        eprintln!("the containers of project {} could not be taken down", self.name);
    }
}
