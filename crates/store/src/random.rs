//! Randomness from the operating system, through the one crypto provider.

use estrade_model::{Id, Timestamp};

/// The operating system has returned no random bytes.
#[derive(Debug, thiserror::Error)]
#[error("the system gave no randomness")]
pub struct RandomnessError;

/// Fresh random bytes, good enough for secrets.
pub fn bytes<const N: usize>() -> Result<[u8; N], RandomnessError> {
    let mut bytes = [0; N];
    aws_lc_rs::rand::fill(&mut bytes).map_err(|_| RandomnessError)?;
    Ok(bytes)
}

pub fn id<T>(now: Timestamp) -> Result<Id<T>, RandomnessError> {
    Ok(Id::generate(now.millis(), u64::from_le_bytes(bytes()?)))
}
