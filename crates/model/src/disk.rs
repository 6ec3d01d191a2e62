//! Disks of projects on the wire: what instances keep across releases.

use crate::id::kind;
use crate::serde_rules::WholeNumber;
use crate::{Id, Timestamp};
use serde::{Deserialize, Deserializer, Serialize};
use utoipa::openapi::RefOr;
use utoipa::openapi::schema::{ObjectBuilder, Schema, SchemaType, Type};

/// Identifies a disk.
pub type DiskId = Id<kind::Disk>;

/// A disk.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Disk {
    /// Identifier.
    #[serde(rename = "_id")]
    pub id: DiskId,
    /// Name, unique in its project.
    #[schema(example = "media")]
    pub name: String,
    /// Size in GB.
    pub size: u64,
    /// When it was made.
    pub created_at: Timestamp,
}

/// The answer to a new disk.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub struct DiskBody {
    /// The disk.
    pub disk: Disk,
}

/// `POST /v1/projects/{project_id}/disks`.
#[derive(Debug, Clone, Deserialize, utoipa::ToSchema)]
#[schema(example = json!({"name": "media", "size": 1}))]
pub struct CreateDisk {
    /// Its name: 1 to 50 lower-case letters, digits and dashes.
    #[schema(min_length = 1, max_length = 50)]
    pub name: String,
    /// Size in GB, as a number or a text.
    pub size: DiskSize,
}

/// `POST /v1/projects/{project_id}/disks/{name}/resize`.
#[derive(Debug, Clone, Copy, Deserialize, utoipa::ToSchema)]
#[schema(example = json!({"size": 2}))]
pub struct ResizeDisk {
    /// The new size in GB, as a number or a text; not less than the disk has.
    pub size: DiskSize,
}

/// A size in whole GB; 1 at least.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DiskSize(pub u64);

// By hand: the derive does not know that it may be a text.
impl utoipa::PartialSchema for DiskSize {
    fn schema() -> RefOr<Schema> {
        ObjectBuilder::new()
            .schema_type(SchemaType::from_iter([Type::Integer, Type::String]))
            .minimum(Some(1))
            .pattern(Some("^[0-9]+$"))
            .into()
    }
}
impl utoipa::ToSchema for DiskSize {}

impl<'de> Deserialize<'de> for DiskSize {
    fn deserialize<D: Deserializer<'de>>(source: D) -> Result<Self, D::Error> {
        let size = source.deserialize_any(WholeNumber {
            range: 1..=u64::MAX,
            expected: "a whole number of GB, 1 or more",
        })?;
        Ok(Self(size))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{from_value, json};

    #[test]
    fn a_size_is_a_whole_number_however_it_is_written() {
        for good in [json!(3), json!("3"), json!("03")] {
            assert_eq!(from_value::<DiskSize>(good).unwrap(), DiskSize(3));
        }
        for bad in [
            json!(0),
            json!("0"),
            json!(-1),
            json!("-1"),
            json!("+1"),
            json!(1.5),
            json!("1.5"),
            json!(""),
            json!(" 1"),
            json!("1GB"),
            json!("99999999999999999999"),
            json!(null),
            json!(true),
        ] {
            assert!(from_value::<DiskSize>(bad.clone()).is_err(), "{bad}");
        }
    }
}
