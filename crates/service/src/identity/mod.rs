//! Authentication and authorization: accounts, passwords, login, tokens, teams, access.

pub mod access;
pub mod accounts;
pub mod audit;
pub mod credentials;
pub mod device_login;
pub mod invitations;
pub mod login;
pub mod members;
pub(crate) mod passwords;
pub mod reset_links;
pub mod second_factor;
pub mod sessions;
pub mod teams;
pub mod tokens;
