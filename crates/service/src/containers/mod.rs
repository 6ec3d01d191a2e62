//! Projects that run: which instances there shall be, and making it so.

pub mod logs;
mod settings;

pub use settings::ContainerSettings;
