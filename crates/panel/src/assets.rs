//! Style, scripts and pictures, under names that contain the hash of their bytes.
//!
//! A name never changes its content, so that clients may keep it for ever; a page of a newer version names newer
//! files.

use crate::error::PanelError;
use axum::Router;
use axum::extract::Path;
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use bytes::Bytes;
use estrade_server::app::AppState;
use estrade_service::Error;
use std::sync::LazyLock;

/// Every file of `assets/`.
const FILES: &[(&str, &[u8])] = include!(concat!(env!("OUT_DIR"), "/assets.rs"));

const IMMUTABLE: HeaderValue = HeaderValue::from_static("public, max-age=31536000, immutable");

struct Asset {
    name: &'static str,
    /// `panel.0123456789abcdef.css`
    hashed_name: String,
    url: String,
    bytes: &'static [u8],
}

static ASSETS: LazyLock<Vec<Asset>> = LazyLock::new(|| {
    let asset = |&(name, bytes): &(&'static str, &'static [u8])| {
        let hash = &blake3::hash(bytes).to_hex()[..16];
        let (stem, extension) = name.rsplit_once('.').unwrap_or((name, "bin"));
        let hashed_name = format!("{stem}.{hash}.{extension}");
        Asset {
            name,
            url: format!("/panel/assets/{hashed_name}"),
            hashed_name,
            bytes,
        }
    };
    FILES.iter().map(asset).collect()
});

/// Where a file of `assets/` is served; a name that does not exist gives a path that is not found.
pub fn url(name: &str) -> &'static str {
    let asset = ASSETS.iter().find(|asset| asset.name == name);
    debug_assert!(asset.is_some(), "there is no asset {name}");
    asset.map_or("/panel/assets/missing", |asset| &asset.url)
}

pub fn routes() -> Router<AppState> {
    Router::new().route("/panel/assets/{name}", get(read_asset))
}

async fn read_asset(Path(name): Path<String>) -> Result<Response, PanelError> {
    let asset = ASSETS.iter().find(|asset| asset.hashed_name == name);
    let asset = asset.ok_or(Error::NotFound("the file"))?;
    let body = Bytes::from_static(asset.bytes);
    let headers = [
        (header::CONTENT_TYPE, media_type(asset.name)),
        (header::CACHE_CONTROL, IMMUTABLE),
    ];
    Ok((headers, body).into_response())
}

fn media_type(name: &str) -> HeaderValue {
    HeaderValue::from_static(match name.rsplit_once('.') {
        Some((_, "css")) => "text/css; charset=utf-8",
        Some((_, "js")) => "text/javascript; charset=utf-8",
        Some((_, "svg")) => "image/svg+xml",
        Some((_, "png")) => "image/png",
        _ => "application/octet-stream",
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    fn visit(folder: &Path, see: &mut impl FnMut(&Path, &str)) {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                visit(&path, see);
            } else {
                see(&path, &std::fs::read_to_string(&path).unwrap());
            }
        }
    }

    #[test]
    fn every_asset_that_a_template_names_exists() {
        let templates = Path::new(env!("CARGO_MANIFEST_DIR")).join("templates");
        let mut named = 0;
        visit(&templates, &mut |path, text| {
            for rest in text.split("asset(\"").skip(1) {
                let name = rest.split('"').next().unwrap();
                let known = FILES.iter().any(|(file, _)| *file == name);
                assert!(known, "{}: {name}", path.display());
                named += 1;
            }
        });
        assert!(named > 2);
    }

    #[test]
    fn no_template_has_inline_style_or_script() {
        let templates = Path::new(env!("CARGO_MANIFEST_DIR")).join("templates");
        visit(&templates, &mut |path, text| {
            for forbidden in [
                " style=",
                "<style",
                "<script>",
                " onclick=",
                " onload=",
                " onsubmit=",
                " onchange=",
                "javascript:",
                "http://",
                "https://",
            ] {
                let allowed =
                    forbidden.starts_with("http") && !text.contains(&format!("src=\"{forbidden}"));
                assert!(
                    allowed || !text.contains(forbidden),
                    "{}: {forbidden}",
                    path.display()
                );
            }
        });
    }
}
