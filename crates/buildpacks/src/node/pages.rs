//! Platforms `react`, `vue` and `angular`: they are built once and end as static files.

use super::package::{FILE, Package};
use super::{Project, Rest};
use crate::context::{BuildContext, OutputKind};
use crate::error::{Result, refused};
use crate::sources::Tree;
use estrade_model::paths::FilePath;
use estrade_model::platform::Platform;
use serde_json::Value;

const VITE: [&str; 6] = [
    "vite.config.ts",
    "vite.config.js",
    "vite.config.mts",
    "vite.config.mjs",
    "vite.config.cts",
    "vite.config.cjs",
];
const VUE_CLI: [&str; 3] = ["vue.config.js", "vue.config.cjs", "vue.config.mjs"];
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
/// Where tools write to, the most telling first: many bring Vite along.
const TOOLS: [(&str, &str); 17] = [
    ("react-scripts", "build"),
    ("@craco/craco", "build"),
    ("@11ty/eleventy", "_site"),
    ("gatsby", PUBLIC),
    ("hexo", PUBLIC),
    ("nuxt", ".output/public"),
    ("@docusaurus/core", "build"),
    ("@sveltejs/kit", "build"),
    ("@react-router/dev", "build/client"),
    ("vitepress", ".vitepress/dist"),
    ("@quasar/app-vite", "dist/spa"),
    ("@ionic/cli", "www"),
    ("next", "out"),
    ("astro", "dist"),
    ("parcel", "dist"),
    ("vite", "dist"),
    ("@vue/cli-service", "dist"),
];

/// Takes the first folder that is a site. Its arguments are folders.
const TAKE: &str = "for folder do if [ -e \"$folder/index.html\" ]; then mv -- \"$folder\" /site && exit 0; fi; done; \
echo \"there is no index.html in: $*\" >&2; \
echo 'set platformConfig.outputDir to the folder that the build writes' >&2; exit 66";

/// Platforms `react`, `vue` and `angular`.
pub(crate) fn pages(context: &mut BuildContext<'_>) -> Result<OutputKind> {
    context.ignored.extend(["dist", ".angular"]);
    let name = context.platform.as_str();
    let project = Project::open(context, name, &["nodeVersion", "version"])?;
    let (folders, why) = folders(context, &project.package)?;
    context.note(format!("the site is in {} ({why})", folders.join(", or ")));
    project.begin_build(context)?;
    project.install(context, true, Rest::Sources)?;
    if !project.build(context, &["build", "build:prod", "generate"])? {
        let advice = "has no script `build`; add one such as \"build\": \"vite build\"";
        return Err(refused(FILE, advice));
    }
    leave_in_site(context, &folders);
    let spa = context.settings.flag("spa")?.unwrap_or(true);
    Ok(OutputKind::Static {
        spa,
        looked_in: folders,
    })
}

/// Moves what was built to where it is taken from.
pub(super) fn leave_in_site(context: &mut BuildContext<'_>, folders: &[String]) {
    let words = ["/bin/sh", "-c", TAKE, "sh"]
        .into_iter()
        .chain(folders.iter().map(String::as_str));
    context.file.run(&words.collect::<Vec<_>>());
}

/// The folders in which the site may be, the likely one first, and why.
fn folders(context: &BuildContext<'_>, package: &Package) -> Result<(Vec<String>, &'static str)> {
    if let Some(folder) = context.settings.path(&SETTINGS)? {
        return Ok((vec![folder], "platformConfig"));
    }
    if context.platform == Platform::Angular {
        return Ok((angular(&context.tree)?, "angular.json"));
    }
    for (configs, field) in [(&VITE[..], "outDir"), (&VUE_CLI[..], "outputDir")] {
        let Some(config) = context.tree.first(configs) else {
            continue;
        };
        let text = context.tree.text(config)?.unwrap_or_default();
        if let Some(folder) = plain_value(&text, field).and_then(|folder| inner_folder(&folder)) {
            return Ok((vec![folder], "the configuration of the build"));
        }
    }
    let known = TOOLS.iter().find(|(tool, _)| package.depends_on(tool));
    let (first, why) = match known {
        Some((tool, folder)) => (Some(*folder), *tool),
        None => (None, "the first that has an index.html"),
    };
    let last = known.is_none().then_some(PUBLIC);
    let usual = USUAL
        .iter()
        .copied()
        .filter(|folder| Some(*folder) != first);
    let all = first.into_iter().chain(usual).chain(last);
    Ok((all.map(str::to_owned).collect(), why))
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

/// The value of `name: "value"` in a configuration that is code. What is not plainly there is not
/// found, and one that is commented out is not there.
pub(super) fn plain_value(code: &str, name: &str) -> Option<String> {
    let lines = code.lines().map(str::trim_start);
    let lines = lines.filter(|line| !line.starts_with("//") && !line.starts_with('*'));
    lines.into_iter().find_map(|line| {
        line.match_indices(name).find_map(|(at, _)| {
            let before = line.get(..at)?.chars().next_back();
            if before.is_some_and(|c| c.is_alphanumeric() || "_$.".contains(c)) {
                return None;
            }
            let after = line
                .get(at + name.len()..)?
                .trim_start_matches(['"', '\''])
                .trim_start();
            let value = after.strip_prefix(':')?.trim_start();
            let quote = value.chars().next().filter(|c| "\"'`".contains(*c))?;
            let (value, _) = value.get(1..)?.split_once(quote)?;
            let plain = !value.is_empty() && !value.contains(['$', '\\', '{']);
            plain.then(|| value.to_owned())
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn plain_values_are_read_from_code() {
        for (code, value) in [
            ("build: { outDir: 'web' }", Some("web")),
            ("\"outDir\": \"a/b\",", Some("a/b")),
            ("outDir : `x`", Some("x")),
            ("// outDir: 'web'", None),
            (" * outDir: 'web'", None),
            ("noutDir: 'web'", None),
            ("outDir: path.join('a')", None),
            ("outDir: `${root}/x`", None),
            ("outDirs: 'x'", None),
            ("x.outDir: 'y'", None),
            ("outDir: ''", None),
        ] {
            assert_eq!(plain_value(code, "outDir").as_deref(), value, "{code}");
        }
    }

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
