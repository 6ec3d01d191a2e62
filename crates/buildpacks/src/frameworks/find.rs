//! Finds out what sources are, by the table.

use super::table::all;
use super::{Facts, Framework, Output, PythonFile, Server, Sign, Site, Variant};
use crate::error::{Result, refused};
use crate::package::{FILE as PACKAGE, Package};
use crate::sources::depth;
use estrade_model::platform::Platform;

/// Most folders of a workspace that a message lists.
const MAX_LISTED: usize = 6;

/// Manifests of languages that nothing here builds. Sources with one are no site, and must not become one: everybody
/// could read them.
const OTHER_LANGUAGES: [&str; 14] = [
    "Cargo.toml",
    "Gemfile",
    "pom.xml",
    "build.gradle",
    "build.gradle.kts",
    "build.sbt",
    "mix.exs",
    "rebar.config",
    "pubspec.yaml",
    "Package.swift",
    "deno.json",
    "stack.yaml",
    "project.clj",
    "CMakeLists.txt",
];

/// What sources are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Detected {
    /// The platform that builds them; `auto` when the framework has none of its own.
    pub platform: Platform,
    /// The framework or language, as people call it.
    pub name: &'static str,
    /// What shows it.
    pub why: Option<String>,
    /// The folder that is served, when nothing is built.
    pub root: Option<String>,
}

/// A framework, and which of its variants it is.
#[derive(Clone, Copy)]
pub(crate) struct Found {
    pub(crate) framework: &'static Framework,
    pub(crate) variant: &'static Variant,
}

impl Found {
    pub(crate) fn site(&self) -> Option<&'static Site> {
        match &self.variant.output {
            Output::Site(site) => Some(site),
            _ => None,
        }
    }

    pub(crate) fn server(&self) -> Option<&'static Server> {
        match &self.variant.output {
            Output::Server(server) => Some(server),
            _ => None,
        }
    }

    fn refusal(&self) -> Option<&'static str> {
        match self.variant.output {
            Output::Refused(advice) => Some(advice),
            _ => None,
        }
    }

    /// What it is and why, for the build log.
    pub(crate) fn shown(&self, facts: &Facts<'_, '_>) -> Result<String> {
        let why = self.why(facts)?;
        let why = why.map_or_else(String::new, |why| format!(", because of {why}"));
        Ok(format!(
            "platform auto: this is {}{why}",
            self.framework.name
        ))
    }

    /// What shows it, for people.
    pub(crate) fn why(&self, facts: &Facts<'_, '_>) -> Result<Option<String>> {
        let framework = facts.named(self.framework.signs)?;
        let variant = facts.named(self.variant.when)?;
        Ok(match (framework, variant) {
            (Some(framework), Some(variant)) if framework != variant => {
                Some(format!("{framework} and {variant}"))
            }
            (framework, variant) => framework.or(variant),
        })
    }
}

/// What sources are when nobody says so.
pub(crate) fn choose(facts: &Facts<'_, '_>) -> Result<Found> {
    for framework in all() {
        if facts.have(framework.signs)?
            && let Some(variant) = variant_of(framework, facts, |_| true)?
        {
            let found = Found { framework, variant };
            if framework.signs.is_empty() {
                refuse_other_languages(facts)?;
            }
            return match found.refusal() {
                Some(advice) => Err(refused(PACKAGE, advice)),
                None => Ok(found),
            };
        }
    }
    // The last line of the table has no signs.
    Err(refused(
        PACKAGE,
        "nothing shows what these sources are; name the platform",
    ))
}

/// Refuses sources that show nothing that is known, and yet are sources.
fn refuse_other_languages(facts: &Facts<'_, '_>) -> Result<()> {
    let has_page = facts.tree.has("index.html") || facts.hosting.output.is_some();
    match facts.tree.first(&OTHER_LANGUAGES) {
        Some(file) if !has_page => Err(refused(
            file,
            "nothing here builds this language; add a Dockerfile, or choose the platform static to serve the files as they are",
        )),
        _ => Ok(()),
    }
}

/// Next.js, for its own platform.
pub(crate) fn choose_next(facts: &Facts<'_, '_>) -> Result<Found> {
    let next = all().find(|framework| framework.platform == Platform::Next);
    if let Some(framework) = next
        && let Some(variant) = variant_of(framework, facts, |_| true)?
    {
        return Ok(Found { framework, variant });
    }
    Err(refused(PACKAGE, "is not one of Next.js"))
}

/// The first variant whose signs are there, among those that are `of_kind`.
fn variant_of(
    framework: &'static Framework,
    facts: &Facts<'_, '_>,
    of_kind: impl Fn(&Output) -> bool,
) -> Result<Option<&'static Variant>> {
    for variant in framework.variants {
        if of_kind(&variant.output) && facts.have(variant.when)? {
            return Ok(Some(variant));
        }
    }
    Ok(None)
}

/// The frameworks for Node.js that these sources have, with the first variant of a kind.
fn with_node(
    facts: &Facts<'_, '_>,
    of_kind: fn(&Output) -> bool,
) -> Result<Vec<(&'static Framework, Option<&'static Variant>)>> {
    let is_other = |framework: &Framework| {
        framework
            .variants
            .iter()
            .all(|variant| matches!(variant.output, Output::Platform | Output::Python(_)))
    };
    let mut found = Vec::new();
    for framework in all().filter(|framework| !is_other(framework)) {
        if facts.have(framework.signs)? {
            found.push((framework, variant_of(framework, facts, of_kind)?));
        }
    }
    Ok(found)
}

/// What builds a site out of these sources, for a platform that ends as files.
pub(crate) fn site_for(facts: &Facts<'_, '_>) -> Result<Option<Found>> {
    for (framework, variant) in with_node(facts, |output| matches!(output, Output::Site(_)))? {
        if let Some(variant) = variant {
            return Ok(Some(Found { framework, variant }));
        }
        if framework.is_library {
            continue;
        }
        let first = variant_of(framework, facts, |_| true)?;
        let advice = match first.map(|variant| variant.output) {
            Some(Output::Refused(advice)) => advice.to_owned(),
            _ => format!(
                "{} needs a server here, and this platform ends as files; choose the platform auto{}, or make it write files only",
                framework.name,
                match framework.platform {
                    Platform::Auto => " or node".to_owned(),
                    own => format!(" or {own}"),
                }
            ),
        };
        return Err(refused(PACKAGE, advice));
    }
    Ok(None)
}

/// The server that these sources have, for a platform that runs; else the framework that has none, and why.
pub(crate) fn server_for(facts: &Facts<'_, '_>) -> Result<(Option<Found>, Option<String>)> {
    let mut why_not = None;
    for (framework, variant) in with_node(facts, |output| matches!(output, Output::Server(_)))? {
        let Some(variant) = variant else {
            let first = variant_of(framework, facts, |_| true)?;
            why_not.get_or_insert_with(|| match first.map(|variant| variant.output) {
                Some(Output::Refused(advice)) => advice.to_owned(),
                _ => format!(
                    "{} makes a static site here, and nothing says what to start; choose the platform auto, add a script `start`, or set platformConfig.startCommand",
                    framework.name
                ),
            });
            continue;
        };
        return Ok((Some(Found { framework, variant }), why_not));
    }
    Ok((None, why_not))
}

/// The lines that start applications of Python, and the packages they are for.
pub(crate) fn python_starts() -> impl Iterator<Item = (&'static Framework, &'static str, PythonFile)>
{
    all().filter_map(|framework| match (framework.signs, framework.variants) {
        ([Sign::Python(package), ..], [variant]) => match variant.output {
            Output::Python(file) => Some((framework, *package, file)),
            _ => None,
        },
        _ => None,
    })
}

/// Refuses the root of a workspace with several applications: which of them is meant is the user's to say.
pub(crate) fn refuse_several(facts: &Facts<'_, '_>) -> Result<()> {
    let is_workspace = facts.package.as_ref().is_some_and(Package::is_workspace)
        || facts.tree.has("pnpm-workspace.yaml");
    if !is_workspace || facts.start_script().is_some() || facts.hosting.output.is_some() {
        return Ok(());
    }
    let inner = facts.tree.paths().filter_map(|path| {
        let folder = path.strip_suffix("/package.json")?;
        (depth(path) <= 2 && !path.contains("node_modules")).then_some(folder)
    });
    let mut inner: Vec<_> = inner.take(MAX_LISTED + 1).collect();
    if inner.is_empty() {
        return Ok(());
    }
    if inner.len() > MAX_LISTED {
        inner.truncate(MAX_LISTED);
        inner.push("…");
    }
    Err(refused(
        PACKAGE,
        format!(
            "this is the root of a workspace ({}); deploy the folder of one application, or say which one it is with scripts `build` and `start`, or with platformConfig.outputDir",
            inner.join(", ")
        ),
    ))
}
