//! Platform `flask`.

use super::code::{Offer, is_module, module_of, offer};
use super::{Project, Shape, Start};
use crate::error::{Result, refused};
use crate::sources::depth;
use crate::work::{Ending, Work};

/// Files in which the app is usually made, the likely one first.
const USUAL: [&str; 9] = [
    "wsgi.py",
    "app.py",
    "main.py",
    "application.py",
    "server.py",
    "run.py",
    "index.py",
    "app/__init__.py",
    "src/app.py",
];
/// Most other packages that are looked into.
const MOST_PACKAGES: usize = 20;

/// Platform `flask`.
pub(crate) fn flask(work: &mut Work<'_>) -> Result<Ending> {
    let project = Project::open(work, "flask")?;
    project.require_manifest("flask")?;
    write(work, &project)
}

/// Writes a Flask project.
pub(super) fn write(work: &mut Work<'_>, project: &Project) -> Result<Ending> {
    work.ignored.extend(["instance", ".webassets-cache"]);
    let start = if let Some(command) = work.said_start()? {
        Start::said(command)
    } else {
        let module = module(work)?;
        Start::gunicorn(work, ".", &module, None)
    };
    project.write(work, start, &Shape::default())
}

/// What Gunicorn is told to serve: `module:app`.
fn module(work: &mut Work<'_>) -> Result<String> {
    if let Some((place, text)) = work.settings.text(&["appModule"])? {
        let (module, name) = text.split_once(':').unwrap_or((&text, "app"));
        let called = name.strip_suffix("()").unwrap_or(name);
        if !is_module(module) || !is_module(called) {
            return Err(refused(
                place,
                format!("`{text}` is no app; write one such as main:app"),
            ));
        }
        return Ok(format!("{module}:{name}"));
    }
    let packages = work
        .tree
        .paths()
        .filter(|path| depth(path) == 1 && path.ends_with("/__init__.py"));
    let packages: Vec<_> = packages.take(MOST_PACKAGES).collect();
    for file in USUAL.into_iter().chain(packages) {
        let found = offer(&work.tree, file, &["Flask", "create_app", "make_app"])?;
        let (Some(found), Some(module)) = (found, module_of(file)) else {
            continue;
        };
        let app = match found {
            Offer::Variable(name) => format!("{module}:{name}"),
            Offer::Factory(name) => format!("{module}:{name}()"),
        };
        work.note(format!("Flask app in {file}: {app}"));
        return Ok(app);
    }
    Err(refused(
        "app.py",
        "no file makes a Flask app; add app.py with `app = Flask(__name__)`, or set platformConfig.appModule to module:app",
    ))
}
