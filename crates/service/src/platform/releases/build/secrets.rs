//! Which arguments of a build must not appear in its log.

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

#[cfg(test)]
mod tests {
    use super::*;

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
