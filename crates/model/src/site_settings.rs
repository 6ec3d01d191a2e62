//! What clients say about a static site: in `platformConfig` of a release, or in a project file.
//!
//! Clients of this API family send the section of their project file that is named like the
//! platform, so both are read alike. Fields that we do not know belong to somebody else.

use crate::Invalid;
use crate::paths::FilePath;
use crate::platform::Platform;
use crate::site::{PathHeaders, SiteConfig};
use crate::site_rules::MAX_SEGMENTS;
use serde_json::{Map, Value};

/// Project files, the one that counts first. They are read, and never served.
pub const PROJECT_FILES: [&str; 2] = ["estrade.json", "liara.json"];
/// Largest project file, in bytes.
pub const MAX_PROJECT_FILE_BYTES: usize = 64 * 1024;

/// Fields that name the folder that is served, the one that counts first.
const ROOT: [&str; 5] = ["root", "publish", "outputDir", "outputPath", "path"];
/// Most rules with headers, and most headers of one.
const MAX_HEADERS: usize = 100;
/// Longest value of a header, in bytes.
const MAX_VALUE_BYTES: usize = 4096;

/// Settings of a site; what is none was not said.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SiteSettings {
    root: Option<Root>,
    spa: Option<bool>,
    clean_urls: Option<bool>,
    headers: Option<Vec<PathHeaders>>,
}

/// What is served.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Root {
    Everything,
    Folder(FilePath),
}

impl SiteSettings {
    /// Reads an object such as `{"root": "dist", "spa": true}`; null is nothing.
    pub fn from_json(value: &Value) -> Result<Self, Invalid> {
        let fields = match value {
            Value::Null => return Ok(Self::default()),
            Value::Object(fields) => fields,
            _ => return Err("must be an object".into()),
        };
        let headers = fields.get("headers").filter(|value| !value.is_null());
        Ok(Self {
            root: read_root(fields)?,
            spa: read_flag(fields, &["spa"])?,
            clean_urls: read_flag(fields, &["cleanUrls", "clean_urls"])?,
            headers: headers
                .map(read_headers)
                .transpose()
                .map_err(|Invalid(reason)| format!("headers: {reason}"))?,
        })
    }

    /// Reads a project file: its section for the platform, then what stands beside the sections.
    pub fn from_project_file(bytes: &[u8], platform: Platform) -> Result<Self, Invalid> {
        // Editors on Windows put a mark before the text.
        let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
        let file: Value =
            serde_json::from_slice(bytes).map_err(|error| format!("is not JSON: {error}"))?;
        let Value::Object(mut fields) = file else {
            return Err("must be an object".into());
        };
        let name = platform.as_str();
        let section = fields.remove(name).unwrap_or_default();
        let section = Self::from_json(&section)
            .map_err(|Invalid(reason)| Invalid(format!("{name}: {reason}")))?;
        // There it is where the client finds the project on its own disk.
        fields.remove("path");
        Ok(section.or(Self::from_json(&Value::Object(fields))?))
    }

    /// These settings, completed by others.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        Self {
            root: self.root.or(other.root),
            spa: self.spa.or(other.spa),
            clean_urls: self.clean_urls.or(other.clean_urls),
            headers: self.headers.or(other.headers),
        }
    }

    /// The folder that is served, unless it is all of it.
    pub fn root(&self) -> Option<&FilePath> {
        match self.root.as_ref()? {
            Root::Everything => None,
            Root::Folder(path) => Some(path),
        }
    }

    /// How the files are served.
    pub fn into_config(self) -> SiteConfig {
        let usual = SiteConfig::default();
        SiteConfig {
            spa: self.spa.unwrap_or(usual.spa),
            clean_urls: self.clean_urls.unwrap_or(usual.clean_urls),
            headers: self.headers.unwrap_or(usual.headers),
        }
    }
}

fn read_root(fields: &Map<String, Value>) -> Result<Option<Root>, Invalid> {
    for name in ROOT {
        let text = match fields.get(name) {
            None | Some(Value::Null) => continue,
            Some(Value::String(text)) => text.as_str(),
            Some(_) => return Err(format!("{name}: must be the path of a folder").into()),
        };
        // People write `./dist/`, and `.` or `/` for all of it.
        let mut inner = text.strip_prefix('/').unwrap_or(text);
        while let Some(rest) = inner.strip_prefix("./") {
            inner = rest;
        }
        let inner = inner.trim_end_matches('/');
        if inner.is_empty() || inner == "." {
            return Ok(Some(Root::Everything));
        }
        let path = FilePath::try_from(inner.to_owned());
        return path
            .map(|path| Some(Root::Folder(path)))
            .map_err(|Invalid(reason)| format!("{name}: {reason}").into());
    }
    Ok(None)
}

fn read_flag(fields: &Map<String, Value>, names: &[&str]) -> Result<Option<bool>, Invalid> {
    for name in names {
        match fields.get(*name) {
            None | Some(Value::Null) => {}
            Some(Value::Bool(flag)) => return Ok(Some(*flag)),
            Some(_) => return Err(format!("{name}: must be true or false").into()),
        }
    }
    Ok(None)
}

/// `[{"path": "/a/*", "headers": {…}}]` (or `source`, and a list of `{key, value}`), or
/// `{"/a/*": {…}}`.
fn read_headers(value: &Value) -> Result<Vec<PathHeaders>, Invalid> {
    let rules: Vec<_> = match value {
        Value::Array(rules) => rules.iter().map(read_rule).collect::<Result<_, _>>()?,
        Value::Object(rules) => {
            let rule = |(path, headers): (&String, &Value)| rule(path, headers);
            rules.iter().map(rule).collect::<Result<_, _>>()?
        }
        _ => return Err("must be a list of rules".into()),
    };
    if rules.len() > MAX_HEADERS {
        return Err(format!("must be at most {MAX_HEADERS} rules").into());
    }
    Ok(rules)
}

fn read_rule(value: &Value) -> Result<PathHeaders, Invalid> {
    let path = value.get("path").or_else(|| value.get("source"));
    let path = path.and_then(Value::as_str);
    let path = path.ok_or("a rule needs `path`, such as \"/assets/*\"")?;
    rule(path, value.get("headers").unwrap_or(&Value::Null))
}

fn rule(path: &str, headers: &Value) -> Result<PathHeaders, Invalid> {
    if !path.starts_with('/') || path.len() > 1024 || path.chars().any(char::is_control) {
        return Err(format!("`{}`: a path begins with /", path.escape_debug()).into());
    }
    let segments = path.split('/').filter(|segment| !segment.is_empty());
    if segments.count() > MAX_SEGMENTS {
        return Err(format!("`{path}`: a path has at most {MAX_SEGMENTS} segments").into());
    }
    let text = |value: &Value| match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    };
    let pairs: Option<Vec<(String, String)>> = match headers {
        Value::Object(fields) => fields
            .iter()
            .map(|(name, value)| Some((name.clone(), text(value)?)))
            .collect(),
        Value::Array(list) => list
            .iter()
            .map(|one| {
                let name = one.get("key").or_else(|| one.get("name"))?.as_str()?;
                Some((name.to_owned(), text(one.get("value")?)?))
            })
            .collect(),
        _ => None,
    };
    let pairs = pairs.ok_or_else(|| format!("`{path}`: `headers` must be names and values"))?;
    if pairs.len() > MAX_HEADERS {
        return Err(format!("`{path}`: at most {MAX_HEADERS} headers").into());
    }
    for (name, value) in &pairs {
        check_header(name, value).map_err(|Invalid(reason)| format!("`{path}`: {reason}"))?;
    }
    Ok(PathHeaders {
        path: path.to_owned(),
        headers: pairs,
    })
}

fn check_header(name: &str, value: &str) -> Result<(), Invalid> {
    let in_name = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    if name.is_empty() || name.len() > 256 || !name.bytes().all(in_name) {
        return Err(format!("`{}` is no name of a header", name.escape_debug()).into());
    }
    let in_value = |byte: u8| byte == b'\t' || (b' '..=b'~').contains(&byte);
    if value.len() > MAX_VALUE_BYTES || !value.bytes().all(in_value) {
        return Err(format!("the value of `{name}` must be printable ASCII").into());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn settings(value: &Value) -> SiteSettings {
        SiteSettings::from_json(value).unwrap()
    }

    #[test]
    fn fields_of_others_are_ignored_and_ours_are_read() {
        let read =
            settings(&json!({"root": "./dist/", "spa": true, "gzip": 1, "cache": {"a": []}}));
        assert_eq!(read.root().unwrap().as_str(), "dist");
        assert_eq!(
            settings(&json!({"outputPath": "a/b"}))
                .root()
                .unwrap()
                .as_str(),
            "a/b"
        );
        assert_eq!(settings(&json!({"root": "/", "publish": "x"})).root(), None);
        let config = read.into_config();
        assert!(config.spa && config.clean_urls);
        let config = settings(&json!({"cleanUrls": false})).into_config();
        assert!(!config.spa && !config.clean_urls);
        assert_eq!(settings(&Value::Null), SiteSettings::default());
    }

    #[test]
    fn headers_come_in_three_shapes() {
        let expected = vec![PathHeaders {
            path: "/a/*".into(),
            headers: vec![("x-a".into(), "1".into())],
        }];
        for shape in [
            json!([{"path": "/a/*", "headers": {"x-a": "1"}}]),
            json!([{"source": "/a/*", "headers": [{"key": "x-a", "value": "1"}]}]),
            json!({"/a/*": {"x-a": 1}}),
        ] {
            assert_eq!(
                settings(&json!({"headers": shape})).into_config().headers,
                expected
            );
        }
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (bad, named) in [
            (json!([]), "object"),
            (json!({"root": 1}), "root"),
            (json!({"root": "../x"}), "root"),
            (json!({"publish": "a//b"}), "publish"),
            (json!({"spa": "yes"}), "spa"),
            (json!({"cleanUrls": 1}), "cleanUrls"),
            (json!({"headers": 1}), "headers"),
            (json!({"headers": [{"headers": {}}]}), "path"),
            (json!({"headers": {"a": {}}}), "`a`"),
            (json!({"headers": {"/": {"x y": ""}}}), "x y"),
            (json!({"headers": {"/": {"x": "a\r\nb"}}}), "x"),
            (json!({"headers": {"/": {"x": []}}}), "names and values"),
        ] {
            let Invalid(reason) = SiteSettings::from_json(&bad).unwrap_err();
            assert!(reason.contains(named), "{bad}: {reason}");
        }
    }

    #[test]
    fn a_project_file_has_sections() {
        let read = |text: &str| SiteSettings::from_project_file(text.as_bytes(), Platform::Static);
        let file = "\u{feff}{\"app\":\"shop\",\"path\":\"/home/me\",\"spa\":false,\"root\":\"out\",\"static\":{\"spa\":true},\"vue\":{\"spa\":1}}";
        let settings = read(file).unwrap();
        assert_eq!(settings.root().unwrap().as_str(), "out");
        assert!(settings.clone().into_config().spa);
        let sent = SiteSettings::from_json(&json!({"spa": false})).unwrap();
        assert!(!sent.or(settings).into_config().spa);
        for bad in ["", "[]", "{", r#"{"static":1}"#, r#"{"static":{"spa":1}}"#] {
            assert!(read(bad).is_err(), "{bad}");
        }
    }
}
