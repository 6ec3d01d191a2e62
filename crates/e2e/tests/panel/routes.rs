//! Every route of the panel, read from its sources: axum does not tell which routes a router has.

use std::fs;
use std::path::Path;

/// A path of the panel with the methods that it takes.
#[derive(Debug, Clone)]
pub(crate) struct Route {
    pub(crate) path: String,
    pub(crate) takes_get: bool,
    pub(crate) takes_post: bool,
}

/// Methods besides GET and POST, and what tests them: a route with another one fails every test of all routes.
const OTHER_METHODS: &[(&str, &str)] = &[
    // projects/deploys.rs: refused without the token, of other origins and for viewers.
    ("put", "/panel/projects/{project}/deploy/blobs/{digest}"),
];

/// Forms of people who are not signed in: the origin alone protects them.
const PUBLIC: &[&str] = &[
    "/panel/sign-in",
    "/panel/second-factor",
    "/panel/welcome/",
    "/panel/reset/",
    "/panel/join",
];

impl Route {
    pub(crate) fn is_public(&self) -> bool {
        PUBLIC.iter().any(|public| self.path.starts_with(public))
    }

    /// The path with something in the place of each parameter.
    pub(crate) fn example(&self) -> String {
        let id = "0123456789abcdef01234567";
        let part = |part: &str| {
            if part.starts_with('{') {
                id.to_owned()
            } else {
                part.to_owned()
            }
        };
        self.path.split('/').map(part).collect::<Vec<_>>().join("/")
    }
}

/// Every route of a page.
pub(crate) fn routes() -> Vec<Route> {
    let pages = Path::new(env!("CARGO_MANIFEST_DIR")).join("../panel/src/pages");
    let mut found = Vec::new();
    collect(&pages, &mut found);
    assert!(found.len() > 10, "{found:?}");
    found
}

fn collect(folder: &Path, found: &mut Vec<Route>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            collect(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            read(&fs::read_to_string(&path).unwrap(), found);
        }
    }
}

fn read(source: &str, found: &mut Vec<Route>) {
    for call in source.split(".route(").skip(1) {
        let arguments = up_to_closing(call);
        let (first, methods) = arguments.split_once(',').unwrap();
        let path = match first.trim().strip_prefix('"') {
            Some(literal) => literal.trim_end_matches('"').to_owned(),
            None => constant(source, first.trim()),
        };
        if !path.starts_with("/panel/") || path.contains("{*") {
            continue;
        }
        let methods = methods.replace(char::is_whitespace, "");
        let takes = |name: &str| {
            methods.starts_with(&format!("{name}(")) || methods.contains(&format!(".{name}("))
        };
        for method in method_names(&methods) {
            let is_known = matches!(method, "get" | "post");
            assert!(
                is_known || OTHER_METHODS.contains(&(method, path.as_str())),
                "no test of all routes knows {method} {path}"
            );
        }
        found.push(Route {
            path,
            takes_get: takes("get"),
            takes_post: takes("post"),
        });
    }
}

/// The names of the calls in a chain such as `get(show).post(save)`.
fn method_names(methods: &str) -> Vec<&str> {
    let mut names = Vec::new();
    let mut rest = methods;
    while let Some((before, after)) = rest.split_once('(') {
        let name = before.rsplit(['.', ',', ':']).next().unwrap_or_default();
        names.push(name);
        rest = &after[up_to_closing(after).len()..];
        rest = rest.trim_start_matches(')');
    }
    names
}

#[test]
fn methods_are_read() {
    assert_eq!(method_names("get(a::show).post(b)"), ["get", "post"]);
    assert_eq!(method_names("put(save(x)).layer(y)"), ["put", "layer"]);
}

/// The text up to the parenthesis that closes a call.
fn up_to_closing(text: &str) -> &str {
    let mut depth = 1;
    for (index, letter) in text.char_indices() {
        match letter {
            '(' => depth += 1,
            ')' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return &text[..index];
        }
    }
    text
}

fn constant(source: &str, name: &str) -> String {
    let declaration = format!("const {name}: &str = \"");
    let (_, rest) = source
        .split_once(&declaration)
        .expect("the constant of a route");
    rest.split('"').next().unwrap().to_owned()
}
