//! AI keys on the wire.

use crate::names::{KeyName, WorkspaceLabel};
use crate::secret::Secret;
use crate::serde_rules::{Patch, present};
use crate::workspace::WorkspaceRef;
use crate::{Invalid, KeyId, Timestamp};
use serde::{Deserialize, Serialize};
use std::num::NonZeroU32;

pub use crate::budget::{Budget, Period};

/// Most workspaces that one key may have.
pub const MAX_WORKSPACES: usize = 100;
/// Most entries of a key's list of allowed models.
pub const MAX_MODELS: usize = 200;

/// A key as listed and read: everything but the secret.
#[derive(Debug, Clone, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Key {
    /// Identifier.
    #[serde(rename = "_id")]
    pub id: KeyId,
    /// Name, unique per owner.
    pub name: KeyName,
    /// Whether the key may be used.
    pub enabled: bool,
    /// The workspaces it may be used in, in the order of the request that set them.
    pub workspaces: Vec<WorkspaceRef>,
    /// The JWT; only in the answers that create or rotate the key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<Secret>,
    /// Who made it.
    pub created_by: CreatedBy,
    /// When it was made.
    pub created_at: Timestamp,
    /// When it was last used, to the minute.
    pub last_used_at: Option<Timestamp>,
    /// Whether answers to its deterministic requests may come from the cache.
    pub cache: bool,
    /// Its limits.
    #[serde(flatten)]
    pub limits: KeyLimits,
}

/// Who made a key.
#[derive(Debug, Clone, Serialize, utoipa::ToSchema)]
pub struct CreatedBy {
    /// The account's name.
    pub fullname: String,
}

/// What a key may spend; `null` is no limit.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct KeyLimits {
    /// When the key stops working.
    pub expires_at: Option<Timestamp>,
    /// The only models it may use.
    pub models: Option<Vec<String>>,
    /// Requests per minute.
    #[schema(value_type = Option<u32>)]
    pub rpm: Option<NonZeroU32>,
    /// Tokens per minute.
    #[schema(value_type = Option<u32>)]
    pub tpm: Option<NonZeroU32>,
    /// What it may cost.
    pub budget: Option<Budget>,
}

/// At least one workspace, at most 100, duplicates collapsed, in the order given.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, utoipa::ToSchema)]
#[serde(try_from = "Vec<WorkspaceLabel>")]
#[schema(value_type = Vec<WorkspaceLabel>, min_items = 1, max_items = 100)]
pub struct WorkspaceSet(Vec<WorkspaceLabel>);

impl WorkspaceSet {
    /// The names, in order.
    pub fn names(&self) -> &[WorkspaceLabel] {
        &self.0
    }
}
impl TryFrom<Vec<WorkspaceLabel>> for WorkspaceSet {
    type Error = Invalid;

    fn try_from(names: Vec<WorkspaceLabel>) -> Result<Self, Invalid> {
        let mut seen = std::collections::HashSet::new();
        let distinct: Vec<_> = names
            .into_iter()
            .filter(|name| seen.insert(name.clone()))
            .collect();
        match distinct.len() {
            0 => Err("select at least one workspace".into()),
            1..=MAX_WORKSPACES => Ok(Self(distinct)),
            _ => Err(format!("at most {MAX_WORKSPACES} workspaces per key").into()),
        }
    }
}

/// The models a key may use: at most 200 names of 1 to 200 characters.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, utoipa::ToSchema)]
#[serde(try_from = "Vec<String>")]
#[schema(value_type = Vec<String>, max_items = 200)]
pub struct ModelSet(pub Vec<String>);

impl TryFrom<Vec<String>> for ModelSet {
    type Error = Invalid;

    fn try_from(names: Vec<String>) -> Result<Self, Invalid> {
        let bad = |name: &String| {
            name.is_empty() || name.len() > 200 || name.chars().any(char::is_control)
        };
        if names.len() > MAX_MODELS || names.iter().any(bad) {
            return Err(format!(
                "at most {MAX_MODELS} models, each a name of 1 to 200 printable characters"
            )
            .into());
        }
        Ok(Self(names))
    }
}

/// Adds the limit fields to a request body. Spelled out rather than `#[serde(flatten)]`, which
/// would lose the name of a bad field on the way to the error message.
macro_rules! with_limits {
    ($(#[$meta:meta])* pub struct $name:ident { $($fields:tt)* }) => {
        #[derive(Debug, Clone, Deserialize, utoipa::ToSchema)]
        $(#[$meta])*
        #[serde(rename_all = "camelCase")]
        pub struct $name {
            $($fields)*
            /// When the key stops working; `null` is never.
            #[serde(default)]
            #[schema(value_type = Option<Timestamp>)]
            pub expires_at: Patch<Timestamp>,
            /// The only models it may use; `null` is all.
            #[serde(default)]
            #[schema(value_type = Option<ModelSet>)]
            pub models: Patch<ModelSet>,
            /// Requests per minute.
            #[serde(default)]
            #[schema(value_type = Option<u32>, minimum = 1)]
            pub rpm: Patch<NonZeroU32>,
            /// Tokens per minute.
            #[serde(default)]
            #[schema(value_type = Option<u32>, minimum = 1)]
            pub tpm: Patch<NonZeroU32>,
            /// What it may cost.
            #[serde(default)]
            #[schema(value_type = Option<Budget>)]
            pub budget: Patch<Budget>,
            /// Whether answers to its deterministic requests may come from the cache.
            #[serde(default, deserialize_with = "present")]
            #[schema(value_type = bool, required = false)]
            pub cache: Option<bool>,
        }

        impl $name {
            /// The limits after this request.
            pub fn limits(&self, present: KeyLimits) -> KeyLimits {
                KeyLimits {
                    expires_at: self.expires_at.clone().apply(present.expires_at),
                    models: self.models.clone().apply(present.models.map(ModelSet)).map(|set| set.0),
                    rpm: self.rpm.clone().apply(present.rpm),
                    tpm: self.tpm.clone().apply(present.tpm),
                    budget: self.budget.clone().apply(present.budget),
                }
            }
        }
    };
}

with_limits! {
    /// `POST /v1/keys`.
    #[schema(example = json!({"name": "ci-bot", "workspaces": ["main"]}))]
    pub struct CreateKey {
        /// Name, unique per owner.
        pub name: KeyName,
        /// Names of the workspaces it may be used in.
        pub workspaces: WorkspaceSet,
    }
}

with_limits! {
    /// `PUT /v1/keys/{keyID}`: what is absent stays as it is.
    #[schema(example = json!({"enabled": false}))]
    pub struct UpdateKey {
        /// A new name.
        #[serde(default, deserialize_with = "present")]
        #[schema(value_type = KeyName, required = false)]
        pub name: Option<KeyName>,
        /// The new workspaces, replacing all.
        #[serde(default, deserialize_with = "present")]
        #[schema(value_type = WorkspaceSet, required = false)]
        pub workspaces: Option<WorkspaceSet>,
        /// Whether the key may be used.
        #[serde(default, deserialize_with = "present")]
        #[schema(value_type = bool, required = false)]
        pub enabled: Option<bool>,
    }
}

/// `POST /v1/keys/{keyID}/rotate`.
#[derive(Debug, Default, Deserialize, utoipa::ToSchema)]
pub struct RotateKey {
    /// For how many seconds the old secret stays valid; 30 days at most.
    #[serde(default)]
    #[schema(maximum = 2_592_000, required = false)]
    pub grace: Grace,
}

/// Seconds for which a rotated secret stays valid.
#[derive(Debug, Clone, Copy, Default, Deserialize, utoipa::ToSchema)]
#[serde(try_from = "u64")]
#[schema(value_type = u64)]
pub struct Grace(pub u32);

impl TryFrom<u64> for Grace {
    type Error = Invalid;

    fn try_from(seconds: u64) -> Result<Self, Invalid> {
        match u32::try_from(seconds) {
            Ok(seconds @ 0..=2_592_000) => Ok(Self(seconds)),
            _ => Err("must be 0 to 2592000 seconds (30 days)".into()),
        }
    }
}

/// The answer to a rotation.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub struct RotatedKey {
    /// Identifier of the key.
    #[serde(rename = "_id")]
    pub id: KeyId,
    /// The new JWT; absent when the answer is replayed for an idempotency key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<Secret>,
}

/// The answer to an update.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub struct Message {
    /// What was done, for a person.
    pub message: String,
}

/// `POST /v1/keys/verify`.
#[derive(Debug, Deserialize, utoipa::ToSchema)]
pub struct VerifyKey {
    /// The JWT to look at.
    pub key: Secret,
    /// A workspace, by name or id, that it should be valid for.
    #[serde(default)]
    pub workspace: Option<String>,
}

/// Whether a key would be let in, and if not, why.
#[derive(Debug, Default, Serialize, utoipa::ToSchema)]
pub struct Verified {
    /// Whether a request with this key would be let in now.
    pub valid: bool,
    /// Why not: `unknown`, `disabled`, `expired`, `rotated`, `wrong_workspace`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub code: Option<&'static str>,
    /// Identifier of the key.
    #[serde(rename = "keyID", skip_serializing_if = "Option::is_none")]
    pub key_id: Option<KeyId>,
    /// Name of the key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<KeyName>,
    /// The workspaces it may be used in.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workspaces: Option<Vec<WorkspaceRef>>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn update(text: &str) -> Result<UpdateKey, serde_json::Error> {
        serde_json::from_str(text)
    }

    #[test]
    fn absent_keeps_null_clears_and_the_three_names_refuse_null() {
        assert_eq!(update("{}").unwrap().rpm, Patch::Keep);
        assert_eq!(update(r#"{"rpm":null}"#).unwrap().rpm, Patch::Clear);
        assert_eq!(
            update(r#"{"rpm":5}"#).unwrap().rpm,
            Patch::Set(NonZeroU32::new(5).unwrap())
        );
        for bad in [
            r#"{"name":null}"#,
            r#"{"workspaces":null}"#,
            r#"{"enabled":null}"#,
            r#"{"workspaces":[]}"#,
            r#"{"rpm":0}"#,
            r#"{"rpm":-1}"#,
            r#"{"enabled":"yes"}"#,
        ] {
            assert!(update(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn workspaces_keep_their_order_and_collapse() {
        let set: WorkspaceSet = serde_json::from_str(r#"["b","a","b"]"#).unwrap();
        assert_eq!(
            set.names()
                .iter()
                .map(WorkspaceLabel::as_str)
                .collect::<Vec<_>>(),
            ["b", "a"]
        );
    }
}
