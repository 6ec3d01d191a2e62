//! Names of volumes: what an instance keeps across releases.

use estrade_model::{Invalid, OwnerId, ProjectId};
use std::fmt;
use std::str::FromStr;

/// How a project calls one of its volumes: lower-case letters, digits and dashes.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct VolumeName(String);

impl FromStr for VolumeName {
    type Err = Invalid;

    fn from_str(text: &str) -> Result<Self, Invalid> {
        let sane = (1..=50).contains(&text.len())
            && text
                .bytes()
                .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
            && !text.starts_with('-');
        if sane {
            Ok(Self(text.to_owned()))
        } else {
            Err("must be 1 to 50 lower-case letters, digits and dashes".into())
        }
    }
}

impl VolumeName {
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for VolumeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Which volume it is.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct VolumeKey {
    pub owner: OwnerId,
    pub project: ProjectId,
    /// How the project calls it.
    pub name: VolumeName,
}

/// A disk without a volume.
#[derive(Debug, Clone)]
pub struct StrayDisk {
    /// The name of the volume that it was made for, as its project's disk is called by the caller.
    pub volume: String,
    /// Of its file.
    pub(crate) name: String,
}
