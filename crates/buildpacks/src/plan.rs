//! The plan of a build, and which platform makes it.

use crate::bases::{self, Bases};
use crate::command::Command;
use crate::context::{BuildContext, OutputKind};
use crate::detect::resolve;
use crate::error::{Result, refused};
use crate::frameworks::{Facts, Output};
use crate::ignore::{FILE as IGNORE_FILE, IgnoreRules, SECRETS};
use crate::images::BaseImages;
use crate::settings::{BuildArg, Settings};
use crate::sources::{Sources, Tree};
use crate::{docker, dotnet, go, node, php, python};
use estrade_model::platform::Platform;

/// The folder of an image in which static files are.
pub(crate) const SITE: &str = "/site";
/// The exit code of the step that finds no site.
pub const NO_SITE: i64 = 66;
/// What a Dockerfile of ours is called beside the user's files.
const OWN_NAME: &str = ".estrade.Dockerfile";

/// How sources become an image.
#[derive(Debug)]
pub struct BuildPlan {
    /// What the engine builds.
    pub dockerfile: Dockerfile,
    /// Which files of the sources it does not get to see.
    pub ignore: IgnoreRules,
    /// Arguments for the engine; their values may be secret.
    pub build_args: Vec<BuildArg>,
    /// Whether layers of earlier builds may be used.
    pub cache: bool,
    /// What the image is for.
    pub outcome: Outcome,
    /// Lines for the build log: what was found, and why it was decided so.
    pub notes: Vec<String>,
}

/// Where the Dockerfile is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Dockerfile {
    /// Among the user's files.
    Theirs {
        /// Its path.
        path: String,
        /// What it builds on.
        bases: Bases,
    },
    /// Made here.
    Ours {
        /// Its text.
        text: String,
        /// What it builds on.
        bases: Bases,
    },
}

/// What an image is for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// It runs.
    Runs {
        /// The words to start it with instead of its own, for `Cmd` of a container.
        command: Option<Vec<String>>,
        /// Where the app listens. It is told so by the environment variable `PORT`.
        port: u16,
    },
    /// It holds files that are taken out and served.
    Static {
        /// The absolute path of their folder.
        folder: &'static str,
        /// Whether paths without a file show `index.html`, unless settings say otherwise.
        spa: bool,
        /// The folders of the sources that the build may have written them to. The step that looks for them ends with
        /// [`NO_SITE`] when none has an `index.html`.
        looked_in: Vec<String>,
    },
}

impl BuildPlan {
    /// The path of the Dockerfile in the build context.
    pub fn dockerfile_path(&self) -> &str {
        match &self.dockerfile {
            Dockerfile::Theirs { path, .. } => path,
            Dockerfile::Ours { .. } => OWN_NAME,
        }
    }

    /// The images that it builds on.
    pub fn bases(&self) -> &Bases {
        match &self.dockerfile {
            Dockerfile::Theirs { bases, .. } | Dockerfile::Ours { bases, .. } => bases,
        }
    }

    /// Files to put into the build context beside (or, by name, instead of) the user's: the Dockerfile as the engine
    /// gets it, and what keeps ours out of the image.
    pub fn added_files(&self, dockerfile: String) -> Vec<(String, String)> {
        let file = |path: &str, text: String| (path.to_owned(), text);
        match &self.dockerfile {
            Dockerfile::Theirs { path, .. } => vec![file(path, dockerfile)],
            Dockerfile::Ours { .. } => vec![
                file(OWN_NAME, dockerfile),
                file(IGNORE_FILE, format!("{OWN_NAME}\n{IGNORE_FILE}\n")),
            ],
        }
    }
}

/// Plans the build of a platform's sources.
pub fn plan(
    platform: Platform,
    sources: &dyn Sources,
    settings: &Settings,
    images: &BaseImages,
) -> Result<BuildPlan> {
    let tree = Tree::new(sources);
    let mut notes = Vec::new();
    let (platform, found) = match platform {
        Platform::Auto => {
            let facts = Facts::read(&tree)?;
            let found = resolve(&facts, settings)?;
            if let Some(found) = found {
                notes.push(found.shown(&facts)?);
            }
            (
                found.map_or(Platform::Docker, |found| found.framework.platform),
                found,
            )
        }
        platform => (platform, None),
    };
    let settings = settings.completed(&tree, &[platform, Platform::Auto])?;
    let mut context = BuildContext::new(platform, tree, settings, images);
    context.found = found;
    for note in notes {
        context.note(note);
    }
    if platform == Platform::Docker || context.settings.dockerfile().is_some() {
        return docker::plan(context);
    }
    context.tree.hide(&IgnoreRules::of_user(&context.tree)?);
    if context.tree.has("Dockerfile") {
        context.note(format!(
            "Dockerfile is not used: the platform is {platform}, not docker"
        ));
    }
    let output = match (platform, found.map(|found| found.variant.output)) {
        (Platform::Next, _) => node::next(&mut context),
        (_, Some(Output::Site(_)))
        | (Platform::React | Platform::Vue | Platform::Angular, None) => node::pages(&mut context),
        (_, Some(Output::Server(_))) | (Platform::Node, _) => node::app(&mut context),
        (Platform::Python, _) => python::app(&mut context),
        (Platform::Django, _) => python::django(&mut context),
        (Platform::Flask, _) => python::flask(&mut context),
        (Platform::Php, _) => php::app(&mut context),
        (Platform::Laravel, _) => php::laravel(&mut context),
        (Platform::Go, _) => go::app(&mut context),
        (Platform::Dotnet, _) => dotnet::app(&mut context),
        _ => Err(refused(
            "type",
            "a static release is served as it is; there is nothing to build",
        )),
    }?;
    finish(context, &output)
}

fn finish(mut context: BuildContext<'_>, output: &OutputKind) -> Result<BuildPlan> {
    let outcome = match output {
        OutputKind::Runs(start) => {
            let port = context.settings.port(context.platform);
            context.file.finish(port, start);
            let command = context.settings.args().map(<[String]>::to_vec);
            let given = command.clone().map(Command::Words);
            let shown = given.as_ref().unwrap_or(start).shown();
            context.note(format!(
                "starts with `{shown}` and is expected on port {port} (PORT)"
            ));
            Outcome::Runs { command, port }
        }
        OutputKind::Static { spa, looked_in } => {
            context.file.only_folder("build", SITE);
            Outcome::Static {
                folder: SITE,
                spa: *spa,
                looked_in: looked_in.clone(),
            }
        }
    };
    let mut more = context.ignored.clone();
    // Front ends read it while they are built, and only what they make of it leaves the build.
    if matches!(output, OutputKind::Runs(_)) {
        more.extend(SECRETS);
        if context.tree.has(".env") {
            context.note(".env is left out of the image: set variables on the project instead");
        }
    }
    let ignore = IgnoreRules::of_platform(&context.tree, &more)?;
    let text = context.file.into_text();
    let bases = bases::check_own(OWN_NAME, &text)?;
    Ok(BuildPlan {
        ignore,
        build_args: context.settings.build_args().to_vec(),
        cache: context.settings.cache(),
        outcome,
        notes: context.notes,
        dockerfile: Dockerfile::Ours { text, bases },
    })
}
