//! The inference relay: check, limit, forward, stream back, account.
//!
//! It knows no database. Who may call comes in through [`Doors`], what it costs goes out through
//! [`Books`]; whoever builds a [`Books`] decides what must be on disk before a call goes out.

pub mod books;
pub mod doors;

pub use books::{Admission, Books, Refused};
pub use doors::{Denied, Doors, Pass, Place};
