//! Platform `python`: whatever starts with Python.

use super::code::{Offer, module_of, offer};
use super::{AppLayout, Project, Start};
use crate::command::Command;
use crate::context::{BuildContext, OutputKind};
use crate::error::{Result, refused};
use crate::frameworks::{Output, PythonFile, python_starts};

/// How much of a file is looked at.
const MAX_SCANNED_BYTES: usize = 64 * 1024;
/// Files that are started when nobody says what to start.
const MAINS: [&str; 7] = [
    "main.py",
    "app.py",
    "server.py",
    "run.py",
    "wsgi.py",
    "__main__.py",
    "src/main.py",
];

/// Platform `python`.
pub(crate) fn app(context: &mut BuildContext<'_>) -> Result<OutputKind> {
    let project = Project::open(context, "python")?;
    if let Some(command) = context.explicit_start()? {
        return project.write(context, Start::explicit(command), &AppLayout::default());
    }
    // Lists with all that is installed name Django and Flask for what others need of them.
    let is_other = context
        .found
        .is_some_and(|found| matches!(found.variant.output, Output::Python(_)));
    if is_other && let Some(start) = known_start(context, &project)? {
        return project.write(context, start, &AppLayout::default());
    }
    if project.manifest.has("django") && context.tree.has("manage.py") {
        context.note("this is a Django project");
        return super::django::write(context, &project);
    }
    if project.manifest.has("flask") {
        context.note("this is a Flask project");
        return super::flask::write(context, &project);
    }
    let start = match known_start(context, &project)? {
        Some(start) => start,
        None => main_file(context)?,
    };
    project.write(context, start, &AppLayout::default())
}

/// What starts the first framework of the table that has one of its usual files.
fn known_start(context: &mut BuildContext<'_>, project: &Project) -> Result<Option<Start>> {
    for (framework, package, file) in python_starts() {
        if project.manifest.has(package)
            && let Some(start) = framework_start(context, framework.name, package, &file)?
        {
            return Ok(Some(start));
        }
    }
    Ok(None)
}

fn main_file(context: &BuildContext<'_>) -> Result<Start> {
    let main = context.tree.first(&MAINS).ok_or_else(|| {
        let advice = format!(
            "nothing says what to start; looked for a line `web:` here, and for {}; add one such as `web: python3 my_app.py`, or set platformConfig.startCommand",
            MAINS.join(", ")
        );
        refused("Procfile", advice)
    })?;
    Ok(Start {
        command: Command::words(&["python3", main]),
        needs: None,
    })
}

/// What starts a framework of the table, when one of its usual files is there.
fn framework_start(
    context: &mut BuildContext<'_>,
    name: &str,
    package: &str,
    known: &PythonFile,
) -> Result<Option<Start>> {
    for file in known.files {
        let word = if known.makers.is_empty() {
            let code = context.tree.read_prefix(file, MAX_SCANNED_BYTES)?;
            code.filter(|code| code.contains(package))
                .map(|_| (*file).to_owned())
        } else {
            let found = offer(&context.tree, file, known.makers)?;
            match (found, module_of(file)) {
                (Some(Offer::Variable(name)), Some(module)) => Some(format!("{module}:{name}")),
                _ => None,
            }
        };
        let Some(word) = word else {
            continue;
        };
        if known.makers.is_empty() {
            context.note(format!("{name} app in {file}"));
        } else {
            let app = word.rsplit(':').next().unwrap_or(&word);
            context.note(format!("ASGI app `{app}` in {file}"));
        }
        let line = known.line.replace("{app}", &word).replace("{file}", &word);
        return Ok(Some(Start {
            command: Command::Shell(line),
            needs: known.needs,
        }));
    }
    Ok(None)
}
