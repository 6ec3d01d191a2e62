//! While the bucket does not answer.

use std::thread;
use std::time::Duration;

use estrade_blobs::BlobError;

use crate::LARGE;
use crate::support::{Bucket, bytes, eventually, is_unavailable, publish, timed};

/// A call that is the first one to meet an outage.
const FIRST_LIMIT: Duration = Duration::from_secs(20);
/// Every call after it.
const LATER_LIMIT: Duration = Duration::from_secs(3);

#[test]
fn what_is_cached_is_served_and_the_rest_fails_fast() {
    let bucket = Bucket::new();
    let cold = bucket.node().add(&[&bytes(LARGE, 9)])[0];
    let (node, server) = bucket.forwarded_node();
    let warm = node.add(&[&bytes(LARGE, 1), &bytes(1000, 2)]);
    server.cut();
    let (outcome, took) = timed(|| publish(node.store(), &[b"new"]));
    assert!(is_unavailable(&outcome), "{outcome:?}");
    assert!(took < FIRST_LIMIT, "{took:?}");
    for _ in 0..5 {
        let (outcome, took) = timed(|| publish(node.store(), &[b"new", &bytes(LARGE, 3)]));
        assert!(is_unavailable(&outcome) && took < LATER_LIMIT, "{took:?}");
        let (outcome, took) = timed(|| node.store().open_object(cold.location.object()));
        assert!(is_unavailable(&outcome) && took < LATER_LIMIT, "{took:?}");
        for blob in &warm {
            assert!(node.is_warm(blob));
            let (outcome, took) = timed(|| node.store().verify(blob));
            assert!(outcome.is_ok() && took < Duration::from_secs(1));
        }
    }
    assert_eq!(node.spools(), 0);
    server.restore();
    let blobs = eventually(|| publish(node.store(), &[b"new"]).ok());
    node.store().verify(&blobs.blobs()[0]).unwrap();
    blobs.keep();
    node.store().verify(&cold).unwrap();
}

#[test]
fn a_server_that_takes_requests_and_says_nothing_is_an_outage() {
    let (node, server) = Bucket::new().forwarded_node();
    server.stall();
    let (outcome, took) = timed(|| node.store().objects().unwrap().next());
    let Some(Err(BlobError::Unavailable { problem, .. })) = outcome else {
        panic!("{outcome:?}");
    };
    assert!(problem.contains("did not answer in time"), "{problem}");
    assert!(took < Duration::from_secs(45), "{took:?}");
    let (outcome, took) = timed(|| publish(node.store(), &[b"new"]));
    assert!(is_unavailable(&outcome) && took < LATER_LIMIT, "{took:?}");
    server.restore();
    eventually(|| publish(node.store(), &[b"new"]).ok()).keep();
}

#[test]
fn one_object_that_cannot_be_read_is_no_outage() {
    let bucket = Bucket::new();
    let here = bucket.node();
    let broken = here.add(&[&bytes(LARGE, 1)])[0];
    let whole = here.add(&[&bytes(LARGE, 2)])[0];
    let (there, server) = bucket.forwarded_node();
    let name = broken.location.object().to_string();
    server.refuse(name.rsplit(':').next().unwrap());
    assert!(is_unavailable(&there.store().verify(&broken)));
    let (outcome, took) = timed(|| there.store().verify(&whole));
    assert!(outcome.is_ok() && took < Duration::from_secs(1), "{took:?}");
    publish(there.store(), &[b"new"]).unwrap().keep();
}

#[test]
fn an_interruption_is_not_noticed() {
    let (node, server) = Bucket::new().forwarded_node();
    server.cut();
    thread::scope(|scope| {
        let adding = scope.spawn(|| node.add(&[b"small", &bytes(LARGE, 1)]));
        thread::sleep(Duration::from_millis(150));
        server.restore();
        for blob in adding.join().unwrap() {
            node.store().verify(&blob).unwrap();
        }
    });
}

#[test]
fn a_transfer_that_breaks_off_is_repeated() {
    let bucket = Bucket::new();
    let blob = bucket.node().add(&[&bytes(8 * LARGE, 1)])[0];
    let (there, server) = bucket.forwarded_node();
    server.cut_after(3 << 20);
    thread::scope(|scope| {
        let reading = scope.spawn(|| there.store().verify(&blob));
        thread::sleep(Duration::from_millis(200));
        server.restore();
        let outcome = reading.join().unwrap();
        assert!(outcome.is_ok(), "{outcome:?}");
    });
    assert_eq!(there.spools(), 0);
    assert!(server.count("GET") >= 2);
}

#[test]
fn a_node_that_starts_in_an_outage_serves_what_it_has() {
    let bucket = Bucket::new();
    let (mut node, server) = bucket.forwarded_node();
    let blob = node.add(&[&bytes(LARGE, 1)])[0];
    server.cut();
    node.restart().unwrap();
    node.store().verify(&blob).unwrap();
    assert!(is_unavailable(&publish(node.store(), &[b"new"])));
    server.restore();
    eventually(|| publish(node.store(), &[b"new"]).ok()).keep();
}

#[test]
fn a_new_node_does_not_start_in_an_outage() {
    let bucket = Bucket::new();
    let (_node, server) = bucket.forwarded_node();
    server.cut();
    let disk = tempfile::tempdir().unwrap();
    let settings = bucket.settings(disk.path(), 1 << 20, Some(&server));
    let refused = estrade_blobs::BlobStore::open_s3(settings, "test");
    assert!(is_unavailable(&refused));
}
