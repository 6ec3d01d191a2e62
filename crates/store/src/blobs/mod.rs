//! Contents of releases, stored by what they are: named by their BLAKE3 hash, written once,
//! never changed.

mod digest;
mod error;
mod place;

pub use digest::{BadDigest, Digest};
pub use error::{BlobError, LookupError};
pub use place::{BadPlace, Place, PlaceId, StoredBlob, UniqueId};
