//! The platform API, by URL.

mod account;
mod archives;
mod audit;
mod build_logs;
mod digests;
mod disks;
mod domains;
mod envs;
mod events;
mod logs;
mod networks;
mod nodes;
mod projects;
mod releases;
mod roles;
mod second_factor;
mod sources;
mod switches;
mod teams;
