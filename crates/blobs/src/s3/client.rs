//! Requests to the bucket, each with its time limit, its retries and its share of what may be under way at once.

use std::io::ErrorKind;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use object_store::aws::{AmazonS3, AmazonS3Builder};
use object_store::path::Path;
use object_store::{
    Attribute, Attributes, ClientOptions, GetOptions, GetRange, GetResult, ObjectStore,
    ObjectStoreExt, PutOptions, PutPayload, RetryConfig,
};
use secrecy::ExposeSecret;
use tokio::sync::{AcquireError, Semaphore, SemaphorePermit};
use tokio::time::timeout;

use super::clock::{BucketClock, ClockConnector};
use super::failure::Failure;
use super::names::Names;
use super::outage::Outage;
use super::retry::with_retries;
use super::settings::{S3Credentials, S3Settings};
use crate::Digest;
use crate::storage::{Checksum, Record};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
/// Until the head of a response, for requests without a body to speak of.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);
/// What a request with a body gets beyond the time that the body takes at [`MIN_UPLOAD_RATE`].
const UPLOAD_TIMEOUT: Duration = Duration::from_secs(10);
/// In bytes a second.
const MIN_UPLOAD_RATE: u64 = 256 << 10;
const PROBE_TIMEOUT: Duration = Duration::from_secs(2);

/// What bodies on their way may take in memory, in mebibytes. Each takes at least [`MIN_BODY_MIB`]: that bounds how
/// many there are.
const MAX_BODIES_MIB: u32 = 64;
const MIN_BODY_MIB: u32 = 4;
/// More than the edge fetches at once for visitors, so that sources, build logs and the collector have some left.
const MAX_READS: usize = 48;
/// How long a request waits for others to end before it is made.
const PERMIT_TIMEOUT: Duration = Duration::from_secs(30);

/// The metadata of an object that names the BLAKE3 hash of all its bytes.
const CHECKSUM: &str = "blake3";

#[derive(Debug)]
pub(super) struct Client {
    pub(super) s3: AmazonS3,
    pub(super) names: Names,
    pub(super) clock: Arc<BucketClock>,
    outage: Outage,
    bodies: Semaphore,
    reads: Semaphore,
}

impl Client {
    pub(super) fn new(settings: S3Settings) -> Result<Self, Failure> {
        let clock = Arc::new(BucketClock::default());
        let connector = ClockConnector(Arc::clone(&clock));
        let names = Names::new(&settings.prefix);
        Ok(Self {
            s3: builder(settings)
                .with_http_connector(connector)
                .build()
                .map_err(|error| {
                    Failure::Local(ErrorKind::InvalidInput, error.to_string().into())
                })?,
            names,
            clock,
            outage: Outage::default(),
            bodies: Semaphore::new(MAX_BODIES_MIB as usize),
            reads: Semaphore::new(MAX_READS),
        })
    }

    /// The right to hold a body of this length in memory until it is sent.
    pub(super) async fn body_permit(&self, length: u64) -> Result<SemaphorePermit<'_>, Failure> {
        let share = u32::try_from(length.div_ceil(1 << 20)).unwrap_or(u32::MAX);
        let share = share.clamp(MIN_BODY_MIB, MAX_BODIES_MIB);
        permit(self.bodies.acquire_many(share)).await
    }

    /// The right to fetch something.
    pub(super) async fn read_permit(&self) -> Result<SemaphorePermit<'_>, Failure> {
        permit(self.reads.acquire()).await
    }

    /// Puts an object as one request. The caller has a [permit](Self::body_permit).
    pub(super) async fn put(
        &self,
        key: &Path,
        body: Bytes,
        attributes: &Attributes,
    ) -> Result<(), Failure> {
        let limit = upload_timeout(body.len() as u64);
        let request = || async {
            let options = PutOptions::from(attributes.clone());
            let payload = PutPayload::from(body.clone());
            self.s3.put_opts(key, payload, options).await?;
            Ok(())
        };
        self.retry(limit, request).await
    }

    /// Begins to read an object. What comes then may break off.
    pub(super) async fn get(&self, key: &Path) -> Result<GetResult, Failure> {
        let request = || async { Ok(self.s3.get(key).await?) };
        self.retry(ANSWER_TIMEOUT, request).await
    }

    /// Reads a small object as a whole.
    pub(super) async fn get_small(&self, key: &Path) -> Result<Bytes, Failure> {
        let request = || async { Ok(self.s3.get(key).await?.bytes().await?) };
        self.retry(UPLOAD_TIMEOUT, request).await
    }

    pub(super) async fn get_range(&self, key: &Path, range: Range<u64>) -> Result<Bytes, Failure> {
        let length = range.end - range.start;
        let request = || async {
            let options = GetOptions::new().with_range(Some(GetRange::Bounded(range.clone())));
            Ok(self.s3.get_opts(key, options).await?.bytes().await?)
        };
        let bytes = self.retry(UPLOAD_TIMEOUT, request).await?;
        if bytes.len() as u64 == length {
            Ok(bytes)
        } else {
            Err(Failure::BeyondEnd)
        }
    }

    /// How long an object is, and what it hashes to.
    pub(super) async fn checksum(&self, key: &Path) -> Result<Checksum, Failure> {
        let request = || async {
            let options = GetOptions::new().with_head(true);
            let head = self.s3.get_opts(key, options).await?;
            Ok(Checksum {
                length: head.meta.size,
                hash: checksum(&head.attributes).map(Digest::from),
            })
        };
        self.retry(ANSWER_TIMEOUT, request).await
    }

    /// How long an object is.
    pub(super) async fn length(&self, key: &Path) -> Result<u64, Failure> {
        let request = || async { Ok(self.s3.head(key).await?.size) };
        self.retry(ANSWER_TIMEOUT, request).await
    }

    pub(super) async fn delete(&self, key: &Path) -> Result<(), Failure> {
        let request = || async { Ok(self.s3.delete(key).await?) };
        match self.retry(ANSWER_TIMEOUT, request).await {
            Err(Failure::Missing) => Ok(()),
            outcome => outcome,
        }
    }

    /// Makes a request of its own kind as often as needed.
    pub(super) async fn retry<T, R>(
        &self,
        limit: Duration,
        request: impl FnMut() -> R,
    ) -> Result<T, Failure>
    where
        R: Future<Output = Result<T, Failure>>,
    {
        with_retries(&self.outage, limit, || self.answers(), request).await
    }

    /// Whether the bucket answers at all, be it with a refusal.
    async fn answers(&self) -> bool {
        let key = self.names.record(Record::Owner);
        let asked = timeout(PROBE_TIMEOUT, self.s3.head(&key)).await;
        match asked.map(|answer| answer.map_err(Failure::from)) {
            Ok(Ok(_)) => true,
            Ok(Err(failure)) => !failure.is_transient(),
            Err(_) => false,
        }
    }

    /// Whether the bucket did not answer a moment ago.
    pub(super) fn is_out(&self) -> bool {
        self.outage.is_open()
    }

    /// A time of the bucket, by the clock of this machine.
    pub(super) fn local_time(&self, time: impl Into<SystemTime>) -> SystemTime {
        self.clock.to_local(time.into())
    }
}

pub(super) fn upload_timeout(length: u64) -> Duration {
    UPLOAD_TIMEOUT + Duration::from_secs(length / MIN_UPLOAD_RATE)
}

pub(super) fn checksum_attributes(hash: &blake3::Hash) -> Attributes {
    let key = Attribute::Metadata(CHECKSUM.into());
    Attributes::from_iter([(key, hash.to_hex().to_string())])
}

/// None if the object was not put by this program, or lost its metadata on the way from another bucket.
pub(super) fn checksum(attributes: &Attributes) -> Option<blake3::Hash> {
    let value = attributes.get(&Attribute::Metadata(CHECKSUM.into()))?;
    blake3::Hash::from_hex(value.as_ref()).ok()
}

/// Retries are ours: the ones of the library would wait longer than who waits for us.
fn builder(settings: S3Settings) -> AmazonS3Builder {
    let options = ClientOptions::new()
        .with_connect_timeout(CONNECT_TIMEOUT)
        .with_timeout_disabled();
    let retry = RetryConfig {
        max_retries: 0,
        ..RetryConfig::default()
    };
    let mut builder = AmazonS3Builder::new()
        .with_bucket_name(settings.bucket.as_str())
        .with_region(settings.region)
        .with_virtual_hosted_style_request(!settings.path_style)
        .with_client_options(options)
        .with_retry(retry);
    if let Some(endpoint) = &settings.endpoint {
        let address = if settings.path_style {
            endpoint.to_string()
        } else {
            endpoint.of_bucket(&settings.bucket)
        };
        builder = builder
            .with_endpoint(address)
            .with_allow_http(endpoint.is_plain());
    }
    match settings.credentials {
        S3Credentials::Instance => builder,
        S3Credentials::Keys {
            access_key_id,
            secret_access_key,
            session_token,
        } => {
            builder = builder
                .with_access_key_id(access_key_id)
                .with_secret_access_key(secret_access_key.expose_secret());
            match session_token {
                Some(token) => builder.with_token(token.expose_secret()),
                None => builder,
            }
        }
    }
}

async fn permit<'c>(
    acquired: impl Future<Output = Result<SemaphorePermit<'c>, AcquireError>>,
) -> Result<SemaphorePermit<'c>, Failure> {
    match timeout(PERMIT_TIMEOUT, acquired).await {
        Ok(Ok(permit)) => Ok(permit),
        // The semaphore is never closed.
        Ok(Err(_)) | Err(_) => Err(Failure::transient("too many other requests are under way")),
    }
}
