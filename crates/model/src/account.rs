//! Accounts and their tokens on the wire.

use crate::names::{Email, Label};
use crate::plan::Plan;
use crate::secret::Secret;
use crate::{AccountId, Timestamp, TokenId};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The person behind a token.
#[derive(Debug, Clone, Serialize, utoipa::ToSchema)]
pub struct User {
    /// Identifier.
    #[serde(rename = "_id")]
    pub id: AccountId,
    /// E-mail address, in lower case.
    pub email: String,
    /// The name to greet with.
    pub fullname: String,
    /// Address of a picture; empty when there is none.
    pub avatar: String,
}

/// `GET /v1/me`.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub struct Me {
    /// The caller.
    pub user: User,
    /// What projects can be made of.
    pub plans: MePlans,
}

/// The plans of this installation.
#[derive(Debug, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct MePlans {
    /// Plans of projects, by `planID`.
    pub projects: BTreeMap<String, Plan>,
    /// Bundle plans, by id.
    pub project_bundle_plans: BTreeMap<String, BundlePlan>,
}

/// A level of service.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub struct BundlePlan {
    /// The name to show.
    pub name: String,
}

/// `POST /v1/login`.
#[derive(Debug, Deserialize, utoipa::ToSchema)]
pub struct Login {
    /// E-mail address of the account.
    pub email: String,
    /// Its password.
    pub password: Secret,
}

/// The answer to a login.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub struct LoggedIn {
    /// A bearer token for both APIs.
    pub api_token: Secret,
    /// The account's address.
    pub email: String,
    /// The account's name.
    pub fullname: String,
    /// Address of a picture; empty when there is none.
    pub avatar: String,
}

/// The answer to `check-if-exists`: the same for everyone, so that it reveals nothing.
#[derive(Debug, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct LoginCheck {
    /// Always `success`.
    pub status: &'static str,
    /// Always true.
    pub exists: bool,
    /// Always true.
    pub social_completed: bool,
}

/// `POST /v1/api-token`.
#[derive(Debug, Default, Deserialize, utoipa::ToSchema)]
pub struct CreateToken {
    /// A label to recognise the token by.
    pub name: Option<Label>,
}

/// A token right after it was made; the only time it is shown.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub struct CreatedToken {
    /// Identifier, for revoking.
    #[serde(rename = "_id")]
    pub id: TokenId,
    /// The bearer token; absent when the answer is replayed for an idempotency key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub api_token: Option<Secret>,
}

/// A token as listed.
#[derive(Debug, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Token {
    /// Identifier, for revoking.
    #[serde(rename = "_id")]
    pub id: TokenId,
    /// Its label.
    pub name: String,
    /// When it was made.
    pub created_at: Timestamp,
    /// When it ends; null means never.
    pub expires_at: Option<Timestamp>,
    /// When it was last used, to the minute.
    pub last_used_at: Option<Timestamp>,
}

/// A new account, as the command line makes it.
#[derive(Debug)]
pub struct NewAccount {
    /// Address to log in with.
    pub email: Email,
    /// The name to greet with.
    pub fullname: Label,
    /// The password; without one only tokens open the account.
    pub password: Option<Secret>,
    /// Whether it may use the admin API.
    pub admin: bool,
}
