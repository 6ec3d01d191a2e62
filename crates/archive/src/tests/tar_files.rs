//! `.tar.gz`

use super::{Bench, peak_memory, survive_changes};
use crate::{CancelFlag, UnpackError};
use ::tar::{Builder, EntryType, Header};
use flate2::Compression;
use flate2::write::GzEncoder;
use std::io::Write;

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut out = GzEncoder::new(Vec::new(), Compression::new(6));
    out.write_all(bytes).unwrap();
    out.finish().unwrap()
}

/// A header with any name at all: the builder would refuse the bad ones.
fn header(name: &[u8], kind: EntryType, size: u64) -> Header {
    let mut header = Header::new_gnu();
    header.as_gnu_mut().unwrap().name[..name.len()].copy_from_slice(name);
    header.set_entry_type(kind);
    header.set_size(size);
    header.set_mode(0o644);
    header.set_cksum();
    header
}

/// One entry with its padding.
fn entry(name: &[u8], kind: EntryType, content: &[u8]) -> Vec<u8> {
    let mut bytes = header(name, kind, content.len() as u64).as_bytes().to_vec();
    bytes.extend(content);
    bytes.resize(bytes.len().next_multiple_of(512), 0);
    bytes
}

fn link(name: &str, kind: EntryType, target: &str) -> Vec<u8> {
    let mut header = header(name.as_bytes(), kind, 0);
    header.as_gnu_mut().unwrap().linkname[..target.len()].copy_from_slice(target.as_bytes());
    header.set_cksum();
    header.as_bytes().to_vec()
}

fn file(name: &str, content: &str) -> Vec<u8> {
    entry(name.as_bytes(), EntryType::Regular, content.as_bytes())
}

fn archive(entries: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = entries.concat();
    bytes.extend([0; 1024]);
    gzip(&bytes)
}

fn tar_gz(files: &[(&str, &str)]) -> Vec<u8> {
    let entries: Vec<_> = files
        .iter()
        .map(|(name, content)| file(name, content))
        .collect();
    archive(&entries)
}

fn symlink(name: &str, target: &str) -> Vec<u8> {
    link(name, EntryType::Symlink, target)
}

#[test]
fn files_come_out_as_they_went_in() {
    let bench = Bench::usual();
    let long = format!("{}/{}", vec!["folder"; 30].join("/"), "n".repeat(200));
    let mut builder = Builder::new(Vec::new());
    for (path, content) in [
        ("index.html", "<h1>Hello</h1>"),
        ("a/ünïcode name.txt", ""),
        (long.as_str(), "long"),
        ("A/case", "1"),
        ("a/case", "2"),
    ] {
        let mut header = Header::new_gnu();
        header.set_size(content.len() as u64);
        header.set_mode(0o644);
        let content = content.as_bytes();
        builder.append_data(&mut header, path, content).unwrap();
    }
    let found = bench.unpack(&gzip(&builder.into_inner().unwrap())).unwrap();
    assert_eq!(found.len(), 5);
    assert_eq!(found["index.html"], b"<h1>Hello</h1>");
    assert_eq!(found["a/ünïcode name.txt"], b"");
    assert_eq!(found[&long], b"long");
    assert_eq!(
        (&found["A/case"][..], &found["a/case"][..]),
        (&b"1"[..], &b"2"[..])
    );
    let large = "0123456789".repeat(100_000);
    let found = bench.unpack(&tar_gz(&[("large", &large)])).unwrap();
    assert!(found["large"] == large.as_bytes());
}

#[test]
fn pax_names_folders_and_litter() {
    let pax = |text: &str| entry(b"pax", EntryType::XHeader, text.as_bytes());
    let name = "p".repeat(150);
    let found = Bench::usual()
        .unpack(&archive(&[
            entry(b"g", EntryType::XGlobalHeader, b"18 comment=abcdef\n"),
            entry(b"./", EntryType::Directory, b""),
            entry(b"./folder/", EntryType::Directory, b""),
            pax(&format!("160 path={name}\n12 mtime=1.\n")),
            file("short", "1"),
            file("././b", "2"),
            file("__MACOSX/._b", "junk"),
            file("._b", "junk"),
            file("c/.DS_Store", "junk"),
            file("c/.well-known", "3"),
        ]))
        .unwrap();
    let names: Vec<_> = found.keys().map(String::as_str).collect();
    assert_eq!(names, ["b", "c/.well-known", &name]);
}

#[test]
fn names_that_lead_astray_are_refused() {
    let bench = Bench::usual();
    for name in [
        "/etc/passwd",
        "..",
        "../a",
        "a/../../b",
        "a/..",
        "a/./b",
        "a//b",
        "a\\b",
        "..\\a",
        "a\nb",
        "a\x7fb",
        "//a",
    ] {
        bench.refuses(
            &tar_gz(&[("ok", "1"), (name, "2")]),
            "archive_unsafe",
            "path",
        );
    }
    let bad = archive(&[entry(b"a\xff", EntryType::Regular, b"")]);
    bench.refuses(&bad, "archive_invalid", "UTF-8");
    let long_name = |length: usize| {
        let name = vec![b'n'; length];
        archive(&[
            entry(b"L", EntryType::GNULongName, &name),
            file("short", ""),
        ])
    };
    bench.refuses(&long_name(256), "archive_unsafe", "255");
    bench.refuses(&long_name(60_000), "archive_unsafe", "1024");
    bench.refuses(&long_name(70_000), "archive_unsafe", "too long");
    let twice = tar_gz(&[("a", "1"), ("./a", "2")]);
    bench.refuses(&twice, "archive_invalid", "twice");
    for clash in [["a", "a/b"], ["a/b", "a"]] {
        let both = tar_gz(&[(clash[0], ""), (clash[1], "")]);
        bench.refuses(&both, "archive_invalid", "both a file and a directory");
    }
    for kind in [EntryType::Char, EntryType::Block, EntryType::Fifo] {
        let device = archive(&[entry(b"dev", kind, b"")]);
        bench.refuses(&device, "archive_unsafe", "`dev`");
    }
    let sparse = archive(&[entry(b"s", EntryType::GNUSparse, b"")]);
    bench.refuses(&sparse, "archive_unsupported", "sparse");
    bench.refuses(&archive(&[]), "archive_empty", "no files");
}

#[test]
fn links_inside_become_files_and_others_are_refused() {
    let bench = Bench::usual();
    let found = bench
        .unpack(&archive(&[
            symlink("early", "a/b"),
            file("a/b", "content"),
            symlink("a/c", "b"),
            symlink("d/e", "../a/./c"),
            link("hard", EntryType::Link, "a/b"),
            link("harder", EntryType::Link, "./d/e"),
        ]))
        .unwrap();
    assert_eq!(found.len(), 6);
    assert!(found.values().all(|content| content == b"content"));
    for (name, target) in [
        ("l", "/etc/passwd"),
        ("l", "../x"),
        ("a/l", "../../x"),
        ("l", "a/../../b"),
        ("l", "..\\x"),
    ] {
        let bad = archive(&[file("b", ""), symlink(name, target)]);
        bench.refuses(&bad, "archive_unsafe", "leaves the archive");
    }
    let hard = link("a/l", EntryType::Link, "../b");
    bench.refuses(&archive(&[file("b", ""), hard]), "archive_unsafe", "leaves");
    for target in ["nothing", "folder", "", ".", "l/x"] {
        let bad = archive(&[file("folder/x", ""), symlink("l", target)]);
        bench.refuses(&bad, "archive_invalid", "is no file");
    }
    let circle = archive(&[symlink("a", "b"), symlink("b", "a")]);
    bench.refuses(&circle, "archive_invalid", "circle");
    let chain: Vec<_> = (0..20)
        .map(|at| symlink(&format!("{at}"), &format!("{}", at + 1)))
        .collect();
    let chain = archive(&[chain.concat(), file("20", "")]);
    bench.refuses(&chain, "archive_invalid", "too far");
    let twice = archive(&[file("a", ""), symlink("a", "b"), file("b", "")]);
    bench.refuses(&twice, "archive_invalid", "twice");
}

#[test]
fn caps_count_what_comes_out() {
    let bench = Bench::new(3, 10_000);
    let files =
        |count: usize| -> Vec<_> { (0..count).map(|at| file(&format!("{at}"), "x")).collect() };
    assert_eq!(bench.unpack(&archive(&files(3))).unwrap().len(), 3);
    bench.refuses(&archive(&files(4)), "archive_too_large", "3 files");
    let page = "x".repeat(10_000);
    assert!(bench.unpack(&tar_gz(&[("a", &page)])).is_ok());
    bench.refuses(
        &tar_gz(&[("a", &page), ("b", "x")]),
        "archive_too_large",
        "10000 bytes",
    );
    // A link is a copy: 10,000 of a large file would make a site of terabytes.
    let half = "x".repeat(5001);
    let linked = archive(&[file("a", &half), symlink("b", "a")]);
    bench.refuses(&linked, "archive_too_large", "10000 bytes");
    // Entries that are no files count too.
    let folders: Vec<_> = (0..2000)
        .map(|_| entry(b"f/", EntryType::Directory, b""))
        .collect();
    bench.refuses(&archive(&folders), "archive_too_large", "entries");
}

/// Zeros, which compress a thousand times: so many blocks of 64 MiB.
fn zeros(blocks: usize) -> Vec<u8> {
    let mut out = GzEncoder::new(Vec::new(), Compression::new(9));
    let block = vec![0; 1 << 20];
    for _ in 0..64 {
        out.write_all(&block).unwrap();
    }
    out.finish().unwrap().repeat(blocks)
}

#[test]
fn bombs_are_refused_early_and_in_little_memory() {
    let size = 10 << 30;
    let zeros = zeros(160);
    assert!(zeros.len() < 11 << 20, "10 GiB in {} bytes", zeros.len());
    let bench = Bench::new(10_000, 64 << 20);
    let bomb = |head: Vec<u8>| [gzip(&head), zeros.clone()].concat();
    let content = bomb(
        header(b"bomb", EntryType::Regular, size)
            .as_bytes()
            .to_vec(),
    );
    let name = bomb(
        header(b"L", EntryType::GNULongName, size)
            .as_bytes()
            .to_vec(),
    );
    let pax = bomb(header(b"x", EntryType::XHeader, size).as_bytes().to_vec());
    let skipped = bomb(
        header(b"__MACOSX/x", EntryType::Regular, size)
            .as_bytes()
            .to_vec(),
    );
    let folder = bomb(
        header(b"f/", EntryType::Directory, size)
            .as_bytes()
            .to_vec(),
    );
    let padding = bomb(file("a", "1"));
    let before = peak_memory();
    bench.refuses(&content, "archive_too_large", "bytes");
    bench.refuses(&name, "archive_unsafe", "too long");
    bench.refuses(&pax, "archive_unsafe", "too long");
    bench.refuses(&skipped, "archive_too_large", "bytes");
    bench.refuses(&folder, "archive_too_large", "bytes");
    bench.refuses(&padding, "archive_too_large", "bytes");
    let grown = peak_memory() - before;
    assert!(grown < 40 << 20, "{grown} bytes");
}

#[test]
fn a_link_to_nowhere_is_refused_before_the_next_one_is_read() {
    let target = vec![b'n'; 60_000];
    let bad = archive(&[
        file("a", "1"),
        entry(b"L", EntryType::GNULongLink, &target),
        symlink("b", "short"),
        entry(b"dev", EntryType::Char, b""),
    ]);
    Bench::usual().refuses(&bad, "archive_invalid", "no file of the archive");
}

#[test]
fn damage_is_told() {
    let bench = Bench::usual();
    let good = archive(&[
        file("a", "some content"),
        symlink("b", "a"),
        file("c/d", "more"),
    ]);
    assert_eq!(bench.unpack(&good).unwrap().len(), 3);
    for end in 2..good.len() - 1 {
        let refused = bench.unpack(&good[..end]).unwrap_err();
        assert_eq!(refused.0, "archive_invalid", "{end}: {refused:?}");
    }
    let last = good.len() - 8;
    let mut wrong = good.clone();
    wrong[last] ^= 1;
    bench.refuses(&wrong, "archive_invalid", "damaged");
    bench.refuses(
        &gzip(b"not a tar file at all"),
        "archive_invalid",
        "damaged",
    );
    let cut = gzip(&entry(b"L", EntryType::GNULongName, b"name"));
    bench.refuses(&cut, "archive_invalid", "middle");
    let text = b"13 size=12345\n".to_vec();
    let two = archive(&[entry(b"x", EntryType::XHeader, &text), file("a", "1")]);
    assert_eq!(bench.unpack(&two).unwrap_err().0, "archive_invalid");
    survive_changes(&bench, &good);
}

#[test]
fn a_canceled_release_stops() {
    let bench = Bench::usual();
    let canceled = CancelFlag::default();
    canceled.set();
    let stopped = bench.try_unpack(&tar_gz(&[("a", "1")]), canceled);
    assert!(matches!(stopped, Err(UnpackError::Canceled)));
}
