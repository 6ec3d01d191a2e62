//! Platform `laravel`.

use super::composer::FILE;
use super::{Composer, Project, begin_run};
use crate::command::Command;
use crate::context::{BuildContext, OutputKind, SeparateLayer};
use crate::error::{Result, refused};
use crate::node;

/// Extensions that Laravel and its databases, queues and archives use.
const EXTENSIONS: [&str; 6] = [
    "bcmath",
    "opcache",
    "pcntl",
    "pdo_mysql",
    "pdo_pgsql",
    "zip",
];
/// Folders that Laravel writes to, and that sources often lack.
const FOLDERS: &str = "mkdir -p bootstrap/cache storage/app/public storage/framework/cache/data \
storage/framework/sessions storage/framework/views storage/logs";

/// Platform `laravel`.
pub(crate) fn laravel(context: &mut BuildContext<'_>) -> Result<OutputKind> {
    context.ignored.extend([
        "storage/logs/*.log",
        "public/storage",
        "public/hot",
        "bootstrap/cache/*.php",
    ]);
    let project = Project::open(context, "laravel")?;
    let lacks = project
        .composer
        .as_ref()
        .is_none_or(|composer: &Composer| !composer.requires("laravel/framework"));
    if lacks || !context.tree.has("artisan") {
        let advice =
            "must require laravel/framework, beside a file `artisan`; else choose the platform php";
        return Err(refused(FILE, advice));
    }
    let start = match context.explicit_start()? {
        Some(command) => command,
        None => start(context)?,
    };
    let assets = assets(context)?;
    project.begin(context, &EXTENSIONS)?;
    project.build(context, &[FOLDERS])?;
    context
        .file
        .script("ln -sfn ../storage/app/public public/storage");
    context.split_layer(SeparateLayer::Vendor);
    if let Some((assets, script)) = &assets {
        assets.build_assets(context, script, "build")?;
    }
    begin_run(context, "public")?;
    context.copy_layer(SeparateLayer::Vendor);
    context.file.copy_from_owned("build", "/out", "./");
    if assets.is_some() {
        context
            .file
            .copy_from_owned("assets", "/app/public", "./public");
    }
    Ok(OutputKind::Runs(start))
}

/// Apache, after the caches that were asked for. They hold variables of the project, so they are
/// made when it starts and not when it is built.
fn start(context: &BuildContext<'_>) -> Result<Command> {
    let mut steps = Vec::new();
    if context.settings.flag("configCache")? == Some(true) {
        steps.push("php artisan config:cache");
    }
    if context.settings.flag("routeCache")? == Some(true) {
        steps.push("php artisan route:cache");
    }
    if steps.is_empty() {
        return Ok(Command::words(&["apache2-foreground"]));
    }
    steps.push("exec apache2-foreground");
    Ok(Command::Shell(steps.join(" && ")))
}

/// The project of Node.js that makes scripts and styles, and the script that does it.
fn assets(context: &mut BuildContext<'_>) -> Result<Option<(node::Project, &'static str)>> {
    let wanted = context.settings.flag("buildAssets")?;
    if wanted == Some(false) || !context.tree.has("package.json") {
        return Ok(None);
    }
    let project = node::Project::open(context, "node", &["nodeVersion"])?;
    let script = project.build_script(&["build", "production"]);
    Ok(script.map(|script| (project, script)))
}
