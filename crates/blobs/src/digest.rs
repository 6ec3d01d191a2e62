//! The name of a content: its BLAKE3 hash.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// The BLAKE3 hash of a content; in text 64 lower-case hex digits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Digest([u8; 32]);

/// Contents by their hashes. Clients choose what they name, so the hasher has a random seed; it is
/// several times as fast as the usual one, which for thousands of digests counts.
pub type DigestMap<V> = HashMap<Digest, V, foldhash::fast::RandomState>;
/// A set of contents.
pub type DigestSet = HashSet<Digest, foldhash::fast::RandomState>;

/// A text that is not a [`Digest`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a digest is 64 lower-case hex digits")]
pub struct BadDigest;

impl Digest {
    pub fn of(content: &[u8]) -> Self {
        blake3::hash(content).into()
    }

    /// The text, in ASCII: for who writes it so often that an allocation counts.
    pub fn to_hex(&self) -> [u8; 64] {
        let mut hex = [0; 64];
        // The length is right, which is all that can be wrong.
        let _ = hex::encode_to_slice(self.0, &mut hex);
        hex
    }

    /// The hash itself.
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl From<[u8; 32]> for Digest {
    fn from(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }
}

impl From<blake3::Hash> for Digest {
    fn from(hash: blake3::Hash) -> Self {
        Self(hash.into())
    }
}

impl FromStr for Digest {
    type Err = BadDigest;

    fn from_str(text: &str) -> Result<Self, BadDigest> {
        parse_hex(text).map(Self).ok_or(BadDigest)
    }
}

impl TryFrom<String> for Digest {
    type Error = BadDigest;

    fn try_from(text: String) -> Result<Self, BadDigest> {
        text.parse()
    }
}

impl From<Digest> for String {
    fn from(digest: Digest) -> Self {
        hex::encode(digest.0)
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hex = self.to_hex();
        f.write_str(std::str::from_utf8(&hex).map_err(|_| fmt::Error)?)
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Digest({self})")
    }
}

/// Reads exactly `N` bytes of hex. Upper case is refused so that a value has one spelling, and
/// comparing texts (as a database does) is comparing values.
///
/// A release may name thousands of digests, and a table takes a tenth of what a match per digit does.
pub(super) fn parse_hex<const N: usize>(text: &str) -> Option<[u8; N]> {
    let (pairs, rest) = text.as_bytes().as_chunks();
    if pairs.len() != N || !rest.is_empty() {
        return None;
    }
    let (mut bytes, mut seen) = ([0; N], 0);
    for (byte, &[high, low]) in bytes.iter_mut().zip(pairs) {
        let (high, low) = (DIGITS[usize::from(high)], DIGITS[usize::from(low)]);
        seen |= high | low;
        *byte = high << 4 | low & 0xf;
    }
    (seen < 16).then_some(bytes)
}

/// What each character is worth as a digit; 255 if it is none.
const DIGITS: [u8; 256] = {
    let (mut digits, mut value) = ([255; 256], 0);
    while value < 16 {
        digits[b"0123456789abcdef"[value as usize] as usize] = value;
        value += 1;
    }
    digits
};

#[cfg(test)]
mod tests {
    use super::*;

    const OF_NOTHING: &str = "af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262";

    #[test]
    fn text_and_json_hold_the_lower_case_hex_of_blake3() -> Result<(), serde_json::Error> {
        let digest = Digest::of(b"");
        assert_eq!(digest.to_string(), OF_NOTHING);
        assert_eq!(OF_NOTHING.parse(), Ok(digest));
        let json = serde_json::to_string(&digest)?;
        assert_eq!(json, format!("\"{OF_NOTHING}\""));
        assert_eq!(serde_json::from_str::<Digest>(&json)?, digest);
        Ok(())
    }

    #[test]
    fn other_texts_are_refused() {
        let upper = OF_NOTHING.to_uppercase();
        let longer = format!("{OF_NOTHING}00");
        let odd = format!("{}g", &OF_NOTHING[..63]);
        for text in ["", "af", &OF_NOTHING[..63], &upper, &longer, &odd] {
            assert_eq!(text.parse::<Digest>(), Err(BadDigest), "{text}");
        }
    }
}
