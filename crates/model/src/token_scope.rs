//! What a token is good for.

use crate::{Invalid, ProjectId};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;
use utoipa::openapi::schema::{ObjectBuilder, SchemaType, Type};

/// How the scope of a token for one project begins.
const PROJECT: &str = "project:";

/// What a token may be used for, within what its account may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum TokenScope {
    #[default]
    Full,
    /// Reads what a viewer of a team may read.
    Read,
    /// Everything with one project, and nothing else.
    Project(ProjectId),
    /// The AI API, without its administration.
    Ai,
}

impl TokenScope {
    pub fn kind(self) -> ScopeKind {
        match self {
            Self::Full => ScopeKind::Full,
            Self::Read => ScopeKind::Read,
            Self::Project(_) => ScopeKind::Project,
            Self::Ai => ScopeKind::Ai,
        }
    }

    /// The one project that it is limited to.
    pub fn project(self) -> Option<ProjectId> {
        match self {
            Self::Project(id) => Some(id),
            Self::Full | Self::Read | Self::Ai => None,
        }
    }
}

/// A [`TokenScope`] without its project.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ScopeKind {
    Full,
    Read,
    Project,
    Ai,
}

impl ScopeKind {
    /// How people write it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Full => "full",
            Self::Read => "read",
            Self::Project => "project:<id>",
            Self::Ai => "ai",
        }
    }
}

impl fmt::Display for TokenScope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Project(id) => write!(f, "{PROJECT}{id}"),
            Self::Full | Self::Read | Self::Ai => f.write_str(self.kind().as_str()),
        }
    }
}

impl FromStr for TokenScope {
    type Err = Invalid;

    fn from_str(text: &str) -> Result<Self, Invalid> {
        let refused =
            || Invalid::from("must be full, read, ai, or project: and the _id of a project");
        match text {
            "full" => Ok(Self::Full),
            "read" => Ok(Self::Read),
            "ai" => Ok(Self::Ai),
            other => {
                let id = other.strip_prefix(PROJECT).ok_or_else(refused)?;
                Ok(Self::Project(id.parse().map_err(|_| refused())?))
            }
        }
    }
}

impl TryFrom<String> for TokenScope {
    type Error = Invalid;

    fn try_from(text: String) -> Result<Self, Invalid> {
        text.parse()
    }
}

impl From<TokenScope> for String {
    fn from(scope: TokenScope) -> Self {
        scope.to_string()
    }
}

impl utoipa::PartialSchema for TokenScope {
    fn schema() -> utoipa::openapi::RefOr<utoipa::openapi::Schema> {
        ObjectBuilder::new()
            .schema_type(SchemaType::new(Type::String))
            .pattern(Some("^(full|read|ai|project:[0-9a-f]{24})$"))
            .description(Some("What a token is good for"))
            .examples(["read"])
            .into()
    }
}

impl utoipa::ToSchema for TokenScope {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scope_reads_as_it_is_written() {
        for text in ["full", "read", "ai", "project:0123456789abcdef01234567"] {
            let scope: TokenScope = text.parse().unwrap();
            assert_eq!(scope.to_string(), text);
            let json = serde_json::to_string(&scope).unwrap();
            assert_eq!(json, format!("\"{text}\""));
            assert_eq!(serde_json::from_str::<TokenScope>(&json).unwrap(), scope);
        }
    }

    #[test]
    fn everything_else_is_no_scope() {
        for text in [
            "",
            "Full",
            " read",
            "write",
            "project",
            "project:",
            "project:my-site",
            "project:0123456789ABCDEF01234567",
            "project:0123456789abcdef01234567 ",
            "project:<id>",
            "full,ai",
        ] {
            assert!(text.parse::<TokenScope>().is_err(), "{text}");
        }
    }
}
