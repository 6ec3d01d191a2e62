//! The README's configuration table says what the program says.

use crate::support::Home;
use std::collections::BTreeMap;
use toml::{Table, Value};

/// Keys that the table has one row for, whatever is in them.
const WHOLE: [&str; 3] = ["docker.images", "plans", "ai.providers"];

/// The rows of the configuration table: key and default.
fn rows() -> BTreeMap<String, String> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../README.md");
    let text = std::fs::read_to_string(path).unwrap();
    let table = text
        .lines()
        .skip_while(|line| !line.starts_with("| Key | Default |"))
        .skip(2)
        .take_while(|line| line.starts_with('|'));
    table
        .map(|row| {
            let cells: Vec<_> = row.split('|').map(str::trim).collect();
            (cells[1].trim_matches('`').to_owned(), cells[2].to_owned())
        })
        .collect()
}

/// The keys of a configuration file with their values.
fn keys(table: &Table, prefix: &str, found: &mut BTreeMap<String, Value>) {
    for (name, value) in table {
        let key = format!("{prefix}{name}");
        match value {
            Value::Table(inner) if !WHOLE.contains(&key.as_str()) => {
                keys(inner, &format!("{key}."), found);
            }
            _ => drop(found.insert(key, value.clone())),
        }
    }
}

fn printed<const N: usize>(args: [&str; N]) -> BTreeMap<String, Value> {
    let ran = Home::new().run(args);
    let mut found = BTreeMap::new();
    let table: Table = ran.assert(0).stdout.parse().unwrap();
    keys(&table, "", &mut found);
    found
}

#[test]
fn the_table_has_every_key_and_its_default() {
    let rows = rows();
    let reference = printed(["config", "--reference"]);
    assert_eq!(
        rows.keys().collect::<Vec<_>>(),
        reference.keys().collect::<Vec<_>>()
    );
    let defaults = printed(["config"]);
    for (key, cell) in rows {
        let is_empty = |value: &Value| value.as_array().is_some_and(Vec::is_empty);
        match defaults.get(&key).filter(|value| !is_empty(value)) {
            Some(value) => assert_eq!(cell, format!("`{value}`"), "{key}"),
            // In words: nothing, or a place that depends on another key.
            None => assert!(
                cell == "none" || cell.contains("`data_dir`"),
                "{key}: {cell}"
            ),
        }
    }
}
