//! Platform `next`: Next.js, as a server, as a standalone server, or exported as static files.

use super::package::FILE;
use super::pages::{leave_in_site, plain_value};
use super::{Project, Rest};
use crate::command::Command;
use crate::context::{BuildContext, OutputKind};
use crate::error::{Result, refused};

const CONFIGS: [&str; 4] = [
    "next.config.js",
    "next.config.mjs",
    "next.config.ts",
    "next.config.cjs",
];

/// Platform `next`.
pub(crate) fn next(context: &mut BuildContext<'_>) -> Result<OutputKind> {
    context.ignored.push("**/.next");
    let project = Project::open(context, "next", &["nodeVersion", "version"])?;
    if !project.package.depends_on("next") {
        return Err(refused(
            FILE,
            "does not depend on `next`; add it, or choose the platform node",
        ));
    }
    let output = output(context)?;
    match output.as_deref() {
        Some("export") => {
            context.note("next.config says `output: \"export\"`: the result is a static site");
            build(context, &project)?;
            let looked_in = vec!["out".to_owned()];
            leave_in_site(context, &looked_in);
            Ok(OutputKind::Static {
                spa: false,
                looked_in,
            })
        }
        Some("standalone") if !project.package.is_workspace() => standalone(context, &project),
        _ => server(context, &project),
    }
}

/// What the configuration says about the output, where it says so plainly.
fn output(context: &BuildContext<'_>) -> Result<Option<String>> {
    let Some(config) = context.tree.first(&CONFIGS) else {
        return Ok(None);
    };
    let text = context.tree.text(config)?.unwrap_or_default();
    Ok(plain_value(&text, "output"))
}

/// Writes the stage that builds.
fn build(context: &mut BuildContext<'_>, project: &Project) -> Result<()> {
    project.begin_build(context)?;
    context.file.env("NEXT_TELEMETRY_DISABLED", "1");
    project.install(context, true, Rest::Sources)?;
    if !project.build(context, &["build"])? {
        context.file.script("node_modules/.bin/next build");
    }
    context.file.script("rm -rf .next/cache");
    Ok(())
}

fn standalone(context: &mut BuildContext<'_>, project: &Project) -> Result<OutputKind> {
    context.note("next.config says `output: \"standalone\"`: only what the server needs is kept");
    let start = context
        .said_start()?
        .unwrap_or_else(|| Command::words(&["node", "server.js"]));
    build(context, project)?;
    project.begin_run(context, &start)?;
    // It would listen on the container's own name only.
    context.file.env("HOSTNAME", "0.0.0.0");
    context
        .file
        .copy_from_owned("build", "/app/.next/standalone", "./");
    context
        .file
        .copy_from_owned("build", "/app/.next/static", "./.next/static");
    if context.tree.has_folder("public") {
        context
            .file
            .copy_from_owned("build", "/app/public", "./public");
    }
    Ok(OutputKind::Runs(start))
}

fn server(context: &mut BuildContext<'_>, project: &Project) -> Result<OutputKind> {
    let start = project.start(context)?;
    let start = start.unwrap_or_else(|| Command::words(&["next", "start"]));
    build(context, project)?;
    if let Some(prune) = project.manager.prune() {
        context.file.run(prune);
    }
    project.take_app(context, &start, false)?;
    Ok(OutputKind::Runs(start))
}
