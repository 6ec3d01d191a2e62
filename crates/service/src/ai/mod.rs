//! What the AI API offers: keys, workspaces, providers, and the accounting of their use.

pub mod key_check;
pub mod keys;
pub mod providers;
pub mod usage;
pub(crate) mod workspace_lists;
pub mod workspaces;
