//! Platform `docker`: the user's own Dockerfile, as it is, on images that everybody may use.

use crate::bases::{self, Reading};
use crate::build_plan::{BuildPlan, Dockerfile, Outcome};
use crate::context::BuildContext;
use crate::error::{Result, refused};
use crate::ignore::IgnoreRules;

/// The user's Dockerfile: the one that they name, else the usual one.
pub(crate) fn plan(mut context: BuildContext<'_>) -> Result<BuildPlan> {
    let path = match context.settings.dockerfile() {
        Some(path) if context.tree.has(path) => path.to_owned(),
        Some(path) => {
            let advice =
                format!("there is no file `{path}` in the sources; names are case-sensitive");
            return Err(refused("build.dockerfile", advice));
        }
        None => {
            let advice =
                "is missing; add one, name yours in `build.dockerfile`, or deploy an `image`";
            let found = context.tree.first(&["Dockerfile", "dockerfile"]);
            found
                .ok_or_else(|| refused("Dockerfile", advice))?
                .to_owned()
        }
    };
    context.note(format!("built as {path} says"));
    let port = context.settings.port(context.platform);
    let text = context.tree.text(&path)?.unwrap_or_default();
    let Reading { bases, notes } = bases::check(&path, &text, context.settings.build_args())?;
    for note in notes {
        context.note(format!("{path}: {note}"));
    }
    let exposed = exposed(&text);
    if let Some(other) = exposed.filter(|exposed| *exposed != port) {
        context.note(format!(
            "{path} exposes port {other}, but the app is expected on {port}: set the release's `port` if that is wrong"
        ));
    }
    Ok(BuildPlan {
        ignore: IgnoreRules::of_dockerfile(&context.tree, &path)?,
        dockerfile: Dockerfile::Theirs { path, bases },
        build_args: context.settings.build_args().to_vec(),
        package_cache: None,
        cache: context.settings.cache(),
        outcome: Outcome::Runs {
            command: context.settings.args().map(<[String]>::to_vec),
            port,
        },
        notes: context.notes,
    })
}

/// The port of the last stage's `EXPOSE`, where it is one plain number.
fn exposed(dockerfile: &str) -> Option<u16> {
    let mut port = None;
    for line in dockerfile.lines() {
        let mut words = line.split_ascii_whitespace();
        let instruction = words.next().unwrap_or_default().to_ascii_uppercase();
        match instruction.as_str() {
            "FROM" => port = None,
            "EXPOSE" => {
                let first = words.next().unwrap_or_default();
                let number = first.strip_suffix("/tcp").unwrap_or(first);
                port = number.parse().ok().filter(|_| words.next().is_none());
            }
            _ => {}
        }
    }
    port
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_stage_exposes() {
        assert_eq!(
            exposed("FROM a\nEXPOSE 1\nFROM b\nexpose 3000/tcp\n"),
            Some(3000)
        );
        assert_eq!(exposed("FROM a\nEXPOSE 1\nFROM b\n"), None);
        for unclear in [
            "EXPOSE $PORT",
            "EXPOSE 1 2",
            "EXPOSE 53/udp",
            "EXPOSE",
            "RUN EXPOSE 1",
        ] {
            assert_eq!(exposed(unclear), None, "{unclear}");
        }
    }
}
