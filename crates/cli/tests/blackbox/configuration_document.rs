//! docs/CONFIGURATION.md has every key with the default that the program has, and the README some of them.

use crate::support::Home;
use std::collections::BTreeMap;
use toml::{Table, Value};

/// The tables that exist only where a file has them, with nothing but what they need.
const REQUIRED: &str = "\
[plans.large]
memory_mb = 16384
cpus = 8
disk_gb = 100
[[ai.providers]]
name = 'local'
base_url = 'http://127.0.0.1:9000/v1'
[[ai.providers.models]]
id = 'openai/gpt-4o-mini'
";

/// Written as one value, not as a table of its own.
const INLINE: [&str; 1] = ["ai.providers.models.price"];

/// Whose defaults are not part of the configuration but of the code that reads it; unit tests compare them.
const DEFAULTS_ELSEWHERE: [&str; 2] = ["docker.images.", "ai.providers.timeouts."];

fn document(name: &str) -> String {
    let path = format!("{}/../../{name}", env!("CARGO_MANIFEST_DIR"));
    std::fs::read_to_string(path).unwrap()
}

/// The rows of all tables with a default: key and default. A heading names the section of the keys below it.
fn rows(markdown: &str) -> BTreeMap<String, String> {
    let (mut section, mut inside) = (String::new(), false);
    let mut rows = BTreeMap::new();
    for line in markdown.lines() {
        if let Some(heading) = line.strip_prefix("## `[") {
            section = format!("{}.", heading.trim_matches(['[', ']', '`']));
        }
        if line.starts_with("| Key | Default |") {
            inside = true;
        } else if !line.starts_with('|') {
            inside = false;
        } else if inside && !line.starts_with("|---") {
            let cells: Vec<_> = line.split('|').map(str::trim).collect();
            let key = format!("{section}{}", cells[1].trim_matches('`'));
            let twice = rows.insert(key, cells[2].to_owned());
            assert_eq!(twice, None, "{line}");
        }
    }
    rows
}

/// The keys of a configuration file with their values; of a list of tables, those of the first.
fn keys(table: &Table, prefix: &str, found: &mut BTreeMap<String, Value>) {
    for (name, value) in table {
        let key = format!("{prefix}{name}");
        let inner = match value {
            Value::Array(items) => items.first().and_then(Value::as_table),
            _ => value.as_table(),
        };
        match inner {
            Some(inner) if !INLINE.contains(&key.as_str()) => {
                keys(inner, &format!("{key}."), found);
            }
            _ => drop(found.insert(key, value.clone())),
        }
    }
}

fn parse_keys(text: &str) -> BTreeMap<String, Value> {
    let mut found = BTreeMap::new();
    keys(&text.parse().unwrap(), "", &mut found);
    found
}

/// The value that a cell shows, if it is one and not words.
fn parse_cell(cell: &str) -> Option<Value> {
    let code = cell.strip_prefix('`')?.strip_suffix('`')?;
    let table: Table = format!("value = {code}").parse().ok()?;
    table.get("value").cloned()
}

/// What `estrade config` does with a file.
fn config(text: &str) -> crate::support::Ran {
    let home = Home::new();
    let path = home.path().join("estrade.toml");
    std::fs::write(&path, text).unwrap();
    home.run(["config", "--config", path.to_str().unwrap()])
}

#[test]
fn the_document_has_every_key_and_its_default() {
    let rows = rows(&document("docs/CONFIGURATION.md"));
    let reference = Home::new().run(["config", "--reference"]);
    let reference = parse_keys(&reference.assert(0).stdout);
    assert_eq!(
        rows.keys().collect::<Vec<_>>(),
        reference.keys().collect::<Vec<_>>()
    );

    let required = parse_keys(REQUIRED);
    let defaults = parse_keys(&config(REQUIRED).assert(0).stdout);
    for (key, cell) in rows {
        if DEFAULTS_ELSEWHERE.iter().any(|it| key.starts_with(it)) {
            continue;
        }
        assert_eq!(required.contains_key(&key), cell == "required", "{key}");
        let is_empty = |value: &Value| value.as_array().is_some_and(Vec::is_empty);
        match defaults.get(&key) {
            _ if cell == "required" => {}
            Some(value) if is_empty(value) && cell == "none" => {}
            Some(value) => assert_eq!(parse_cell(&cell).as_ref(), Some(value), "{key}"),
            None => assert_eq!(parse_cell(&cell), None, "{key}"),
        }
    }
}

#[test]
fn what_is_required_is_refused_when_it_is_missing() {
    for line in REQUIRED.lines().filter(|line| !line.starts_with('[')) {
        config(&REQUIRED.replace(&format!("{line}\n"), "")).assert(2);
    }
}

#[test]
fn the_readme_has_ten_settings_with_the_same_defaults() {
    let all = rows(&document("docs/CONFIGURATION.md"));
    let few = rows(&document("README.md"));
    assert_eq!(few.len(), 10);
    for (key, cell) in few {
        assert_eq!(all.get(&key), Some(&cell), "{key}");
    }
}
