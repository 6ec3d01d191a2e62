//! Platform `go`.

use crate::command::Command;
use crate::context::{BuildContext, OutputKind, RequestedVersion};
use crate::error::{Result, refused};
use crate::images::BaseImages;
use crate::sources::{depth, extension_of, folder_of};
use crate::version::Version;
use std::collections::BTreeSet;

const FILE: &str = "go.mod";
/// The oldest version with an image that still fits; newer compilers build older modules too.
const MIN_VERSION: Version = Version::minor(1, 21);
/// Most files whose beginning is looked at.
const MAX_FILES: usize = 500;
/// What the app needs to trust others, where the build image has it.
pub(crate) const CERTIFICATES: &str = "mkdir -p /out/etc/ssl/certs && if [ -f /etc/ssl/certs/ca-certificates.crt ]; \
then cp /etc/ssl/certs/ca-certificates.crt /out/etc/ssl/certs/; fi";

/// Platform `go`.
pub(crate) fn app(context: &mut BuildContext<'_>) -> Result<OutputKind> {
    let module = context.tree.manifest(FILE)?;
    let module = module.ok_or_else(|| {
        refused(
            FILE,
            "is missing in the root of the sources; make it with `go mod init`",
        )
    })?;
    let requested = version(context, &module)?;
    let image = context.base("go", "Go", requested.as_ref());
    let package = package(context)?;
    context.note(format!("builds the package {package}"));
    let start = context
        .explicit_start()?
        .unwrap_or_else(|| Command::words(&["/usr/local/bin/app"]));
    context.begin_build(&image, &[])?;
    context
        .file
        .cache_env(&[("GOMODCACHE", "go/modules"), ("GOCACHE", "go/build")]);
    let cgo = context.settings.flag("cgoEnabled")? == Some(true);
    context.file.env("CGO_ENABLED", if cgo { "1" } else { "0" });
    install(context, &module)?;
    match context.settings.build_command()? {
        Some(command) => context.file.run_command(&command),
        // Time zones are built in, because the image that runs has none.
        None => context.file.run(&[
            "go",
            "build",
            "-trimpath",
            "-ldflags=-s",
            "-tags=timetzdata",
            "-o",
            "/out/app",
            &package,
        ]),
    }
    context.file.script(CERTIFICATES);
    let run = context.image("go-run");
    context.file.last_stage(&run);
    context.begin_run(&[])?;
    context.file.copy_from("build", "/out/etc/", "/etc/");
    context
        .file
        .copy_from("build", "/out/app", "/usr/local/bin/app");
    // Templates and static files are read from where the app runs.
    context.file.copy_all_owned();
    Ok(OutputKind::Runs(start))
}

/// Writes what loads dependencies, and then all other files.
fn install(context: &mut BuildContext<'_>, module: &str) -> Result<()> {
    if let Some(command) = context.settings.install_command()? {
        context.file.copy_all();
        context.file.run_command(&command);
        return Ok(());
    }
    let local = module
        .lines()
        .any(|line| line.contains("=> .") || line.contains("=> /"));
    if context.tree.has("vendor/modules.txt") || local || context.tree.has("go.work") {
        context.file.copy_all();
        return Ok(());
    }
    let sums = context.tree.has("go.sum").then_some("go.sum");
    let files: Vec<_> = [FILE].into_iter().chain(sums).collect();
    context.file.copy(&files, "./")?;
    if sums.is_some() {
        context.file.script("go mod download");
        context.file.note_installed();
    }
    context.file.copy_all();
    Ok(())
}

/// Settings, then `toolchain` and `go` of `go.mod`.
fn version(context: &BuildContext<'_>, module: &str) -> Result<Option<RequestedVersion>> {
    if let Some(version) = context.settings.version(&["version", "goVersion"])? {
        let place = "platformConfig".to_owned();
        return Ok(Some(RequestedVersion { version, place }));
    }
    let lines = || {
        module
            .lines()
            .map(|line| line.split("//").next().unwrap_or_default().trim())
    };
    let toolchain =
        lines().find_map(|line| Version::parse(line.strip_prefix("toolchain go")?.trim()));
    let minimum = lines().find_map(|line| Version::parse(line.strip_prefix("go ")?.trim()));
    let Some(version) = toolchain.or(minimum).map(Version::without_patch) else {
        return Ok(None);
    };
    let oldest = version < MIN_VERSION;
    let place = if oldest {
        format!("{FILE} ({version} or newer)")
    } else {
        FILE.to_owned()
    };
    let version = if oldest {
        BaseImages::usual("go")
    } else {
        version
    };
    Ok(Some(RequestedVersion { version, place }))
}

/// The package that is the program: settings, the root, or the only one in `cmd`.
fn package(context: &BuildContext<'_>) -> Result<String> {
    if let Some(path) = context.settings.path(&["mainFile", "package"])? {
        let folder = if extension_of(&path) == Some("go") {
            folder_of(&path).to_owned()
        } else {
            path
        };
        if folder != "." && !context.tree.has_folder(&folder) {
            let advice = format!("there is no folder `{folder}` in the sources");
            return Err(refused("platformConfig.mainFile", advice));
        }
        return Ok(if folder == "." {
            ".".to_owned()
        } else {
            format!("./{folder}")
        });
    }
    let code = context
        .tree
        .paths()
        .filter(|path| extension_of(path) == Some("go") && !path.ends_with("_test.go"));
    let near = code.filter(|path| depth(path) <= 3 && !path.starts_with("vendor/"));
    let mut mains = BTreeSet::new();
    for path in near.take(MAX_FILES) {
        let start = context
            .tree
            .read_prefix(path, 8 * 1024)?
            .unwrap_or_default();
        let is_main = start
            .lines()
            .any(|line| line.split("//").next().unwrap_or_default().trim() == "package main");
        // A file with this line is a tool that is run by hand.
        let ignored = start.lines().any(|line| line.trim() == "//go:build ignore");
        if is_main && !ignored {
            mains.insert(folder_of(path));
        }
    }
    if mains.contains(".") {
        return Ok(".".to_owned());
    }
    let commands: Vec<_> = mains
        .iter()
        .filter(|folder| folder.starts_with("cmd/"))
        .collect();
    let mains: Vec<_> = if commands.is_empty() {
        mains.iter().collect()
    } else {
        commands
    };
    match mains.as_slice() {
        [folder] => Ok(format!("./{folder}")),
        [] => Err(refused("main.go", "no file has `package main`; add one")),
        several => {
            let names: Vec<_> = several
                .iter()
                .take(5)
                .map(|folder| (**folder).to_owned())
                .collect();
            let advice = format!(
                "there are several programs ({}); name the one to run",
                names.join(", ")
            );
            Err(refused("platformConfig.mainFile", advice))
        }
    }
}
