//! Platform `python`: whatever starts with Python.

use super::code::{Offer, module_of, offer};
use super::{Project, Shape, Start};
use crate::command::Command;
use crate::error::{Result, refused};
use crate::work::{Ending, Work};

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
pub(crate) fn app(work: &mut Work<'_>) -> Result<Ending> {
    let project = Project::open(work, "python")?;
    if let Some(command) = work.said_start()? {
        return project.write(work, Start::said(command), &Shape::default());
    }
    if project.manifest.has("django") && work.tree.has("manage.py") {
        work.note("this is a Django project");
        return super::django::write(work, &project);
    }
    if project.manifest.has("flask") {
        work.note("this is a Flask project");
        return super::flask::write(work, &project);
    }
    let start = start(work, &project)?;
    project.write(work, start, &Shape::default())
}

fn start(work: &mut Work<'_>, project: &Project) -> Result<Start> {
    if project.manifest.has("fastapi") || project.manifest.has("starlette") {
        for file in ASGI {
            let found = offer(&work.tree, file, &["FastAPI", "Starlette", "create_app"])?;
            if let (Some(Offer::Variable(name)), Some(module)) = (found, module_of(file)) {
                work.note(format!("ASGI app `{name}` in {file}"));
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
    let main = work.tree.first(&MAINS).ok_or_else(|| {
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
