//! Which buildpack makes the plan of a build, and what all plans end with.

use crate::bases;
use crate::build_plan::{BuildPlan, Dockerfile, OWN_NAME, Outcome, PackageCache, SITE};
use crate::command::Command;
use crate::context::{BuildContext, OutputKind};
use crate::detect::resolve;
use crate::error::{Result, refused};
use crate::frameworks::{Facts, Output};
use crate::ignore::{IgnoreRules, SECRETS};
use crate::images::BaseImages;
use crate::readable::readable_words;
use crate::settings::Settings;
use crate::sources::{Sources, Tree};
use crate::{docker, dotnet, go, node, php, python};
use estrade_model::platform::Platform;

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
    let hidden = IgnoreRules::of_user(&context.tree)?;
    context.tree.hide(|path| hidden.excludes(path));
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
            let shown = readable_words(&given.as_ref().unwrap_or(start).argv());
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
    let package_cache = package_cache(&context)?;
    let text = context.file.into_text();
    let bases = bases::check_own(OWN_NAME, &text)?;
    Ok(BuildPlan {
        ignore,
        build_args: context.settings.build_args().to_vec(),
        cache: context.settings.cache(),
        package_cache,
        outcome,
        notes: context.notes,
        dockerfile: Dockerfile::Ours { text, bases },
    })
}

/// What the install step depends on: the text up to there, the files that it copies, and the build's arguments.
fn package_cache(context: &BuildContext<'_>) -> Result<Option<PackageCache>> {
    let Some((text, copied)) = context.file.installed() else {
        return Ok(None);
    };
    let mut hasher = blake3::Hasher::new_derive_key("estrade package cache of a build plan");
    let mut add = |bytes: &[u8]| {
        hasher.update(&bytes.len().to_le_bytes());
        hasher.update(bytes);
    };
    add(text.as_bytes());
    for path in copied {
        for (path, digest) in context.tree.digests(path)? {
            add(path.as_bytes());
            add(&digest);
        }
    }
    for arg in context.settings.build_args() {
        add(arg.name().as_bytes());
        add(arg.value().as_bytes());
    }
    let is_instruction = |line: &&str| !line.is_empty() && !line.starts_with('#');
    Ok(Some(PackageCache {
        key: hasher.finalize().to_hex()[..32].to_owned(),
        installs: text.lines().filter(is_instruction).count(),
    }))
}
