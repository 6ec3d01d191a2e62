//! The name of an installation.

use estrade_model::Invalid;
use std::fmt;
use std::str::FromStr;

/// The name of one installation of Estrade. Two that share an engine do not see each other's things.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Installation(pub(crate) String);

impl FromStr for Installation {
    type Err = Invalid;

    fn from_str(text: &str) -> Result<Self, Invalid> {
        // It becomes part of names of images, so it may only be what they may be.
        let sane = (1..=32).contains(&text.len())
            && text
                .bytes()
                .all(|b| b.is_ascii_digit() || b.is_ascii_lowercase());
        if sane {
            Ok(Self(text.to_owned()))
        } else {
            Err("must be 1 to 32 lower-case letters and digits".into())
        }
    }
}

impl fmt::Display for Installation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_installations_fit_into_names_of_images() {
        for bad in ["", "A", "a-b", "a/b", "a b", &"a".repeat(33)] {
            assert!(bad.parse::<Installation>().is_err(), "{bad}");
        }
    }
}
