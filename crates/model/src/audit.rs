//! Who changed what.

use crate::id::{Id, kind};
use crate::{AccountId, Invalid, SessionId, Timestamp, TokenId};
use serde::{Serialize, Serializer};
use std::str::FromStr;

/// Identifies an entry of the audit log.
pub type AuditId = Id<kind::Audit>;

macro_rules! actions {
    ($($name:ident = $text:literal: $about:literal;)*) => {
        /// What was done.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum Action { $(#[doc = $about] $name,)* }

        impl Action {
            const ALL: &[Self] = &[$(Self::$name,)*];

            /// Its name on the wire.
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$name => $text,)* }
            }
        }
    };
}
actions! {
    CreateKey = "key.create": "A key was made.";
    UpdateKey = "key.update": "A key was changed.";
    EnableKey = "key.enable": "A key was switched on.";
    DisableKey = "key.disable": "A key was switched off.";
    RotateKey = "key.rotate": "A key got a new secret.";
    DeleteKey = "key.delete": "A key was deleted.";
    CreateWorkspace = "workspace.create": "A workspace was made.";
    UpdateWorkspace = "workspace.update": "A workspace was changed.";
    DeleteWorkspace = "workspace.delete": "A workspace was deleted.";
    CreateProvider = "provider.create": "A provider was added.";
    UpdateProvider = "provider.update": "A provider was changed.";
    DeleteProvider = "provider.delete": "A provider was removed.";
}

impl FromStr for Action {
    type Err = Invalid;

    fn from_str(text: &str) -> Result<Self, Invalid> {
        let mut known = Self::ALL.iter();
        let found = known.find(|action| action.as_str() == text);
        found.copied().ok_or_else(|| "is not an action".into())
    }
}
impl Serialize for Action {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

/// One change. Secrets are never part of it: changed fields are only named.
#[derive(Debug, Clone, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct AuditEntry {
    /// Identifier.
    #[serde(rename = "_id")]
    pub id: AuditId,
    /// When.
    pub created_at: Timestamp,
    /// What was done.
    #[schema(value_type = String, example = "key.disable")]
    pub action: Action,
    /// Identifier of the key, workspace or provider.
    #[schema(pattern = "^[a-f0-9]{24}$")]
    pub subject: String,
    /// Its name at that time.
    pub name: String,
    /// The fields that changed.
    pub fields: Vec<String>,
    /// Who did it.
    pub by: Author,
    /// From which address.
    pub address: Option<String>,
    /// The request's id.
    #[serde(rename = "requestID")]
    pub request_id: Option<String>,
}

/// Who made a change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, utoipa::ToSchema)]
pub struct Author {
    /// Identifier of the account.
    pub account: AccountId,
    /// Identifier of the token that it came with.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub token: Option<TokenId>,
    /// Identifier of the session of the account panel that it came with instead.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub session: Option<SessionId>,
    /// The account's address at that time.
    pub email: String,
}
