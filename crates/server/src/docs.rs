//! `/openapi.json` and the page that shows it, `/docs`.
//!
//! The page is Swagger UI from this binary: nothing is loaded from other hosts. Its own start
//! page and settings are replaced, because they expect a trailing slash (which we strip) and name a
//! validator on the internet.

use crate::api_error::ApiError;
use crate::error::ErrorShape;
use axum::Router;
use axum::extract::Path;
use axum::extract::rejection::PathRejection;
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use bytes::Bytes;
use std::borrow::Cow;
use std::sync::{Arc, OnceLock};
use utoipa::openapi::OpenApi;
use utoipa_swagger_ui::Config;

const PAGE: &str = include_str!("docs/page.html");
const SCRIPT: &str = include_str!("docs/page.js");

/// Content-Security-Policy: the page may connect to this server only.
const POLICY: &str = "default-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; \
     frame-ancestors 'none'; base-uri 'none'; form-action 'self'";

/// The routes of one API's documentation.
pub fn docs_router<E: ErrorShape, S: Clone + Send + Sync + 'static>(
    document: fn() -> OpenApi,
) -> Router<S> {
    let made = Arc::new(OnceLock::new());
    let openapi = move || {
        let made = Arc::clone(&made);
        async move {
            let bytes: &Bytes = made.get_or_init(|| serialized(&document()));
            asset("application/json", bytes.clone(), "no-cache")
        }
    };
    Router::new()
        .route("/openapi.json", get(openapi))
        .route("/docs", get(page))
        .route("/docs/{file}", get(file::<E>))
}

/// A document has no map with keys that JSON cannot have, which is all that could fail.
fn serialized(document: &OpenApi) -> Bytes {
    serde_json::to_vec(document).unwrap_or_default().into()
}

async fn page() -> Response {
    let mut response = asset(
        "text/html; charset=utf-8",
        Bytes::from_static(PAGE.as_bytes()),
        "no-cache",
    );
    let policy = HeaderValue::from_static(POLICY);
    response
        .headers_mut()
        .insert(header::CONTENT_SECURITY_POLICY, policy);
    response
}

async fn file<E: ErrorShape>(name: Result<Path<String>, PathRejection>) -> Result<Response, E> {
    // What is not UTF-8 names no file.
    let Path(name) = name.map_err(|_| ApiError::NoRoute)?;
    if name == "page.js" {
        return Ok(asset(
            "text/javascript",
            Bytes::from_static(SCRIPT.as_bytes()),
            "no-cache",
        ));
    }
    // The others would bring the settings that we replace.
    if !matches!(
        name.as_str(),
        "swagger-ui.css" | "swagger-ui-bundle.js" | "favicon-32x32.png"
    ) {
        return Err(ApiError::NoRoute.into());
    }
    let found = utoipa_swagger_ui::serve(&name, Arc::new(Config::default()))
        .ok()
        .flatten();
    let file = found.ok_or(ApiError::NoRoute)?;
    let bytes = match file.bytes {
        Cow::Borrowed(bytes) => Bytes::from_static(bytes),
        Cow::Owned(bytes) => bytes.into(),
    };
    Ok(asset(&file.content_type, bytes, "public, max-age=86400"))
}

fn asset(content_type: &str, bytes: Bytes, cache: &'static str) -> Response {
    let headers = [
        (header::CONTENT_TYPE, content_type),
        (header::CACHE_CONTROL, cache),
    ];
    (headers, bytes).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::PlatformError;
    use axum::body::{Body, to_bytes};
    use axum::http::Request;
    use tower::ServiceExt;

    async fn fetch(path: &str) -> (u16, String, String) {
        let document = || {
            OpenApi::new(
                utoipa::openapi::Info::new("Test", "1.0.0"),
                utoipa::openapi::Paths::new(),
            )
        };
        let router: Router = docs_router::<PlatformError, ()>(document);
        let request = Request::builder().uri(path).body(Body::empty()).unwrap();
        let response = router.oneshot(request).await.unwrap();
        let status = response.status().as_u16();
        let kind = response.headers()["content-type"]
            .to_str()
            .unwrap()
            .to_owned();
        let body = to_bytes(response.into_body(), 10_000_000).await.unwrap();
        (status, kind, String::from_utf8_lossy(&body).into_owned())
    }

    #[tokio::test]
    async fn the_page_and_all_that_it_loads_are_served_from_here() {
        let (status, _, page) = fetch("/docs").await;
        assert_eq!(status, 200);
        assert!(!page.contains("//"), "an outside address in {page}");
        let loaded: Vec<&str> = page
            .split(['"', '\''])
            .filter(|part| part.starts_with("/docs/"))
            .collect();
        assert_eq!(loaded.len(), 4);
        for path in loaded {
            let (status, kind, body) = fetch(path).await;
            assert_eq!(status, 200, "{path}");
            assert!(!body.is_empty() && !kind.contains("html"), "{path}");
        }
        assert!(SCRIPT.contains("validatorUrl: null"));
    }

    #[tokio::test]
    async fn the_document_is_json_and_other_files_are_not_served() {
        let (status, kind, body) = fetch("/openapi.json").await;
        assert_eq!((status, kind.as_str()), (200, "application/json"));
        assert!(body.contains(r#""openapi":"3.1.0""#));
        assert_eq!(fetch("/docs/swagger-initializer.js").await.0, 404);
        for other in ["/docs/..%2fsecret", "/docs/%ff"] {
            let (status, kind, _) = fetch(other).await;
            assert_eq!(
                (status, kind.as_str()),
                (404, "application/json"),
                "{other}"
            );
        }
    }
}
