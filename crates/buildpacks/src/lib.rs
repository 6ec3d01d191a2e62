//! How a folder of sources of a platform becomes an image: what is in it, and a Dockerfile for it.
//!
//! [`plan()`] looks at names and manifests, decides as people of that platform would expect, and
//! says in notes what it decided and why. It reads through [`Sources`] and does nothing else, so
//! the same sources always give the same plan. `docs/BUILDS.md` is the reference for users.
//!
//! Everything in the sources and settings is somebody else's text. Versions, names and paths are
//! parsed into strict types before they are used; commands become JSON arrays.

mod bases;
mod build_plan;
mod command;
mod context;
mod detect;
mod docker;
mod dockerfile;
mod dotnet;
mod error;
mod failure;
mod frameworks;
mod go;
mod hosting;
mod ignore;
mod images;
mod instructions;
mod javascript;
mod node;
mod package;
mod pattern;
mod php;
mod plan;
mod procfile;
mod python;
mod readable;
mod settings;
mod sources;
mod version;

pub use bases::{Base, Bases, BuildStage, PinnedDockerfile, check_triggers};
pub use build_plan::{BuildPlan, Dockerfile, NO_SITE, Outcome, PackageCache};
pub use detect::detect;
pub use dockerfile::{CACHE_FOLDER, RUN_AS};
pub use error::PlanError;
pub use failure::FailedBuild;
pub use frameworks::Detected;
pub use ignore::IgnoreRules;
pub use images::{BaseImages, NeededImage};
pub use plan::plan;
pub use readable::readable_step;
pub use settings::{BuildArg, Settings};
pub use sources::Sources;
