//! The names of images that Estrade makes, which nobody may ask for: they are some project's own.

use crate::ProjectId;

/// How the names of this and any other installation's images begin.
pub const PREFIX: &str = "estrade-";
/// The place of a project in the names of layers that builds left behind.
pub const LAYERS: &str = "layers";
/// The same of images that were fetched to be built on.
pub const BASES: &str = "bases";
/// The same of images with what package managers have downloaded in builds.
pub const CACHES: &str = "caches";
/// Engines know names without a registry by these, too.
const REGISTRIES: [&str; 2] = ["docker.io/", "index.docker.io/"];

/// Whether this is the name of an image that an installation made: `estrade-<installation>/<project>`.
pub fn is_built(name: &str) -> bool {
    let rest = without_registry(name).strip_prefix(PREFIX);
    let Some((_, rest)) = rest.and_then(|rest| rest.split_once('/')) else {
        return false;
    };
    let project = rest.split([':', '@']).next().unwrap_or(rest);
    [LAYERS, BASES, CACHES].contains(&project) || project.parse::<ProjectId>().is_ok()
}

/// The name without the registry that is meant where there is none.
pub fn without_registry(name: &str) -> &str {
    let mut rest = REGISTRIES
        .iter()
        .filter_map(|registry| name.strip_prefix(registry));
    rest.next().unwrap_or(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn images_of_projects_and_their_layers_are_known() {
        for built in [
            "estrade-0a/0123456789abcdef01234567:1",
            "estrade-0a/0123456789abcdef01234567",
            "docker.io/estrade-0a/0123456789abcdef01234567:1",
            "index.docker.io/estrade-0a/0123456789abcdef01234567@sha256:0",
            "estrade-0a/layers:1-0",
            "estrade-0a/bases:1-0",
            "estrade-0a/caches:0123456789abcdef01234567-in-1-0-0",
            "docker.io/estrade-0a/caches:x",
        ] {
            assert!(is_built(built), "{built}");
        }
        for other in ["estrade-test/base:1", "nginx", "a/layers", "estrade-0a", ""] {
            assert!(!is_built(other), "{other}");
        }
    }
}
