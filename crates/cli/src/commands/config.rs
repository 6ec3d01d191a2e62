//! `estrade config`: shows what is in force.

use crate::args::ConfigArgs;
use crate::config::{Config, REFERENCE};
use crate::printer::Printer;
use anyhow::Context;
use estrade_buildpacks::BaseImages;
use std::process::ExitCode;

/// Prints the effective configuration, or the reference, as a configuration file.
pub fn run(args: &ConfigArgs, config: &Config, printer: &Printer) -> anyhow::Result<ExitCode> {
    if args.reference {
        let reference = with_digests(REFERENCE.trim_end(), BaseImages::known_digest);
        printer.data(reference)?;
    } else {
        let text = toml::to_string(config).context("the configuration cannot be printed")?;
        printer.data(text.trim_end())?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The reference with the digest of each base image that this release knows one of.
fn with_digests(reference: &str, known: impl Fn(&str) -> Option<&'static str>) -> String {
    const SECTION: &str = "[docker.images]";
    let mut in_images = false;
    let lines = reference.lines().map(|line| {
        if line.starts_with('[') {
            in_images = line == SECTION;
        }
        let image = line.split_once(" = \"").filter(|_| in_images);
        let image = image.and_then(|(_, value)| value.strip_suffix('"'));
        match image.and_then(&known) {
            Some(digest) => format!("{line} # @{digest}"),
            None => line.to_owned(),
        }
    });
    lines.collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reference_shows_the_digests_of_base_images() {
        assert_eq!(with_digests(REFERENCE, |_| None), REFERENCE.trim_end());
        let known = |name: &str| (name == "node:22-slim").then_some("sha256:0a");
        let shown = with_digests(REFERENCE, known);
        assert!(shown.contains("\nnode = \"node:22-slim\" # @sha256:0a\n"));
        assert!(shown.contains("\nnext = \"node:22-slim\" # @sha256:0a\n"));
        assert_eq!(shown.matches("sha256:0a").count(), 5);
        let (read, reference): (toml::Table, toml::Table) =
            (shown.parse().unwrap(), REFERENCE.parse().unwrap());
        assert_eq!(read, reference);
    }
}
