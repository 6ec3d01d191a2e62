//! A system without a keyring that is supported.

use super::Unusable;
use estrade_model::secret::Secret;
use std::ffi::OsString;

pub(super) fn locate(_: impl Fn(&str) -> Option<OsString>) -> Result<(), Unusable> {
    Err(missing())
}

pub(super) async fn store(_: &str, _: &str, _: &Secret) -> Result<(), Unusable> {
    Err(missing())
}

pub(super) async fn read(_: &str) -> Result<Option<Secret>, Unusable> {
    Err(missing())
}

pub(super) async fn remove(_: &str) -> Result<(), Unusable> {
    Err(missing())
}

fn missing() -> Unusable {
    Unusable::new("of this system is not supported")
}
