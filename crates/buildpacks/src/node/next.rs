//! Platform `next`: Next.js, as a server, as a standalone server, or exported as static files.

use super::package::FILE;
use super::pages::{leave_in_site, plain_value};
use super::{Project, Rest};
use crate::command::Command;
use crate::error::{Result, refused};
use crate::work::{Ending, Work};

const CONFIGS: [&str; 4] = [
    "next.config.js",
    "next.config.mjs",
    "next.config.ts",
    "next.config.cjs",
];

/// Platform `next`.
pub(crate) fn next(work: &mut Work<'_>) -> Result<Ending> {
    work.ignored.push("**/.next");
    let project = Project::open(work, "next", &["nodeVersion", "version"])?;
    if !project.package.depends_on("next") {
        return Err(refused(
            FILE,
            "does not depend on `next`; add it, or choose the platform node",
        ));
    }
    let output = output(work)?;
    match output.as_deref() {
        Some("export") => {
            work.note("next.config says `output: \"export\"`: the result is a static site");
            build(work, &project)?;
            let looked_in = vec!["out".to_owned()];
            leave_in_site(work, &looked_in);
            Ok(Ending::Static {
                spa: false,
                looked_in,
            })
        }
        Some("standalone") if !project.package.is_workspace() => standalone(work, &project),
        _ => server(work, &project),
    }
}

/// What the configuration says about the output, where it says so plainly.
fn output(work: &Work<'_>) -> Result<Option<String>> {
    let Some(config) = work.tree.first(&CONFIGS) else {
        return Ok(None);
    };
    let text = work.tree.text(config)?.unwrap_or_default();
    Ok(plain_value(&text, "output"))
}

/// Writes the stage that builds.
fn build(work: &mut Work<'_>, project: &Project) -> Result<()> {
    project.begin_build(work)?;
    work.file.env("NEXT_TELEMETRY_DISABLED", "1");
    project.install(work, true, Rest::Sources)?;
    if !project.build(work, &["build"])? {
        work.file.script("node_modules/.bin/next build");
    }
    work.file.script("rm -rf .next/cache");
    Ok(())
}

fn standalone(work: &mut Work<'_>, project: &Project) -> Result<Ending> {
    work.note("next.config says `output: \"standalone\"`: only what the server needs is kept");
    let start = work
        .said_start()?
        .unwrap_or_else(|| Command::words(&["node", "server.js"]));
    build(work, project)?;
    project.begin_run(work, &start)?;
    // It would listen on the container's own name only.
    work.file.env("HOSTNAME", "0.0.0.0");
    work.file
        .copy_from_owned("build", "/app/.next/standalone", "./");
    work.file
        .copy_from_owned("build", "/app/.next/static", "./.next/static");
    if work.tree.has_folder("public") {
        work.file
            .copy_from_owned("build", "/app/public", "./public");
    }
    Ok(Ending::Runs(start))
}

fn server(work: &mut Work<'_>, project: &Project) -> Result<Ending> {
    let start = project.start(work)?;
    let start = start.unwrap_or_else(|| Command::words(&["next", "start"]));
    build(work, project)?;
    if let Some(prune) = project.manager.prune() {
        work.file.run(prune);
    }
    project.take_app(work, &start, false)?;
    Ok(Ending::Runs(start))
}
