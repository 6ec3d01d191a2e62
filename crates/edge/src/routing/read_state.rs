//! Reads from the database how a project is served.

use crate::routing::endpoints::Endpoints;
use crate::routing::route::State;
use crate::routing::route_generation::time_of_second;
use crate::static_files::live_site::LiveSite;
use arc_swap::ArcSwapWeak;
use estrade_model::{OwnerId, ProjectId, Timestamp};
use estrade_service::{Core, Result};
use estrade_store::routes::{self, LiveRow};
use std::collections::HashSet;

/// Releases that were lately live and whose assets are still looked at, per project: more than
/// anybody deploys in the time that a page stays open, and a bound for who deploys in a loop.
const MAX_EARLIER_RELEASES: u32 = 200;
pub(super) async fn read_state(
    core: &Core,
    endpoints: &Endpoints,
    project: ProjectId,
    since: Timestamp,
) -> Result<(State, bool)> {
    let Some(route) = routes::read_route(&core.db, project).await? else {
        return Ok((State::Gone, true));
    };
    let state = match route.live {
        _ if route.scale == 0 => State::Off,
        None => State::Empty,
        Some(row) if row.runs => State::Running(endpoints.set(project, row.release)),
        Some(row) => read_site(core, project, route.owner, row, since).await?,
    };
    Ok((state, route.default_subdomain))
}

async fn read_site(
    core: &Core,
    project: ProjectId,
    owner: OwnerId,
    row: LiveRow,
    since: Timestamp,
) -> Result<State> {
    let second = |time: Timestamp| time.millis().div_euclid(1000);
    let began = Timestamp::from_millis(second(row.since) * 1000 - 1);
    let since = since.min(began);
    let mut earlier =
        routes::list_lately_live(&core.db, project, since, MAX_EARLIER_RELEASES).await?;
    let dated = earlier
        .iter()
        .all(|it| second(it.since) != second(row.since));
    // Roll-backs make many releases of few artifacts: the same files need not be looked at twice,
    // nor those that are live.
    let mut seen = HashSet::from([row.artifact]);
    earlier.retain(|it| seen.insert(it.artifact));
    // Until 2106.
    let seconds = u32::try_from(row.since.millis() / 1000).unwrap_or(u32::MAX);
    Ok(State::Files(LiveSite {
        second: seconds,
        last_modified: httpdate::fmt_http_date(time_of_second(seconds)),
        modified: time_of_second(seconds),
        dated,
        earlier,
        owner,
        row,
        site: ArcSwapWeak::default(),
    }))
}
