//! Where a release mounts its project's disks: `disks: [{name, mountTo}]`.

use crate::{Error, Result};
use estrade_model::Invalid;
use estrade_runtime::VolumeName;
use serde_json::{Map, Value};

/// Most disks of one release.
const MAX_MOUNTS: usize = 64;
/// Longest path, in bytes.
const MAX_PATH: usize = 255;
/// What belongs to the kernel: neither they nor anything in them can be a disk.
const KERNEL_PATHS: [&str; 3] = ["/proc", "/sys", "/dev"];

/// The disks that the settings of a release name, and the absolute paths where its instances see them.
pub fn mounts(settings: &Map<String, Value>) -> Result<Vec<(VolumeName, String)>> {
    let entries = match settings.get("disks") {
        None | Some(Value::Null) => return Ok(Vec::new()),
        Some(Value::Array(entries)) => entries,
        Some(_) => return Err(Error::invalid("disks: must be a list of {name, mountTo}")),
    };
    if entries.len() > MAX_MOUNTS {
        return Err(Error::invalid(format!(
            "disks: at most {MAX_MOUNTS} are possible"
        )));
    }
    let mut mounts: Vec<(VolumeName, String)> = Vec::new();
    for (at, entry) in entries.iter().enumerate() {
        let at = |Invalid(reason)| Error::invalid(format!("disks[{at}].{reason}"));
        let (name, path) = read(entry).map_err(at)?;
        if mounts.iter().any(|(other, _)| *other == name) {
            return Err(at("name: is there twice".into()));
        }
        if mounts.iter().any(|(_, other)| *other == path) {
            return Err(at("mountTo: is there twice".into()));
        }
        mounts.push((name, path));
    }
    Ok(mounts)
}

fn read(entry: &Value) -> std::result::Result<(VolumeName, String), Invalid> {
    let text = |field: &str| entry.get(field).and_then(Value::as_str);
    let name = text("name").ok_or("name: must be the name of a disk")?;
    let name = name
        .parse()
        .map_err(|Invalid(reason)| Invalid(format!("name: {reason}")))?;
    let path = text("mountTo").or_else(|| text("path"));
    let path = path.ok_or("mountTo: must be an absolute path")?;
    let path = check_path(path).map_err(|Invalid(reason)| Invalid(format!("mountTo: {reason}")))?;
    Ok((name, path))
}

/// The path without a slash at its end.
fn check_path(path: &str) -> std::result::Result<String, Invalid> {
    let rest = path.strip_prefix('/').ok_or("must be an absolute path")?;
    let rest = rest.strip_suffix('/').unwrap_or(rest);
    if rest.is_empty() {
        return Err("must not be the root".into());
    }
    if path.len() > MAX_PATH || path.contains(|c: char| c.is_control() || c == ':') {
        return Err("must be at most 255 bytes long, without colons and control characters".into());
    }
    if rest.split('/').any(|part| matches!(part, "" | "." | "..")) {
        return Err("must not have empty parts, `.` or `..`".into());
    }
    let path = format!("/{rest}");
    let within = |root: &&str| {
        path.strip_prefix(*root)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    if let Some(root) = KERNEL_PATHS.iter().find(|root| within(root)) {
        return Err(Invalid(format!(
            "must not be in {root}, which is the kernel's"
        )));
    }
    if path == "/tmp" {
        return Err("must not be /tmp, which is in memory; a folder in it can be".into());
    }
    Ok(path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn read_all(disks: Value) -> Result<Vec<(String, String)>> {
        let settings = Map::from_iter([("disks".to_owned(), disks)]);
        let mounts = mounts(&settings)?;
        Ok(mounts
            .into_iter()
            .map(|(name, path)| (name.to_string(), path))
            .collect())
    }

    #[test]
    fn a_disk_has_a_name_and_a_path() {
        let disks = json!([
            {"name": "media", "mountTo": "/app/media/"},
            {"name": "db", "path": "/data", "more": 1},
            {"name": "drafts", "mountTo": "/app/media/drafts"},
            {"name": "odd", "mountTo": "/process/..x/tmp"},
            {"name": "cache", "mountTo": "/tmp/cache"},
        ]);
        let pair = |name: &str, path: &str| (name.to_owned(), path.to_owned());
        assert_eq!(
            read_all(disks).unwrap(),
            [
                pair("media", "/app/media"),
                pair("db", "/data"),
                pair("drafts", "/app/media/drafts"),
                pair("odd", "/process/..x/tmp"),
                pair("cache", "/tmp/cache"),
            ]
        );
        assert!(mounts(&Map::new()).unwrap().is_empty());
        for none in [json!(null), json!([])] {
            assert!(read_all(none).unwrap().is_empty());
        }
    }

    #[test]
    fn nonsense_is_refused_and_named() {
        for (disks, named) in [
            (json!({}), "disks: "),
            (json!("media"), "disks: "),
            (json!([1]), "disks[0].name"),
            (json!([{"mountTo": "/a"}]), "disks[0].name"),
            (json!([{"name": 1, "mountTo": "/a"}]), "disks[0].name"),
            (json!([{"name": "A", "mountTo": "/a"}]), "disks[0].name"),
            (json!([{"name": "a"}]), "disks[0].mountTo"),
            (json!([{"name": "a", "mountTo": 1}]), "disks[0].mountTo"),
            (
                json!([{"name": "a", "mountTo": "/x"}, {"name": "a", "mountTo": "/y"}]),
                "disks[1].name: is there twice",
            ),
            (
                json!([{"name": "a", "mountTo": "/x"}, {"name": "b", "mountTo": "/x/"}]),
                "disks[1].mountTo: is there twice",
            ),
        ] {
            let error = read_all(disks.clone()).unwrap_err().to_string();
            assert!(error.starts_with(named), "{disks}: {error}");
        }
        let long = format!("/{}", "a".repeat(255));
        for path in [
            "",
            "/",
            "//",
            "a",
            "./a",
            "/a/..",
            "/../a",
            "/a/./b",
            "/a//b",
            "/a\0b",
            "/a\nb",
            "/a:ro",
            "/proc",
            "/proc/",
            "/proc/sys",
            "/sys/fs",
            "/dev",
            "/dev/shm",
            "/tmp",
            &long,
        ] {
            let error = read_all(json!([{"name": "a", "mountTo": path}]))
                .unwrap_err()
                .to_string();
            assert!(
                error.starts_with("disks[0].mountTo: must"),
                "{path:?}: {error}"
            );
        }
        let many: Vec<_> = (0..65)
            .map(|n| json!({"name": format!("d{n}"), "mountTo": format!("/d{n}")}))
            .collect();
        assert!(read_all(json!(many)).is_err());
        assert_eq!(read_all(json!(many[..64])).unwrap().len(), 64);
    }
}
