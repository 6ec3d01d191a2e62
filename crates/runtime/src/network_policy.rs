//! What instances may reach.

use estrade_model::Invalid;
use std::fmt;
use std::str::FromStr;

/// Where containers may connect to, besides the host and each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Egress {
    /// Everywhere but to private networks.
    #[default]
    Internet,
    /// Private networks as well.
    All,
    /// Nowhere, not even to a name server.
    None,
}

impl Egress {
    const NAMES: [(Self, &'static str); 3] = [
        (Self::Internet, "internet"),
        (Self::All, "all"),
        (Self::None, "none"),
    ];
}

impl FromStr for Egress {
    type Err = Invalid;

    fn from_str(text: &str) -> Result<Self, Invalid> {
        let found = Self::NAMES.iter().find(|(_, name)| *name == text);
        found.map(|(egress, _)| *egress).ok_or_else(|| {
            Invalid(format!(
                "`{text}` is not one of \"internet\", \"all\" and \"none\""
            ))
        })
    }
}

impl fmt::Display for Egress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let found = Self::NAMES.iter().find(|(egress, _)| egress == self);
        f.write_str(found.map_or("internet", |(_, name)| name))
    }
}

/// What instances and steps of builds may reach, besides others of their owner.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct NetworkPolicy {
    /// The TCP ports of the host that are open to them, such as the AI listener's.
    pub open_ports: Vec<u16>,
    /// What is open beyond the host.
    pub egress: Egress,
}

/// A policy could not be set.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub struct NetworkPolicyError(Box<dyn std::error::Error + Send + Sync>);

impl NetworkPolicyError {
    pub(crate) fn new(error: impl std::error::Error + Send + Sync + 'static) -> Self {
        Self(Box::new(error))
    }
}
