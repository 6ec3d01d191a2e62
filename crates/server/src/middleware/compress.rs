//! Compression of responses, for clients that accept it.

use axum::Router;
use axum::body::Body;
use axum::http::{HeaderMap, Request, header};
use axum::response::Response;
use tower::Service;
use tower_http::compression::predicate::{NotForContentType, Predicate, SizeAbove};
use tower_http::compression::{Compression, CompressionLevel};

/// Below this the headers cost more than compression saves.
const MIN_SIZE: u64 = 1024;

/// Whether the client accepts an encoding that we support; others skip the layer.
pub(super) fn is_wanted(headers: &HeaderMap) -> bool {
    headers
        .get_all(header::ACCEPT_ENCODING)
        .iter()
        .any(|value| {
            value
                .to_str()
                .is_ok_and(|value| value.contains("gzip") || value.contains("zstd"))
        })
}

/// The router's response, compressed if that is worth it.
pub(super) async fn call(router: Router, request: Request<Body>) -> Response {
    let worth_it = SizeAbove::new(MIN_SIZE)
        .and(NotForContentType::IMAGES)
        // An archive is compressed already.
        .and(NotForContentType::const_new("application/gzip"))
        .and(NotForContentType::const_new("application/zip"))
        // A compressor would hold events back until it has a block full.
        .and(NotForContentType::SSE);
    let mut compressed = Compression::new(router)
        .quality(CompressionLevel::Fastest)
        .compress_when(worth_it);
    let Ok(response) = compressed.call(request).await;
    response.map(Body::new)
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::HeaderValue;
    use axum::routing::get;

    async fn encoding(
        content_type: &'static str,
        size: usize,
        accept: &'static str,
    ) -> Option<HeaderValue> {
        let handler =
            get(move || async move { ([("content-type", content_type)], "x".repeat(size)) });
        let request = Request::builder()
            .header("accept-encoding", accept)
            .body(Body::empty())
            .unwrap();
        let response = call(Router::new().route("/", handler), request).await;
        response.headers().get("content-encoding").cloned()
    }

    #[tokio::test]
    async fn only_large_responses_that_are_no_stream_are_compressed() {
        let json = "application/json";
        assert_eq!(encoding(json, 2000, "gzip").await.unwrap(), "gzip");
        assert_eq!(encoding(json, 2000, "gzip, zstd").await.unwrap(), "zstd");
        assert_eq!(encoding(json, 1000, "gzip").await, None);
        assert_eq!(encoding("text/event-stream", 2000, "gzip").await, None);
        assert_eq!(encoding(json, 2000, "gzip;q=0").await, None);
    }
}
