//! A PostgreSQL to try things on: the one that `DATABASE_URL` names, in a schema of its own that is dropped
//! whatever way it ends; else one that is started in a temporary folder, by the programs in the folder
//! `LEASEHOLD_POSTGRES` or in that of the newest installed package.

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
    need run; or name a database in DATABASE_URL, or the folder with initdb and postgres in LEASEHOLD_POSTGRES";

/// Where a database is. Passed to processes as two arguments.
#[derive(Clone)]
pub(crate) struct Database {
    pub(crate) url: String,
    pub(crate) schema: String,
}

impl Database {
    /// A new connection to the schema.
    pub(crate) async fn connect(&self) -> Result<Client> {
        let client = connect(&self.url).await?;
        client.batch_execute(&format!("SET search_path TO {}", self.schema)).await?;
        Ok(client)
    }
}

pub(crate) struct Postgres {
    pub(crate) database: Database,
    /// Who the server is, for the reader.
    pub(crate) told: String,
    // In this order: the server of a schema outlives it.
    _schema: Schema,
    _server: Option<Server>,
}

impl Postgres {
    pub(crate) async fn start() -> Result<Self> {
        let (url, server) = server().await?;
        let name = format!("leasehold_example_{}", std::process::id());
        let (schema, version) = Schema::create(&url, &name).await?;
        let whose = if server.is_some() { "started for this" } else { "of DATABASE_URL" };
        Ok(Self {
            database: Database { url, schema: name },
            told: format!("PostgreSQL {version}, {whose}"),
            _schema: schema,
            _server: server,
        })
    }
}

/// Where the database is, and its server if that is ours.
pub(crate) async fn server() -> Result<(String, Option<Server>)> {
    if let Ok(url) = std::env::var("DATABASE_URL") {
        return Ok((url, None));
    }
    let server = Server::start().await?;
    Ok((server.url(), Some(server)))
}

/// A schema that ends with the value, also in an error or a panic: nothing is left in a database of others.
pub(crate) struct Schema {
    url: String,
    name: String,
}

impl Schema {
    /// Returns the version of the server too.
    pub(crate) async fn create(url: &str, name: &str) -> Result<(Self, String)> {
        let client = connect(url).await?;
        client.batch_execute(&format!("CREATE SCHEMA {name}")).await?;
        let schema = Self { url: url.to_owned(), name: name.to_owned() };
        Ok((schema, client.query_one("SHOW server_version", &[]).await?.get(0)))
    }
}

impl Drop for Schema {
    fn drop(&mut self) {
        // A runtime of its own, because nothing can be waited for in that of the caller.
        let dropped = std::thread::scope(|scope| scope.spawn(|| drop_schema(&self.url, &self.name)).join());
        if let Ok(Err(error)) = dropped {
            eprintln!("the schema {} is still there: {error}", self.name);
        }
    }
}

#[tokio::main(flavor = "current_thread")]
async fn drop_schema(url: &str, name: &str) -> Result<()> {
    // Whoever is still at work in it is about to end.
    let sql = format!("SET lock_timeout = '10s'; DROP SCHEMA {name} CASCADE");
    Ok(connect(url).await?.batch_execute(&sql).await?)
}

/// A new connection. It runs on the runtime until the client is dropped.
async fn connect(url: &str) -> Result<Client> {
    let (client, connection) = tokio_postgres::connect(url, NoTls)
        .await
        .map_err(|error| format!("cannot connect to PostgreSQL: {}", reason(&error)))?;
    tokio::spawn(connection);
    Ok(client)
}

fn reason(error: &tokio_postgres::Error) -> String {
    let source = std::error::Error::source(error);
    source.map_or_else(|| error.to_string(), |source| format!("{error}: {source}"))
}

/// A server in a temporary folder, reached by a socket that its user alone can open.
pub(crate) struct Server {
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

/// The folder with the programs: the one that is named, else that of the newest version.
fn programs() -> Option<PathBuf> {
    let complete = |folder: &PathBuf| folder.join("initdb").exists() && folder.join("postgres").exists();
    if let Some(named) = std::env::var_os("LEASEHOLD_POSTGRES") {
        return Some(PathBuf::from(named)).filter(complete);
    }
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
    folders.retain(complete);
    folders.into_iter().max_by_key(|folder| version(folder))
}

/// The first number in the folder's name, as 17 in `/usr/lib/postgresql/17/bin`.
fn version(folder: &Path) -> u32 {
    let digits = |text: &str| -> String {
        text.chars().skip_while(|c| !c.is_ascii_digit()).take_while(char::is_ascii_digit).collect()
    };
    digits(&folder.to_string_lossy()).parse().unwrap_or(0)
}
