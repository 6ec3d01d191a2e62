//! The AI key API, by URL.

mod authorize;
mod jwks;
mod keys;
mod keys_create;
mod keys_update;
mod rotate;
mod verify;
mod workspaces;
