//! Platform API: databases, which are not offered. Public clients request them all the same.

use crate::auth::Scoped;
use crate::error::PlatformError;
use axum::Json;
use estrade_service::Error;
use estrade_service::identity::access::Operation;

/// `GET /v1/databases`.
#[derive(serde::Serialize, utoipa::ToSchema)]
pub struct DatabaseList {
    /// Always empty.
    #[schema(value_type = Vec<Object>, max_items = 0)]
    databases: [(); 0],
}

/// List databases
///
/// Always none: databases are not offered.
#[utoipa::path(get, path = "/v1/databases", tag = "databases", responses((status = 200, body = DatabaseList)))]
pub async fn list_databases(
    Scoped(scope): Scoped<PlatformError>,
) -> Result<Json<DatabaseList>, PlatformError> {
    scope.read(Operation::ReadPlatform)?;
    Ok(Json(DatabaseList { databases: [] }))
}

/// Create a database
///
/// Refused with the code `not_offered`, whatever the body says.
#[utoipa::path(post, path = "/v1/databases", tag = "databases", responses(
    (status = 400, description = "Databases are not offered"),
))]
pub async fn create_database(Scoped(scope): Scoped<PlatformError>) -> Result<(), PlatformError> {
    scope.read(Operation::WritePlatform)?;
    Err(Error::Invalid {
        code: "not_offered",
        message: "databases are not offered here; run one as a project of the platform docker with a disk, \
                  or use one that you have elsewhere"
            .into(),
    }
    .into())
}
