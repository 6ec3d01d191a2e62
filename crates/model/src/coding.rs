//! Codings of a content: as it is, or compressed.

/// How a content is written on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Coding {
    /// As it is.
    Identity,
    /// gzip.
    Gzip,
    Zstd,
    Brotli,
}

impl Coding {
    /// The compressed ones, best first: what is preferred among those that a client likes as much.
    pub const COMPRESSED: [Self; 3] = [Self::Brotli, Self::Zstd, Self::Gzip];

    /// The name, in `Content-Encoding` and in the database.
    pub fn name(self) -> &'static str {
        match self {
            Self::Identity => "identity",
            Self::Gzip => "gzip",
            Self::Zstd => "zstd",
            Self::Brotli => "br",
        }
    }

    /// What stands behind the hash in an `ETag`.
    pub fn tag_suffix(self) -> &'static str {
        match self {
            Self::Identity => "",
            Self::Gzip => "-gz",
            Self::Zstd => "-zst",
            Self::Brotli => "-br",
        }
    }

    /// The coding of this name, in any case.
    pub fn from_name(name: &str) -> Option<Self> {
        let is = |known| name.eq_ignore_ascii_case(known);
        match () {
            () if is("gzip") || is("x-gzip") => Some(Self::Gzip),
            () if is("zstd") => Some(Self::Zstd),
            () if is("br") => Some(Self::Brotli),
            () if is("identity") => Some(Self::Identity),
            () => None,
        }
    }
}
