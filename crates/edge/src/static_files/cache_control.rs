//! How long a browser may keep a file without asking.

/// For names that change with the content.
const IMMUTABLE: &str = "public, max-age=31536000, immutable";
/// For all others: keep it, but ask each time whether it is still the one.
const REVALIDATE: &str = "public, max-age=0, must-revalidate";
/// Hashes in names are at least this long.
const MIN_HASH_LENGTH: usize = 8;

/// `Cache-Control` of a file.
pub(crate) fn cache_control(is_hashed: bool) -> &'static str {
    if is_hashed { IMMUTABLE } else { REVALIDATE }
}

/// Whether a file's name holds a hash of its content, as bundlers write it: `app.3f2a9c1b.js`,
/// `index-B-x_9kQ2.css`.
///
/// A hash has a letter and a digit, so the date in `report-20240101.pdf` is none. It may contain
/// `-`, but only where it is exactly as long as the bundlers that use such hashes make it: otherwise
/// `annual-report-2024.pdf` would have one.
pub(crate) fn is_hashed(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or(path);
    let Some((stem, extension)) = name.rsplit_once('.') else {
        return false;
    };
    let last_token = stem.rsplit_once(['.', '-']).map(|(_, token)| token);
    if last_token.is_some_and(|token| token.len() >= MIN_HASH_LENGTH && looks_random(token)) {
        return true;
    }
    let is_page = extension.eq_ignore_ascii_case("html");
    let tail = stem.len().checked_sub(MIN_HASH_LENGTH + 1);
    let tail = tail.and_then(|start| stem.get(start..));
    let tail = tail.and_then(|tail| tail.strip_prefix(['.', '-']));
    !is_page && tail.is_some_and(looks_random)
}

fn looks_random(token: &str) -> bool {
    let bytes = || token.bytes();
    bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-'))
        && bytes().any(|byte| byte.is_ascii_alphabetic())
        && bytes().any(|byte| byte.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_with_a_hash_are_told_from_others() {
        for name in [
            "app.3f2a9c1b.js",
            "assets/index-B-x_9kQ2.css",
            "index-DkA3_9fz.js",
            "main.0123456789abcdef0123.chunk1x2y3z.js",
            "logo.a1b2c3d4e5f6.svg",
        ] {
            assert!(is_hashed(name), "{name}");
        }
        for name in [
            "index.html",
            "report-20240101.pdf",
            "annual-report-20240101.pdf",
            "jquery-3.7.1.min.js",
            "bootstrap.bundle.js",
            "my-favourites.css",
            "a1b2c3d4.js",
            "app-1a2b3c.js",
            "app.3f2a9c1b",
            "notes-on-v2-notes.html",
            "",
        ] {
            assert!(!is_hashed(name), "{name}");
        }
    }
}
