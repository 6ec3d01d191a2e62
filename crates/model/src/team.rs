//! Teams: owners that several accounts share.

use crate::names::{Email, Label};
use crate::secret::Secret;
use crate::{AccountId, Invalid, TeamId};
use serde::{Deserialize, Serialize};
use std::str::FromStr;

/// What a member of a team may do; each role may do all that the ones before it may.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    utoipa::ToSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Reads; values of environment variables are masked.
    Viewer,
    /// Deploys, sets environment variables, manages keys.
    Developer,
    /// Manages members and deletes.
    Admin,
    /// Deletes the team.
    Owner,
}

impl Role {
    /// The role's name on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Viewer => "viewer",
            Self::Developer => "developer",
            Self::Admin => "admin",
            Self::Owner => "owner",
        }
    }
}

impl FromStr for Role {
    type Err = Invalid;

    fn from_str(text: &str) -> Result<Self, Invalid> {
        [Self::Viewer, Self::Developer, Self::Admin, Self::Owner]
            .into_iter()
            .find(|role| role.as_str() == text)
            .ok_or_else(|| Invalid::from("must be one of viewer, developer, admin, owner"))
    }
}

/// A team.
#[derive(Debug, Clone, Serialize, utoipa::ToSchema)]
pub struct Team {
    /// Identifier: the value of `teamID` and `x-teamid`.
    #[serde(rename = "_id")]
    pub id: TeamId,
    /// Its name.
    pub name: String,
}

/// `GET /v2/teams`.
#[derive(Debug, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct TeamList {
    /// How many teams the caller is a member of.
    pub total_teams: usize,
    /// The teams, newest first.
    pub teams: Vec<Team>,
}

/// `POST /v2/teams`.
#[derive(Debug, Deserialize, utoipa::ToSchema)]
pub struct CreateTeam {
    /// The team's name.
    pub name: Label,
}

/// A member of a team.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub struct Member {
    /// Identifier of the account.
    #[serde(rename = "_id")]
    pub id: AccountId,
    /// E-mail address.
    pub email: String,
    /// Name.
    pub fullname: String,
    /// What the member may do.
    pub role: Role,
}

/// `GET /v2/teams/{id}/members`.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub struct MemberList {
    /// The members, in the order in which they joined.
    pub members: Vec<Member>,
}

/// `POST /v2/teams/{id}/members/{memberID}/role`.
#[derive(Debug, Deserialize, utoipa::ToSchema)]
pub struct SetRole {
    /// The new role.
    pub role: Role,
}

/// `POST /v2/teams/{id}/invitations`.
#[derive(Debug, Deserialize, utoipa::ToSchema)]
pub struct Invite {
    /// Whom to invite; only the account with this address can join.
    pub email: Email,
    /// What they will be allowed to do.
    pub role: Role,
}

/// `POST /v2/teams/invitations/join`.
#[derive(Debug, Default, Deserialize, utoipa::ToSchema)]
pub struct JoinTeam {
    /// The token of the invitation's link.
    #[serde(default)]
    pub token: Option<Secret>,
}

/// The answer to an invitation.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub struct Invited {
    /// What to send to the invited person; absent when the answer is replayed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub link: Option<Secret>,
}
