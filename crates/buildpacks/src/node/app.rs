//! Platforms `node` and `next`, and servers that `auto` finds: apps that run on Node.js.

use super::pages::site;
use super::start::Started;
use super::{Project, Rest};
use crate::context::{BuildContext, OutputKind, SeparateLayer};
use crate::error::{Result, refused};
use crate::frameworks::{Facts, Keep, SERVER, Server, VARIANT, Variant, choose_next, server_for};
use crate::package::{FILE, MAINS};
use estrade_model::platform::Platform;

/// Platform `node`.
pub(crate) fn app(context: &mut BuildContext<'_>) -> Result<OutputKind> {
    let project = Project::open(context, "node", &["version", "nodeVersion"])?;
    let (found, why_not) = match context.found {
        Some(found) => (Some(found), None),
        None => server_for(&Facts::read(&context.tree)?)?,
    };
    let variant = found.map_or(&VARIANT, |found| found.variant);
    let server = found.and_then(|found| found.server()).unwrap_or(&SERVER);
    let start = project
        .start(context, server, true)?
        .ok_or_else(|| refused(FILE, why_not.unwrap_or_else(no_start)))?;
    if let Some(found) = found.filter(|_| start.is_usual && !server.start.is_empty()) {
        let name = found.framework.name;
        context.note(format!(
            "nothing says what to start; {name} usually starts so"
        ));
    }
    project.run_app(context, variant, server, start)
}

/// Platform `next`: Next.js, as a server, as a standalone server, or exported as static files.
pub(crate) fn next(context: &mut BuildContext<'_>) -> Result<OutputKind> {
    let project = Project::open(context, "next", &["nodeVersion", "version"])?;
    if !project.package.depends_on("next") {
        return Err(refused(
            FILE,
            "does not depend on `next`; add it, or choose the platform node",
        ));
    }
    let facts = Facts::read(&context.tree)?;
    let found = choose_next(&facts)?;
    let why = facts.named(found.variant.when)?;
    if let Some(site_of) = found.site() {
        context.note(format!(
            "{}: the result is a static site",
            why.unwrap_or_default()
        ));
        let folders = site_of.folders.iter().map(|folder| (*folder).to_owned());
        let folders = folders.collect();
        return site(context, &project, found.variant, folders, site_of.spa);
    }
    let server = found.server().unwrap_or(&SERVER);
    let keeps_part = !server.keep.is_empty();
    if keeps_part {
        context.note(format!(
            "{}: only what the server needs is kept",
            why.unwrap_or_default()
        ));
    }
    let start = project.start(context, server, !keeps_part)?;
    let start = start.ok_or_else(|| refused(FILE, no_start()))?;
    project.run_app(context, found.variant, server, start)
}

/// What was looked for, and what to do.
fn no_start() -> String {
    format!(
        "does not say what to start; looked for a script `start`, a file in `main`, and {}; add \"scripts\": {{\"start\": \"node my-file.js\"}}, or set platformConfig.startCommand to what starts the app",
        MAINS.join(", ")
    )
}

impl Project {
    /// Writes an app that runs.
    fn run_app(
        &self,
        context: &mut BuildContext<'_>,
        variant: &Variant,
        server: &Server,
        start: Started,
    ) -> Result<OutputKind> {
        let is_next = context.platform == Platform::Next;
        let by_framework = !variant.build.is_empty() && (start.is_usual || is_next);
        let builds = self.is_built(context, variant)? || by_framework;
        let own_install = self.own_install(context)?.is_some();
        let installs = self.package.needs_install() || own_install;
        if !builds && !installs {
            self.begin_run(context, &start, server)?;
            context.file.copy_all_owned();
            return Ok(OutputKind::Runs(start.command));
        }
        let keeps_dev = self.package.uses_dev_program(&start.line);
        // What is kept of some has all that it needs.
        let keep = Some(server.keep).filter(|keep| !keep.is_empty() && (start.is_usual || is_next));
        if keeps_dev && keep.is_none() {
            context.note("dependencies for development are kept: the start script uses one");
        }
        let dev = builds || keeps_dev || self.package.runs_at_install();
        let only_installs =
            !builds && self.put_off().is_empty() && !self.needs_all_files(context)?;
        let rest = if only_installs {
            Rest::Nothing
        } else {
            Rest::Sources
        };
        if builds {
            context.ignored.extend(variant.ignored);
        }
        self.begin_build(context)?;
        for (name, value) in variant.build_env {
            context.file.env(name, value);
        }
        self.install(context, dev, rest)?;
        if builds {
            self.build(context, variant)?;
        }
        if let Some(folder) = variant.remove.filter(|_| builds) {
            context.file.run(&["rm", "-rf", folder]);
        }
        if let Some(keep) = keep {
            self.take_part(context, &start, server, keep)?;
            return Ok(OutputKind::Runs(start.command));
        }
        if dev
            && !keeps_dev
            && installs
            && !own_install
            && let Some(prune) = self.manager.prune()
        {
            context.file.run(prune);
        }
        self.take_app(context, &start, server, only_installs)?;
        Ok(OutputKind::Runs(start.command))
    }

    /// Writes the last stage: Node.js, and the manager if the app is started with it.
    fn begin_run(
        &self,
        context: &mut BuildContext<'_>,
        start: &Started,
        server: &Server,
    ) -> Result<()> {
        context.file.last_stage(&self.image);
        context.begin_run(&self.system().1)?;
        let program = self.manager.program();
        if let Some(setup) = self.manager.setup()
            && start
                .command
                .argv()
                .iter()
                .any(|word| word.contains(program))
        {
            context.file.run(&setup);
        }
        context.file.env("NODE_ENV", "production");
        context.file.env("PATH", "/app/node_modules/.bin:$PATH");
        for (name, value) in server.env {
            context.file.env(name, value);
        }
        Ok(())
    }

    /// Writes the last stage with what a server keeps of its build.
    fn take_part(
        &self,
        context: &mut BuildContext<'_>,
        start: &Started,
        server: &Server,
        keep: &[Keep],
    ) -> Result<()> {
        self.begin_run(context, start, server)?;
        for part in keep {
            match *part {
                Keep::Built(from, to) => context.file.copy_from_owned("build", from, to),
                Keep::Folder(from, to) => {
                    if context.tree.has_folder(from.trim_start_matches("/app/")) {
                        context.file.copy_from_owned("build", from, to);
                    }
                }
            }
        }
        Ok(())
    }

    /// Writes the end of the stage that builds, and the last one with what comes out of it.
    fn take_app(
        &self,
        context: &mut BuildContext<'_>,
        start: &Started,
        server: &Server,
        only_installs: bool,
    ) -> Result<()> {
        if only_installs {
            context.file.script("mkdir -p node_modules");
        } else {
            context.split_layer(SeparateLayer::NodeModules);
        }
        self.begin_run(context, start, server)?;
        context.copy_layer(SeparateLayer::NodeModules);
        if only_installs {
            context.file.copy_all_owned();
        } else {
            context.file.copy_from_owned("build", "/out", "./");
        }
        Ok(())
    }
}
