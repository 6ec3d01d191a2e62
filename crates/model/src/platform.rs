//! Platforms: what kind of thing a project is.

use crate::Invalid;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// The platform of a project (`platform` when created, `type` when read).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(try_from = "String", rename_all = "lowercase")]
pub enum Platform {
    Static,
    Docker,
    Node,
    Next,
    React,
    Vue,
    Angular,
    Python,
    Django,
    Flask,
    Php,
    Laravel,
    Go,
    Dotnet,
    /// Each release is built as what its sources are.
    Auto,
}

impl Platform {
    /// Every platform, in the order in which messages list them.
    pub const ALL: [(Self, &'static str); 15] = [
        (Self::Static, "static"),
        (Self::Docker, "docker"),
        (Self::Node, "node"),
        (Self::Next, "next"),
        (Self::React, "react"),
        (Self::Vue, "vue"),
        (Self::Angular, "angular"),
        (Self::Python, "python"),
        (Self::Django, "django"),
        (Self::Flask, "flask"),
        (Self::Php, "php"),
        (Self::Laravel, "laravel"),
        (Self::Go, "go"),
        (Self::Dotnet, "dotnet"),
        (Self::Auto, "auto"),
    ];

    /// The platform's name on the wire.
    pub fn as_str(self) -> &'static str {
        Self::ALL
            .iter()
            .find(|(platform, _)| *platform == self)
            .map_or("static", |(_, name)| name)
    }

    /// The port that a release listens on unless it says otherwise.
    pub fn default_port(self) -> u16 {
        match self {
            Self::Static | Self::React | Self::Vue | Self::Angular | Self::Php | Self::Laravel => {
                80
            }
            Self::Docker | Self::Go | Self::Dotnet => 8080,
            Self::Node | Self::Next | Self::Auto => 3000,
            Self::Python | Self::Django | Self::Flask => 8000,
        }
    }
}

impl FromStr for Platform {
    type Err = Invalid;

    fn from_str(text: &str) -> Result<Self, Invalid> {
        Self::ALL
            .iter()
            .find(|(_, name)| *name == text)
            .map(|(platform, _)| *platform)
            .ok_or_else(|| {
                let known: Vec<_> = Self::ALL.iter().map(|(_, name)| *name).collect();
                Invalid(format!(
                    "unknown platform; choose one of {}",
                    known.join(", ")
                ))
            })
    }
}
impl TryFrom<String> for Platform {
    type Error = Invalid;

    fn try_from(text: String) -> Result<Self, Invalid> {
        text.parse()
    }
}
impl fmt::Display for Platform {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_round_trip_and_the_refusal_lists_them() {
        for (platform, name) in Platform::ALL {
            assert_eq!(name.parse(), Ok(platform));
            assert_eq!(serde_json::to_value(platform).unwrap(), name);
        }
        let refused = "cobol".parse::<Platform>().unwrap_err();
        assert!(refused.0.contains("static, docker, node"), "{refused}");
    }
}
