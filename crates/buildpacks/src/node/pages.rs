//! Platforms `react`, `vue` and `angular`: they are built once and end as static files.

use super::{Project, Rest};
use crate::context::{BuildContext, OutputKind};
use crate::error::{Result, refused};
use crate::frameworks::{ConfigField, Facts, Found, VARIANT, Variant, refuse_several, site_for};
use crate::javascript::plain_value;
use crate::package::FILE;
use crate::sources::Tree;
use estrade_model::paths::FilePath;
use estrade_model::platform::Platform;
use serde_json::Value;

/// Fields of the settings that name the folder, the one that counts first.
const SETTINGS: [&str; 4] = ["outputDir", "outputPath", "publish", "root"];
/// Folders in which a build usually ends.
const USUAL: [&str; 7] = [
    "dist",
    "build",
    "out",
    "_site",
    ".output/public",
    "www",
    "public/build",
];
/// The same for some; for others it holds what a page is made from.
const PUBLIC: &str = "public";
/// Scripts that build a site when its framework knows of none.
const SCRIPTS: [&str; 3] = ["build", "build:prod", "generate"];

/// Takes the first folder that is a site; else says what is there instead. Its arguments are folders.
pub(crate) const TAKE: &str = "for folder do if [ -e \"$folder/index.html\" ]; then mv -- \"$folder\" /site && exit 0; fi; done; \
echo \"there is no index.html in: $*\"; \
for page in */index.html .[!.]*/index.html */*/index.html .[!.]*/*/index.html */*/*/index.html; do \
case \"$page\" in *\"*\"*|node_modules/*) ;; *) echo \"an index.html is in: ${page%/index.html}\" ;; esac; done; \
echo folders that are here: */; exit 66";
/// What the lines begin with that say where there is a page, and which folders there are.
pub(crate) const INDEX_LINE: &str = "an index.html is in: ";
pub(crate) const FOLDERS_LINE: &str = "folders that are here: ";

/// Platforms `react`, `vue` and `angular`, and sites that `auto` finds.
pub(crate) fn pages(context: &mut BuildContext<'_>) -> Result<OutputKind> {
    context.ignored.extend(["dist", ".angular"]);
    let name = match context.platform {
        Platform::Auto => "node",
        platform => platform.as_str(),
    };
    let project = Project::open(context, name, &["nodeVersion", "version"])?;
    let found = match context.found {
        Some(found) => {
            require_one(context, &found)?;
            Some(found)
        }
        None => site_for(&Facts::read(&context.tree)?)?,
    };
    let (folders, why) = folders(context, &project, found)?;
    context.note(format!("the site is in {} ({why})", folders.join(", or ")));
    let variant = found.map_or(&VARIANT, |found| found.variant);
    // Who chose the platform gets an application; for `auto` the framework says what it makes.
    let chosen = context.found.and_then(|found| found.site());
    let spa = chosen.is_none_or(|site| site.spa);
    let spa = context.settings.flag("spa")?.unwrap_or(spa);
    site(context, &project, variant, folders, spa)
}

/// Writes what builds a site, and takes it from the first of the folders that has one.
pub(super) fn site(
    context: &mut BuildContext<'_>,
    project: &Project,
    variant: &Variant,
    folders: Vec<String>,
    spa: bool,
) -> Result<OutputKind> {
    context.ignored.extend(variant.ignored);
    project.begin_build(context)?;
    for (name, value) in variant.build_env {
        context.file.env(name, value);
    }
    project.install(context, true, Rest::Sources)?;
    let scripts = Variant {
        scripts: &SCRIPTS,
        ..*variant
    };
    let has_own = project.is_built(context, variant)?;
    if !project.build(context, if has_own { variant } else { &scripts })? {
        let advice = "has no script `build`; add one such as \"build\": \"vite build\"";
        return Err(refused(FILE, advice));
    }
    if let Some(folder) = variant.remove {
        context.file.run(&["rm", "-rf", folder]);
    }
    leave_in_site(context, &folders);
    Ok(OutputKind::Static {
        spa,
        looked_in: folders,
    })
}

/// Refuses the root of a workspace, unless the settings say which of its folders has the site.
fn require_one(context: &BuildContext<'_>, found: &Found) -> Result<()> {
    let is_known = found.site().is_some_and(|site| !site.folders.is_empty());
    if is_known || context.settings.path(&SETTINGS)?.is_some() {
        return Ok(());
    }
    refuse_several(&Facts::read(&context.tree)?)
}

/// Moves what was built to where it is taken from.
fn leave_in_site(context: &mut BuildContext<'_>, folders: &[String]) {
    let words = ["/bin/sh", "-c", TAKE, "sh"]
        .into_iter()
        .chain(folders.iter().map(String::as_str));
    context.file.run(&words.collect::<Vec<_>>());
}

/// The folders in which the site may be, the likely one first, and why.
fn folders(
    context: &BuildContext<'_>,
    project: &Project,
    found: Option<Found>,
) -> Result<(Vec<String>, &'static str)> {
    if let Some(folder) = context.settings.path(&SETTINGS)? {
        return Ok((vec![folder], "platformConfig"));
    }
    if let Some(folder) = &project.hosting.output {
        return Ok((vec![folder.clone()], project.hosting.file));
    }
    if context.platform == Platform::Angular {
        return Ok((angular(&context.tree)?, "angular.json"));
    }
    let known = found.and_then(|found| found.site());
    for field in known.map_or(&[][..], |site| site.configured_in) {
        if let Some(folders) = configured_folders(&context.tree, field)? {
            return Ok((folders, "the configuration of the build"));
        }
    }
    let mut folders = Vec::new();
    for folder in known.map_or(&[][..], |site| site.folders) {
        folders.extend(placed(&context.tree, folder));
    }
    let name = found.filter(|_| !folders.is_empty());
    let why = name.map_or("the first that has an index.html", |found| {
        found.framework.name
    });
    let last = folders.is_empty().then_some(PUBLIC);
    for folder in USUAL.into_iter().chain(last) {
        if !folders.iter().any(|first| first == folder) {
            folders.push(folder.to_owned());
        }
    }
    Ok((folders, why))
}

/// The folder that a configuration names.
fn configured_folders(tree: &Tree<'_>, field: &ConfigField) -> Result<Option<Vec<String>>> {
    let (files, name) = match *field {
        ConfigField::Angular => return angular(tree).map(Some),
        ConfigField::Named(files, name) => (files, name),
    };
    let Some(file) = tree.first(files) else {
        return Ok(None);
    };
    let text = tree.text(file)?.unwrap_or_default();
    let folder = plain_value(&text, name).and_then(|folder| inner_folder(&folder));
    Ok(folder.map(|folder| vec![folder]))
}

/// A folder of the table: with `*`, wherever the sources have its first part, else in the usual places.
fn placed(tree: &Tree<'_>, folder: &str) -> Vec<String> {
    let Some(inner) = folder.strip_prefix("*/") else {
        return vec![folder.to_owned()];
    };
    let first = inner.split('/').next().unwrap_or(inner);
    let begins = format!("{first}/");
    let around = tree.paths().find_map(|path| {
        let (around, _) = path.split_once(&begins)?;
        (around.is_empty() || around.ends_with('/')).then_some(around)
    });
    match around {
        Some(around) => vec![format!("{around}{inner}")],
        None => vec![inner.to_owned(), format!("docs/{inner}")],
    }
}

/// A folder inside of the sources.
fn inner_folder(text: &str) -> Option<String> {
    let text = text.trim_start_matches("./").trim_end_matches('/');
    FilePath::try_from(text.to_owned()).ok().map(String::from)
}

/// Where Angular writes to: `options.outputPath` of the build of the first application.
fn angular(tree: &Tree<'_>) -> Result<Vec<String>> {
    const CONFIG: &str = "angular.json";
    let text = tree.manifest(CONFIG)?;
    let text =
        text.ok_or_else(|| refused(CONFIG, "is missing in the root of the sources; add it"))?;
    let config: Value = serde_json::from_str(&text)
        .map_err(|error| refused(CONFIG, format!("is not JSON: {error}")))?;
    let projects = config.get("projects").and_then(Value::as_object);
    let named = config.get("defaultProject").and_then(Value::as_str);
    let is_app = |project: &Value| {
        project
            .get("projectType")
            .is_none_or(|kind| kind == "application")
    };
    let project = projects.and_then(|projects| {
        let chosen = named.and_then(|name| projects.get_key_value(name));
        chosen.or_else(|| projects.iter().find(|(_, project)| is_app(project)))
    });
    let (name, project) =
        project.ok_or_else(|| refused(CONFIG, "names no application in `projects`; add one"))?;
    let build = ["architect", "targets"]
        .iter()
        .find_map(|key| project.get(key)?.get("build"));
    let builder = build
        .and_then(|build| build.get("builder")?.as_str())
        .unwrap_or_default();
    let path = build.and_then(|build| build.get("options")?.get("outputPath"));
    let (base, browser) = match path {
        Some(Value::Object(path)) => {
            let text = |key| path.get(key).and_then(Value::as_str);
            (
                text("base").map(str::to_owned),
                text("browser").unwrap_or("browser"),
            )
        }
        Some(Value::String(path)) => (Some(path.clone()), "browser"),
        _ => (None, "browser"),
    };
    let base = base.unwrap_or_else(|| format!("dist/{name}"));
    let base = inner_folder(&base).ok_or_else(|| {
        refused(
            CONFIG,
            format!("outputPath `{base}` is no folder of the sources"),
        )
    })?;
    let inner = inner_folder(&format!("{base}/{browser}")).unwrap_or_else(|| base.clone());
    // Only newer builders put the site into a folder of its own.
    if builder.ends_with(":browser") || inner == base {
        return Ok(vec![base]);
    }
    Ok(vec![inner, base])
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn angular_says_where_it_writes() {
        let folders = |config: &str| {
            let sources: BTreeMap<_, _> = [("angular.json".to_owned(), config.into())].into();
            angular(&Tree::new(&sources))
        };
        let project = |builder: &str, path: &str| {
            format!(
                r#"{{"projects": {{"lib": {{"projectType": "library"}}, "shop": {{"projectType": "application",
                "architect": {{"build": {{"builder": "@angular-devkit/build-angular:{builder}", "options": {{{path}}}}}}}}}}}}}"#
            )
        };
        for (builder, path, expected) in [
            (
                "application",
                r#""outputPath": "dist/shop""#,
                &["dist/shop/browser", "dist/shop"][..],
            ),
            (
                "application",
                r#""outputPath": {"base": "out", "browser": ""}"#,
                &["out"],
            ),
            (
                "application",
                r#""outputPath": {"base": "out", "browser": "w"}"#,
                &["out/w", "out"],
            ),
            ("browser", r#""outputPath": "./web/""#, &["web"]),
            ("application", "", &["dist/shop/browser", "dist/shop"]),
        ] {
            assert_eq!(
                folders(&project(builder, path)).unwrap(),
                expected,
                "{builder} {path}"
            );
        }
        for bad in [
            "{",
            "{}",
            r#"{"projects": {}}"#,
            &project("application", r#""outputPath": "../x""#),
        ] {
            assert!(
                folders(bad)
                    .unwrap_err()
                    .to_string()
                    .starts_with("angular.json: "),
                "{bad}"
            );
        }
    }
}
