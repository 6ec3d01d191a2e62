//! Writes the table of assets: every file of `assets/` with its bytes.

use std::fmt::Write;
use std::path::Path;
use std::{env, fs, io};

fn main() -> io::Result<()> {
    println!("cargo::rerun-if-changed=assets");
    let root = env::var("CARGO_MANIFEST_DIR").map_err(io::Error::other)?;
    let target = env::var("OUT_DIR").map_err(io::Error::other)?;
    let mut names = Vec::new();
    for entry in fs::read_dir(Path::new(&root).join("assets"))? {
        names.push(entry?.file_name().to_string_lossy().into_owned());
    }
    names.sort();
    let mut table = String::from("&[\n");
    for name in names.iter().filter(|name| !name.starts_with('.')) {
        let path = format!("{root}/assets/{name}");
        writeln!(table, "({name:?}, include_bytes!({path:?})),").map_err(io::Error::other)?;
    }
    table.push(']');
    fs::write(Path::new(&target).join("assets.rs"), table)
}
