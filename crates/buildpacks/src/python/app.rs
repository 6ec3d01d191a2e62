//! Platform `python`: whatever starts with Python.

use super::code::{Offer, module_of, offer};
use super::{Project, Shape, Start};
use crate::command::Command;
use crate::context::{BuildContext, OutputKind};
use crate::error::{Result, refused};

/// Files in which an ASGI app is usually made.
const ASGI: [&str; 7] = [
    "main.py",
    "app.py",
    "app/main.py",
    "server.py",
    "api.py",
    "src/main.py",
    "app/__init__.py",
];
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
    if let Some(command) = context.said_start()? {
        return project.write(context, Start::said(command), &Shape::default());
    }
    if project.manifest.has("django") && context.tree.has("manage.py") {
        context.note("this is a Django project");
        return super::django::write(context, &project);
    }
    if project.manifest.has("flask") {
        context.note("this is a Flask project");
        return super::flask::write(context, &project);
    }
    let start = start(context, &project)?;
    project.write(context, start, &Shape::default())
}

fn start(context: &mut BuildContext<'_>, project: &Project) -> Result<Start> {
    if project.manifest.has("fastapi") || project.manifest.has("starlette") {
        for file in ASGI {
            let found = offer(&context.tree, file, &["FastAPI", "Starlette", "create_app"])?;
            if let (Some(Offer::Variable(name)), Some(module)) = (found, module_of(file)) {
                context.note(format!("ASGI app `{name}` in {file}"));
                let line = format!(
                    "exec python3 -m uvicorn {module}:{name} --host 0.0.0.0 --port \"$PORT\""
                );
                return Ok(Start {
                    command: Command::Shell(line),
                    needs: Some("uvicorn"),
                });
            }
        }
    }
    let main = context.tree.first(&MAINS).ok_or_else(|| {
        refused(
            "Procfile",
            "nothing says what to start; add a line such as `web: python3 my_app.py`, or a main.py",
        )
    })?;
    Ok(Start {
        command: Command::words(&["python3", main]),
        needs: None,
    })
}
