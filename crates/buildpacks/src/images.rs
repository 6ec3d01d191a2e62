//! Base images: which image a platform is built on, and how an asked-for version gets into its tag.

mod digests;

use crate::version::Version;
use digests::DIGESTS;
use estrade_model::Invalid;
use estrade_model::image_mirror::ImageMirror;
use estrade_model::image_ref::ImageRef;
use estrade_model::platform::Platform;
use std::collections::{BTreeMap, BTreeSet};
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
pub struct BaseImages {
    configured: BTreeMap<&'static str, String>,
    /// Those that are configured to be the usual ones, from the usual place.
    usual: BTreeSet<&'static str>,
    /// Where all others come from, if not from where they are published.
    mirror: Option<ImageMirror>,
}

/// An image that builds need.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NeededImage {
    pub name: String,
    /// The platforms that are built with it, in the usual version.
    pub platforms: Vec<Platform>,
}

impl BaseImages {
    /// Fetches what is not configured from a mirror.
    pub fn set_mirror(&mut self, mirror: ImageMirror) {
        self.mirror = Some(mirror);
    }

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
            self.configured.remove(part.name);
            self.usual.insert(part.name);
        } else {
            self.usual.remove(part.name);
            self.configured.insert(part.name, reference.to_owned());
        }
        Ok(())
    }

    /// The digest that this release has for a usual image.
    pub fn known_digest(name: &str) -> Option<&'static str> {
        digest_of(name, DIGESTS)
    }

    /// The images that these platforms are built with, when their sources ask for no version.
    pub fn needed(&self, platforms: &[Platform]) -> Vec<NeededImage> {
        let mut needed: Vec<NeededImage> = Vec::new();
        for (platform, _) in Platform::ALL {
            // It is built as one of the others.
            if platform == Platform::Auto {
                continue;
            }
            let is_wanted = |it: &Platform| *it == platform || *it == Platform::Auto;
            if !platforms.iter().any(is_wanted) {
                continue;
            }
            for name in parts_of(platform) {
                let image = self.get(name, Self::usual(name));
                let name = image.reference;
                match needed.iter_mut().find(|it| it.name == name) {
                    Some(known) => known.platforms.push(platform),
                    None => needed.push(NeededImage {
                        name,
                        platforms: vec![platform],
                    }),
                }
            }
        }
        needed
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
        let configured = self.configured.get(name);
        let like = like.filter(|_| !self.usual.contains(name));
        let configured = configured.or_else(|| self.configured.get(like?));
        if let Some(template) = configured {
            return Image {
                reference: with_version(template, version),
                configured: true,
                versioned: template.contains("{version}"),
            };
        }
        let template = part.map_or("scratch", |part| part.template);
        let reference = pinned(with_version(template, version), DIGESTS);
        let mut configured_as = [Some(name), like].into_iter().flatten();
        let is_usual = configured_as.any(|name| self.usual.contains(name));
        let mirror = self.mirror.as_ref().filter(|_| !is_usual);
        Image {
            reference: match mirror {
                Some(mirror) => mirror.name_of(&reference),
                None => reference,
            },
            configured: false,
            versioned: template.contains("{version}"),
        }
    }
}

/// The images that the buildpack of a platform may name.
fn parts_of(platform: Platform) -> &'static [&'static str] {
    match platform {
        Platform::Static | Platform::Docker | Platform::Auto => &[],
        Platform::Node => &["node"],
        Platform::Next => &["next"],
        Platform::React => &["react"],
        Platform::Vue => &["vue"],
        Platform::Angular => &["angular"],
        Platform::Python => &["python"],
        Platform::Django => &["django"],
        Platform::Flask => &["flask"],
        Platform::Php => &["php", "composer"],
        Platform::Laravel => &["laravel", "composer", "node"],
        Platform::Go => &["go", "go-run"],
        Platform::Dotnet => &["dotnet", "dotnet-run"],
    }
}

/// The name with the digest that is known for it.
fn pinned(name: String, digests: &[(&str, &str)]) -> String {
    match digest_of(&name, digests) {
        Some(digest) => format!("{name}@{digest}"),
        None => name,
    }
}

fn digest_of<'d>(name: &str, digests: &[(&str, &'d str)]) -> Option<&'d str> {
    let known = digests.iter().find(|(known, _)| *known == name);
    known.map(|(_, digest)| *digest)
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

    /// The name of an image, of which a release may know the digest.
    fn without_digest(image: &str) -> &str {
        image.split_once('@').map_or(image, |(name, _)| name)
    }

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
    fn a_mirror_has_what_nobody_configured() {
        let mut images = BaseImages::default();
        images.set("python", "own:1").unwrap();
        images.set("composer", "composer:2").unwrap();
        images.set_mirror("r.example:5000/m".parse().unwrap());
        let get = |name| images.get(name, BaseImages::usual(name));
        for (name, image) in [
            ("node", "r.example:5000/m/node:22-slim"),
            ("dotnet", "r.example:5000/m/dotnet/sdk:9.0"),
            ("go-run", "r.example:5000/m/debian:trixie-slim"),
            ("python", "own:1"),
            ("django", "own:1"),
            ("composer", "composer:2"),
        ] {
            assert_eq!(without_digest(&get(name).to_string()), image);
        }
        // The images are those that we know, only from elsewhere.
        assert!(get("node").versioned() && !get("node").configured());
        let other = images.get("node", Version::major(20));
        assert_eq!(other.to_string(), "r.example:5000/m/node:20-slim");
    }

    #[test]
    fn an_image_that_is_named_counts_also_if_it_is_the_usual_one() {
        let mut images = BaseImages::default();
        images.set("python", "own:1").unwrap();
        images.set("django", "python:3.13-slim").unwrap();
        let get = |name| {
            let image = images.get(name, BaseImages::usual(name)).to_string();
            without_digest(&image).to_owned()
        };
        assert_eq!(get("django"), "python:3.13-slim");
        assert_eq!(get("flask"), "own:1");
    }

    #[test]
    fn a_digest_belongs_to_one_name() {
        let digests = [("node:22-slim", "sha256:0a")];
        assert_eq!(
            pinned("node:22-slim".into(), &digests),
            "node:22-slim@sha256:0a"
        );
        assert_eq!(pinned("node:20-slim".into(), &digests), "node:20-slim");
        // Whoever fills the table cannot get it wrong unnoticed.
        for (name, digest) in DIGESTS {
            let is_usual = |part: &Part| with_version(part.template, part.version) == *name;
            assert!(PARTS.iter().any(is_usual), "{name}");
            assert!(
                format!("{name}@{digest}").parse::<ImageRef>().is_ok(),
                "{digest}"
            );
        }
    }

    #[test]
    fn platforms_need_each_image_once() {
        let images = BaseImages::default();
        let names = |platforms: &[Platform]| -> Vec<String> {
            let needed = images.needed(platforms).into_iter();
            let name = |image: NeededImage| without_digest(&image.name).to_owned();
            needed.map(name).collect()
        };
        assert_eq!(names(&[Platform::Next, Platform::Node]), ["node:22-slim"]);
        assert_eq!(
            names(&[Platform::Go]),
            ["golang:1.25", "debian:trixie-slim"]
        );
        assert_eq!(
            names(&[Platform::Static, Platform::Docker]),
            [] as [&str; 0]
        );
        let all = images.needed(&[Platform::Auto]);
        assert_eq!(all.len(), 8, "{all:?}");
        let node = [
            Platform::Node,
            Platform::Next,
            Platform::React,
            Platform::Vue,
            Platform::Angular,
            Platform::Laravel,
        ];
        assert_eq!(all[0].platforms, node);
        let every: Vec<_> = Platform::ALL.map(|(platform, _)| platform).to_vec();
        let parts: BTreeSet<_> = every.into_iter().flat_map(parts_of).copied().collect();
        assert_eq!(parts, PARTS.iter().map(|part| part.name).collect());
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
