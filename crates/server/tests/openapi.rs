//! The documents of both APIs are committed, so that a change of the contract shows in a diff.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a failed step is a failed test"
)]

use std::path::Path;
use utoipa::openapi::OpenApi;

/// Byte for byte, but for a build with `serde_json/preserve_order` (`cargo test --workspace` without the `--exclude` of
/// `./test`): the keys of examples have another order there.
fn is_same(committed: &str, current: &str) -> bool {
    let map = serde_json::Map::from_iter([("b".to_owned(), 0.into()), ("a".to_owned(), 0.into())]);
    let is_sorted = map.keys().is_sorted();
    let parse = |text: &str| serde_json::from_str::<serde_json::Value>(text).ok();
    committed == current || (!is_sorted && parse(committed) == parse(current))
}

fn compare(name: &str, document: &OpenApi) {
    let path =
        Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../../docs/openapi/{name}.json"));
    let current = document.to_pretty_json().unwrap() + "\n";
    let committed = std::fs::read_to_string(&path).unwrap_or_default();
    if is_same(&committed, &current) {
        return;
    }
    if std::env::var_os("UPDATE_SNAPSHOTS").is_some_and(|value| value == "1") {
        std::fs::write(path, current).unwrap();
        return;
    }
    let differs = |(a, b): (&str, &str)| a != b;
    let line = committed
        .lines()
        .zip(current.lines())
        .position(differs)
        .unwrap_or_else(|| committed.lines().count().min(current.lines().count()));
    panic!(
        "docs/openapi/{name}.json differs from line {} on. If the contract is meant to change: \
         UPDATE_SNAPSHOTS=1 cargo nextest run -p estrade-server --test openapi, and commit the file",
        line + 1
    );
}

#[test]
fn the_platform_document_is_as_committed() {
    compare("platform", &estrade_server::platform::document());
}

#[test]
fn the_ai_document_is_as_committed() {
    compare("ai", &estrade_server::ai::document());
}
