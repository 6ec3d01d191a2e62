//! Platform `django`.

use super::code::{is_module, module_of, quoted_after};
use super::{AppLayout, Project, Start};
use crate::command::Command;
use crate::context::{BuildContext, OutputKind};
use crate::error::{Result, refused};
use crate::sources::{Tree, depth, folder_of, name_of};

/// Collects static files. Settings often insist on a key, which matters only to what runs.
const COLLECT: &str = "SECRET_KEY=\"${SECRET_KEY:-only-for-the-build}\" \
DJANGO_SECRET_KEY=\"${DJANGO_SECRET_KEY:-only-for-the-build}\" \
python3 manage.py collectstatic --noinput || { \
echo 'collectstatic failed. Variables of the project are not there during a build: give what the settings need in build.args, or set collectStatic to false.' >&2; exit 1; }";

/// Platform `django`.
pub(crate) fn django(context: &mut BuildContext<'_>) -> Result<OutputKind> {
    let project = Project::open(context, "django")?;
    project.require_manifest("django")?;
    write(context, &project)
}

/// Writes a Django project.
pub(super) fn write(context: &mut BuildContext<'_>, project: &Project) -> Result<OutputKind> {
    context.ignored.extend(["**/*.log", "**/local_settings.py"]);
    let site = Site::find(context)?;
    let start = match context.explicit_start()? {
        Some(command) => Start::explicit(command),
        None => site.start(context, project)?,
    };
    let chosen = chosen_settings(context, &site.folder)?;
    let collects = site.collects(context, chosen.as_deref())?;
    if collects && !project.manifest.has("whitenoise") {
        context.note("static files are collected, but nothing in the dependencies serves them; add whitenoise");
    }
    let mut layout = AppLayout {
        folder: site.folder,
        settings: chosen,
        ..AppLayout::default()
    };
    if context.settings.flag("geospatial")? == Some(true) {
        layout
            .packages
            .extend(["binutils", "gdal-bin", "libproj-dev"]);
    }
    if context.settings.flag("compileMessages")? == Some(true) {
        layout.tools.push("gettext");
        layout.steps.push("python3 manage.py compilemessages");
    }
    if collects {
        context.note("static files are collected during the build");
        layout.steps.push(COLLECT);
    }
    project.write(context, start, &layout)
}

/// The settings that the user chose: a module, or the path of its file.
fn chosen_settings(context: &BuildContext<'_>, folder: &str) -> Result<Option<String>> {
    let Some((place, text)) = context.settings.text(&["settingsFile", "settingsModule"])? else {
        return Ok(None);
    };
    let inner = text.trim_start_matches("./");
    let inner = inner
        .strip_prefix(folder)
        .and_then(|rest| rest.strip_prefix('/'))
        .unwrap_or(inner);
    let module = module_of(inner).or_else(|| is_module(inner).then(|| inner.to_owned()));
    module.map(Some).ok_or_else(|| {
        refused(
            place,
            format!("`{text}` is no module; write one such as mysite.settings"),
        )
    })
}

/// Where the parts of a Django project are.
struct Site {
    /// The folder of `manage.py`.
    folder: String,
    /// The module with the settings, where `manage.py` names it.
    settings: Option<String>,
}

impl Site {
    fn find(context: &mut BuildContext<'_>) -> Result<Self> {
        let found = context
            .tree
            .paths()
            .filter(|path| name_of(path) == "manage.py" && depth(path) <= 2);
        let manage = found
            .min_by_key(|path| (depth(path), *path))
            .ok_or_else(|| {
                refused(
                    "manage.py",
                    "is missing; put the Django project into the root of the sources",
                )
            })?;
        let code = context.tree.text(manage)?.unwrap_or_default();
        let settings =
            quoted_after(&code, "DJANGO_SETTINGS_MODULE").filter(|module| is_module(module));
        let site = Self {
            folder: folder_of(manage).to_owned(),
            settings: settings.map(str::to_owned),
        };
        if site.folder != "." {
            context.note(format!("Django project in {}", site.folder));
        }
        Ok(site)
    }

    /// The path of a file of the project, in the sources.
    fn path(&self, inner: &str) -> String {
        match self.folder.as_str() {
            "." => inner.to_owned(),
            folder => format!("{folder}/{inner}"),
        }
    }

    /// The module `wsgi` or `asgi`: near the settings, else the only one there is.
    fn server_module(&self, tree: &Tree<'_>, name: &str) -> Option<String> {
        let settings = self.settings.as_deref().unwrap_or_default();
        let mut around: Vec<_> = settings
            .match_indices('.')
            .filter_map(|(at, _)| settings.get(..at))
            .collect();
        around.reverse();
        let near = around.into_iter().find_map(|package| {
            let path = self.path(&format!("{}/{name}.py", package.replace('.', "/")));
            tree.has(&path).then(|| format!("{package}.{name}"))
        });
        near.or_else(|| {
            let inner = |path: &'_ str| -> Option<String> {
                let inner = match self.folder.as_str() {
                    "." => Some(path),
                    folder => path.strip_prefix(folder)?.strip_prefix('/'),
                };
                let inner = inner.filter(|inner| name_of(inner) == format!("{name}.py"))?;
                module_of(inner).filter(|module| module.matches('.').count() <= 2)
            };
            tree.paths().filter_map(inner).min_by_key(String::len)
        })
    }

    fn start(&self, context: &mut BuildContext<'_>, project: &Project) -> Result<Start> {
        let asgi = self.server_module(&context.tree, "asgi");
        let has = |name: &str| project.manifest.has(name);
        if let Some(module) = &asgi
            && (has("daphne") || has("channels"))
        {
            context.note(format!("ASGI with Daphne: {module}"));
            let line =
                format!("exec python3 -m daphne -b 0.0.0.0 -p \"$PORT\" {module}:application");
            return Ok(Start {
                command: Command::Shell(line),
                needs: Some("daphne"),
            });
        }
        if let Some(module) = &asgi
            && (has("uvicorn") || has("uvicorn-worker"))
        {
            context.note(format!("ASGI with Gunicorn and Uvicorn: {module}"));
            let worker = if has("uvicorn-worker") {
                "uvicorn_worker.UvicornWorker"
            } else {
                "uvicorn.workers.UvicornWorker"
            };
            let module = format!("{module}:application");
            return Ok(Start::gunicorn(
                context,
                &self.folder,
                &module,
                Some(worker),
            ));
        }
        let module = self.server_module(&context.tree, "wsgi").ok_or_else(|| {
            refused("wsgi.py", "was not found near the settings; add it, set platformConfig.startCommand, or say in a Procfile what to start: `web: gunicorn …`")
        })?;
        context.note(format!("WSGI with Gunicorn: {module}"));
        Ok(Start::gunicorn(
            context,
            &self.folder,
            &format!("{module}:application"),
            None,
        ))
    }

    /// Whether static files are collected: when the settings say where to.
    fn collects(&self, context: &BuildContext<'_>, chosen: Option<&str>) -> Result<bool> {
        if let Some(said) = context.settings.flag("collectStatic")? {
            return Ok(said);
        }
        let Some(settings) = chosen.or(self.settings.as_deref()) else {
            return Ok(false);
        };
        let stem = settings.replace('.', "/");
        let around = stem.rsplit_once('/').map_or("", |(around, _)| around);
        // Settings are often split into a common part and one per environment.
        let files = [
            format!("{stem}.py"),
            format!("{stem}/__init__.py"),
            format!("{stem}/base.py"),
            format!("{around}/base.py"),
            format!("{around}/common.py"),
        ];
        for file in files {
            let code = context
                .tree
                .read_prefix(&self.path(&file), 256 * 1024)?
                .unwrap_or_default();
            let says = |line: &str| {
                line.trim_start().starts_with("STATIC_ROOT")
                    || line.trim_start().starts_with("STORAGES")
            };
            if code.lines().any(says) {
                return Ok(true);
            }
        }
        Ok(false)
    }
}
