//! `estrade images …`: the images that builds are based on, and whether the container engine has them.

use crate::args::ImagesCommand;
use crate::config::Config;
use crate::printer::Printer;
use crate::wiring;
use anyhow::{Context, bail};
use estrade_buildpacks::NeededImage;
use estrade_model::error::error_chain;
use estrade_model::platform::Platform;
use estrade_runtime::{Engine, Image, ImageRef, Installation, PullProgress};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::collections::BTreeMap;
use std::io::IsTerminal;
use std::process::ExitCode;

/// Under this name nothing of any installation is seen, and nothing is made.
const NOBODY: &str = "images";

/// Runs one of the commands about images.
pub async fn run(
    command: &ImagesCommand,
    config: &Config,
    printer: &Printer,
) -> anyhow::Result<ExitCode> {
    let (ImagesCommand::List { platforms } | ImagesCommand::Pull { platforms }) = command;
    let platforms = if platforms.is_empty() {
        &[Platform::Auto]
    } else {
        platforms.as_slice()
    };
    let needed = wiring::base_images(config)?.needed(platforms);
    if needed.is_empty() {
        bail!("these platforms need no image of ours: what they run is built or named by users");
    }
    let name: Installation = NOBODY.parse().context("the name of nobody")?;
    let engine = Engine::new(wiring::engine_host(config)?, name, config.docker.subnets.0)?;
    match command {
        ImagesCommand::List { .. } => list(&needed, &engine, printer).await,
        ImagesCommand::Pull { .. } => pull(&needed, &engine, printer).await,
    }
}

/// A table; the engine may be away, as on a machine that only fills a mirror.
async fn list(
    needed: &[NeededImage],
    engine: &Engine,
    printer: &Printer,
) -> anyhow::Result<ExitCode> {
    let is_there = match engine.info().await {
        Ok(_) => true,
        Err(error) => {
            let why = error_chain(&error);
            printer.warning(format_args!("whether they are present is not known: {why}"));
            false
        }
    };
    let mut rows = Vec::new();
    for image in needed {
        let found = if is_there {
            engine.image(&image.name.parse()?).await?
        } else {
            None
        };
        let state = match &found {
            Some(_) => "present",
            None if is_there => "absent",
            None => "unknown",
        };
        let names: Vec<_> = image.platforms.iter().map(|it| it.as_str()).collect();
        let digest = found.as_ref().and_then(digest_of).unwrap_or_default();
        rows.push([
            image.name.clone(),
            state.to_owned(),
            names.join(" "),
            digest,
        ]);
    }
    printer.table(["IMAGE", "STATE", "PLATFORMS", "DIGEST"], &rows)?;
    Ok(ExitCode::SUCCESS)
}

/// What a registry calls the content of an image; none where it comes from none.
fn digest_of(image: &Image) -> Option<String> {
    let (_, digest) = image.digests.first()?.split_once('@')?;
    Some(digest.to_owned())
}

/// Fetches what is not there, one after the other, and goes on after one that fails.
async fn pull(
    needed: &[NeededImage],
    engine: &Engine,
    printer: &Printer,
) -> anyhow::Result<ExitCode> {
    engine.info().await?;
    let mut failed = 0;
    for image in needed {
        let name: ImageRef = image.name.parse()?;
        if engine.image(&name).await?.is_some() {
            printer.data(format_args!("present  {name}"))?;
            continue;
        }
        match fetch(engine, &name, printer).await {
            Ok(()) => printer.data(format_args!("pulled   {name}"))?,
            Err(error) => {
                failed += 1;
                printer.error(format_args!("{name}: {}", error_chain(&error)));
            }
        }
    }
    if failed == 0 {
        return Ok(ExitCode::SUCCESS);
    }
    printer.hint(
        "docker.mirror names a registry that has them all, docker.images another name for one",
    );
    Ok(ExitCode::FAILURE)
}

async fn fetch(
    engine: &Engine,
    name: &ImageRef,
    printer: &Printer,
) -> Result<(), estrade_runtime::Error> {
    let mut progress = LayerProgress::new(name, printer);
    let mut pull = engine.pull(name, None, None).await?;
    while let Some(message) = pull.next_progress().await {
        progress.update(message);
    }
    progress.bar.finish_and_clear();
    pull.finish().await
}

/// One line on a terminal: how much of the layers is there, as far as their sizes are known.
struct LayerProgress {
    bar: ProgressBar,
    layers: BTreeMap<String, (u64, u64)>,
}

impl LayerProgress {
    fn new(name: &ImageRef, printer: &Printer) -> Self {
        let is_seen = std::io::stderr().is_terminal() && !printer.is_quiet();
        let target = if is_seen {
            ProgressDrawTarget::stderr()
        } else {
            ProgressDrawTarget::hidden()
        };
        let bar = ProgressBar::with_draw_target(Some(0), target);
        // The template is ours: one that cannot be read leaves the usual bar.
        let template = "{msg} {bar:24} {binary_bytes}/{binary_total_bytes}";
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style);
        }
        bar.set_message(format!("pulling {name}"));
        Self {
            bar,
            layers: BTreeMap::new(),
        }
    }

    fn update(&mut self, message: PullProgress) {
        // Unpacking counts from the beginning again.
        if let (Some(layer), Some(bytes), "Downloading") =
            (message.layer, message.bytes, message.status.as_str())
        {
            self.layers.insert(layer, bytes);
        }
        self.bar
            .set_length(self.layers.values().map(|it| it.1).sum());
        self.bar
            .set_position(self.layers.values().map(|it| it.0).sum());
    }
}
