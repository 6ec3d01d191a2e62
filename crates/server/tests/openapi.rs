//! The documents of both APIs are committed, so that a change of the contract shows in a diff.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a failed step is a failed test"
)]

use std::path::Path;
use utoipa::openapi::OpenApi;

fn compare(name: &str, document: &OpenApi) {
    let path =
        Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../../docs/openapi/{name}.json"));
    let current = document.to_pretty_json().unwrap() + "\n";
    let committed = std::fs::read_to_string(&path).unwrap_or_default();
    // As values: the order of keys in examples depends on what else is built (`serde_json/preserve_order`).
    let parse = |text: &str| serde_json::from_str::<serde_json::Value>(text).ok();
    if parse(&committed) == parse(&current) {
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
