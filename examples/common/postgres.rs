//! A PostgreSQL to try things on: the one that `DATABASE_URL` names, in a schema of its own that is dropped at
//! the end; else one that is started from the installed packages, in a temporary folder.

use std::fs::Permissions;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;
use tokio_postgres::{Client, NoTls};

use crate::timeline::Result;

const PATIENCE: Duration = Duration::from_secs(30);
/// Ends the server when whoever started it is gone, whatever way it went: then standard input ends.
const KEEPER: &str = r#"
"$@" >"$KEEP/log" 2>&1 &
server=$!
read -r line
kill -QUIT $server
wait $server
rm -rf "$KEEP"
"#;
const MISSING: &str = "there is no PostgreSQL server here. Install one (Debian, Ubuntu: apt-get install postgresql; \
    Fedora: dnf install postgresql-server; Alpine: apk add postgresql; macOS: brew install postgresql), no service \
    need run; or name a database in DATABASE_URL";

/// Where a database is. Passed to processes as two arguments.
#[derive(Clone)]
pub(crate) struct Database {
    pub(crate) url: String,
    pub(crate) schema: String,
}

impl Database {
    /// A new connection. It runs on the runtime until the client is dropped.
    pub(crate) async fn connect(&self) -> Result<Client> {
        let (client, connection) = tokio_postgres::connect(&self.url, NoTls).await?;
        tokio::spawn(connection);
        client.batch_execute(&format!("SET search_path TO {}", self.schema)).await?;
        Ok(client)
    }
}

pub(crate) struct Postgres {
    pub(crate) database: Database,
    /// Who the server is, for the reader.
    pub(crate) told: String,
    _server: Option<Server>,
}

impl Postgres {
    pub(crate) async fn start() -> Result<Self> {
        let schema = format!("leasehold_example_{}", std::process::id());
        let (url, server) = match std::env::var("DATABASE_URL") {
            Ok(url) => (url, None),
            Err(_) => {
                let server = Server::start().await?;
                (server.url(), Some(server))
            }
        };
        let (client, connection) = tokio_postgres::connect(&url, NoTls)
            .await
            .map_err(|error| format!("cannot connect to PostgreSQL: {}", reason(&error)))?;
        tokio::spawn(connection);
        client.batch_execute(&format!("CREATE SCHEMA {schema}")).await?;
        let version: String = client.query_one("SHOW server_version", &[]).await?.get(0);
        let whose = if server.is_some() { "started for this" } else { "of DATABASE_URL" };
        Ok(Self {
            database: Database { url, schema },
            told: format!("PostgreSQL {version}, {whose}"),
            _server: server,
        })
    }

    /// Leaves nothing behind in a database that is not ours.
    pub(crate) async fn end(self) -> Result<()> {
        let client = self.database.connect().await?;
        Ok(client.batch_execute(&format!("DROP SCHEMA {} CASCADE", self.database.schema)).await?)
    }
}

fn reason(error: &tokio_postgres::Error) -> String {
    let source = std::error::Error::source(error);
    source.map_or_else(|| error.to_string(), |source| format!("{error}: {source}"))
}

/// A server in a temporary folder, reached by a socket that its user alone can open.
struct Server {
    keeper: Child,
    folder: TempDir,
}

impl Server {
    async fn start() -> Result<Self> {
        let programs = programs().ok_or(MISSING)?;
        let (user, folder) = (Owner::find()?, &mut tempfile::Builder::new());
        // Whoever reaches the socket is let in: so nobody else may.
        let folder = folder.permissions(Permissions::from_mode(0o700)).prefix("leasehold-pg-").tempdir()?;
        user.give(folder.path())?;
        let mut initdb = user.command(&programs.join("initdb"), folder.path());
        initdb.args(["--no-sync", "--auth=trust", "--username=postgres", "--encoding=UTF8", "--locale=C"]);
        initdb.arg("--pgdata").arg(folder.path().join("data"));
        let made = initdb.output()?;
        if !made.status.success() {
            return Err(format!("initdb failed: {}", String::from_utf8_lossy(&made.stderr)).into());
        }
        let mut keeper = user.command(Path::new("/bin/sh"), folder.path());
        keeper.args(["-c", KEEPER, "keeper"]).arg(programs.join("postgres"));
        keeper.arg("-D").arg(folder.path().join("data")).arg("-k").arg(folder.path());
        keeper.args(["-c", "listen_addresses=", "-c", "max_connections=20", "-c", "shared_buffers=16MB"]);
        keeper.env("KEEP", folder.path()).stdin(Stdio::piped()).process_group(0);
        let mut server = Self { keeper: keeper.stdout(Stdio::null()).stderr(Stdio::null()).spawn()?, folder };
        server.ready().await?;
        Ok(server)
    }

    fn url(&self) -> String {
        format!("host={} user=postgres dbname=postgres", self.folder.path().display())
    }

    async fn ready(&mut self) -> Result<()> {
        let begun = Instant::now();
        loop {
            match tokio_postgres::connect(&self.url(), NoTls).await {
                Ok(_) => return Ok(()),
                Err(_) if begun.elapsed() < PATIENCE && self.keeper.try_wait()?.is_none() => {}
                Err(error) => {
                    let log = std::fs::read_to_string(self.folder.path().join("log")).unwrap_or_default();
                    return Err(format!("PostgreSQL did not start: {}\n{log}", reason(&error)).into());
                }
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.keeper.stdin.take());
        let _ = self.keeper.wait();
    }
}

/// Who runs the server: PostgreSQL refuses to be run by root.
struct Owner {
    ids: Option<(u32, u32)>,
}

impl Owner {
    fn find() -> Result<Self> {
        if !rustix::process::getuid().is_root() {
            return Ok(Self { ids: None });
        }
        let id = |option, user| {
            let output = Command::new("id").args([option, user]).output().ok()?;
            String::from_utf8(output.stdout).ok()?.trim().parse().ok()
        };
        let ids = ["postgres", "nobody"].iter().find_map(|user| Some((id("-u", user)?, id("-g", user)?)));
        Ok(Self {
            ids: Some(ids.ok_or("root may not run PostgreSQL, and there is no user postgres or nobody")?),
        })
    }

    fn give(&self, path: &Path) -> Result<()> {
        match self.ids {
            Some((user, group)) => Ok(chown(path, Some(user), Some(group))?),
            None => Ok(()),
        }
    }

    fn command(&self, program: &Path, folder: &Path) -> Command {
        let mut command = Command::new(program);
        command.current_dir(folder);
        if let Some((user, group)) = self.ids {
            command.uid(user).gid(group);
        }
        command
    }
}

/// The folder with the programs of the newest version.
fn programs() -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut folders: Vec<PathBuf> = std::env::split_paths(&path).collect();
    let parents = [
        "/usr/lib/postgresql",
        "/usr/libexec",
        "/usr",
        "/opt/homebrew/opt",
        "/usr/local/opt",
        "/Library/PostgreSQL",
    ];
    for parent in parents {
        let Ok(entries) = std::fs::read_dir(parent) else { continue };
        folders.extend(entries.flatten().map(|entry| entry.path().join("bin")));
        folders.push(parent.into());
    }
    folders.retain(|folder| folder.join("initdb").exists() && folder.join("postgres").exists());
    folders.into_iter().max_by_key(|folder| version(folder))
}

/// The first number in the folder's name, as 17 in `/usr/lib/postgresql/17/bin`.
fn version(folder: &Path) -> u32 {
    let digits = |text: &str| -> String {
        text.chars().skip_while(|c| !c.is_ascii_digit()).take_while(char::is_ascii_digit).collect()
    };
    digits(&folder.to_string_lossy()).parse().unwrap_or(0)
}
