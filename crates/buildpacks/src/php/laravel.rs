//! Platform `laravel`.

use super::composer::FILE;
use super::{Composer, Project, begin_run};
use crate::command::Command;
use crate::error::{Result, refused};
use crate::node;
use crate::work::{Apart, Ending, Work};

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
pub(crate) fn laravel(work: &mut Work<'_>) -> Result<Ending> {
    work.ignored.extend([
        "storage/logs/*.log",
        "public/storage",
        "public/hot",
        "bootstrap/cache/*.php",
    ]);
    let project = Project::open(work, "laravel")?;
    let lacks = project
        .composer
        .as_ref()
        .is_none_or(|composer: &Composer| !composer.requires("laravel/framework"));
    if lacks || !work.tree.has("artisan") {
        let advice =
            "must require laravel/framework, beside a file `artisan`; else choose the platform php";
        return Err(refused(FILE, advice));
    }
    let start = match work.said_start()? {
        Some(command) => command,
        None => start(work)?,
    };
    let assets = assets(work)?;
    project.begin(work, &EXTENSIONS)?;
    project.build(work, &[FOLDERS])?;
    work.file
        .script("ln -sfn ../storage/app/public public/storage");
    work.set_apart(Apart::Vendor);
    if let Some((assets, script)) = &assets {
        assets.build_assets(work, script, "build")?;
    }
    begin_run(work, "public")?;
    work.copy_apart(Apart::Vendor);
    work.file.copy_from_owned("build", "/out", "./");
    if assets.is_some() {
        work.file
            .copy_from_owned("assets", "/app/public", "./public");
    }
    Ok(Ending::Runs(start))
}

/// Apache, after the caches that were asked for. They hold variables of the project, so they are
/// made when it starts and not when it is built.
fn start(work: &Work<'_>) -> Result<Command> {
    let mut steps = Vec::new();
    if work.settings.flag("configCache")? == Some(true) {
        steps.push("php artisan config:cache");
    }
    if work.settings.flag("routeCache")? == Some(true) {
        steps.push("php artisan route:cache");
    }
    if steps.is_empty() {
        return Ok(Command::words(&["apache2-foreground"]));
    }
    steps.push("exec apache2-foreground");
    Ok(Command::Shell(steps.join(" && ")))
}

/// The project of Node.js that makes scripts and styles, and the script that does it.
fn assets(work: &mut Work<'_>) -> Result<Option<(node::Project, &'static str)>> {
    let wanted = work.settings.flag("buildAssets")?;
    if wanted == Some(false) || !work.tree.has("package.json") {
        return Ok(None);
    }
    let project = node::Project::open(work, "node", &["nodeVersion"])?;
    let script = project.build_script(&["build", "production"]);
    Ok(script.map(|script| (project, script)))
}
