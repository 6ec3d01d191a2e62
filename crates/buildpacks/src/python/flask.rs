//! Platform `flask`.

use super::code::{Offer, is_module, module_of, offer};
use super::{AppLayout, Project, Start};
use crate::context::{BuildContext, OutputKind};
use crate::error::{Result, refused};
use crate::sources::depth;

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
const MAX_PACKAGES: usize = 20;

/// Platform `flask`.
pub(crate) fn flask(context: &mut BuildContext<'_>) -> Result<OutputKind> {
    let project = Project::open(context, "flask")?;
    project.require_manifest("flask")?;
    write(context, &project)
}

/// Writes a Flask project.
pub(super) fn write(context: &mut BuildContext<'_>, project: &Project) -> Result<OutputKind> {
    context.ignored.extend(["instance", ".webassets-cache"]);
    let start = if let Some(command) = context.explicit_start()? {
        Start::explicit(command)
    } else {
        let module = module(context)?;
        Start::gunicorn(context, ".", &module, None)
    };
    project.write(context, start, &AppLayout::default())
}

/// What Gunicorn is told to serve: `module:app`.
fn module(context: &mut BuildContext<'_>) -> Result<String> {
    if let Some((place, text)) = context.settings.text(&["appModule"])? {
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
    let packages = context
        .tree
        .paths()
        .filter(|path| depth(path) == 1 && path.ends_with("/__init__.py"));
    let packages: Vec<_> = packages.take(MAX_PACKAGES).collect();
    for file in USUAL.into_iter().chain(packages) {
        let found = offer(&context.tree, file, &["Flask", "create_app", "make_app"])?;
        let (Some(found), Some(module)) = (found, module_of(file)) else {
            continue;
        };
        let app = match found {
            Offer::Variable(name) => format!("{module}:{name}"),
            Offer::Factory(name) => format!("{module}:{name}()"),
        };
        context.note(format!("Flask app in {file}: {app}"));
        return Ok(app);
    }
    Err(refused(
        "app.py",
        "no file makes a Flask app; add app.py with `app = Flask(__name__)`, or set platformConfig.appModule to module:app",
    ))
}
