//! Which arguments of a build must not appear in its log.

use estrade_model::secret::Secret;

/// Words in the names of secret variables.
const SECRET_WORDS: [&str; 8] = [
    "SECRET",
    "TOKEN",
    "PASS",
    "PWD",
    "KEY",
    "CREDENTIAL",
    "AUTH",
    "PRIVATE",
];
/// A single word that is this long is no ordinary setting.
const MIN_SECRET_LENGTH: usize = 20;

/// Whether the value of an argument is a secret, as far as one can tell.
pub(super) fn is_secret(name: &str, value: &str) -> bool {
    let name = name.to_ascii_uppercase();
    let word = !value.contains(char::is_whitespace) && !value.contains('/');
    SECRET_WORDS.iter().any(|word| name.contains(word))
        || (word && value.len() >= MIN_SECRET_LENGTH)
}

/// A secret as it may be in the log: as it is, and as it is inside of JSON, which the engine repeats of a Dockerfile and
/// [`estrade_buildpacks::readable_step`] writes out.
pub(super) fn forms(secret: &str) -> Vec<Secret> {
    let json = serde_json::Value::from(secret).to_string();
    let inner = json
        .strip_prefix('"')
        .and_then(|json| json.strip_suffix('"'));
    let escaped = inner.filter(|inner| *inner != secret);
    let texts = [Some(secret), escaped].into_iter().flatten();
    texts.map(|text| Secret(text.to_owned())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_known_inside_of_json() {
        let texts = |secret: &str| -> Vec<String> {
            let forms = forms(secret);
            forms.iter().map(|form| form.expose().to_owned()).collect()
        };
        assert_eq!(texts("plain"), ["plain"]);
        assert_eq!(texts(r#"se"cr\et"#), [r#"se"cr\et"#, r#"se\"cr\\et"#]);
        assert_eq!(texts(r#""x"#), [r#""x"#, r#"\"x"#]);
    }

    #[test]
    fn names_and_looks_tell() {
        for (name, value) in [
            ("NPM_TOKEN", "x"),
            ("db_password", "x"),
            ("THING", "ghp_0123456789abcdefghij"),
        ] {
            assert!(is_secret(name, value), "{name}");
        }
        for (name, value) in [
            ("NODE_ENV", "production"),
            ("BASE", "https://cdn.example.com/some/where"),
        ] {
            assert!(!is_secret(name, value), "{name}");
        }
    }
}
