//! Which files are worth compressing, as far as that can be told before it is tried.

use estrade_model::paths::FilePath;

/// Shorter contents fit into one packet anyway.
pub const MIN_SIZE: u64 = 200;
/// How much of a content is looked at to tell text from the rest.
pub const SNIFFED_BYTES: usize = 1024;

/// Names of formats that compress well. Formats that are compressed in themselves are not here.
const COMPRESSIBLE: &[&str] = &[
    "appcache",
    "asc",
    "atom",
    "bmp",
    "c",
    "cjs",
    "conf",
    "cpp",
    "csl",
    "css",
    "csv",
    "cur",
    "dae",
    "diff",
    "eot",
    "eps",
    "fbx",
    "geojson",
    "glsl",
    "gltf",
    "go",
    "gpx",
    "graphql",
    "h",
    "htc",
    "htm",
    "html",
    "ico",
    "ics",
    "ini",
    "java",
    "js",
    "json",
    "json5",
    "jsonc",
    "jsonl",
    "jsonld",
    "jsx",
    "kml",
    "less",
    "log",
    "map",
    "md",
    "mdx",
    "mjs",
    "mtl",
    "ndjson",
    "obj",
    "otf",
    "patch",
    "pdb",
    "php",
    "ply",
    "ps",
    "py",
    "rb",
    "rdf",
    "rs",
    "rss",
    "rtf",
    "sass",
    "scss",
    "sh",
    "shtml",
    "sql",
    "srt",
    "stl",
    "svg",
    "tar",
    "tex",
    "tif",
    "tiff",
    "toml",
    "topojson",
    "ts",
    "tsv",
    "tsx",
    "ttc",
    "ttf",
    "txt",
    "vcf",
    "vtt",
    "vue",
    "wasm",
    "wat",
    "wav",
    "webmanifest",
    "xht",
    "xhtml",
    "xml",
    "xsd",
    "xsl",
    "xslt",
    "yaml",
    "yml",
];

/// Names of formats that are compressed already.
const COMPRESSED: &[&str] = &[
    "7z", "aac", "apk", "avi", "avif", "br", "bz2", "dmg", "docx", "epub", "flac", "flv", "gif",
    "glb", "gz", "heic", "iso", "jar", "jp2", "jpeg", "jpg", "jxl", "lz4", "m4a", "m4v", "mkv",
    "mov", "mp3", "mp4", "mpeg", "mpg", "odt", "ogg", "ogv", "opus", "pdf", "png", "pptx", "rar",
    "tgz", "ts2", "webm", "webp", "wma", "wmv", "woff", "woff2", "xlsx", "xz", "zip", "zst",
];

/// What a file's name says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Compressibility {
    /// It is compressed already.
    Incompressible,
    /// The name says nothing: its content has to be looked at.
    Unknown,
    /// It is of a kind that compresses well.
    Compressible,
}

/// What a file's name says about how well it compresses.
pub fn compressibility(path: &FilePath) -> Compressibility {
    let name = path.as_str().rsplit('/').next().unwrap_or_default();
    let Some((_, extension)) = name.rsplit_once('.') else {
        return Compressibility::Unknown;
    };
    let extension = extension.to_ascii_lowercase();
    let is_in = |list: &[&str]| list.binary_search(&extension.as_str()).is_ok();
    match () {
        () if is_in(COMPRESSIBLE) => Compressibility::Compressible,
        () if is_in(COMPRESSED) => Compressibility::Incompressible,
        () => Compressibility::Unknown,
    }
}

/// Whether a content looks like text: no control characters but those that texts have.
pub fn looks_like_text(content: &[u8]) -> bool {
    let start = &content[..content.len().min(SNIFFED_BYTES)];
    let odd = |byte: &u8| *byte < 0x20 && !matches!(byte, b'\t' | b'\n' | b'\r' | 0x0c | 0x1b);
    if start.iter().any(odd) {
        return false;
    }
    match std::str::from_utf8(start) {
        Ok(_) => true,
        // A character may be cut off at the end; anything else is Latin-1, or not text.
        Err(error) => error.error_len().is_none(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_tell_what_compresses() {
        assert!(COMPRESSIBLE.is_sorted() && COMPRESSED.is_sorted());
        for (name, expected) in [
            ("index.html", Compressibility::Compressible),
            ("a/b.min.JS", Compressibility::Compressible),
            ("app.wasm", Compressibility::Compressible),
            ("font.ttf", Compressibility::Compressible),
            ("favicon.ico", Compressibility::Compressible),
            ("font.woff2", Compressibility::Incompressible),
            ("a.b/photo.JPG", Compressibility::Incompressible),
            ("LICENSE", Compressibility::Unknown),
            ("a.b/c", Compressibility::Unknown),
            ("data.bin", Compressibility::Unknown),
        ] {
            let path = FilePath::try_from(name.to_owned()).unwrap();
            assert_eq!(compressibility(&path), expected, "{name}");
        }
    }

    #[test]
    fn text_is_told_from_the_rest() {
        for text in ["", "hello\r\n\tworld", "grüße", &"é".repeat(SNIFFED_BYTES)] {
            assert!(looks_like_text(text.as_bytes()), "{text}");
        }
        // Cut in the middle of a character.
        assert!(looks_like_text(&"é".as_bytes()[..1]));
        for bytes in [&b"\x7fELF\x02\x01\x01\0"[..], b"a\0b", b"\xff\xfe\xfd text"] {
            assert!(!looks_like_text(bytes), "{bytes:?}");
        }
    }
}
