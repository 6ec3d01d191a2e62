//! The files of a create-release request.

use crate::strict_json::{TextId, Texts};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use estrade_service::Error;
use estrade_service::releases::Upload;
use estrade_store::blobs::{BadDigest, Digest, Hashed};
use serde::Deserialize;

/// Takes files as they are read.
pub(super) trait Taker<'de> {
    /// The text of a file.
    type Text: Deserialize<'de>;

    /// Takes one; an error refuses the whole release.
    fn take(&mut self, file: File<Self::Text>) -> Result<(), Error>;
}

/// From a document as it was sent.
impl Taker<'_> for Upload {
    type Text = String;

    fn take(&mut self, file: File<String>) -> Result<(), Error> {
        file.with_text(Bytes::from)?.add_to(self)
    }
}

/// From a document whose texts are elsewhere.
pub(super) struct Lifted<'u> {
    pub(super) upload: &'u mut Upload,
    pub(super) texts: Texts,
}

impl Taker<'_> for Lifted<'_> {
    type Text = TextId;

    fn take(&mut self, file: File<TextId>) -> Result<(), Error> {
        file.with_text(|id| self.texts.get(id))?.add_to(self.upload)
    }
}

/// A file of which everything is known.
pub(super) struct Understood {
    path: String,
    content: Content,
}

enum Content {
    /// It came along.
    Sent(Hashed),
    /// The project should have it.
    Named(Digest, u64),
}

impl Understood {
    fn add_to(self, upload: &mut Upload) -> Result<(), Error> {
        match self.content {
            Content::Sent(content) => upload.add_hashed(self.path, content),
            Content::Named(digest, size) => upload.add_named(self.path, digest, size),
        }
    }
}

#[derive(Deserialize)]
pub(super) struct File<T> {
    path: String,
    #[serde(default = "none")]
    data: Option<T>,
    #[serde(default)]
    encoding: Option<Encoding>,
    #[serde(default)]
    digest: Option<String>,
    #[serde(default)]
    size: Option<u64>,
}

#[derive(Deserialize, Clone, Copy)]
#[serde(rename_all = "lowercase")]
enum Encoding {
    #[serde(rename = "utf-8", alias = "utf8", alias = "text")]
    Text,
    Base64,
}

fn none<T>() -> Option<T> {
    None
}

impl<T> File<T> {
    /// Decodes and checks it: with its content, or by the name of a content that is there already.
    fn with_text(mut self, text: impl FnOnce(T) -> Bytes) -> Result<Understood, Error> {
        let digest = self.digest()?;
        let content = match (self.data.take(), digest, self.size) {
            (Some(data), _, _) => self.sent(text(data), digest)?,
            (None, Some(digest), Some(size)) => Content::Named(digest, size),
            (None, Some(_), None) => return Err(self.wrong("size: is missing")),
            (None, None, _) => return Err(self.wrong("send `data`, or `digest` and `size`")),
        };
        Ok(Understood {
            path: self.path,
            content,
        })
    }

    fn sent(&self, text: Bytes, digest: Option<Digest>) -> Result<Content, Error> {
        let content = Hashed::new(self.bytes(text)?);
        if self
            .size
            .is_some_and(|size| size != content.bytes().len() as u64)
        {
            return Err(self.wrong("size: is not that of `data`"));
        }
        if digest.is_some_and(|digest| digest != content.digest()) {
            return Err(self.wrong("digest: is not that of `data`"));
        }
        Ok(Content::Sent(content))
    }

    fn digest(&self) -> Result<Option<Digest>, Error> {
        let parse = |text: &String| text.parse();
        let digest = self.digest.as_ref().map(parse).transpose();
        digest.map_err(|bad: BadDigest| self.wrong(&format!("digest: {bad}")))
    }

    fn bytes(&self, text: Bytes) -> Result<Bytes, Error> {
        match self.encoding {
            None | Some(Encoding::Text) => Ok(text),
            Some(Encoding::Base64) => STANDARD
                .decode(&*text)
                .map(Bytes::from)
                .map_err(|error| self.wrong(&format!("data is not base64: {error}"))),
        }
    }

    fn wrong(&self, what: &str) -> Error {
        let path: String = self.path.chars().take(100).collect();
        Error::invalid(format!("files: `{}`: {what}", path.escape_debug()))
    }
}
