//! Platform `dotnet`.

use crate::command::Command;
use crate::context::{BuildContext, OutputKind, RequestedVersion};
use crate::error::{Result, refused};
use crate::sources::{depth, extension_of, folder_of, name_of};
use crate::version::Version;
use serde_json::Value;
use std::collections::BTreeMap;

/// Most project files that are read, and copied one by one.
const MAX_PROJECTS: usize = 100;
/// Says where to listen, unless the user does.
pub(crate) const START: &str =
    "ASPNETCORE_URLS=\"${ASPNETCORE_URLS:-http://+:$PORT}\" exec dotnet \"$1\"";

/// Platform `dotnet`.
pub(crate) fn app(context: &mut BuildContext<'_>) -> Result<OutputKind> {
    context.ignored.extend(["**/bin", "**/obj"]);
    let project = project(context)?;
    context.note(format!("builds {project}"));
    let text = context.tree.text(&project)?.unwrap_or_default();
    let target = target(context, &project, &text)?;
    let run_version = target.as_ref().map(|requested| requested.version);
    let sdk = match sdk(context)? {
        Some(version) => Some(RequestedVersion {
            version,
            place: "global.json".to_owned(),
        }),
        None => target,
    };
    let image = context.base("dotnet", ".NET", sdk.as_ref());
    let library = library(context, &project, &text)?;
    let start = context.explicit_start()?;
    let start = start.unwrap_or_else(|| Command::words(&["/bin/sh", "-c", START, "sh", &library]));
    context.begin_build(&image, &[])?;
    restore(context, &project)?;
    match context.settings.build_command()? {
        Some(command) => context.file.run_command(&command),
        None => context.file.run(&[
            "dotnet",
            "publish",
            &project,
            "--configuration",
            "Release",
            "--output",
            "/out",
            "--no-restore",
        ]),
    }
    let run = context.image_of("dotnet-run", run_version);
    context.file.last_stage(&run);
    context.begin_run(&[])?;
    context.file.copy_from_owned("build", "/out", "./");
    Ok(OutputKind::Runs(start))
}

fn is_project(path: &str) -> bool {
    matches!(extension_of(path), Some("csproj" | "fsproj" | "vbproj"))
}

/// The project to run: the one that was named, the only one, or the only one for the web.
fn project(context: &BuildContext<'_>) -> Result<String> {
    if let Some(path) = context
        .settings
        .path(&["csprojectFile", "csprojFile", "project"])?
    {
        if context.tree.has(&path) && is_project(&path) {
            return Ok(path);
        }
        let advice =
            format!("`{path}` is no project file of the sources, such as Shop/Shop.csproj");
        return Err(refused("platformConfig.csprojectFile", advice));
    }
    let near = context
        .tree
        .paths()
        .filter(|path| is_project(path) && depth(path) <= 4);
    let projects: Vec<_> = near.take(MAX_PROJECTS).collect();
    if let [only] = projects.as_slice() {
        return Ok((*only).to_owned());
    }
    let mut web = Vec::new();
    for path in &projects {
        let start = context
            .tree
            .read_prefix(path, 4 * 1024)?
            .unwrap_or_default();
        if start.contains("Microsoft.NET.Sdk.Web") {
            web.push(*path);
        }
    }
    match web.as_slice() {
        [only] => Ok((*only).to_owned()),
        _ if projects.is_empty() => Err(refused(
            "*.csproj",
            "there is no project file in the sources; add one",
        )),
        _ => {
            let names: Vec<_> = if web.is_empty() { &projects } else { &web }
                .iter()
                .take(5)
                .copied()
                .collect();
            let advice = format!(
                "there are several projects ({}); name the one to run",
                names.join(", ")
            );
            Err(refused("platformConfig.csprojectFile", advice))
        }
    }
}

/// The text of the first element of this name.
fn element<'t>(xml: &'t str, name: &str) -> Option<&'t str> {
    let (_, after) = xml.split_once(&format!("<{name}>"))?;
    let (text, _) = after.split_once(&format!("</{name}>"))?;
    Some(text.trim())
}

/// The version of .NET: settings, then `TargetFramework`.
fn target(
    context: &BuildContext<'_>,
    project: &str,
    text: &str,
) -> Result<Option<RequestedVersion>> {
    let place = project.to_owned();
    if let Some(version) = context.settings.version(&["version", "dotnetVersion"])? {
        let version = Version::minor(version.major, version.minor.unwrap_or(0));
        let place = "platformConfig".to_owned();
        return Ok(Some(RequestedVersion { version, place }));
    }
    let shared = context
        .tree
        .text("Directory.Build.props")?
        .unwrap_or_default();
    let in_file =
        |text| element(text, "TargetFramework").or_else(|| element(text, "TargetFrameworks"));
    let Some(frameworks) = in_file(text).or_else(|| in_file(&shared)) else {
        return Ok(None);
    };
    let read = |framework: &str| {
        let framework = framework.trim().split('-').next()?;
        let number = framework
            .strip_prefix("netcoreapp")
            .or_else(|| framework.strip_prefix("net"))?;
        Version::parse(number).filter(|version| version.minor.is_some() && version.patch.is_none())
    };
    let version = frameworks
        .split(';')
        .filter_map(read)
        .max()
        .ok_or_else(|| {
            let advice = format!(
                "TargetFramework `{frameworks}` is not for Linux; write one such as net9.0"
            );
            refused(project, advice)
        })?;
    Ok(Some(RequestedVersion { version, place }))
}

/// The SDK that `global.json` insists on.
fn sdk(context: &BuildContext<'_>) -> Result<Option<Version>> {
    let Some(text) = context.tree.text("global.json")? else {
        return Ok(None);
    };
    let json: Value = serde_json::from_str(&text)
        .map_err(|error| refused("global.json", format!("is not JSON: {error}")))?;
    let version = json.get("sdk").and_then(|sdk| sdk.get("version")?.as_str());
    let version = version.map(|version| version.split('-').next().unwrap_or_default());
    Ok(version.and_then(Version::parse).map(Version::without_patch))
}

/// The file that is started.
fn library(context: &BuildContext<'_>, project: &str, text: &str) -> Result<String> {
    let configured = context
        .settings
        .text(&["finalDllName"])?
        .map(|(_, name)| name);
    let named = configured.or_else(|| {
        element(text, "AssemblyName")
            .filter(|name| !name.contains('$'))
            .map(str::to_owned)
    });
    let name = name_of(project);
    let stem = name.rsplit_once('.').map_or(name, |(stem, _)| stem);
    let name = named.unwrap_or_else(|| stem.to_owned());
    let name = name.strip_suffix(".dll").unwrap_or(&name);
    let bad = |c: char| c.is_control() || "/\\".contains(c);
    if name.is_empty() || name.len() > 200 || name.contains(bad) || name.starts_with('-') {
        let advice = format!("`{name}` is no name of an assembly; set platformConfig.finalDllName");
        return Err(refused(project, advice));
    }
    Ok(format!("{name}.dll"))
}

/// Writes what loads packages, and then all other files.
fn restore(context: &mut BuildContext<'_>, project: &str) -> Result<()> {
    if let Some(command) = context.settings.install_command()? {
        context.file.copy_all();
        context.file.run_command(&command);
        return Ok(());
    }
    let decides = |path: &&str| {
        let name = name_of(path).to_ascii_lowercase();
        let exact = ["nuget.config", "global.json", "packages.lock.json"].contains(&name.as_str());
        let shared = name.starts_with("directory.")
            && matches!(extension_of(&name), Some("props" | "targets"));
        is_project(path) || exact || shared
    };
    let files: Vec<_> = context
        .tree
        .paths()
        .filter(decides)
        .take(MAX_PROJECTS + 1)
        .collect();
    let mut command = vec!["dotnet", "restore", project];
    let lock = match folder_of(project) {
        "." => "packages.lock.json".to_owned(),
        folder => format!("{folder}/packages.lock.json"),
    };
    if context.tree.has(&lock) {
        context.note(format!("versions of packages as in {lock}"));
        command.push("--locked-mode");
    }
    if files.len() > MAX_PROJECTS {
        context.file.copy_all();
        context.file.run(&command);
        return Ok(());
    }
    let mut folders: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for file in files {
        folders.entry(folder_of(file)).or_default().push(file);
    }
    for (folder, files) in folders {
        let to = if folder == "." {
            "./".to_owned()
        } else {
            format!("{folder}/")
        };
        context.file.copy(&files, &to)?;
    }
    context.file.run(&command);
    context.file.copy_all();
    Ok(())
}
