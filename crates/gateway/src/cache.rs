//! The cache of responses: for requests whose response is always the same, for the same owner only.

use bytes::Bytes;
use estrade_model::OwnerId;
use estrade_model::call::{Operation, Tokens};
use http::HeaderValue;
use quick_cache::Weighter;
use quick_cache::sync::Cache;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// Larger responses are not kept.
const MAX_CACHED: usize = 1 << 20;
/// What an entry costs besides its bytes.
const OVERHEAD: u64 = 256;

/// Identifies a request.
pub(crate) type CacheKey = [u8; 32];

/// A response that was kept.
#[derive(Clone)]
pub(crate) struct CachedResponse {
    pub(crate) body: Bytes,
    pub(crate) content_type: HeaderValue,
    pub(crate) tokens: Tokens,
    until: Instant,
}

#[derive(Clone)]
struct BySize;

impl Weighter<CacheKey, CachedResponse> for BySize {
    fn weight(&self, _: &CacheKey, kept: &CachedResponse) -> u64 {
        kept.body.len() as u64 + OVERHEAD
    }
}

/// All of them, bounded by their bytes.
pub(crate) struct ResponseCache {
    kept: Cache<CacheKey, CachedResponse, BySize>,
    ttl: Duration,
}

impl ResponseCache {
    pub(crate) fn new(bytes: u64, ttl: Duration) -> Self {
        let estimate = usize::try_from(bytes / 4096).unwrap_or(1024).max(16);
        Self {
            kept: Cache::with_weighter(estimate, bytes, BySize),
            ttl,
        }
    }

    /// The key of a request, from its body on both sides of the model's name.
    pub(crate) fn key(
        owner: OwnerId,
        operation: Operation,
        model: &str,
        beta: &[u8],
        (before, after): (&[u8], &[u8]),
    ) -> CacheKey {
        let mut hasher = blake3::Hasher::new();
        for part in [
            owner.as_bytes(),
            operation.path().as_bytes(),
            model.as_bytes(),
            beta,
            before,
            after,
        ] {
            hasher
                .update(&(part.len() as u64).to_le_bytes())
                .update(part);
        }
        hasher.finalize().into()
    }

    pub(crate) fn get(&self, key: &CacheKey, now: Instant) -> Option<CachedResponse> {
        let kept = self.kept.get(key)?;
        if kept.until <= now {
            self.kept.remove(key);
            return None;
        }
        Some(kept)
    }

    /// Keeps a response.
    pub(crate) fn insert(
        &self,
        key: CacheKey,
        body: &[u8],
        content_type: HeaderValue,
        tokens: Tokens,
    ) {
        // Some say 200 and then nothing, or show a page.
        let is_object = body.trim_ascii_start().starts_with(b"{");
        if body.len() > MAX_CACHED || !is_object {
            return;
        }
        let kept = CachedResponse {
            // Its bytes may be a small part of a large buffer.
            body: Bytes::copy_from_slice(body),
            content_type,
            tokens,
            until: Instant::now() + self.ttl,
        };
        self.kept.insert(key, kept);
    }
}

/// A response that is collected while it passes.
pub(crate) struct CacheWriter {
    pub(crate) cache: Arc<ResponseCache>,
    pub(crate) key: CacheKey,
    pub(crate) content_type: HeaderValue,
    pub(crate) body: Vec<u8>,
}

impl CacheWriter {
    pub(crate) fn add(&mut self, part: &[u8]) {
        // One byte more than is kept, so that it is known to be too large.
        let room = (MAX_CACHED + 1).saturating_sub(self.body.len());
        self.body.extend_from_slice(&part[..part.len().min(room)]);
    }

    pub(crate) fn save(self, tokens: Option<Tokens>) {
        let tokens = tokens.unwrap_or_default();
        self.cache
            .insert(self.key, &self.body, self.content_type, tokens);
    }
}
