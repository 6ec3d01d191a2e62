//! Paths of files against a naive reading of the rules, on random paths.

use estrade_model::paths::{FilePath, FileTree};
use proptest::collection::vec;
use proptest::prelude::*;
use std::path::{Component, Path};

/// Segments that are dangerous, or sort closely around the separator.
fn segment() -> impl Strategy<Value = String> {
    let special = [
        "", ".", "..", "...", "a", "b", "ab", "a ", "a!", "a-", "a.", "a.b", "a0", "A", "é",
        "a\\b", "a\u{0}", "\u{1}", "\u{7f}", "\u{85}", "\u{2028}", "~", "C:", "nul", "\u{fffd}",
    ];
    prop_oneof![
        8 => proptest::sample::select(special.to_vec()).prop_map(str::to_owned),
        1 => any::<String>(),
        1 => (250_usize..260).prop_map(|length| "s".repeat(length)),
        1 => (250_usize..260).prop_map(|length| "é".repeat(length / 2) + &"s".repeat(length % 2)),
    ]
}

fn path() -> impl Strategy<Value = String> {
    prop_oneof![
        9 => vec(segment(), 0..6).prop_map(|segments| segments.join("/")),
        1 => (505_usize..520).prop_map(|count| vec!["a"; count].join("/")),
    ]
}

/// The rules as the contract says them, with the standard library's idea of a path.
fn is_allowed(text: &str) -> bool {
    let components: Option<Vec<_>> = Path::new(text)
        .components()
        .map(|component| match component {
            Component::Normal(name) => name.to_str(),
            _ => None,
        })
        .collect();
    // What comes back changed had an empty or a `.` segment somewhere.
    let plain = components
        .is_some_and(|names| names.join("/") == text && names.iter().all(|name| name.len() <= 255));
    plain
        && !text.is_empty()
        && text.len() <= 1024
        && !text.chars().any(|c| c.is_control() || c == '\\')
}

/// Whether two files cannot be in one tree.
fn clash(one: &str, other: &str) -> bool {
    one == other || one.starts_with(&format!("{other}/")) || other.starts_with(&format!("{one}/"))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_path_is_allowed_when_the_rules_say_so(text in path()) {
        let parsed = FilePath::try_from(text.clone());
        prop_assert_eq!(parsed.is_ok(), is_allowed(&text), "{:?}", text);
        if let Ok(path) = parsed {
            prop_assert_eq!(path.as_str(), text);
        }
    }

    #[test]
    fn no_allowed_path_leaves_the_directory_it_is_put_into(text in path()) {
        if let Ok(path) = FilePath::try_from(text) {
            let joined = Path::new("/srv/site").join(path.as_str());
            prop_assert!(joined.starts_with("/srv/site"));
            prop_assert!(joined.components().all(|one| one != Component::ParentDir));
        }
    }

    #[test]
    fn a_tree_takes_what_clashes_with_nothing(texts in vec(path(), 0..40)) {
        let mut tree = FileTree::default();
        let mut taken: Vec<String> = Vec::new();
        for text in texts {
            let Ok(path) = FilePath::try_from(text.clone()) else {
                continue;
            };
            let fits = !taken.iter().any(|other| clash(other, &text));
            prop_assert_eq!(tree.insert(&path).is_ok(), fits, "{:?} among {:?}", text, taken);
            if fits {
                taken.push(text);
            }
        }
    }
}
