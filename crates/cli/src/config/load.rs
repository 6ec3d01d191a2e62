//! Puts the layers on top of each other: flag, environment, file, default.

use super::file::ConfigFile;
use super::keys::Key;
use super::{Config, ConfigError, DatabaseUrl, Environment, Tls};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use toml::{Table, Value};

/// What the command line says about the configuration.
#[derive(Debug, Clone, Default)]
pub struct Flags {
    /// The configuration file.
    pub config: Option<PathBuf>,
    /// Instead of `data_dir`.
    pub data_dir: Option<PathBuf>,
    /// Instead of `database_url`.
    pub database_url: Option<DatabaseUrl>,
    /// Instead of `platform.listen`.
    pub platform_listen: Option<SocketAddr>,
    /// Instead of `ai.listen`.
    pub ai_listen: Option<SocketAddr>,
    /// Instead of `edge.listen`.
    pub edge_listen: Option<SocketAddr>,
    /// Instead of `edge.tls_listen`.
    pub edge_tls_listen: Option<SocketAddr>,
    /// Instead of `edge.tls`.
    pub edge_tls: Option<Tls>,
}

/// A configuration, and what was odd about its sources.
#[derive(Debug)]
pub struct Loaded {
    /// The configuration in force.
    pub config: Config,
    /// `ESTRADE_…` variables that mean nothing: probably misspelt.
    pub unknown_variables: Vec<String>,
}

/// Loads the configuration: flag, then environment, then file, then default.
pub fn load(flags: Flags, environment: &Environment) -> Result<Loaded, ConfigError> {
    let from_environment = environment.get("ESTRADE_CONFIG")?;
    let path = flags.config.as_deref().or(from_environment.map(Path::new));
    let file = match path {
        Some(path) => ConfigFile::read(path)?,
        None => ConfigFile::default(),
    };
    layer(file, environment, flags)
}

/// [`load`] after the file was read.
fn layer(file: ConfigFile, environment: &Environment, flags: Flags) -> Result<Loaded, ConfigError> {
    let keys = Key::all();
    let mut tree = file.into_table();
    let mut set = Vec::new();
    for key in &keys {
        let Some(text) = environment.get(&key.variable)? else {
            continue;
        };
        let value = key.read(text).map_err(|message| refuse(key, message))?;
        insert(&mut tree, &key.path, value);
        set.push(key);
    }
    // The file is valid by itself, so what fails now was brought in by a variable.
    let mut config: Config =
        serde_path_to_error::deserialize(Value::Table(tree)).map_err(|error| {
            let at = error.path().to_string();
            let message = error.inner().message().trim_end().replace('\n', ", ");
            match set.iter().find(|key| key.concerns(&at)) {
                Some(key) => refuse(key, message),
                None => ConfigError::Variable { name: at, message },
            }
        })?;
    apply(flags, &mut config);
    let known = |name: &str| keys.iter().any(|key| key.variable == name);
    Ok(Loaded {
        config,
        unknown_variables: environment.unknown(known),
    })
}

fn refuse(key: &Key, message: String) -> ConfigError {
    ConfigError::Variable {
        name: key.variable.clone(),
        message,
    }
}

/// Sets a value in the tree, and makes the tables on the way to it.
fn insert(tree: &mut Table, path: &[String], value: Value) {
    match path {
        [] => {}
        [name] => {
            tree.insert(name.clone(), value);
        }
        [name, rest @ ..] => {
            let empty = || Value::Table(Table::new());
            if let Value::Table(inner) = tree.entry(name.clone()).or_insert_with(empty) {
                insert(inner, rest, value);
            }
        }
    }
}

/// Puts what the command line says on top.
fn apply(flags: Flags, config: &mut Config) {
    fn replace<T>(value: &mut T, flag: Option<T>) {
        if let Some(flag) = flag {
            *value = flag;
        }
    }
    replace(&mut config.data_dir, flags.data_dir);
    replace(&mut config.platform.listen, flags.platform_listen);
    replace(&mut config.ai.listen, flags.ai_listen);
    replace(&mut config.edge.listen, flags.edge_listen);
    config.edge.tls_listen = flags.edge_tls_listen.or(config.edge.tls_listen);
    config.edge.tls = flags.edge_tls.or(config.edge.tls.take());
    config.database_url = flags.database_url.or(config.database_url.take());
}

#[cfg(test)]
#[path = "load_tests.rs"]
mod tests;
