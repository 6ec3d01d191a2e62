//! `.zip`

use super::{Bench, peak_memory, survive_changes};
use ::zip::write::SimpleFileOptions;
use ::zip::{CompressionMethod, ZipWriter};
use std::io::{Cursor, Write};

fn options(method: CompressionMethod) -> SimpleFileOptions {
    SimpleFileOptions::default().compression_method(method)
}

fn zip(files: &[(&str, &str)], options: SimpleFileOptions) -> Vec<u8> {
    let mut out = ZipWriter::new(Cursor::new(Vec::new()));
    for (name, content) in files {
        out.start_file(*name, options).unwrap();
        out.write_all(content.as_bytes()).unwrap();
    }
    out.finish().unwrap().into_inner()
}

fn stored(files: &[(&str, &str)]) -> Vec<u8> {
    zip(files, options(CompressionMethod::Stored))
}

fn deflated(files: &[(&str, &str)]) -> Vec<u8> {
    zip(files, options(CompressionMethod::Deflated))
}

/// Where a record begins, counted from the end.
fn last(bytes: &[u8], signature: &[u8]) -> usize {
    let found = bytes.windows(4).rposition(|window| window == signature);
    found.unwrap()
}

const LOCAL: &[u8] = b"PK\x03\x04";
const CENTRAL: &[u8] = b"PK\x01\x02";
const END: &[u8] = b"PK\x05\x06";

/// The same archive with other bytes at a place of the last record of a kind.
fn patched(good: &[u8], signature: &[u8], at: usize, bytes: &[u8]) -> Vec<u8> {
    let start = last(good, signature) + at;
    let mut bad = good.to_vec();
    bad[start..start + bytes.len()].copy_from_slice(bytes);
    bad
}

#[test]
fn files_come_out_as_they_went_in() {
    let bench = Bench::usual();
    let page = "<p>Hello</p>".repeat(1000);
    let files = [
        ("index.html", page.as_str()),
        ("a/ü.txt", ""),
        ("a/b/c", "1"),
    ];
    let wide = options(CompressionMethod::Deflated).large_file(true);
    for archive in [stored(&files), deflated(&files), zip(&files, wide)] {
        let found = bench.unpack(&archive).unwrap();
        assert_eq!(found.len(), 3);
        assert!(found["index.html"] == page.as_bytes());
        assert_eq!(found["a/ü.txt"], b"");
    }
    let mut out = ZipWriter::new(Cursor::new(Vec::new()));
    let usual = options(CompressionMethod::Deflated).unix_permissions(0o644);
    out.add_directory("folder/", usual).unwrap();
    out.start_file("folder/a", usual).unwrap();
    out.write_all(b"content").unwrap();
    out.add_symlink("folder/b", "a", usual).unwrap();
    out.start_file("__MACOSX/._a", usual).unwrap();
    out.set_comment("PK\x05\x06 a comment that looks like an end")
        .unwrap();
    let found = bench.unpack(&out.finish().unwrap().into_inner()).unwrap();
    assert_eq!(found.keys().collect::<Vec<_>>(), ["folder/a", "folder/b"]);
    assert_eq!(found["folder/b"], b"content");
}

#[test]
fn sizes_that_follow_their_files_are_fine() {
    let mut out = ZipWriter::new_stream(Vec::new());
    for name in ["a", "b"] {
        out.start_file(name, options(CompressionMethod::Deflated))
            .unwrap();
        out.write_all(b"content of a stream").unwrap();
    }
    let archive = out.finish().unwrap().into_inner();
    let found = Bench::usual().unpack(&archive).unwrap();
    assert_eq!(found["b"], b"content of a stream");
}

/// The same archive with another name of the same length.
fn renamed(archive: &[u8], from: &str, to: &[u8]) -> Vec<u8> {
    assert_eq!(from.len(), to.len());
    let mut bad = archive.to_vec();
    let mut at = 0;
    while let Some(found) = bad[at..]
        .windows(from.len())
        .position(|it| it == from.as_bytes())
    {
        bad[at + found..][..to.len()].copy_from_slice(to);
        at += found + to.len();
    }
    bad
}

#[test]
fn names_that_lead_astray_are_refused() {
    let bench = Bench::usual();
    let good = stored(&[("NAME-1234", "x"), ("b", "y")]);
    for name in [
        "/etc/pass",
        "../../etc",
        "a/../../b",
        "a\\b\\c\\def",
        "a//b//c/d",
        "C:\\window",
    ] {
        let bad = renamed(&good, "NAME-1234", name.as_bytes());
        bench.refuses(&bad, "archive_unsafe", "path");
    }
    let bad = renamed(&good, "NAME-1234", b"NAME-\xff234");
    bench.refuses(&bad, "archive_invalid", "UTF-8");
    let twice = renamed(
        &stored(&[("NAME-1", "x"), ("NAME-2", "y")]),
        "NAME-2",
        b"NAME-1",
    );
    bench.refuses(&twice, "archive_invalid", "twice");
    for target in ["/etc/passwd", "../x"] {
        let mut out = ZipWriter::new(Cursor::new(Vec::new()));
        let usual = options(CompressionMethod::Stored);
        out.add_symlink("link", target, usual).unwrap();
        let bad = out.finish().unwrap().into_inner();
        bench.refuses(&bad, "archive_unsafe", "leaves");
    }
    // A pipe, by its attributes of Unix.
    let pipe = patched(
        &stored(&[("p", "")]),
        CENTRAL,
        38,
        &(0o010_644_u32 << 16).to_le_bytes(),
    );
    let pipe = patched(&pipe, CENTRAL, 5, &[3]);
    bench.refuses(&pipe, "archive_unsafe", "neither");
}

#[test]
fn lies_are_found_out() {
    let bench = Bench::usual();
    let good = stored(&[("a", "0123456789"), ("b", "abcdefghij")]);
    let packed = deflated(&[("a", &"x".repeat(10_000))]);
    let number = |number: u32| number.to_le_bytes();
    // Encrypted, by one of the two descriptions or by both.
    bench.refuses(
        &patched(&good, CENTRAL, 8, &[1]),
        "archive_unsupported",
        "password",
    );
    bench.refuses(&patched(&good, LOCAL, 6, &[1]), "archive_invalid", "agree");
    // Another method.
    bench.refuses(
        &patched(&good, CENTRAL, 10, &[12]),
        "archive_unsupported",
        "method 12",
    );
    bench.refuses(&patched(&good, LOCAL, 8, &[8]), "archive_invalid", "agree");
    // Another name.
    bench.refuses(&patched(&good, LOCAL, 30, b"c"), "archive_invalid", "agree");
    // Wrong checksum and sizes.
    bench.refuses(
        &patched(&good, CENTRAL, 16, &number(7)),
        "archive_invalid",
        "checksum",
    );
    bench.refuses(
        &patched(&good, CENTRAL, 24, &number(9)),
        "archive_invalid",
        "longer",
    );
    bench.refuses(
        &patched(&good, CENTRAL, 24, &number(11)),
        "archive_invalid",
        "shorter",
    );
    bench.refuses(
        &patched(&packed, CENTRAL, 24, &number(100)),
        "archive_invalid",
        "longer",
    );
    bench.refuses(
        &patched(&packed, CENTRAL, 20, &number(3)),
        "archive_invalid",
        "",
    );
    // Bytes of another file, of the directory, and of nothing.
    bench.refuses(
        &patched(&good, CENTRAL, 42, &number(0)),
        "archive_unsafe",
        "share",
    );
    bench.refuses(
        &patched(&good, CENTRAL, 20, &number(90)),
        "archive_unsafe",
        "share",
    );
    bench.refuses(
        &patched(&good, CENTRAL, 42, &number(1 << 30)),
        "archive_invalid",
        "damaged",
    );
    // The end says other things than the directory.
    bench.refuses(
        &patched(&good, END, 10, &[1]),
        "archive_unsupported",
        "several",
    );
    bench.refuses(
        &patched(&good, END, 8, &[1, 0, 1, 0]),
        "archive_invalid",
        "more entries",
    );
    bench.refuses(
        &patched(&good, END, 8, &[3, 0, 3, 0]),
        "archive_invalid",
        "damaged",
    );
    bench.refuses(
        &patched(&good, END, 8, &[0xfe; 4]),
        "archive_too_large",
        "entries",
    );
    bench.refuses(
        &patched(&good, END, 8, &[0xff; 4]),
        "archive_invalid",
        "directory",
    );
    bench.refuses(
        &patched(&good, END, 16, &number(5)),
        "archive_invalid",
        "directory",
    );
    bench.refuses(&good[..good.len() - 1], "archive_invalid", "cut off");
    let padded = [good.as_slice(), b"x"].concat();
    bench.refuses(&padded, "archive_invalid", "cut off");
    bench.refuses(&stored(&[]), "archive_empty", "no files");
}

/// The record that stands before a file, and the one of the directory.
fn records(name: &str, content: &[u8], offset: usize) -> (Vec<u8>, Vec<u8>) {
    let mut crc = flate2::Crc::new();
    crc.update(content);
    let size = u32::try_from(content.len()).unwrap().to_le_bytes();
    let shared = [
        &[20, 0, 0, 0, 0, 0, 0, 0, 0, 0][..],
        &crc.sum().to_le_bytes(),
        &size,
        &size,
    ]
    .concat();
    let lengths = [u8::try_from(name.len()).unwrap(), 0, 0, 0];
    let offset = u32::try_from(offset).unwrap().to_le_bytes();
    let local = [LOCAL, &shared, &lengths, name.as_bytes()].concat();
    let central = [
        CENTRAL,
        &[20, 0],
        &shared,
        &lengths,
        &[0; 10],
        &offset,
        name.as_bytes(),
    ]
    .concat();
    (local, central)
}

#[test]
fn files_that_share_bytes_are_refused() {
    // The content of `a` is the whole of `b`, header and all: each layer of such a bomb costs nothing.
    let inner_local = records("b", b"kernel", 0).0;
    let quoted = [inner_local.clone(), b"kernel".to_vec()].concat();
    let (outer_local, outer_central) = records("a", &quoted, 0);
    let inner_central = records("b", b"kernel", outer_local.len()).1;
    let files = [outer_local, quoted].concat();
    let directory = [outer_central, inner_central].concat();
    let number = |number: usize| u32::try_from(number).unwrap().to_le_bytes();
    let end = [
        END,
        &[0, 0, 0, 0, 2, 0, 2, 0],
        &number(directory.len()),
        &number(files.len()),
        &[0, 0],
    ];
    let bomb = [files, directory, end.concat()].concat();
    Bench::usual().refuses(&bomb, "archive_unsafe", "share the same bytes");
}

#[test]
fn bombs_are_refused_early_and_in_little_memory() {
    let mut out = ZipWriter::new(Cursor::new(Vec::new()));
    let block = vec![0; 1 << 20];
    let usual = options(CompressionMethod::Deflated).compression_level(Some(9));
    out.start_file("bomb", usual).unwrap();
    for _ in 0..80 {
        out.write_all(&block).unwrap();
    }
    let bomb = out.finish().unwrap().into_inner();
    let bench = Bench::new(10_000, 64 << 20);
    let many = Bench::new(100, 64 << 20);
    let names: Vec<_> = (0..1300).map(|at| format!("{at}")).collect();
    let files: Vec<_> = names.iter().map(|name| (name.as_str(), "")).collect();
    let crowd = stored(&files);
    let before = peak_memory();
    bench.refuses(&bomb, "archive_too_large", "bytes");
    // One that says that it is small.
    let liar = patched(&bomb, CENTRAL, 24, &1000_u32.to_le_bytes());
    bench.refuses(&liar, "archive_invalid", "longer");
    many.refuses(&crowd, "archive_too_large", "entries");
    many.refuses(&stored(&files[..101]), "archive_too_large", "100 files");
    let grown = peak_memory() - before;
    assert!(grown < 40 << 20, "{grown} bytes");
}

#[test]
fn names_that_are_no_paths_are_not_kept() {
    // The last one: all before it would be in memory.
    let long = "n".repeat(2000);
    let bad = stored(&[("a", ""), (long.as_str(), "")]);
    Bench::usual().refuses(&bad, "archive_unsafe", "far too long");
}

#[test]
fn a_length_that_goes_beyond_all_numbers_is_damage() {
    let record = [b"PK\x06\x06".as_slice(), &[0xff; 8], &[0; 44]].concat();
    let locator = [b"PK\x06\x07".as_slice(), &[0; 12], &[1, 0, 0, 0]].concat();
    let end = [END, &[0; 4], &[0xff; 12], &[0; 2]].concat();
    let bad = [record, locator, end].concat();
    Bench::usual().refuses(&bad, "archive_invalid", "directory");
}

#[test]
fn no_change_of_a_byte_breaks_us() {
    let wide = options(CompressionMethod::Deflated).large_file(true);
    survive_changes(
        &Bench::usual(),
        &zip(&[("a", "content"), ("b/c", "more")], wide),
    );
    survive_changes(&Bench::usual(), &stored(&[("a", "content")]));
}
