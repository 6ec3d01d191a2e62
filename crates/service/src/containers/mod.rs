//! Projects that run: which instances there shall be, and making it so.

mod settings;
pub mod shell;
pub mod usage;

pub use settings::ContainerSettings;
