//! The image that `docker-compose.yml` names: there already, pulled, or made of this machine's server.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use super::engine;

const PULL_PATIENCE: Duration = Duration::from_secs(180);
const BUILD_PATIENCE: Duration = Duration::from_secs(60);
/// Marks images that this test made: not what their name says, so they are not left behind.
const LABEL: &str = "leasehold.made-by-test";

/// An image under the name that the file says; one that was made here goes with this value.
pub(super) struct Image {
    made: Option<String>,
}

impl Drop for Image {
    fn drop(&mut self) {
        if let Some(name) = &self.made {
            let _ = engine::docker(&["image", "rm", name]).output();
        }
    }
}

pub(super) async fn provide() -> Image {
    let name = name_in_file().await;
    let label = format!("{{{{index .Config.Labels \"{LABEL}\"}}}}");
    match engine::ask(&["image", "inspect", "--format", &label, &name]).await {
        // Left over by a run that was killed.
        Ok(label) if !label.trim().is_empty() => {}
        Ok(_) => return Image { made: None },
        Err(_) => match engine::run(engine::docker(&["pull", "-q", &name]), PULL_PATIENCE).await {
            Ok(_) => return Image { made: None },
            Err(why) => println!("{name} cannot be pulled, so it is made here:\n{why}"),
        },
    }
    make(&name).await;
    Image { made: Some(name) }
}

/// As the file is read with the environment of this process.
async fn name_in_file() -> String {
    let mut command = engine::compose().await;
    command.arg("config");
    let config = engine::run(command, BUILD_PATIENCE).await.unwrap();
    let mut names: Vec<&str> =
        config.lines().filter_map(|line| line.trim().strip_prefix("image: ")).collect();
    names.dedup();
    assert_eq!(names.len(), 1, "one image for all services");
    names[0].to_owned()
}

/// Makes an image of the server and the client of this machine and the libraries they need. There is
/// nothing else in it, no shell either.
async fn make(name: &str) {
    let root = tempfile::tempdir().unwrap();
    let server = std::env::var_os("LEASEHOLD_SERVER").map(PathBuf::from);
    let server = server.or_else(|| find(&["redis-server", "valkey-server"]));
    let server = server.expect("a server to make an image of: install redis-server");
    // The health check calls it.
    let client = find(&["redis-cli", "valkey-cli"]).expect("redis-cli: install redis-tools");
    for (program, inside) in [(server, "redis-server"), (client, "redis-cli")] {
        copy(&program, &root.path().join("usr/bin").join(inside));
        for library in libraries(&program).await {
            copy(&library, &root.path().join(library.strip_prefix("/").unwrap()));
        }
    }
    std::fs::create_dir(root.path().join("tmp")).unwrap();

    let archive = root.path().with_extension("tar");
    let mut tar = Command::new("tar");
    tar.arg("-C").arg(root.path()).arg("-cf").arg(&archive).arg(".");
    engine::run(tar, BUILD_PATIENCE).await.unwrap();
    let label = format!("LABEL {LABEL}=yes");
    let mut import = engine::docker(&["import", "--change", "WORKDIR /data"]);
    import.args(["--change", "ENV PATH=/usr/bin", "--change", &label]).arg(&archive).arg(name);
    let imported = engine::run(import, BUILD_PATIENCE).await;
    let _ = std::fs::remove_file(&archive);
    imported.unwrap();
}

fn find(names: &[&str]) -> Option<PathBuf> {
    let folders = std::env::var_os("PATH")?;
    let folders: Vec<PathBuf> = std::env::split_paths(&folders).collect();
    names
        .iter()
        .flat_map(|name| folders.iter().map(move |folder| folder.join(name)))
        .find(|path| path.is_file())
}

/// Copies what `from` is in the end, where it is a link.
fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to.parent().unwrap()).unwrap();
    std::fs::copy(from, to).unwrap_or_else(|error| panic!("copy {}: {error}", from.display()));
}

/// The shared libraries of a program, its loader included; none of a static one.
async fn libraries(program: &Path) -> Vec<PathBuf> {
    let mut ldd = Command::new("ldd");
    ldd.arg(program);
    let printed = match engine::run(ldd, BUILD_PATIENCE).await {
        Ok(printed) => printed,
        Err(said) if said.contains("not a dynamic") => return Vec::new(),
        Err(said) => panic!("{said}"),
    };
    printed.split_whitespace().filter(|word| word.starts_with('/')).map(PathBuf::from).collect()
}
