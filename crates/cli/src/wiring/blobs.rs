//! `[blobs]` and the variables of AWS, as the blob store takes them.

use crate::args::MigrateArgs;
use crate::config::{
    AccessKeyId, BlobUrl, Blobs, Config, CredentialSource, Invalid, Region, Secret,
};
use estrade_blobs::{S3Credentials, S3Endpoint, S3Settings};
use estrade_service::bootstrap::{BlobsAt, OpenError};
use std::path::Path;

/// The objects of a bucket that this node keeps, inside the data directory.
const CACHE_DIR: &str = "blob-cache";
/// What servers that know no regions are told.
const DEFAULT_REGION: &str = "us-east-1";

/// Where the files of releases are stored. `variable` reads the environment.
pub(super) fn blobs(
    config: &Config,
    variable: impl Fn(&str) -> Option<String>,
) -> Result<BlobsAt, OpenError> {
    let blobs = &config.blobs;
    let (bucket, prefix) = match config.blob_store() {
        BlobUrl::S3 { bucket, prefix } => (bucket, prefix),
        BlobUrl::Directory(directory) => {
            refuse_without_bucket(blobs)?;
            return Ok(BlobsAt::Directory(directory));
        }
    };
    // A variable that is empty is not set, as with our own.
    let variable = |name: &str| variable(name).filter(|text| !text.trim().is_empty());
    let endpoint = endpoint(blobs, variable)?;
    let settings = S3Settings {
        bucket,
        prefix,
        region: region(blobs, endpoint.is_some(), variable)?,
        path_style: blobs.path_style.unwrap_or(endpoint.is_some()),
        endpoint,
        credentials: credentials(blobs, variable)?,
        cache_dir: config.data_dir.join(CACHE_DIR),
        cache_bytes: cache_bytes(config)?,
    };
    Ok(BlobsAt::Bucket(Box::new(settings)))
}

/// Where files are, and where they move to. What the options do not say about the new place is as for the old one; when
/// that is a directory, settings of a bucket are about the new one.
pub(super) fn migration(
    config: &Config,
    args: &MigrateArgs,
    variable: impl Fn(&str) -> Option<String>,
) -> Result<(BlobsAt, BlobsAt), OpenError> {
    let place = |config: &Config| match config.blob_store() {
        BlobUrl::Directory(directory) => Ok(BlobsAt::Directory(directory)),
        BlobUrl::S3 { .. } => blobs(config, &variable),
    };
    let source = place(config)?;
    let mut config = config.clone();
    let target = &mut config.blobs;
    target.url = Some(args.to.clone());
    let MigrateArgs {
        to_endpoint,
        to_region,
        to_path_style,
        to_access_key_id,
        ..
    } = args.clone();
    if to_endpoint.is_some() {
        // The style of the old server says nothing about the new one.
        target.path_style = None;
        target.endpoint = to_endpoint;
    }
    target.region = to_region.or(target.region.take());
    target.path_style = to_path_style.or(target.path_style);
    if let (Some(id), Some(file)) = (to_access_key_id, &args.to_secret_access_key_file) {
        target.access_key_id = Some(id);
        target.secret_access_key = Some(read_secret(file)?);
        target.credentials = CredentialSource::Keys;
    }
    Ok((source, place(&config)?))
}

fn read_secret(file: &Path) -> Result<Secret, OpenError> {
    let refused =
        |reason: String| OpenError::Refused(format!("cannot use {}: {reason}", file.display()));
    let text = std::fs::read_to_string(file).map_err(|error| refused(error.to_string()))?;
    let secret: Result<Secret, Invalid> = text.trim().parse();
    secret.map_err(|invalid| refused(invalid.to_string()))
}

/// Settings of a bucket without a bucket: the administrator thinks that the files are there.
fn refuse_without_bucket(blobs: &Blobs) -> Result<(), OpenError> {
    let set = [
        ("endpoint", blobs.endpoint.is_some()),
        ("region", blobs.region.is_some()),
        ("path_style", blobs.path_style.is_some()),
        ("access_key_id", blobs.access_key_id.is_some()),
        ("secret_access_key", blobs.secret_access_key.is_some()),
        (
            "credentials",
            blobs.credentials == CredentialSource::Instance,
        ),
    ];
    match set.iter().find(|(_, is_set)| *is_set) {
        Some((name, _)) => Err(OpenError::Refused(format!(
            "blobs.{name} is set, but blobs.url names no bucket; set blobs.url to s3://BUCKET/PREFIX, or remove blobs.{name}"
        ))),
        None => Ok(()),
    }
}

fn endpoint(
    blobs: &Blobs,
    variable: impl Fn(&str) -> Option<String>,
) -> Result<Option<S3Endpoint>, OpenError> {
    let named = |name: &'static str| variable(name).map(|text| (name, text));
    let configured = blobs.endpoint.as_ref();
    let configured = configured.map(|url| ("blobs.endpoint", url.to_string()));
    let found = configured
        .or_else(|| named("AWS_ENDPOINT_URL_S3"))
        .or_else(|| named("AWS_ENDPOINT_URL"));
    let Some((name, text)) = found else {
        return Ok(None);
    };
    let parsed = text.trim().parse();
    // Not repeated: it may hold a password.
    parsed.map(Some).map_err(|invalid| {
        OpenError::Refused(format!(
            "{name} is {invalid}; the bucket is named in blobs.url"
        ))
    })
}

fn region(
    blobs: &Blobs,
    has_endpoint: bool,
    variable: impl Fn(&str) -> Option<String>,
) -> Result<String, OpenError> {
    if let Some(region) = &blobs.region {
        return Ok(region.as_str().to_owned());
    }
    for name in ["AWS_REGION", "AWS_DEFAULT_REGION"] {
        if let Some(text) = variable(name) {
            let region: Result<Region, _> = text.trim().parse();
            let region =
                region.map_err(|invalid| OpenError::Refused(format!("{name}: {invalid}")))?;
            return Ok(region.as_str().to_owned());
        }
    }
    if has_endpoint {
        return Ok(DEFAULT_REGION.to_owned());
    }
    Err(OpenError::Refused(
        "blobs.url names a bucket, but neither its region nor its server is known; set blobs.region, or blobs.endpoint for a server of your own".into(),
    ))
}

fn credentials(
    blobs: &Blobs,
    variable: impl Fn(&str) -> Option<String>,
) -> Result<S3Credentials, OpenError> {
    let refused = |reason: &str| Err(OpenError::Refused(reason.to_owned()));
    let configured = (&blobs.access_key_id, &blobs.secret_access_key);
    if blobs.credentials == CredentialSource::Instance {
        return match configured {
            (None, None) => Ok(S3Credentials::Instance),
            _ => refused(
                "blobs.credentials is \"instance\", but blobs.access_key_id or blobs.secret_access_key is set; remove one of the two",
            ),
        };
    }
    match configured {
        (Some(id), Some(secret)) => Ok(S3Credentials::Keys {
            access_key_id: id.as_str().to_owned(),
            secret_access_key: secret.expose().into(),
            // A token belongs to the key of the environment, and not to this one.
            session_token: None,
        }),
        (Some(_), None) => {
            refused("blobs.access_key_id is set, but blobs.secret_access_key is not; set both")
        }
        (None, Some(_)) => {
            refused("blobs.secret_access_key is set, but blobs.access_key_id is not; set both")
        }
        (None, None) => {
            let id = variable("AWS_ACCESS_KEY_ID");
            let secret = variable("AWS_SECRET_ACCESS_KEY");
            let (Some(id), Some(secret)) = (id, secret) else {
                return refused(
                    "blobs.url names a bucket, but there are no keys for it; set blobs.access_key_id and blobs.secret_access_key, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or blobs.credentials = \"instance\"",
                );
            };
            let id: Result<AccessKeyId, _> = id.trim().parse();
            let id =
                id.map_err(|invalid| OpenError::Refused(format!("AWS_ACCESS_KEY_ID: {invalid}")))?;
            let token = variable("AWS_SESSION_TOKEN");
            Ok(S3Credentials::Keys {
                access_key_id: id.as_str().to_owned(),
                secret_access_key: secret.trim().into(),
                session_token: token.map(|token| token.trim().into()),
            })
        }
    }
}

/// The largest object is an archive or file as long as a release may be. One has to fit while another is served.
fn cache_bytes(config: &Config) -> Result<u64, OpenError> {
    let bytes = config.blobs.cache_mb.get().saturating_mul(1 << 20);
    let least = config.limits.release_bytes.get().saturating_mul(2);
    if bytes < least {
        return Err(OpenError::Refused(format!(
            "blobs.cache_mb must be at least {}: twice limits.release_bytes, the size of the largest file",
            least.div_ceil(1 << 20)
        )));
    }
    Ok(bytes)
}

#[cfg(test)]
#[path = "blobs_tests.rs"]
mod tests;
