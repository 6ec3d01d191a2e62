//! Platform `go`.

use crate::command::Command;
use crate::error::{Result, refused};
use crate::images::BaseImages;
use crate::sources::{depth, extension_of, folder_of};
use crate::version::Version;
use crate::work::{Asked, Ending, Work};
use std::collections::BTreeSet;

const FILE: &str = "go.mod";
/// The oldest version with an image that still fits; newer compilers build older modules too.
const OLDEST: Version = Version::minor(1, 21);
/// Most files whose beginning is looked at.
const MOST_FILES: usize = 500;
/// What the app needs to trust others, where the build image has it.
const CERTIFICATES: &str = "mkdir -p /out/etc/ssl/certs && if [ -f /etc/ssl/certs/ca-certificates.crt ]; \
then cp /etc/ssl/certs/ca-certificates.crt /out/etc/ssl/certs/; fi";

/// Platform `go`.
pub(crate) fn app(work: &mut Work<'_>) -> Result<Ending> {
    let module = work.tree.manifest(FILE)?;
    let module = module.ok_or_else(|| {
        refused(
            FILE,
            "is missing in the root of the sources; make it with `go mod init`",
        )
    })?;
    let asked = version(work, &module)?;
    let image = work.base("go", "Go", asked.as_ref());
    let package = package(work)?;
    work.note(format!("builds the package {package}"));
    let start = work
        .said_start()?
        .unwrap_or_else(|| Command::words(&["/usr/local/bin/app"]));
    work.begin_build(&image, &[])?;
    let cgo = work.settings.flag("cgoEnabled")? == Some(true);
    work.file.env("CGO_ENABLED", if cgo { "1" } else { "0" });
    install(work, &module)?;
    match work.settings.build_command()? {
        Some(command) => work.file.run_command(&command),
        // Time zones are built in, because the image that runs has none.
        None => work.file.run(&[
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
    work.file.script(CERTIFICATES);
    let run = work.image("go-run");
    work.file.last_stage(&run);
    work.begin_run(&[])?;
    work.file.copy_from("build", "/out/etc/", "/etc/");
    work.file
        .copy_from("build", "/out/app", "/usr/local/bin/app");
    // Templates and static files are read from where the app runs.
    work.file.copy_all_owned();
    Ok(Ending::Runs(start))
}

/// Writes what loads dependencies, and then all other files.
fn install(work: &mut Work<'_>, module: &str) -> Result<()> {
    if let Some(command) = work.settings.install_command()? {
        work.file.copy_all();
        work.file.run_command(&command);
        return Ok(());
    }
    let local = module
        .lines()
        .any(|line| line.contains("=> .") || line.contains("=> /"));
    if work.tree.has("vendor/modules.txt") || local || work.tree.has("go.work") {
        work.file.copy_all();
        return Ok(());
    }
    let sums = work.tree.has("go.sum").then_some("go.sum");
    let files: Vec<_> = [FILE].into_iter().chain(sums).collect();
    work.file.copy(&files, "./")?;
    if sums.is_some() {
        work.file.script("go mod download");
    }
    work.file.copy_all();
    Ok(())
}

/// Settings, then `toolchain` and `go` of `go.mod`.
fn version(work: &Work<'_>, module: &str) -> Result<Option<Asked>> {
    if let Some(version) = work.settings.version(&["version", "goVersion"])? {
        let place = "platformConfig".to_owned();
        return Ok(Some(Asked { version, place }));
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
    let oldest = version < OLDEST;
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
    Ok(Some(Asked { version, place }))
}

/// The package that is the program: settings, the root, or the only one in `cmd`.
fn package(work: &Work<'_>) -> Result<String> {
    if let Some(path) = work.settings.path(&["mainFile", "package"])? {
        let folder = if extension_of(&path) == Some("go") {
            folder_of(&path).to_owned()
        } else {
            path
        };
        if folder != "." && !work.tree.has_folder(&folder) {
            let advice = format!("there is no folder `{folder}` in the sources");
            return Err(refused("platformConfig.mainFile", advice));
        }
        return Ok(if folder == "." {
            ".".to_owned()
        } else {
            format!("./{folder}")
        });
    }
    let code = work
        .tree
        .paths()
        .filter(|path| extension_of(path) == Some("go") && !path.ends_with("_test.go"));
    let near = code.filter(|path| depth(path) <= 3 && !path.starts_with("vendor/"));
    let mut mains = BTreeSet::new();
    for path in near.take(MOST_FILES) {
        let start = work.tree.glance(path, 8 * 1024)?.unwrap_or_default();
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
