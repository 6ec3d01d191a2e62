//! The digests of the usual images, by their names. Written by `contrib/pin-images` when a release is made.

/// What this release was tested with, wherever it is fetched from. An image without a digest is whatever its registry
/// has under the name.
pub(super) const DIGESTS: &[(&str, &str)] = &[];
