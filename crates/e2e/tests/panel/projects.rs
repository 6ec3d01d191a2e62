//! `/panel/projects` and what is below it, but for settings.

mod deploys;
mod lists;
mod logs;
mod releases;
mod support;
