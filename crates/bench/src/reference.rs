//! What the product is compared with: the least that a server in Rust could do for the same response.
//!
//! hyper's HTTP/1 directly, no router, no middleware, no checks. Run as processes of their own, so
//! that their CPU time can be read like the product's.

use anyhow::Context;
use bytes::Bytes;
use estrade_model::Timestamp;
use estrade_model::project::{NetworkRef, Project, ProjectStatus};
use http_body_util::Full;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags};
use std::cell::RefCell;
use std::convert::Infallible;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio::net::TcpListener;
use tokio_util::task::TaskTracker;

/// The product's query behind `GET /v1/projects`; a test below keeps the two the same.
const COLUMNS: &str = "p.id, p.name, p.platform, p.plan, p.bundle_plan, p.scale, p.status,
                    p.read_only_root, p.zero_downtime, p.default_subdomain, p.current_release, p.releases, p.ready_releases,
                    p.created_at, p.version, p.fail_reason, n.id, n.name,
                    EXISTS (SELECT 1 FROM releases r WHERE r.project_id = p.id AND r.finished_at IS NULL)";
const FROM: &str = " FROM projects p LEFT JOIN networks n ON n.id = p.network_id ";
const OF_OWNER: &str = "WHERE p.owner_id = $1 AND p.id < $2 ORDER BY p.id DESC LIMIT $3 OFFSET $4";

/// Whose projects the reference lists, and how their URLs are made.
#[derive(clap::Args, Clone)]
pub(crate) struct ProjectsOf {
    /// The database file.
    #[arg(long)]
    database: PathBuf,
    /// The owner's id.
    #[arg(long)]
    owner: String,
    /// What follows a project's name in its URL.
    #[arg(long)]
    edge: String,
}

thread_local! {
    static DATABASE: RefCell<Option<Connection>> = const { RefCell::new(None) };
}

/// Answers an empty 200 to everything.
pub(crate) fn serve_empty() -> anyhow::Result<()> {
    serve(Bytes::new)
}

/// Answers the list of projects to everything: one prepared query, one serialisation.
pub(crate) fn serve_projects(of: &ProjectsOf) -> anyhow::Result<()> {
    let of = of.clone();
    let sql = format!("SELECT {COLUMNS}{FROM}{OF_OWNER}");
    serve(move || list(&of, &sql).unwrap_or_default())
}

/// Serves on a free port of loopback, whose number it prints first.
fn serve(body: impl Fn() -> Bytes + Send + Sync + 'static) -> anyhow::Result<()> {
    let body = Arc::new(body);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        writeln!(io::stdout(), "{}", listener.local_addr()?)?;
        let connections = TaskTracker::new();
        loop {
            let (stream, _) = listener.accept().await?;
            stream.set_nodelay(true)?;
            let body = Arc::clone(&body);
            let service = service_fn(move |_: Request<_>| {
                let response = Response::new(Full::new(body()));
                async { Ok::<_, Infallible>(response) }
            });
            // A connection that breaks concerns nobody here.
            connections.spawn(async move {
                drop(
                    http1::Builder::new()
                        .serve_connection(TokioIo::new(stream), service)
                        .await,
                );
            });
        }
    })
}

fn list(of: &ProjectsOf, sql: &str) -> anyhow::Result<Bytes> {
    #[derive(serde::Serialize)]
    struct Body {
        projects: Vec<Project>,
    }
    DATABASE.with_borrow_mut(|database| {
        let database = match database {
            Some(database) => database,
            None => database.insert(open(&of.database)?),
        };
        let mut statement = database.prepare_cached(sql)?;
        let mut rows = statement.query((&of.owner, "g", 500, 0))?;
        let mut projects = Vec::new();
        while let Some(row) = rows.next()? {
            projects.push(project(row, &of.edge)?);
        }
        Ok(serde_json::to_vec(&Body { projects })?.into())
    })
}

fn open(file: &Path) -> anyhow::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let database = Connection::open_with_flags(file, flags)?;
    // As the product does: a prepared statement stays prepared whatever is bound to it.
    database.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
    Ok(database)
}

fn project(row: &rusqlite::Row<'_>, edge: &str) -> anyhow::Result<Project> {
    let text = |index: usize| -> anyhow::Result<&str> { Ok(row.get_ref(index)?.as_str()?) };
    let name = text(1)?;
    let status = match (ProjectStatus::from_text(text(6)?), row.get(18)?) {
        (ProjectStatus::Active, true) => ProjectStatus::Deploying,
        (status, _) => status,
    };
    let network = match row.get_ref(16)?.as_str_or_null()? {
        None => None,
        Some(id) => Some(NetworkRef {
            id: id.parse()?,
            name: row.get(17)?,
        }),
    };
    Ok(Project {
        id: text(0)?.parse()?,
        created_at: Timestamp::from_millis(row.get(13)?),
        plan_id: row.get(3)?,
        bundle_plan_id: row.get(4)?,
        scale: row.get(5)?,
        platform: text(2)?.parse()?,
        status,
        url: format!("http://{name}.{edge}"),
        project_id: name.to_owned(),
        network,
        is_deployed: row.get_ref(10)?.as_str_or_null()?.is_some(),
    })
}

/// Reads the address that [`serve`] prints.
pub(crate) fn address_of(line: &str) -> anyhow::Result<std::net::SocketAddr> {
    line.trim()
        .parse()
        .context("the reference server did not say where it listens")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reference_runs_the_query_of_the_product() {
        let plain = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
        let product = plain(include_str!("../../store/src/projects.rs"));
        for part in [COLUMNS, FROM, OF_OWNER] {
            assert!(product.contains(&plain(part)), "{part}");
        }
    }
}
