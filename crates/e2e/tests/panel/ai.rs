//! Keys, workspaces, usage, calls and the playground.

mod access;
mod keys;
mod playground;
mod support;
mod usage;
