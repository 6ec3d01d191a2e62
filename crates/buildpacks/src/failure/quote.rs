//! What may be quoted of a build's output: not endless, and without what looks like a secret.

/// How much of a command or a line is shown, in characters.
const MAX_CHARS: usize = 200;
/// What a value that nobody shall see is named.
const NAMES: [&str; 15] = [
    "_pass",
    "pwd",
    "accesstoken",
    "private_key",
    "_token",
    "-token",
    "authtoken",
    "_auth",
    "authorization",
    "secret",
    "password",
    "passwd",
    "api_key",
    "apikey",
    "credential",
];
/// How tokens of well-known services begin.
const TOKENS: [&str; 8] = [
    "npm_",
    "ghp_",
    "github_pat_",
    "glpat-",
    "sk-",
    "AKIA",
    "xoxb-",
    "eyJ",
];
/// Shorter words are no such tokens.
const MIN_TOKEN_CHARS: usize = 16;
/// What precedes a credential in a header.
const SCHEMES: [&str; 2] = ["Bearer", "Basic"];
const HIDDEN: &str = "***";

/// The text in one line of sane length, without anything that looks like a secret.
pub(super) fn quoted(text: &str) -> String {
    let mut hides_next = false;
    let words = text.trim().split(' ').map(|word| {
        let hidden = hides_next && !word.is_empty();
        hides_next = is_name(word.trim_end_matches([':', '='])) && word.ends_with([':', '='])
            || SCHEMES.contains(&word)
            || (hides_next && word.is_empty());
        if hidden && !SCHEMES.contains(&word) {
            HIDDEN.to_owned()
        } else {
            without_secret(word)
        }
    });
    let text = words.collect::<Vec<_>>().join(" ");
    let visible = |c: char| if c.is_control() { ' ' } else { c };
    let mut short: String = text.chars().take(MAX_CHARS).map(visible).collect();
    if text.chars().nth(MAX_CHARS).is_some() {
        short.push('…');
    }
    short
}

fn is_name(text: &str) -> bool {
    let text = text.to_ascii_lowercase();
    NAMES.iter().any(|name| text.contains(name))
}

fn without_secret(word: &str) -> String {
    if let Some((scheme, rest)) = word.split_once("://") {
        // A password may have these characters unescaped.
        let user = rest.rfind('@');
        let user = user.filter(|at| rest.get(..*at).is_some_and(|it| it.contains(':')));
        let from = user.unwrap_or(0);
        let end = rest.get(from..).and_then(|it| it.find(['/', '?', '#']));
        let end = end.map_or(rest.len(), |at| from + at);
        let (authority, path) = rest.split_at(end);
        let host = authority.rsplit('@').next().unwrap_or(authority);
        let user = if host.len() < authority.len() {
            format!("{HIDDEN}@")
        } else {
            String::new()
        };
        // What follows the path of an address may be a signature.
        let path = path.split(['?', '#']).next().unwrap_or(path);
        return format!("{scheme}://{user}{host}{path}");
    }
    let mut assigned = word.match_indices(['=', ':']);
    let named = assigned.find(|(at, _)| is_name(word.get(..*at).unwrap_or_default()));
    if let Some((at, _)) = named.filter(|(at, _)| at + 1 < word.len()) {
        return format!("{}{HIDDEN}", word.get(..=at).unwrap_or_default());
    }
    let bare = word.trim_start_matches(['\'', '"', '`', '(', '=']);
    if bare.len() >= MIN_TOKEN_CHARS && TOKENS.iter().any(|begin| bare.starts_with(begin)) {
        return HIDDEN.to_owned();
    }
    word.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_looks_like_a_secret_is_not_quoted() {
        for (text, shown) in [
            (
                "fatal: unable to access 'https://ada:hunter22@git.example/x?sig=1': no",
                "fatal: unable to access 'https://***@git.example/x no",
            ),
            (
                "//r.example/:_authToken=abc123 is wrong",
                "//r.example/:_authToken=*** is wrong",
            ),
            (
                "postgres://ada:hunt/er?22@db.example:5432/x?y",
                "postgres://***@db.example:5432/x",
            ),
            ("DB_PASSWORD: hunter22", "DB_PASSWORD: ***"),
            ("DB_PASSWORD=hunter22 make", "DB_PASSWORD=*** make"),
            ("authorization: Bearer abc", "authorization: Bearer ***"),
            ("bad token 'ghp_0123456789abcdef'", "bad token ***"),
            (
                "Error: Unexpected token '<' in JSON",
                "Error: Unexpected token '<' in JSON",
            ),
            ("error: expected `;`", "error: expected `;`"),
            (
                "make: *** No rule to make target 'all'.",
                "make: *** No rule to make target 'all'.",
            ),
            ("a\tb", "a b"),
        ] {
            assert_eq!(quoted(text), shown);
        }
        assert_eq!(quoted(&"é".repeat(500)).chars().count(), MAX_CHARS + 1);
    }
}
