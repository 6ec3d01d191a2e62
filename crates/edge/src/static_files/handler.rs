//! Responding from the files of a release.

use crate::static_files::cache_control::{cache_control, is_hashed};
use crate::static_files::content_cache::{Content, ContentCache};
use crate::static_files::content_error::ContentError;
use crate::static_files::error_pages::Page;
use crate::static_files::live_site::LiveSite;
use crate::static_files::media_type::media_type;
use crate::static_files::negotiate::AcceptedCodings;
use crate::static_files::precondition::{Validators, Verdict};
use crate::static_files::range::{self, RequestedRange};
use crate::static_files::redirects::Action;
use crate::static_files::request::{Method, StaticRequest};
use crate::static_files::request_path::{RequestPath, UNSAFE_IN_PATH};
use crate::static_files::response::{Body, Cacheable, StaticResponse};
use crate::static_files::response_cache::FileFlags;
use crate::static_files::site::{FileEntry, Site};
use crate::static_files::site_cache::SiteCache;
use bytes::Bytes;
use estrade_blobs::Digest;
use estrade_model::Timestamp;
use estrade_model::coding::Coding;
use estrade_model::paths::FilePath;
use estrade_service::Error;
use http::StatusCode;
use percent_encoding::utf8_percent_encode;
use std::fmt::Display;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

/// Why a response could not be made.
#[derive(Debug)]
pub(crate) enum ServeError {
    /// The bytes of a content could not be read.
    Content(ContentError),
    /// The database could not be asked.
    Service(Error),
}

/// Where the responses of one release come from.
pub(crate) struct StaticHandler<'v> {
    /// The release that is live.
    pub live: &'v LiveSite,
    pub site: &'v Arc<Site>,
    /// The files of other releases.
    pub sites: &'v SiteCache,
    pub contents: &'v ContentCache,
    pub now: Timestamp,
    /// How long the assets of earlier releases are still served.
    pub skew: Duration,
}

/// A file to send.
struct FoundFile<'f> {
    /// Its path in the site.
    path: &'f str,
    entry: FileEntry,
    /// When the release that it is from went live.
    modified: (SystemTime, &'f str),
}

impl FoundFile<'_> {
    fn validate(&self, response: &mut StaticResponse, coding: Coding) {
        let digest = &self.entry.digest;
        validate(
            response,
            digest,
            coding,
            self.modified.1,
            is_hashed(self.path),
        );
    }
}

impl StaticHandler<'_> {
    /// Answers a request.
    pub(crate) async fn respond(
        &self,
        request: &StaticRequest<'_>,
    ) -> Result<StaticResponse, ServeError> {
        let mut response = self.without_rules(request).await?;
        let is_redirect =
            response.status.is_redirection() && response.status != StatusCode::NOT_MODIFIED;
        if !self.site.headers.is_empty()
            && !is_redirect
            && let Ok(path) = RequestPath::parse(request.path)
        {
            let mut headers = response.header_map();
            let is_error = response.status.is_client_error() || response.status.is_server_error();
            self.site
                .headers
                .apply(path.as_str(), is_error, &mut headers);
            response.set_headers(&headers);
        }
        Ok(response)
    }

    /// The response before the site's own headers are added.
    async fn without_rules(
        &self,
        request: &StaticRequest<'_>,
    ) -> Result<StaticResponse, ServeError> {
        if request.method == Method::Other {
            return Ok(Page::MethodNotAllowed.response());
        }
        let Ok(path) = RequestPath::parse(request.path) else {
            return Ok(Page::BadRequest.response());
        };
        if path.is_hidden() {
            return self.not_found(request, &path).await;
        }
        let target = self.resolve(path.file(), path.is_directory());
        let has_file = !matches!(target, ResolvedPath::Nothing);
        if !self.site.redirects.is_empty()
            && let Some(action) = self
                .site
                .redirects
                .action(path.as_str(), request.query, has_file)
        {
            return self.follow_rule(request, &path, action).await;
        }
        match target {
            ResolvedPath::File(file, entry) => {
                let mut response = self.send_live(request, &file, entry).await?;
                if response.status == StatusCode::OK {
                    response.cacheable = self.cacheable(request, &path, &file, &entry);
                }
                Ok(response)
            }
            ResolvedPath::Moved(to) => {
                Ok(redirect(StatusCode::MOVED_PERMANENTLY, &to, request.query))
            }
            ResolvedPath::Nothing => self.without_file(request, &path).await,
        }
    }

    /// What can be remembered of a file that was given as a whole: nothing where rules decide, or where the path
    /// as it came is not that of the file.
    fn cacheable(
        &self,
        request: &StaticRequest<'_>,
        path: &RequestPath<'_>,
        file: &str,
        entry: &FileEntry,
    ) -> Option<Cacheable> {
        let coding = choose(request, entry);
        let ruled = !self.site.headers.is_empty() || !self.site.redirects.is_empty();
        (!ruled && path.as_str() == request.path).then_some(Cacheable {
            digest: entry.digest,
            stored: entry.stored(coding)?,
            coding,
            flags: FileFlags {
                varies: entry.has_variants(),
                is_page: file != path.file(),
                is_hashed: is_hashed(file),
            },
        })
    }

    /// What a path means: a file, a directory that has an index, or a page without its ending.
    fn resolve<'p>(&self, path: &'p str, directory: bool) -> ResolvedPath<'p> {
        let trimmed = path.trim_end_matches('/');
        if !directory && let Some(entry) = self.site.find(path) {
            return ResolvedPath::File(path.into(), entry);
        }
        let index = match trimmed {
            "" => "index.html".to_owned(),
            _ => format!("{trimmed}/index.html"),
        };
        if let Some(entry) = self.site.find(&index) {
            return if directory {
                ResolvedPath::File(index.into(), entry)
            } else {
                ResolvedPath::Moved(format!("/{trimmed}/"))
            };
        }
        if self.site.config.clean_urls && !trimmed.is_empty() {
            let page = format!("{trimmed}.html");
            if let Some(entry) = self.site.find(&page) {
                return if directory {
                    ResolvedPath::Moved(format!("/{trimmed}"))
                } else {
                    ResolvedPath::File(page.into(), entry)
                };
            }
        }
        ResolvedPath::Nothing
    }

    async fn follow_rule(
        &self,
        request: &StaticRequest<'_>,
        path: &RequestPath<'_>,
        action: Action,
    ) -> Result<StaticResponse, ServeError> {
        match action {
            Action::Redirect { status, to } => {
                let status = StatusCode::from_u16(status).unwrap_or(StatusCode::FOUND);
                Ok(redirect_to(status, &to))
            }
            Action::Rewrite { status, to } => {
                let to = to.split(['?', '#']).next().unwrap_or_default();
                let Ok(target) = RequestPath::parse(to) else {
                    return Ok(Page::BadRequest.response());
                };
                if target.is_hidden() {
                    return self.not_found(request, path).await;
                }
                let found = match self.resolve(target.file(), target.is_directory()) {
                    ResolvedPath::File(file, entry) => Some((file.into_owned(), entry)),
                    // A rewrite does not send the client anywhere.
                    ResolvedPath::Moved(to) => self.index_of(&to),
                    ResolvedPath::Nothing => None,
                };
                match found {
                    Some((file, entry)) if status == 200 => {
                        self.send_live(request, &file, entry).await
                    }
                    Some((file, entry)) => {
                        let status = StatusCode::from_u16(status).unwrap_or(StatusCode::NOT_FOUND);
                        self.send_error_page(request, status, &file, entry).await
                    }
                    None => self.not_found(request, path).await,
                }
            }
        }
    }

    fn index_of(&self, directory: &str) -> Option<(String, FileEntry)> {
        let index = format!("{}index.html", directory.trim_start_matches('/'));
        let entry = self.site.find(&index)?;
        Some((index, entry))
    }

    /// No file of the live release: an asset of an earlier one, the application, or not found.
    async fn without_file(
        &self,
        request: &StaticRequest<'_>,
        path: &RequestPath<'_>,
    ) -> Result<StaticResponse, ServeError> {
        if !path.is_directory()
            && is_hashed(path.file())
            && let Some(response) = self.send_earlier(request, path).await?
        {
            return Ok(response);
        }
        if self.site.config.spa
            && is_page(path, request)
            && let Some(entry) = self.site.find("index.html")
        {
            return self.send_live(request, "index.html", entry).await;
        }
        self.not_found(request, path).await
    }

    /// An asset that an open page of an earlier release still needs.
    async fn send_earlier(
        &self,
        request: &StaticRequest<'_>,
        path: &RequestPath<'_>,
    ) -> Result<Option<StaticResponse>, ServeError> {
        for earlier in &self.live.earlier {
            if earlier
                .until
                .is_none_or(|until| until.after(self.skew) < self.now)
            {
                continue;
            }
            let site = self.sites.get(earlier).await.map_err(ServeError::Service)?;
            if let Some(entry) = site.and_then(|site| site.find(path.file())) {
                let found = FoundFile {
                    path: path.file(),
                    entry,
                    modified: (self.live.modified, &self.live.last_modified),
                };
                return self.send_file(request, &found).await.map(Some);
            }
        }
        Ok(None)
    }

    async fn not_found(
        &self,
        request: &StaticRequest<'_>,
        path: &RequestPath<'_>,
    ) -> Result<StaticResponse, ServeError> {
        // The nearest one up the tree, so that a part of a site can have its own.
        let mut directory = path.file();
        loop {
            directory = directory.rfind('/').map_or("", |slash| &directory[..slash]);
            // A long path has many folders above it, and none so far down can exist.
            if directory.len() > FilePath::MAX_BYTES {
                continue;
            }
            let page = match directory {
                "" => "404.html".to_owned(),
                _ => format!("{directory}/404.html"),
            };
            if let Some(entry) = self.site.find(&page) {
                return self
                    .send_error_page(request, StatusCode::NOT_FOUND, &page, entry)
                    .await;
            }
            if directory.is_empty() {
                return Ok(Page::NotFound.response());
            }
        }
    }

    /// A page of the site with a status of its own: without validators, since it is no resource.
    async fn send_error_page(
        &self,
        request: &StaticRequest<'_>,
        status: StatusCode,
        file: &str,
        entry: FileEntry,
    ) -> Result<StaticResponse, ServeError> {
        let coding = choose(request, &entry);
        let content = self.open(&entry, coding).await?;
        let mut response = StaticResponse::new(status);
        describe(
            &mut response,
            &media_type(file),
            coding,
            entry.has_variants(),
        );
        response.number("content-length", content.length());
        response.header("cache-control", "no-store");
        response.body = Body::One(content);
        Ok(response)
    }

    async fn send_live(
        &self,
        request: &StaticRequest<'_>,
        file: &str,
        entry: FileEntry,
    ) -> Result<StaticResponse, ServeError> {
        let found = FoundFile {
            path: file,
            entry,
            modified: (self.live.modified, &self.live.last_modified),
        };
        self.send_file(request, &found).await
    }

    async fn send_file(
        &self,
        request: &StaticRequest<'_>,
        found: &FoundFile<'_>,
    ) -> Result<StaticResponse, ServeError> {
        let (headers, entry) = (&request.headers, &found.entry);
        let coding = choose(request, entry);
        let validators = Validators {
            digest: entry.digest,
            coding,
            modified: found.modified.0,
            dated: self.live.dated,
        };
        let accepted = AcceptedCodings::parse(headers.accept_encoding.as_deref());
        let takes = |coding| accepted.quality(coding) > 0 && entry.stored(coding).is_some();
        match validators.check(headers, takes) {
            Verdict::Send => {}
            Verdict::Failed => return Ok(Page::PreconditionFailed.response()),
            Verdict::NotModified(coding) => {
                let mut response = StaticResponse::new(StatusCode::NOT_MODIFIED);
                found.validate(&mut response, coding);
                vary(&mut response, entry.has_variants());
                return Ok(response);
            }
        }
        if let Some(range) = headers.range.as_deref()
            && validators.allows_range(headers)
        {
            match range::parse(range, entry.plain.size) {
                RequestedRange::Whole => {}
                RequestedRange::Unsatisfiable => {
                    let mut response = Page::RangeNotSatisfiable.response();
                    response.formatted(
                        "content-range",
                        format_args!("bytes */{}", entry.plain.size),
                    );
                    return Ok(response);
                }
                RequestedRange::Parts(parts) => return self.send_parts(found, &parts).await,
            }
        }
        let content = self.open(entry, coding).await?;
        let whole = FullFile {
            media_type: &media_type(found.path),
            digest: &entry.digest,
            coding,
            varies: entry.has_variants(),
            is_hashed: is_hashed(found.path),
        };
        Ok(whole.response(found.modified.1, content))
    }

    async fn send_parts(
        &self,
        found: &FoundFile<'_>,
        parts: &[Range<u64>],
    ) -> Result<StaticResponse, ServeError> {
        let (entry, size) = (&found.entry, found.entry.plain.size);
        let content = self.open(entry, Coding::Identity).await?;
        let mut response = StaticResponse::new(StatusCode::PARTIAL_CONTENT);
        if let [part] = parts {
            let media_type = media_type(found.path);
            describe(
                &mut response,
                &media_type,
                Coding::Identity,
                entry.has_variants(),
            );
            response.formatted(
                "content-range",
                format_args!("bytes {}-{}/{size}", part.start, part.end - 1),
            );
            response.body = Body::One(content.slice(part.clone()));
        } else {
            response.formatted(
                "content-type",
                format_args!("multipart/byteranges; boundary={}", boundary(entry)),
            );
            vary(&mut response, entry.has_variants());
            response.body = multipart(&content, parts, &media_type(found.path), entry);
        }
        response.number("content-length", response.body.length());
        found.validate(&mut response, Coding::Identity);
        Ok(response)
    }

    async fn open(&self, entry: &FileEntry, coding: Coding) -> Result<Content, ServeError> {
        let stored = entry.stored(coding).unwrap_or(entry.plain);
        let content = self.contents.open(self.live.owner, stored).await;
        content.map_err(ServeError::Content)
    }
}

/// The coding that a client gets of a file.
fn choose(request: &StaticRequest<'_>, entry: &FileEntry) -> Coding {
    if !entry.has_variants() {
        return Coding::Identity;
    }
    let accepted = AcceptedCodings::parse(request.headers.accept_encoding.as_deref());
    accepted.choose(|coding| entry.stored(coding).is_some())
}

/// A file that is given as a whole.
pub(crate) struct FullFile<'w> {
    pub(crate) media_type: &'w str,
    pub(crate) digest: &'w Digest,
    pub(crate) coding: Coding,
    pub(crate) varies: bool,
    pub(crate) is_hashed: bool,
}

impl FullFile<'_> {
    /// The response with its content, which went live at that time.
    pub(crate) fn response(&self, modified: impl Display, content: Content) -> StaticResponse {
        let mut response = StaticResponse::new(StatusCode::OK);
        describe(&mut response, self.media_type, self.coding, self.varies);
        response.number("content-length", content.length());
        validate(
            &mut response,
            self.digest,
            self.coding,
            modified,
            self.is_hashed,
        );
        if self.coding == Coding::Identity {
            // A range is of the content as it is.
            response.header("accept-ranges", "bytes");
        }
        response.body = Body::One(content);
        response
    }
}

/// The headers that say what the body is.
fn describe(response: &mut StaticResponse, media_type: &str, coding: Coding, varies: bool) {
    response.header("content-type", media_type);
    if coding != Coding::Identity {
        response.header("content-encoding", coding.name());
    }
    vary(response, varies);
}

/// What a path leads to.
enum ResolvedPath<'p> {
    File(std::borrow::Cow<'p, str>, FileEntry),
    Moved(String),
    Nothing,
}

/// The headers by which a browser can ask again.
fn validate(
    response: &mut StaticResponse,
    digest: &Digest,
    coding: Coding,
    modified: impl Display,
    is_hashed: bool,
) {
    response.tag(digest, coding);
    response.formatted("last-modified", format_args!("{modified}"));
    response.header("cache-control", cache_control(is_hashed));
}

fn vary(response: &mut StaticResponse, varies: bool) {
    if varies {
        response.header("vary", "accept-encoding");
    }
}

/// Whether a path that has no file can be a route of the application: it looks like a page, or a
/// browser wants to show it as one.
fn is_page(path: &RequestPath<'_>, request: &StaticRequest<'_>) -> bool {
    let name = path.as_str().rsplit('/').next().unwrap_or_default();
    let extension = name.rsplit_once('.').map(|(_, extension)| extension);
    let wants_page = || {
        request
            .headers
            .accept
            .as_deref()
            .is_some_and(|accept| accept.contains("text/html"))
    };
    matches!(extension, None | Some("html" | "htm")) || wants_page()
}

/// What stands between the parts of a response with several ranges. A content would have to contain
/// its own hash to be mistaken for it.
fn boundary(entry: &FileEntry) -> String {
    entry.digest.to_string().chars().take(20).collect()
}

/// Several parts of a content in one body.
fn multipart(content: &Content, parts: &[Range<u64>], media_type: &str, entry: &FileEntry) -> Body {
    let (boundary, size) = (boundary(entry), entry.plain.size);
    let mut pieces = Vec::with_capacity(parts.len() * 2 + 1);
    for part in parts {
        let head = format!(
            "\r\n--{boundary}\r\nContent-Type: {media_type}\r\nContent-Range: bytes {}-{}/{size}\r\n\r\n",
            part.start,
            part.end - 1
        );
        pieces.push(Content::Bytes(head.into()));
        pieces.push(content.slice(part.clone()));
    }
    let end = format!("\r\n--{boundary}--\r\n");
    pieces.push(Content::Bytes(Bytes::from(end)));
    Body::Many(pieces)
}

/// Sends the client to another path of the same site.
fn redirect(status: StatusCode, path: &str, query: Option<&str>) -> StaticResponse {
    let path = utf8_percent_encode(path, UNSAFE_IN_PATH);
    match query {
        Some(query) => redirect_to(status, &format!("{path}?{query}")),
        None => redirect_to(status, &path.to_string()),
    }
}

fn redirect_to(status: StatusCode, to: &str) -> StaticResponse {
    let mut response = StaticResponse::new(status);
    response.header("location", to);
    response.header("cache-control", "public, max-age=0, must-revalidate");
    response.number("content-length", 0);
    response
}
