//! `Content-Type` of a file, by its name.

use std::borrow::Cow;

/// The type of unknown files: browsers do not sniff it, and offer to save it.
const UNKNOWN: &str = "application/octet-stream";

/// The media type of a file, with the charset where one belongs.
pub(crate) fn media_type(path: &str) -> Cow<'static, str> {
    let name = path.rsplit('/').next().unwrap_or(path);
    let extension = name.rsplit_once('.').map(|(_, extension)| extension);
    // The usual ones first: the table of all is much slower to ask.
    let known = match extension {
        Some("html") => return Cow::Borrowed("text/html; charset=utf-8"),
        Some("js" | "mjs") => return Cow::Borrowed("text/javascript; charset=utf-8"),
        Some("css") => return Cow::Borrowed("text/css; charset=utf-8"),
        Some("txt") => return Cow::Borrowed("text/plain; charset=utf-8"),
        Some("svg") => "image/svg+xml",
        Some("png") => "image/png",
        Some("jpg" | "jpeg") => "image/jpeg",
        Some("webp") => "image/webp",
        Some("woff2") => "font/woff2",
        // What the tables of the world do not agree on, or do not have.
        Some("json" | "map") => "application/json",
        Some("webmanifest") => "application/manifest+json",
        Some("ico") => "image/x-icon",
        Some(extension) => mime_guess::from_ext(extension)
            .first_raw()
            .unwrap_or(UNKNOWN),
        None if name == "apple-app-site-association" => "application/json",
        None => UNKNOWN,
    };
    if has_charset(known) {
        return Cow::Owned(format!("{known}; charset=utf-8"));
    }
    Cow::Borrowed(known)
}

fn has_charset(known: &str) -> bool {
    known.starts_with("text/")
        || matches!(
            known,
            "application/xml"
                | "application/xhtml+xml"
                | "application/rss+xml"
                | "application/atom+xml"
        )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_as_browsers_want_them() {
        for (path, known) in [
            ("index.html", "text/html; charset=utf-8"),
            ("a/app.JS", "text/javascript; charset=utf-8"),
            ("x.mjs", "text/javascript; charset=utf-8"),
            ("x.css", "text/css; charset=utf-8"),
            ("x.csv", "text/csv; charset=utf-8"),
            ("x.svg", "image/svg+xml"),
            ("x.json", "application/json"),
            ("x.wasm", "application/wasm"),
            ("x.webp", "image/webp"),
            ("x.avif", "image/avif"),
            ("x.woff2", "font/woff2"),
            ("favicon.ico", "image/x-icon"),
            ("feed.xml", "text/xml; charset=utf-8"),
            ("x.webmanifest", "application/manifest+json"),
            ("x.unheardof", "application/octet-stream"),
            ("LICENSE", "application/octet-stream"),
            (".well-known/apple-app-site-association", "application/json"),
        ] {
            assert_eq!(media_type(path), known, "{path}");
        }
    }
}
