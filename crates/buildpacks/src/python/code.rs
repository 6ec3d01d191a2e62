//! A look at Python code: names that are plainly there, never anything that would need to run.

use crate::error::Result;
use crate::sources::Tree;

/// How much of a file is looked at.
const MAX_SCANNED_BYTES: usize = 64 * 1024;
/// Longest module path.
const MAX_MODULE: usize = 200;

/// Whether a text is a dotted path of Python names, which no shell sees anything else in.
pub(super) fn is_module(text: &str) -> bool {
    let name = |part: &str| {
        let begins = part.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
        begins
            && part
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
    };
    text.len() <= MAX_MODULE && text.split('.').all(name)
}

/// The module that a file is, seen from a folder.
pub(super) fn module_of(path: &str) -> Option<String> {
    let stem = path.strip_suffix(".py")?;
    let stem = stem.strip_suffix("/__init__").unwrap_or(stem);
    let module = stem.replace('/', ".");
    is_module(&module).then_some(module)
}

/// The first quoted text after a word.
pub(super) fn quoted_after<'c>(code: &'c str, word: &str) -> Option<&'c str> {
    let (_, after) = code.split_once(word)?;
    let after = after.trim_start_matches(['"', '\'']);
    let line = after.lines().next()?;
    let start = line.find(['"', '\''])?;
    let quote = line.get(start..)?.chars().next()?;
    let (value, _) = line.get(start + 1..)?.split_once(quote)?;
    Some(value)
}

/// What a file of a web app offers to a server.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Offer {
    /// A variable.
    Variable(String),
    /// A function that makes the app.
    Factory(String),
}

/// Looks for an app that is made by one of these calls, or by a function that is known to make one.
pub(super) fn offer(tree: &Tree<'_>, file: &str, calls: &[&str]) -> Result<Option<Offer>> {
    let Some(code) = tree.read_prefix(file, MAX_SCANNED_BYTES)? else {
        return Ok(None);
    };
    let made = |line: &str| {
        let (left, right) = line.split_once('=')?;
        let name = left.split(':').next()?.trim_end();
        let right = right.trim_start();
        let right = right
            .rsplit_once('.')
            .filter(|(path, _)| is_module(path))
            .map_or(right, |(_, call)| call);
        let fits = calls.iter().any(|call| {
            right
                .strip_prefix(call)
                .is_some_and(|rest| rest.starts_with('('))
        });
        (fits && is_module(name) && !name.contains('.')).then(|| Offer::Variable(name.to_owned()))
    };
    let imported = |line: &str| {
        let (_, names) = line.strip_prefix("from ")?.split_once(" import ")?;
        let mut names = names
            .split(',')
            .map(|name| name.rsplit(" as ").next().unwrap_or(name).trim());
        let name = names.find(|name| matches!(*name, "app" | "application"))?;
        Some(Offer::Variable(name.to_owned()))
    };
    let factory = |line: &str| {
        let (name, _) = line.strip_prefix("def ")?.split_once('(')?;
        let known = matches!(name.trim(), "create_app" | "make_app");
        known.then(|| Offer::Factory(name.trim().to_owned()))
    };
    let find = |look: &dyn Fn(&str) -> Option<Offer>| code.lines().find_map(look);
    Ok(find(&made)
        .or_else(|| find(&imported))
        .or_else(|| find(&factory)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn modules_are_names_with_dots() {
        for good in ["a", "a.b_c", "_x.y1"] {
            assert!(is_module(good), "{good}");
        }
        for bad in ["", ".", "a.", "1a", "a-b", "a b", "a;b", "$a", "a\n", "é"] {
            assert!(!is_module(bad), "{bad:?}");
        }
        assert!(!is_module(&"a".repeat(MAX_MODULE + 1)));
        assert_eq!(module_of("a/b.py").as_deref(), Some("a.b"));
        assert_eq!(module_of("a/__init__.py").as_deref(), Some("a"));
        assert_eq!(module_of("a b/c.py"), None);
        assert_eq!(module_of("a.txt"), None);
    }

    #[test]
    fn quoted_texts_follow_their_word() {
        let word = "DJANGO_SETTINGS_MODULE";
        for code in [
            "os.environ.setdefault('DJANGO_SETTINGS_MODULE', 'my.settings')",
            "os.environ[\"DJANGO_SETTINGS_MODULE\"] = \"my.settings\"",
        ] {
            assert_eq!(quoted_after(code, word), Some("my.settings"), "{code}");
        }
        assert_eq!(
            quoted_after("setdefault('DJANGO_SETTINGS_MODULE', choose())\n'x'", word),
            None
        );
        assert_eq!(quoted_after("", word), None);
    }

    #[test]
    fn apps_are_found_where_they_are_made() {
        let look = |code: &str| {
            let sources: BTreeMap<_, _> = [("a.py".to_owned(), code.into())].into();
            offer(&Tree::new(&sources), "a.py", &["Flask", "create_app"]).unwrap()
        };
        let variable = |name: &str| Some(Offer::Variable(name.to_owned()));
        assert_eq!(look("app = Flask(__name__)"), variable("app"));
        assert_eq!(
            look("server: Flask = flask.Flask(__name__)"),
            variable("server")
        );
        assert_eq!(
            look("def create_app():\n    app = Flask(x)\napplication = create_app()"),
            variable("application")
        );
        assert_eq!(
            look("from shop import db, app as application"),
            variable("application")
        );
        assert_eq!(
            look("def create_app(x):\n  pass"),
            Some(Offer::Factory("create_app".into()))
        );
        for nothing in [
            "    app = Flask(x)",
            "# app = Flask(x)",
            "x['a'] = Flask(y)",
            "app = Flaskish(x)",
        ] {
            assert_eq!(look(nothing), None, "{nothing}");
        }
    }
}
