//! How the files of a static release are served.

use serde::{Deserialize, Serialize};

/// What a release says about its own serving; what it does not say is as is usual.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SiteConfig {
    /// Whether a path without a file answers with `index.html`: the application has routes of its own.
    pub spa: bool,
    /// Whether `/about` finds `about.html`.
    pub clean_urls: bool,
    /// Headers by path pattern, besides those of the `_headers` file.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub headers: Vec<PathHeaders>,
}

impl Default for SiteConfig {
    fn default() -> Self {
        Self {
            spa: false,
            clean_urls: true,
            headers: Vec::new(),
        }
    }
}

/// Headers that the files of a path pattern get.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PathHeaders {
    /// Such as `/assets/*`.
    pub path: String,
    /// Names and values.
    pub headers: Vec<(String, String)>,
}
