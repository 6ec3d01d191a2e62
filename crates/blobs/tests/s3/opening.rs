//! Whose a bucket is, and what an operator is told who configured it wrongly.

use std::error::Error;

use estrade_blobs::{BlobError, BlobStore, S3Credentials, S3Settings};
use tempfile::TempDir;

use crate::support::{Bucket, ROOMY, bytes};

#[test]
fn a_bucket_belongs_to_the_first_installation() {
    let bucket = Bucket::new();
    let node = bucket.node();
    let blob = node.add(&[&bytes(10, 1)])[0];
    let disk = TempDir::new().unwrap();
    let settings = bucket.settings(disk.path(), ROOMY, None);
    let refused = BlobStore::open_s3(settings.clone(), "other");
    assert!(
        matches!(&refused, Err(BlobError::OtherInstallation { owner }) if owner == "test"),
        "{refused:?}"
    );
    let again = BlobStore::open_s3(settings, "test").unwrap();
    again.verify(&blob).unwrap();
    // Another prefix is another store.
    let disk = TempDir::new().unwrap();
    let other = Bucket::new().settings(disk.path(), ROOMY, None);
    BlobStore::open_s3(other, "other").unwrap();
}

/// Opens with changed settings; returns what the operator is told, with all its causes.
fn refusal(change: impl FnOnce(&mut S3Settings)) -> String {
    let disk = TempDir::new().unwrap();
    let mut settings = Bucket::new().settings(disk.path(), ROOMY, None);
    change(&mut settings);
    let refused = BlobStore::open_s3(settings, "test");
    let Err(error @ BlobError::Unavailable { .. }) = refused else {
        panic!("{refused:?}");
    };
    let mut told = format!("{error:?} {error}");
    let mut cause = error.source();
    while let Some(it) = cause {
        told = format!("{told}: {it}");
        cause = it.source();
    }
    told
}

fn keys(id: &str, secret: &str) -> S3Credentials {
    S3Credentials::Keys {
        access_key_id: id.to_owned(),
        secret_access_key: secret.into(),
        session_token: None,
    }
}

fn right_id(settings: &S3Settings) -> String {
    match &settings.credentials {
        S3Credentials::Keys { access_key_id, .. } => access_key_id.clone(),
        S3Credentials::Instance => panic!("the tests have keys"),
    }
}

#[test]
fn a_wrong_secret_is_named_and_not_shown() {
    let told = refusal(|it| it.credentials = keys(&right_id(it), "wrong-and-private"));
    assert!(told.contains("the secret access key"), "{told}");
    assert!(!told.contains("wrong-and-private"), "{told}");
}

#[test]
fn an_unknown_key_is_named() {
    let told = refusal(|it| it.credentials = keys("nobody", "wrong-and-private"));
    assert!(told.contains("does not know the access key id"), "{told}");
    assert!(!told.contains("wrong-and-private"), "{told}");
}

#[test]
fn a_bucket_that_does_not_exist_is_named() {
    let told = refusal(|it| it.bucket = "no-such-bucket".to_owned());
    assert!(told.contains("there is no such bucket"), "{told}");
}

#[test]
fn a_server_that_is_not_there_is_named() {
    let told = refusal(|it| it.endpoint = "http://127.0.0.1:1".parse().ok());
    assert!(told.contains("no connection to it"), "{told}");
}

/// Also on an async worker, where a call that blocks on a runtime of its own would panic.
#[tokio::test]
async fn a_store_is_opened_and_dropped_anywhere() {
    let node = Bucket::new().node();
    node.add(&[b"x"]);
    drop(node);
}
