//! Which settings make a bucket, what AWS's variables add, and what is refused with which words.

use super::*;
use secrecy::ExposeSecret;
use std::path::Path;

const BUCKET: &str = "[blobs]\nurl = 's3://bucket/prefix'\n";
const KEYS: [(&str, &str); 2] = [
    ("AWS_ACCESS_KEY_ID", "AKENV"),
    ("AWS_SECRET_ACCESS_KEY", "hunter2"),
];

fn wired(text: &str, variables: &[(&str, &str)]) -> Result<BlobsAt, String> {
    let config: Config = toml::from_str(text).unwrap();
    let variable = |name: &str| {
        let found = variables.iter().find(|(variable, _)| *variable == name);
        found.map(|(_, value)| (*value).to_owned())
    };
    blobs(&config, variable).map_err(|error| error.to_string())
}

fn bucket(text: &str, variables: &[(&str, &str)]) -> S3Settings {
    match wired(text, variables) {
        Ok(BlobsAt::Bucket(settings)) => *settings,
        other => panic!("{other:?}"),
    }
}

fn keys(settings: &S3Settings) -> (&str, &str, Option<&str>) {
    match &settings.credentials {
        S3Credentials::Keys {
            access_key_id,
            secret_access_key,
            session_token,
        } => (
            access_key_id,
            secret_access_key.expose_secret(),
            session_token.as_ref().map(ExposeSecret::expose_secret),
        ),
        S3Credentials::Instance => panic!("no keys"),
    }
}

#[test]
fn files_lie_in_the_data_directory_unless_said_otherwise() {
    let directory = |text| match wired(text, &KEYS) {
        Ok(BlobsAt::Directory(directory)) => directory,
        other => panic!("{other:?}"),
    };
    assert_eq!(directory("data_dir = '/d'"), Path::new("/d/blobs"));
    assert_eq!(directory("blobs.url = 'file:///b'"), Path::new("/b"));
}

#[test]
fn the_configuration_comes_before_the_variables_of_aws() {
    let variables = [
        &KEYS[..],
        &[
            ("AWS_SESSION_TOKEN", "token"),
            ("AWS_REGION", "eu-north-1"),
            ("AWS_ENDPOINT_URL", "http://127.0.0.1:1"),
        ],
    ]
    .concat();
    let from_variables = bucket(BUCKET, &variables);
    assert_eq!(from_variables.region, "eu-north-1");
    let shown = from_variables.endpoint.as_ref().map(ToString::to_string);
    assert_eq!(shown.as_deref(), Some("http://127.0.0.1:1"));
    assert_eq!(keys(&from_variables), ("AKENV", "hunter2", Some("token")));

    let text = format!(
        "{BUCKET}endpoint = 'https://s3.example.com/'\nregion = 'x'\naccess_key_id = 'AK'\nsecret_access_key = 's'"
    );
    let configured = bucket(&text, &variables);
    assert_eq!(configured.region, "x");
    let shown = configured.endpoint.as_ref().map(ToString::to_string);
    assert_eq!(shown.as_deref(), Some("https://s3.example.com"));
    // The token belongs to the other key.
    assert_eq!(keys(&configured), ("AK", "s", None));
}

#[test]
fn the_variables_of_aws_have_their_own_order() {
    let more = [
        ("AWS_DEFAULT_REGION", "second"),
        ("AWS_ENDPOINT_URL", "http://second"),
        ("AWS_ENDPOINT_URL_S3", "http://first"),
        ("AWS_REGION", ""),
    ];
    let settings = bucket(BUCKET, &[&KEYS[..], &more].concat());
    assert_eq!(settings.region, "second");
    let shown = settings.endpoint.map(|it| it.to_string());
    assert_eq!(shown.as_deref(), Some("http://first"));
}

#[test]
fn a_server_of_ones_own_is_addressed_by_path_and_needs_no_region() {
    let own = bucket(&format!("{BUCKET}endpoint = 'http://s3'"), &KEYS);
    assert!(own.path_style);
    assert_eq!(own.region, "us-east-1");
    let host_style = format!("{BUCKET}endpoint = 'http://s3'\npath_style = false");
    assert!(!bucket(&host_style, &KEYS).path_style);
    let amazon = bucket(&format!("{BUCKET}region = 'eu-central-1'"), &KEYS);
    assert!(!amazon.path_style && amazon.endpoint.is_none());
    assert_eq!(amazon.cache_dir, Path::new("./estrade-data/blob-cache"));
    assert_eq!(amazon.cache_bytes, 10 << 30);
}

#[test]
fn the_metadata_service_is_asked_only_when_it_is_named() {
    let text = format!("{BUCKET}region = 'r'\ncredentials = 'instance'");
    let settings = bucket(&text, &KEYS);
    assert!(matches!(settings.credentials, S3Credentials::Instance));
}

#[test]
fn what_cannot_work_is_refused_with_what_to_do() {
    for (text, variables, words) in [
        (BUCKET.to_owned(), &KEYS[..], "set blobs.region"),
        (format!("{BUCKET}region = 'r'"), &[], "AWS_ACCESS_KEY_ID"),
        (
            format!("{BUCKET}region = 'r'"),
            &KEYS[..1],
            "there are no keys",
        ),
        (
            format!("{BUCKET}region = 'r'\naccess_key_id = 'a'"),
            &KEYS,
            "blobs.secret_access_key is not; set both",
        ),
        (
            format!("{BUCKET}region = 'r'\nsecret_access_key = 'hunter2'"),
            &KEYS,
            "blobs.access_key_id is not; set both",
        ),
        (
            format!("{BUCKET}region = 'r'\ncredentials = 'instance'\naccess_key_id = 'a'"),
            &[],
            "remove one of the two",
        ),
        (
            format!("{BUCKET}endpoint = 'http://s3/bucket'"),
            &KEYS,
            "blobs.endpoint is not the address",
        ),
        (
            format!("{BUCKET}region = 'r'\ncache_mb = 511"),
            &KEYS,
            "at least 512",
        ),
        (
            "blobs.region = 'r'".to_owned(),
            &KEYS,
            "blobs.region is set, but",
        ),
        (
            "[blobs]\nurl = 'file:///b'\nendpoint = 'http://s3'".to_owned(),
            &KEYS,
            "blobs.url names no bucket",
        ),
    ] {
        let refused = wired(&text, variables).unwrap_err();
        assert!(refused.contains(words), "{text}: {refused}");
        assert!(!refused.contains("hunter2"), "{refused}");
    }
    let endpoint = [&KEYS[..], &[("AWS_ENDPOINT_URL", "http://u:hunter2@s3")]].concat();
    let refused = wired(BUCKET, &endpoint).unwrap_err();
    assert!(refused.starts_with("AWS_ENDPOINT_URL is not"), "{refused}");
    assert!(!refused.contains("hunter2"), "{refused}");
}

/// From where to where files move.
fn moving(text: &str, options: &str) -> Result<(BlobsAt, BlobsAt), String> {
    let line = format!("estrade blobs migrate {options}");
    let cli = crate::args::parse_from(line.split_whitespace()).unwrap();
    let crate::args::Command::Blobs(command) = cli.command else {
        panic!("another command");
    };
    let crate::args::BlobsCommand::Migrate(args) = command;
    let config: Config = toml::from_str(text).unwrap();
    migration(&config, &args, |_| None).map_err(|error| error.to_string())
}

const NEW: &str = "[blobs]\nendpoint = 'https://new.example.com'\naccess_key_id = 'NEW'\nsecret_access_key = 'new-secret'\n";

#[test]
fn settings_of_a_bucket_are_about_the_new_place_when_files_are_in_a_directory() {
    let (from, to) = moving(NEW, "--to s3://bucket/prefix").unwrap();
    assert!(matches!(from, BlobsAt::Directory(_)));
    let BlobsAt::Bucket(to) = to else {
        panic!("{to:?}");
    };
    assert_eq!((&*to.bucket, &*to.prefix), ("bucket", "prefix"));
    assert_eq!(keys(&to), ("NEW", "new-secret", None));
    assert!(to.path_style);
    let refused = moving("", "--to s3://bucket/prefix").unwrap_err();
    assert!(refused.contains("blobs.region"), "{refused}");
}

#[test]
fn a_second_bucket_is_described_by_options() {
    let old = format!("{NEW}url = 's3://old/prefix'\npath_style = false\nregion = 'eu-1'\n");
    let (from, to) = moving(&old, "--to s3://new").unwrap();
    let (BlobsAt::Bucket(from), BlobsAt::Bucket(to)) = (from, to) else {
        panic!("not two buckets");
    };
    assert_eq!((&*from.bucket, &*to.bucket), ("old", "new"));
    assert_eq!(from.endpoint, to.endpoint);
    assert!(!to.path_style);
    let secret = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(&secret, "other-secret\n").unwrap();
    let options = format!(
        "--to s3://new --to-endpoint http://127.0.0.1:9 --to-region eu-2 --to-access-key-id OTHER \
         --to-secret-access-key-file {}",
        secret.path().display()
    );
    let (from, to) = moving(&old, &options).unwrap();
    let (BlobsAt::Bucket(from), BlobsAt::Bucket(to)) = (from, to) else {
        panic!("not two buckets");
    };
    assert_eq!(keys(&from), ("NEW", "new-secret", None));
    assert_eq!(keys(&to), ("OTHER", "other-secret", None));
    assert_eq!((&*from.region, &*to.region), ("eu-1", "eu-2"));
    assert!(to.path_style && to.endpoint != from.endpoint);
}
