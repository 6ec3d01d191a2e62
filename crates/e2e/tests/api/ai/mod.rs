//! The AI key API, by URL.

mod audit;
mod authorize;
mod jwks;
mod keys;
mod keys_create;
mod keys_update;
mod providers;
mod rotate;
mod usage;
mod verify;
mod workspaces;
