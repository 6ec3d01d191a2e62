//! The keys of objects and records in the bucket.
//!
//! ```text
//! <prefix>/packs/<24 hex>   small contents, back to back
//! <prefix>/files/<24 hex>   one large content each
//! <prefix>/installation     whose objects these are
//! <prefix>/orphans          which packs and files are without rows, and since when
//! <prefix>/migration        whether contents move here, or have moved from here
//! ```
//!
//! No text that a user sent ever becomes part of a key.

use object_store::path::Path;

use crate::ObjectId;
use crate::storage::Record;

const PACKS: &str = "packs";
const FILES: &str = "files";

/// Makes keys, and reads them back.
#[derive(Clone, Debug)]
pub(super) struct Names {
    prefix: Path,
}

impl Names {
    pub(super) fn new(prefix: &str) -> Self {
        Self {
            prefix: Path::from(prefix),
        }
    }

    pub(super) fn object(&self, id: ObjectId) -> Path {
        match id {
            ObjectId::Pack(id) => self.prefix.clone().join(PACKS).join(id.to_string()),
            ObjectId::File(id) => self.prefix.clone().join(FILES).join(id.to_string()),
        }
    }

    pub(super) fn record(&self, record: Record) -> Path {
        self.prefix.clone().join(record.name())
    }

    /// Under which all objects are.
    pub(super) fn folders(&self) -> [Path; 2] {
        [PACKS, FILES].map(|folder| self.prefix.clone().join(folder))
    }

    /// None for a key that is not ours: a person put it there, and it is left alone.
    pub(super) fn parse(&self, key: &Path) -> Option<ObjectId> {
        let mut parts = key.prefix_match(&self.prefix)?;
        let (folder, id, rest) = (parts.next()?, parts.next()?, parts.next());
        let id = id.as_ref().parse().ok()?;
        match (folder.as_ref(), rest) {
            (PACKS, None) => Some(ObjectId::Pack(id)),
            (FILES, None) => Some(ObjectId::File(id)),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{BlobError, UniqueId};

    #[test]
    fn keys_read_back() -> Result<(), BlobError> {
        let id = UniqueId::new()?;
        for (prefix, packs) in [("", "packs"), ("/a/b/", "a/b/packs")] {
            let names = Names::new(prefix);
            for object in [ObjectId::Pack(id), ObjectId::File(id)] {
                assert_eq!(names.parse(&names.object(object)), Some(object));
            }
            let key = names.object(ObjectId::Pack(id)).to_string();
            assert_eq!(key, format!("{packs}/{id}"));
            for foreign in [
                "x",
                "packs/x",
                &format!("{packs}/{id}/x"),
                &format!("trees/{id}"),
            ] {
                assert_eq!(names.parse(&Path::from(foreign)), None, "{foreign}");
            }
            assert_eq!(names.parse(&names.record(Record::Owner)), None);
        }
        Ok(())
    }
}
