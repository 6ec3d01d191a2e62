//! A registry that has copies of images of others.

use crate::image_ref::ImageRef;
use crate::{Invalid, built_image};
use std::fmt;
use std::str::FromStr;

/// A registry, with or without a path in it: `registry.example:5000/mirror`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImageMirror(String);

impl ImageMirror {
    /// The name that an image has here: its own, without the registry that it comes from.
    pub fn name_of(&self, image: &str) -> String {
        let image = built_image::without_registry(image);
        let is_registry = |first: &str| first.contains(['.', ':']) || first == "localhost";
        let path = match image.split_once('/') {
            Some((first, path)) if is_registry(first) => path,
            _ => image,
        };
        format!("{}/{path}", self.0)
    }
}

impl FromStr for ImageMirror {
    type Err = Invalid;

    fn from_str(text: &str) -> Result<Self, Invalid> {
        // With any image behind it, it must be the name of one that comes from a registry which is named.
        let example = format!("{text}/image:1").parse::<ImageRef>();
        let is_named = example.is_ok_and(|name| name.registry().is_some());
        if text.contains('@') {
            // It is not repeated: what is before the sign may be a password.
            return Err(Invalid(
                "neither a user nor a digest belongs into the name of a registry, such as registry.example:5000/mirror"
                    .to_owned(),
            ));
        }
        if is_named {
            Ok(Self(text.to_owned()))
        } else {
            Err(Invalid(format!(
                "`{text}` is not a registry with or without a path, such as registry.example:5000/mirror"
            )))
        }
    }
}

impl fmt::Display for ImageMirror {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn images_keep_their_path_and_change_their_registry() {
        let name =
            |mirror: &str, image: &str| mirror.parse::<ImageMirror>().unwrap().name_of(image);
        for (image, expected) in [
            ("node:22-slim", "r.example:5000/a/node:22-slim"),
            (
                "docker.io/library/node:22",
                "r.example:5000/a/library/node:22",
            ),
            (
                "mcr.microsoft.com/dotnet/sdk:9.0",
                "r.example:5000/a/dotnet/sdk:9.0",
            ),
            ("localhost/x:1", "r.example:5000/a/x:1"),
        ] {
            assert_eq!(name("r.example:5000/a", image), expected);
        }
        assert_eq!(name("localhost:5000", "node:22"), "localhost:5000/node:22");
    }

    #[test]
    fn a_mirror_names_its_registry() {
        for bad in [
            "",
            "mirror",
            "team/mirror",
            "https://r.example",
            "r.example/",
            "r.example/a:1",
            "r.example:port",
            "r.example/A",
            "r.example/a@sha256:0",
            "ada:hunter22@r.example",
            "a b.example",
        ] {
            let refused = bad.parse::<ImageMirror>().unwrap_err();
            assert!(refused.0.contains("registry.example:5000/mirror"), "{bad}");
            assert!(!refused.0.contains("hunter22"), "{refused:?}");
        }
    }
}
