//! Putting and reading, and how many requests that takes.

use std::thread;
use std::time::Duration;

use futures_util::{StreamExt, TryStreamExt, stream};
use object_store::ObjectStoreExt;

use crate::support::{Bucket, bytes, is_unavailable, publish, raw_client, stage, timed};
use crate::{LARGE, MEBIBYTE};

#[tokio::test]
async fn what_one_node_stored_another_reads() {
    let bucket = Bucket::new();
    let (here, there) = (bucket.node(), bucket.node());
    let contents: Vec<_> = [0, 1, 70_000, LARGE - 1, LARGE, 3 * LARGE]
        .into_iter()
        .zip(0..)
        .map(|(length, seed)| bytes(length, seed))
        .collect();
    let contents: Vec<_> = contents.iter().map(Vec::as_slice).collect();
    let blobs = here.add(&contents);
    assert_eq!(here.spools(), 0);
    for (blob, content) in blobs.iter().zip(contents) {
        if content.len() < LARGE {
            assert!(there.store().read(blob).unwrap() == content);
        }
        assert!(there.read_all(blob) == content);
        assert!(there.is_warm(blob) && here.is_warm(blob));
        there.store().verify(blob).unwrap();
        let pieces = there.store().stream(blob).await.unwrap();
        let pieces: Vec<_> = pieces.try_collect().await.unwrap();
        assert!(pieces.concat() == content);
    }
}

#[test]
fn a_small_content_is_read_as_a_range_until_it_is_wanted_again() {
    let bucket = Bucket::new();
    let blob = bucket.node().add(&[&bytes(70_000, 1)])[0];
    let (there, requests) = bucket.forwarded_node();
    there.store().read(&blob).unwrap();
    assert!(!there.is_warm(&blob), "only a range was read");
    there.store().read(&blob).unwrap();
    assert!(there.is_warm(&blob));
    there.store().read(&blob).unwrap();
    assert_eq!(requests.count("GET"), 2);
}

#[test]
fn a_site_of_a_thousand_files_is_a_few_puts() {
    let (node, requests) = Bucket::new().forwarded_node();
    let contents: Vec<_> = (0..1000).map(|seed| bytes(20_000, seed)).collect();
    let large = [bytes(LARGE, 1), bytes(2 * LARGE, 2)];
    let all: Vec<_> = contents.iter().chain(&large).map(Vec::as_slice).collect();
    let blobs = node.add(&all);
    let small: u64 = contents.iter().map(|it| it.len() as u64).sum();
    let packs = usize::try_from(small.div_ceil(8 * MEBIBYTE)).unwrap();
    assert!(requests.count("PUT") <= packs + large.len());
    assert_eq!(requests.count("GET") + requests.count("HEAD"), 0);
    for (blob, content) in blobs.iter().zip(&contents).step_by(100) {
        assert!(node.read_all(blob) == *content);
    }
}

#[test]
fn stagings_at_the_same_moment_share_puts() {
    let (node, requests) = Bucket::new().forwarded_node();
    requests.delay(Duration::from_millis(200));
    let contents: Vec<_> = (0..40).map(|seed| bytes(1000, seed)).collect();
    let blobs: Vec<_> = thread::scope(|scope| {
        let node = &node;
        let add = |content| scope.spawn(move || node.add(&[content])[0]);
        let adding: Vec<_> = contents.iter().map(|it| add(it.as_slice())).collect();
        adding.into_iter().map(|it| it.join().unwrap()).collect()
    });
    let puts = requests.count("PUT");
    assert!(puts <= contents.len() / 2, "{puts} puts");
    for (blob, content) in blobs.iter().zip(&contents) {
        assert!(node.read_all(blob) == *content);
    }
}

#[test]
fn a_file_above_64_mebibytes_is_put_in_parts() {
    let bucket = Bucket::new();
    let (node, requests) = bucket.forwarded_node();
    let content = bytes(70 * LARGE, 1);
    let blob = node.add(&[&content])[0];
    assert_eq!(requests.count("PUT"), 70_usize.div_ceil(16));
    assert_eq!(requests.count("POST"), 2, "it begins and is completed");
    let there = bucket.node();
    there.store().verify(&blob).unwrap();
    assert_eq!(there.stats().bytes, 70 * MEBIBYTE);
}

#[test]
fn an_upload_whose_part_cannot_be_put_is_aborted() {
    let (node, requests) = Bucket::new().forwarded_node();
    requests.refuse("partNumber=3&");
    let content = bytes(70 * LARGE, 1);
    assert!(is_unavailable(&publish(node.store(), &[&content])));
    let is_abort = |it: &String| it.starts_with("DELETE ") && it.contains("uploadId=");
    assert_eq!(requests.requests().into_iter().filter(is_abort).count(), 1);
    // The bucket answers: the next one need not wait.
    let (outcome, took) = timed(|| publish(node.store(), &[b"small"]));
    outcome.unwrap().keep();
    assert!(took < Duration::from_secs(1), "{took:?}");
}

#[test]
fn an_upload_in_parts_that_fails_leaves_nothing() {
    let bucket = Bucket::new();
    let (node, requests) = bucket.forwarded_node();
    let content = bytes(70 * LARGE, 1);
    requests.cut_after(40 * MEBIBYTE);
    let refused = publish(node.store(), &[&content, b"small"]);
    assert!(is_unavailable(&refused));
    assert_eq!(node.spools(), 0);
    assert_eq!(node.stats().bytes, 0);
    assert_eq!(bucket.node().store().objects().unwrap().count(), 0);
}

#[test]
fn what_is_given_up_is_removed() {
    let node = Bucket::new().node();
    let contents = [bytes(LARGE, 1), bytes(10, 2)];
    let contents: Vec<_> = contents.iter().map(Vec::as_slice).collect();
    let published = publish(node.store(), &contents).unwrap();
    assert_eq!(node.store().objects().unwrap().count(), 2);
    published.discard();
    assert_eq!(node.store().objects().unwrap().count(), 0);
    assert_eq!(node.stats().bytes, 0);
    let dropped = stage(node.store());
    drop(dropped);
    assert_eq!(node.spools(), 0);
}

#[test]
fn every_object_is_listed_with_its_length() {
    let node = Bucket::new().node();
    let lengths = [LARGE, LARGE + 1, LARGE + 2];
    let contents = lengths.map(|length| bytes(length, 1));
    let blobs = node.add(&contents.each_ref().map(Vec::as_slice));
    let entries = node.store().objects().unwrap();
    let entries: Vec<_> = entries.map(Result::unwrap).collect();
    assert_eq!(entries.len(), blobs.len());
    for blob in &blobs {
        let entry = entries.iter().find(|it| it.id == blob.location.object());
        assert_eq!(entry.unwrap().size, blob.size);
    }
}

/// A server puts a thousand keys in one answer.
#[tokio::test]
async fn a_listing_goes_on_behind_the_first_page() {
    const OBJECTS: usize = 2_050;
    let bucket = Bucket::new();
    let (client, prefix) = (raw_client(), bucket.prefix.clone());
    let put = |number| {
        let key = format!("{prefix}/files/{number:024x}").into();
        let client = &client;
        async move { client.put(&key, "x".into()).await.unwrap() }
    };
    let puts = stream::iter(0..OBJECTS).map(put).buffer_unordered(16);
    puts.collect::<Vec<_>>().await;
    let node = bucket.node();
    let entries = node.store().objects().unwrap();
    let mut ids: Vec<_> = entries.map(|it| it.unwrap().id.to_string()).collect();
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), OBJECTS);
}
