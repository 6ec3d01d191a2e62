//! The state of the installation.

use crate::error::PanelError;
use crate::format::bytes;
use crate::layout::{Layout, Section};
use crate::page::render;
use crate::session::Visit;
use askama::Template;
use axum::Router;
use axum::extract::State;
use axum::response::Response;
use axum::routing::get;
use estrade_server::app::AppState;
use estrade_service::recent_errors::{self, LoggedProblem};
use estrade_service::status::{DatabaseState, InstallationStatus, read_status};

pub(super) fn routes() -> Router<AppState> {
    Router::new().route("/panel/admin/status", get(show_status))
}

#[derive(Template)]
#[template(path = "admin/status.html")]
struct StatusPage {
    layout: Layout,
    status: InstallationStatus,
    /// Badges: the kind and the words.
    database: (&'static str, &'static str),
    engine: (&'static str, &'static str),
    certificates: (&'static str, &'static str),
    disk: Option<DiskBar>,
    database_size: String,
    engine_free: String,
    problems: Vec<LoggedProblem>,
}

struct DiskBar {
    free: String,
    all: String,
    used_percent: u64,
    kind: &'static str,
}

impl DiskBar {
    fn new((free, all): (u64, u64)) -> Self {
        let used = all.saturating_sub(free);
        let used_percent = used.saturating_mul(100).checked_div(all).unwrap_or(0);
        Self {
            free: bytes(free),
            all: bytes(all),
            used_percent,
            kind: match used_percent {
                0..80 => "",
                80..93 => "warn",
                _ => "bad",
            },
        }
    }
}

async fn show_status(State(app): State<AppState>, visit: Visit) -> Result<Response, PanelError> {
    let caller = &visit.scope.caller;
    let directory = Some(app.spool.directory());
    let status = read_status(&app.core, &app.services, caller, directory).await?;
    let size = |count: Option<u64>| count.map_or_else(|| "not known".to_owned(), bytes);
    render(&StatusPage {
        layout: visit.layout("Status", Section::AdminStatus),
        database: match status.database_state {
            DatabaseState::Up => ("ok", "Up"),
            DatabaseState::Down => ("bad", "Does not answer"),
            DatabaseState::ReadOnly => ("bad", "Takes no writes"),
            DatabaseState::Damaged => ("bad", "Damaged: restore a backup"),
        },
        engine: match status.engine_problem {
            None => ("ok", "Up"),
            Some(_) => ("warn", "Not reachable"),
        },
        certificates: match status.certificates.failing {
            0 => ("ok", "In order"),
            _ => ("warn", "Some orders fail"),
        },
        disk: status.data_disk.map(DiskBar::new),
        database_size: size(status.database_bytes),
        engine_free: size(status.engine_free),
        problems: recent_errors::list(),
        status,
    })
}
