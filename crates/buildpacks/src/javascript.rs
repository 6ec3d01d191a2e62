//! A look at configurations that are code: values that are plainly there, never anything that would need to run.

/// The code without lines that are comments.
fn lines(code: &str) -> impl Iterator<Item = &str> {
    let lines = code.lines().map(str::trim_start);
    lines.filter(|line| !line.starts_with("//") && !line.starts_with('*'))
}

/// What follows `name:` wherever that is a field.
fn fields<'c>(line: &'c str, name: &str) -> impl Iterator<Item = &'c str> {
    line.match_indices(name).filter_map(move |(at, found)| {
        let before = line.get(..at)?.chars().next_back();
        if before.is_some_and(|c| c.is_alphanumeric() || "_$.".contains(c)) {
            return None;
        }
        let after = line
            .get(at + found.len()..)?
            .trim_start_matches(['"', '\''])
            .trim_start();
        Some(after.strip_prefix(':')?.trim_start())
    })
}

/// The value of `name: "value"`. What is not plainly there is not found, and one that is commented out is not there.
pub(crate) fn plain_value(code: &str, name: &str) -> Option<String> {
    lines(code).find_map(|line| {
        fields(line, name).find_map(|value| {
            let quote = value.chars().next().filter(|c| "\"'`".contains(*c))?;
            let (value, _) = value.get(1..)?.split_once(quote)?;
            let plain = !value.is_empty() && !value.contains(['$', '\\', '{']);
            plain.then(|| value.to_owned())
        })
    })
}

/// Whether the code plainly says `name: value`, where the value is a text, a word or a number.
pub(crate) fn says(code: &str, name: &str, value: &str) -> bool {
    let is_word = |rest: &str| {
        let rest = rest.strip_prefix(value);
        rest.is_some_and(|rest| {
            !rest.starts_with(|c: char| c.is_alphanumeric() || "_$.(".contains(c))
        })
    };
    lines(code).any(|line| fields(line, name).any(is_word))
        || plain_value(code, name).as_deref() == Some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_values_are_read_from_code() {
        for (code, value) in [
            ("build: { outDir: 'web' }", Some("web")),
            ("\"outDir\": \"a/b\",", Some("a/b")),
            ("outDir : `x`", Some("x")),
            ("// outDir: 'web'", None),
            (" * outDir: 'web'", None),
            ("noutDir: 'web'", None),
            ("outDir: path.join('a')", None),
            ("outDir: `${root}/x`", None),
            ("outDirs: 'x'", None),
            ("x.outDir: 'y'", None),
            ("outDir: ''", None),
        ] {
            assert_eq!(plain_value(code, "outDir").as_deref(), value, "{code}");
        }
    }

    #[test]
    fn words_and_texts_are_distinguished() {
        for (code, is_said) in [
            ("export default { ssr: false } satisfies Config", true),
            ("ssr: false,", true),
            ("ssr: 'false'", true),
            ("ssr: falsey", false),
            ("ssr: true", false),
            ("// ssr: false", false),
            ("noSsr: false", false),
        ] {
            assert_eq!(says(code, "ssr", "false"), is_said, "{code}");
        }
    }
}
