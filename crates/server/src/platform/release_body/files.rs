//! The files of a create-release request.

use crate::strict_json::TextId;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use estrade_blobs::{BadDigest, Digest, HashedContent};
use estrade_service::Error;
use estrade_service::platform::releases::Upload;
use serde::Deserialize;
use std::collections::HashMap;
use std::mem::take;

/// Takes files as they are read.
pub(super) trait FileSink<'de> {
    /// The text of a file.
    type Text: Deserialize<'de>;

    /// Takes one; an error refuses the whole release.
    fn take(&mut self, file: File<Self::Text>) -> Result<(), Error>;
}

/// From a document as it was sent.
impl FileSink<'_> for Upload {
    type Text = String;

    fn take(&mut self, file: File<String>) -> Result<(), Error> {
        file.with_text(Bytes::from, None)?.add_to(self)
    }
}

/// Contents that an upload has before it knows their paths, by the numbers of their texts.
pub(super) type EarlyContents = HashMap<usize, HashedContent>;

/// From a document whose texts are elsewhere.
pub(super) struct ExtractedFiles<'u> {
    pub(super) upload: &'u mut Upload,
    pub(super) texts: Vec<Bytes>,
    /// Those that the upload has already.
    pub(super) early: EarlyContents,
}

impl FileSink<'_> for ExtractedFiles<'_> {
    type Text = TextId;

    fn take(&mut self, file: File<TextId>) -> Result<(), Error> {
        let early = file
            .data
            .and_then(|TextId(number)| self.early.remove(&number));
        let text = |TextId(number)| self.texts.get_mut(number).map(take).unwrap_or_default();
        file.with_text(text, early)?.add_to(self.upload)
    }
}

/// Gives an upload the texts of files whose paths are not known yet; returns those that it took.
pub(super) fn add_early(
    texts: impl Iterator<Item = (TextId, Bytes)>,
    upload: &mut Upload,
) -> Result<EarlyContents, Error> {
    let mut early = EarlyContents::new();
    for (TextId(number), text) in texts {
        let content = HashedContent::new(text);
        if !upload.add_ahead(&content)? {
            // The limit is reported later, when the paths are known.
            break;
        }
        early.insert(number, content);
    }
    Ok(early)
}

/// A file of which everything is known.
pub(super) struct ResolvedFile {
    path: String,
    content: Content,
}

enum Content {
    /// It came along.
    Sent(HashedContent),
    /// It came along, and the upload has it already.
    Early(HashedContent),
    /// The project should have it.
    Named(Digest, u64),
}

impl ResolvedFile {
    fn add_to(self, upload: &mut Upload) -> Result<(), Error> {
        match self.content {
            Content::Sent(content) => upload.add_hashed(self.path, content),
            Content::Early(content) => upload.add_arrived(self.path, &content),
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
    /// If its content was uploaded early, that is it.
    fn with_text(
        mut self,
        text: impl FnOnce(T) -> Bytes,
        early: Option<HashedContent>,
    ) -> Result<ResolvedFile, Error> {
        let digest = self.digest()?;
        let content = match (self.data.take(), digest, self.size) {
            (Some(data), _, _) => {
                let is_early = early.is_some();
                let content = match early {
                    Some(content) => content,
                    None => HashedContent::new(self.bytes(text(data))?),
                };
                self.check_sent(&content, digest)?;
                if is_early {
                    Content::Early(content)
                } else {
                    Content::Sent(content)
                }
            }
            (None, Some(digest), Some(size)) => Content::Named(digest, size),
            (None, Some(_), None) => return Err(self.wrong("size: is missing")),
            (None, None, _) => return Err(self.wrong("send `data`, or `digest` and `size`")),
        };
        Ok(ResolvedFile {
            path: self.path,
            content,
        })
    }

    fn check_sent(&self, content: &HashedContent, digest: Option<Digest>) -> Result<(), Error> {
        if self
            .size
            .is_some_and(|size| size != content.bytes().len() as u64)
        {
            return Err(self.wrong("size: is not that of `data`"));
        }
        if digest.is_some_and(|digest| digest != content.digest()) {
            return Err(self.wrong("digest: is not that of `data`"));
        }
        Ok(())
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
