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
use estrade_model::Timestamp;
use estrade_server::app::AppState;
use estrade_service::jobs::{Job, JobReport};
use estrade_service::recent_errors::{self, LoggedProblem};
use estrade_service::status::{DatabaseState, InstallationStatus, read_status};
use estrade_service::storage_probe::BucketStatus;

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
    bucket: Option<BucketFacts>,
    database_size: String,
    engine_free: String,
    /// Calls that wait to be written, calls of an earlier run that wait, and calls that were lost.
    unwritten_calls: usize,
    unrecovered_calls: usize,
    unrecorded_calls: u64,
    jobs: Vec<JobRow>,
    problems: Vec<LoggedProblem>,
}

/// A background job and how it went.
struct JobRow {
    name: &'static str,
    badge: (&'static str, &'static str),
    last_run: Option<Timestamp>,
    last_error: Option<(Timestamp, String)>,
}

impl JobRow {
    /// Orders of certificates are repeated after hours, while their job ends a run every half minute: whether they
    /// fail is read from the orders.
    fn new(report: JobReport, do_orders_fail: bool) -> Self {
        let orders = report.job == Job::OrderCertificates && report.last_run.is_some();
        let is_failing = report.is_failing || (orders && do_orders_fail);
        Self {
            name: match report.job {
                Job::RemoveExpired => "Remove expired records",
                Job::PruneCalls => "Remove old calls",
                Job::CollectBlobs => "Remove unused files",
                Job::CollectImages => "Remove unused images",
                Job::OrderCertificates => "Order certificates",
                Job::CheckDomains => "Check new domains",
            },
            badge: match report.last_run {
                _ if is_failing => ("bad", "Failed"),
                None => ("off", "Not run yet"),
                Some(_) => ("ok", "In order"),
            },
            last_run: report.last_run,
            last_error: report.last_error,
        }
    }
}

/// The bucket that files of releases lie in, and this server's cache of it.
struct BucketFacts {
    badge: (&'static str, &'static str),
    is_up: bool,
    cached: String,
    capacity: String,
    /// Of a hundred reads, how many the cache answered.
    hits_percent: Option<u64>,
}

impl BucketFacts {
    fn new(BucketStatus { is_up, cache }: BucketStatus) -> Self {
        let reads = cache.hits.saturating_add(cache.misses);
        Self {
            badge: if is_up {
                ("ok", "Up")
            } else {
                ("bad", "Does not answer")
            },
            is_up,
            cached: bytes(cache.bytes),
            capacity: bytes(cache.capacity),
            hits_percent: cache.hits.saturating_mul(100).checked_div(reads),
        }
    }
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
    let jobs = app.core.jobs.list().into_iter();
    let do_orders_fail = status.certificates.failing > 0;
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
        bucket: status.bucket.map(BucketFacts::new),
        database_size: size(status.database_bytes),
        engine_free: size(status.engine_free),
        unwritten_calls: app.ledger.unwritten(),
        unrecovered_calls: app.ledger.unrecovered(),
        unrecorded_calls: app.ledger.unrecorded(),
        jobs: jobs
            .map(|report| JobRow::new(report, do_orders_fail))
            .collect(),
        problems: recent_errors::list(),
        status,
    })
}
