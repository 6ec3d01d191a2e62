//! Environment, domains, disks, settings and networks of projects.

mod access;
mod domains;
mod environment;
mod settings;
mod support;
