//! Values that a message does not repeat.

use crate::config::Invalid;
use clap::error::ErrorKind;
use std::ffi::OsStr;
use std::str::FromStr;

/// Reads a value that may hold a password, which the message does not repeat.
pub(super) fn parse_unrepeated<T: FromStr<Err = Invalid>>(
    command: &clap::Command,
    option: &str,
    value: &OsStr,
) -> Result<T, clap::Error> {
    let parsed = value.to_str().unwrap_or_default().parse();
    parsed.map_err(|reason: Invalid| {
        let message = format!("invalid value for '{option}': {reason}\n");
        clap::Error::raw(ErrorKind::ValueValidation, message).with_cmd(command)
    })
}
