//! Authentication and authorization: accounts, passwords, login, tokens, teams, access.

pub mod access;
pub mod accounts;
pub mod credentials;
pub mod invitations;
pub mod login;
pub mod members;
pub(crate) mod passwords;
pub mod teams;
pub mod tokens;
