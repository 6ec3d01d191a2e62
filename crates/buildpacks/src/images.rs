//! Base images: which image a platform is built on, and how an asked-for version gets into its tag.

use crate::version::Version;
use estrade_model::Invalid;
use estrade_model::image_ref::ImageRef;
use std::collections::BTreeMap;
use std::fmt;

/// An image that has a place in the build of a platform.
struct Part {
    name: &'static str,
    /// The part whose configured image also counts for this one.
    like: Option<&'static str>,
    /// The reference; `{version}` is where a version goes.
    template: &'static str,
    version: Version,
}

const fn part(
    name: &'static str,
    like: Option<&'static str>,
    template: &'static str,
    version: Version,
) -> Part {
    Part {
        name,
        like,
        template,
        version,
    }
}

const NODE: (&str, Version) = ("node:{version}-slim", Version::major(22));
const PYTHON: (&str, Version) = ("python:{version}-slim", Version::minor(3, 13));
const PHP: (&str, Version) = ("php:{version}-apache", Version::minor(8, 4));
const DOTNET: Version = Version::minor(9, 0);

/// Every image that a plan may name.
const PARTS: [Part; 15] = [
    part("node", None, NODE.0, NODE.1),
    part("next", Some("node"), NODE.0, NODE.1),
    part("react", Some("node"), NODE.0, NODE.1),
    part("vue", Some("node"), NODE.0, NODE.1),
    part("angular", Some("node"), NODE.0, NODE.1),
    part("python", None, PYTHON.0, PYTHON.1),
    part("django", Some("python"), PYTHON.0, PYTHON.1),
    part("flask", Some("python"), PYTHON.0, PYTHON.1),
    part("php", None, PHP.0, PHP.1),
    part("laravel", Some("php"), PHP.0, PHP.1),
    part("go", None, "golang:{version}", Version::minor(1, 25)),
    part(
        "dotnet",
        None,
        "mcr.microsoft.com/dotnet/sdk:{version}",
        DOTNET,
    ),
    part("go-run", None, "debian:trixie-slim", Version::major(13)),
    part(
        "dotnet-run",
        None,
        "mcr.microsoft.com/dotnet/aspnet:{version}",
        DOTNET,
    ),
    part("composer", None, "composer:2", Version::major(2)),
];

/// The base images of an installation. The default ones are the official images of each language.
#[derive(Debug, Clone, Default)]
pub struct BaseImages(BTreeMap<&'static str, String>);

impl BaseImages {
    /// Uses another image for a platform, or for one of `go-run`, `dotnet-run` and `composer`. A
    /// `{version}` in it is replaced by the version that the sources ask for.
    pub fn set(&mut self, name: &str, reference: &str) -> Result<(), Invalid> {
        let Some(part) = PARTS.iter().find(|part| part.name == name) else {
            let names: Vec<_> = PARTS.iter().map(|part| part.name).collect();
            let names = names.join(", ");
            return Err(Invalid(format!(
                "there is no image `{name}`; choose one of {names}"
            )));
        };
        let parsed: Result<ImageRef, _> = with_version(reference, part.version).parse();
        if parsed.is_err() {
            return Err(Invalid(format!(
                "{name}: must be the name of an image, such as registry.example/team/app:1.2"
            )));
        }
        // Who writes the usual image down still wants versions to count.
        if reference == with_version(part.template, part.version) {
            self.0.remove(part.name);
        } else {
            self.0.insert(part.name, reference.to_owned());
        }
        Ok(())
    }

    /// The version that is used when nobody asks for one.
    pub(crate) fn usual(name: &'static str) -> Version {
        let part = PARTS.iter().find(|part| part.name == name);
        part.map_or(Version::major(0), |part| part.version)
    }

    /// The image for a part of a build.
    pub(crate) fn get(&self, name: &'static str, version: Version) -> Image {
        let part = PARTS.iter().find(|part| part.name == name);
        let like = part.and_then(|part| part.like);
        let configured = self.0.get(name).or_else(|| self.0.get(like?));
        let template = configured.map(String::as_str);
        let template = template
            .or(part.map(|part| part.template))
            .unwrap_or("scratch");
        Image {
            reference: with_version(template, version),
            configured: configured.is_some(),
            versioned: template.contains("{version}"),
        }
    }
}

fn with_version(template: &str, version: Version) -> String {
    template.replace("{version}", &version.to_string())
}

/// A base image with its final tag.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Image {
    reference: String,
    configured: bool,
    versioned: bool,
}

impl Image {
    /// Whether it comes from the configuration, so that nobody knows what is in it.
    pub(crate) fn configured(&self) -> bool {
        self.configured
    }

    /// Whether the version counted.
    pub(crate) fn versioned(&self) -> bool {
        self.versioned
    }
}

impl fmt::Display for Image {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.reference)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_goes_into_usual_images_and_where_it_is_asked_for() {
        let mut images = BaseImages::default();
        let get = |images: &BaseImages, name| images.get(name, Version::major(20)).to_string();
        assert_eq!(get(&images, "next"), "node:20-slim");
        images.set("node", "node:22-slim").unwrap();
        assert_eq!(get(&images, "next"), "node:20-slim");
        images.set("node", "mirror.example/node:{version}").unwrap();
        assert_eq!(get(&images, "next"), "mirror.example/node:20");
        images.set("next", "own:1").unwrap();
        assert_eq!(get(&images, "next"), "own:1");
        assert_eq!(get(&images, "vue"), "mirror.example/node:20");
        let image = images.get("next", Version::major(20));
        assert!(image.configured() && !image.versioned());
    }

    #[test]
    fn a_wrong_image_is_named() {
        let mut images = BaseImages::default();
        let Invalid(reason) = images.set("nod", "x").unwrap_err();
        assert!(
            reason.contains("`nod`") && reason.contains("dotnet-run"),
            "{reason}"
        );
        let Invalid(reason) = images.set("node", "a b").unwrap_err();
        assert!(reason.starts_with("node: "), "{reason}");
    }
}
