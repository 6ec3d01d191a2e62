//! An image on its way from its registry.

use estrade_model::secret::Secret;

/// How to log in to a registry.
#[derive(Debug, Clone)]
pub struct RegistryLogin {
    pub user: String,
    /// The password or token.
    pub password: Secret,
}

/// One message of a pull.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PullProgress {
    /// The layer it is about; none: the whole image.
    pub layer: Option<String>,
    /// What happens, such as `Downloading`.
    pub status: String,
    /// Bytes that are there and bytes in all, where that is known.
    pub bytes: Option<(u64, u64)>,
}
