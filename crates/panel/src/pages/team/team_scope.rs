//! Pages that are about a team.

use crate::error::PanelError;
use crate::session::Visit;
use estrade_model::TeamId;
use estrade_service::Error;

/// The team of a page that needs one.
pub(super) fn require_team(visit: &Visit) -> Result<TeamId, PanelError> {
    Ok(visit.team().ok_or(Error::NotFound("the team"))?)
}
