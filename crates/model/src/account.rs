//! Accounts and their tokens on the wire.

use crate::names::{Email, Label};
use crate::plan::Plan;
use crate::secret::Secret;
use crate::token_scope::TokenScope;
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
    /// What the token of this request is good for.
    pub scope: TokenScope,
    /// What projects can be made of.
    pub plans: MePlans,
    /// Versions of databases, by kind: none, because databases are not offered.
    #[serde(rename = "databaseVersions")]
    pub database_versions: BTreeMap<String, Vec<String>>,
}

/// The plans of this installation.
#[derive(Debug, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct MePlans {
    /// Plans of projects, by `planID` and by its alias, which ends with `-g2`.
    pub projects: BTreeMap<String, OfferedPlan>,
    /// The bundle plans that go with each of them.
    pub project_bundle_plans: BTreeMap<String, OfferedBundles>,
}

/// A plan, with the names that public clients have for what it grants.
#[derive(Debug, Clone, PartialEq, Serialize, utoipa::ToSchema)]
pub struct OfferedPlan {
    /// Whether projects can be made with it.
    pub available: bool,
    /// Always `iran`: public clients leave out plans of other regions.
    #[schema(example = "iran")]
    pub region: &'static str,
    /// Memory in GB.
    #[serde(rename = "RAM")]
    pub ram: Amount,
    /// CPU cores.
    #[serde(rename = "CPU")]
    pub cpu: Amount,
    /// Disk space in GB.
    pub volume: u64,
    /// Price per hour.
    pub price: u64,
    /// The same in the words of the configuration.
    #[serde(flatten)]
    pub plan: Plan,
}

/// How much of something.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, utoipa::ToSchema)]
pub struct Amount {
    /// The number, with two decimals at most.
    pub amount: f64,
}

impl OfferedPlan {
    /// How a plan is shown.
    #[expect(
        clippy::cast_precision_loss,
        reason = "no machine has so much memory or so many cores"
    )]
    pub fn new(plan: &Plan) -> Self {
        // Public clients have room for five characters.
        let gigabytes = (plan.memory_mb as f64 / 10.24).round() / 100.0;
        Self {
            available: true,
            region: "iran",
            ram: Amount { amount: gigabytes },
            cpu: Amount {
                amount: plan.cpus as f64,
            },
            volume: plan.disk_gb,
            price: plan.hourly_price,
            plan: plan.clone(),
        }
    }
}

/// The bundle plans of a plan. In this order, because public clients name the first three by their place.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, utoipa::ToSchema)]
pub struct OfferedBundles {
    /// `basic`.
    pub basic: OfferedBundle,
    /// `standard`.
    pub standard: OfferedBundle,
    /// `pro`.
    pub pro: OfferedBundle,
    /// `free`.
    pub free: OfferedBundle,
}

impl OfferedBundles {
    /// All bundle plans; none of them costs anything or limits anything here.
    pub fn new(max_logs_retention: u64) -> Self {
        let bundle = |name| OfferedBundle {
            available: true,
            name,
            display_price: 0,
            max_logs_retention,
        };
        Self {
            basic: bundle("basic"),
            standard: bundle("standard"),
            pro: bundle("pro"),
            free: bundle("free"),
        }
    }
}

/// A level of service.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct OfferedBundle {
    /// Whether projects can be made with it.
    pub available: bool,
    /// The name to show.
    pub name: &'static str,
    /// Price per month.
    pub display_price: u64,
    /// For how many days logs are kept.
    pub max_logs_retention: u64,
}

/// `POST /v1/login`.
#[derive(Debug, Deserialize, utoipa::ToSchema)]
pub struct Login {
    /// E-mail address of the account.
    pub email: String,
    /// Its password.
    pub password: Secret,
    /// A code of the account's second factor, or a recovery code; needed when it has one.
    #[serde(default)]
    #[schema(nullable = false, example = "123456")]
    pub otp: Option<Secret>,
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
    /// What the token is good for: `full` (unless said), `read`, `ai` or `project:` and the `_id` of a project.
    pub scope: Option<TokenScope>,
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
    /// What it is good for.
    pub scope: TokenScope,
    /// When it was made.
    pub created_at: Timestamp,
    /// When it ends; null means never.
    pub expires_at: Option<Timestamp>,
    /// When it was last used, to the minute.
    pub last_used_at: Option<Timestamp>,
    /// The address that used it then.
    pub last_used_from: Option<String>,
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_shown_in_gigabytes_that_fit() {
        for (memory_mb, amount) in [(512, "0.5"), (1024, "1.0"), (700, "0.68"), (8192, "8.0")] {
            let plan = Plan {
                memory_mb,
                cpus: 1,
                disk_gb: 1,
                hourly_price: 0,
            };
            let shown = serde_json::to_value(OfferedPlan::new(&plan)).unwrap();
            assert_eq!(shown["RAM"]["amount"].to_string(), amount);
            assert_eq!(shown["memoryMB"], memory_mb);
        }
    }

    #[test]
    fn every_bundle_plan_is_offered() {
        let shown = serde_json::to_value(OfferedBundles::new(30)).unwrap();
        for name in crate::plan::BUNDLE_PLANS {
            assert_eq!(shown[name]["name"], name);
            assert_eq!(shown[name]["maxLogsRetention"], 30);
        }
        assert_eq!(
            shown.as_object().unwrap().len(),
            crate::plan::BUNDLE_PLANS.len()
        );
    }
}
