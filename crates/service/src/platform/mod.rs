//! What the platform API offers: projects, releases, environments, disks, domains, networks, events.

pub mod certificates;
pub mod containers;
pub mod disks;
pub mod domains;
pub mod envs;
pub mod events;
pub mod move_project;
pub mod networks;
mod project_lookup;
pub mod projects;
pub mod releases;
pub mod traffic;
