//! Where a content lies, and how that is written in the database.

use std::fmt;
use std::str::FromStr;

use super::BlobError;
use super::digest::{Digest, parse_hex};

/// Contents of at least this many bytes are objects of their own; smaller ones share a pack.
pub const MIN_LARGE_BYTES: u64 = 1 << 20;

/// A random name that no other pack or file has; in text 24 lower-case hex digits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UniqueId([u8; 12]);

/// One object of the storage; in text `pack:<id>` or
/// `file:<id>`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ObjectId {
    /// A pack of many small contents.
    Pack(UniqueId),
    /// A file that is one large content.
    File(UniqueId),
}

/// Where one content lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BlobLocation {
    /// Inside a pack, from `offset` on.
    Pack {
        id: UniqueId,
        /// How many bytes of the pack come before the content.
        offset: u64,
    },
    /// A file of its own.
    File { id: UniqueId },
}

/// A content that the store holds: what it is and where it lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct StoredBlob {
    /// The hash of the content.
    pub digest: Digest,
    /// Its length in bytes.
    pub size: u64,
    /// Where it lies.
    pub location: BlobLocation,
}

/// A text or a pair of columns that names no location.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not the location of a blob")]
pub struct InvalidLocation;

impl UniqueId {
    /// Makes an id that has never been used: 96 random bits.
    pub fn new() -> Result<Self, BlobError> {
        let mut bytes = [0; 12];
        aws_lc_rs::rand::fill(&mut bytes).map_err(std::io::Error::other)?;
        Ok(Self(bytes))
    }
}

impl BlobLocation {
    /// The pack or file that holds the content.
    pub const fn object(&self) -> ObjectId {
        match *self {
            Self::Pack { id, .. } => ObjectId::Pack(id),
            Self::File { id } => ObjectId::File(id),
        }
    }

    /// Where in that pack or file the content begins.
    pub const fn offset(&self) -> u64 {
        match *self {
            Self::Pack { offset, .. } => offset,
            Self::File { .. } => 0,
        }
    }

    /// The two columns (place, offset) that say this in the database.
    pub fn to_columns(&self) -> (String, i64) {
        (self.object().to_string(), self.offset().cast_signed())
    }

    /// Reads what [`to_columns`](Self::to_columns) wrote.
    pub fn from_columns(place: &str, offset: i64) -> Result<Self, InvalidLocation> {
        let offset = u64::try_from(offset).map_err(|_| InvalidLocation)?;
        match (place.parse()?, offset) {
            (ObjectId::Pack(id), offset) => Ok(Self::Pack { id, offset }),
            (ObjectId::File(id), 0) => Ok(Self::File { id }),
            (ObjectId::File(_), _) => Err(InvalidLocation),
        }
    }
}

impl FromStr for UniqueId {
    type Err = InvalidLocation;

    fn from_str(text: &str) -> Result<Self, InvalidLocation> {
        parse_hex(text).map(Self).ok_or(InvalidLocation)
    }
}

impl FromStr for ObjectId {
    type Err = InvalidLocation;

    fn from_str(text: &str) -> Result<Self, InvalidLocation> {
        match text.split_once(':') {
            Some(("pack", id)) => Ok(Self::Pack(id.parse()?)),
            Some(("file", id)) => Ok(Self::File(id.parse()?)),
            _ => Err(InvalidLocation),
        }
    }
}

impl fmt::Display for UniqueId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex::encode(self.0))
    }
}

impl fmt::Debug for UniqueId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "UniqueId({self})")
    }
}

impl fmt::Display for ObjectId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pack(id) => write!(f, "pack:{id}"),
            Self::File(id) => write!(f, "file:{id}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_round_trip() -> Result<(), BlobError> {
        let id = UniqueId::new()?;
        for location in [
            BlobLocation::Pack { id, offset: 0 },
            BlobLocation::Pack { id, offset: 4096 },
            BlobLocation::File { id },
        ] {
            let (text, offset) = location.to_columns();
            assert_eq!(BlobLocation::from_columns(&text, offset), Ok(location));
        }
        Ok(())
    }

    #[test]
    fn columns_that_name_no_location_are_refused() {
        let id = "0123456789abcdef01234567";
        assert!(BlobLocation::from_columns(&format!("pack:{id}"), 1).is_ok());
        for (text, offset) in [
            (format!("pack:{id}"), -1),
            (format!("file:{id}"), 1),
            (format!("tape:{id}"), 0),
            (format!("pack:{}", id.to_uppercase()), 0),
            ("pack:../../etc/passwd".to_owned(), 0),
            (id.to_owned(), 0),
        ] {
            assert_eq!(
                BlobLocation::from_columns(&text, offset),
                Err(InvalidLocation),
                "{text}"
            );
        }
    }
}
