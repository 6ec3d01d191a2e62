//! `Procfile`: a line `web: …` says what is started.

use crate::command::Command;
use crate::error::{Result, refused};
use crate::sources::Tree;

const FILE: &str = "Procfile";

/// What the Procfile starts for the web; none without a Procfile.
pub(crate) fn web(tree: &Tree<'_>) -> Result<Option<Command>> {
    let Some(text) = tree.text(FILE)? else {
        return Ok(None);
    };
    let named = text.lines().filter_map(|line| line.split_once(':'));
    let web = named
        .filter(|(name, _)| name.trim() == "web")
        .map(|(_, line)| line)
        .next();
    let command = web.and_then(Command::from_line);
    command.map(Some).ok_or_else(|| {
        refused(
            FILE,
            "has no line such as `web: command`; add it, or remove the file",
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn the_line_for_the_web_counts() {
        let read = |text: &str| {
            let sources: BTreeMap<_, _> = [(FILE.to_owned(), text.into())].into();
            let command = web(&Tree::new(&sources));
            command.map(|command| command.map(|command| command.shown()))
        };
        let shown = read("release: migrate\nweb:  node a.js \nweb: second").unwrap();
        assert_eq!(shown.as_deref(), Some("node a.js"));
        assert_eq!(
            read("web: x:y $PORT").unwrap().as_deref(),
            Some("x:y $PORT")
        );
        for bad in ["", "worker: x", "web:", "web"] {
            assert!(
                read(bad).unwrap_err().to_string().starts_with("Procfile: "),
                "{bad}"
            );
        }
        assert!(web(&Tree::new(&BTreeMap::new())).unwrap().is_none());
    }
}
