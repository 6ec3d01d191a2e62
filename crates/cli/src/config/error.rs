//! What can be wrong with a configuration, each in one line that says where.

use std::fmt;
use std::io;
use std::path::PathBuf;

/// A configuration that cannot be used. The process ends with exit code 2.
#[derive(Debug)]
pub enum ConfigError {
    /// The file cannot be read.
    Unreadable {
        /// The file.
        file: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// The file holds something that it should not.
    File {
        /// The file.
        file: PathBuf,
        /// The line, from 1.
        line: usize,
        /// The column, from 1.
        column: usize,
        /// What is wrong; names the key where there is one.
        message: String,
    },
    /// An environment variable holds something that it should not.
    Variable {
        /// The variable.
        name: String,
        /// What is wrong.
        message: String,
    },
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreadable { file, source } => {
                write!(
                    f,
                    "cannot read the configuration file {}: {source}",
                    file.display()
                )
            }
            Self::File {
                file,
                line,
                column,
                message,
            } => write!(
                f,
                "{}, line {line}, column {column}: {message}",
                file.display()
            ),
            Self::Variable { name, message } => {
                write!(f, "environment variable {name}: {message}")
            }
        }
    }
}

impl std::error::Error for ConfigError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Unreadable { source, .. } => Some(source),
            Self::File { .. } | Self::Variable { .. } => None,
        }
    }
}
