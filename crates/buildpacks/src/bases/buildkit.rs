//! Options of `COPY`, `ADD` and `RUN` that only BuildKit knows; images are built without it.
//!
//! Those that make no difference to what is in an image are left out, and the log says so. The others are refused here,
//! because the engine would not say what to write instead.

/// What the log says of options that are left out.
const NO_CACHE_MOUNTS: &str =
    "`RUN --mount=type=cache` is left out: steps run without such caches here";
const NO_LINKS: &str = "`--link` is left out: the same files are copied without it";

/// What an option means for a build without BuildKit.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Meaning {
    /// It is left out; what the log says of that.
    LeftOut(Option<&'static str>),
    /// Why it is refused, and what to write instead.
    Refused(&'static str),
}
use Meaning::{LeftOut, Refused};

/// What an option of an instruction means, when it is not one that every engine knows.
pub(super) fn meaning(keyword: &str, name: &str, value: &str) -> Meaning {
    match (keyword, name) {
        ("RUN", "mount") => mount(value),
        ("RUN", "network") if value == "default" => LeftOut(None),
        ("RUN", "network") => {
            Refused("steps run in the network of your projects, and in no other; leave it out")
        }
        ("RUN", "security" | "device") => {
            Refused("steps run without more rights than others; leave it out")
        }
        ("COPY" | "ADD", "link") => match value.to_ascii_lowercase().as_str() {
            "" | "true" | "1" => LeftOut(Some(NO_LINKS)),
            "false" | "0" => LeftOut(None),
            _ => Refused("can only be true or false"),
        },
        ("COPY" | "ADD", "chmod") => Refused(
            "is not supported; leave it out, and set the mode in a line after it: RUN chmod …",
        ),
        ("COPY" | "ADD", "parents" | "exclude") => Refused(
            "is not supported; name the files in lines of their own, and leave out others with .dockerignore",
        ),
        ("ADD", "checksum" | "keep-git-dir") => {
            Refused("is for downloads, and only files of the sources can be added; leave it out")
        }
        ("ADD", "unpack") => Refused(
            "is not supported; ADD unpacks archives of the sources, and COPY keeps them as they are",
        ),
        _ => Refused("is not known"),
    }
}

/// A mount of a step: a cache that may be empty makes no difference to what the step does.
fn mount(value: &str) -> Meaning {
    let fields = value.split(',').map(|field| {
        let (key, value) = field.split_once('=').unwrap_or((field, ""));
        (key.to_ascii_lowercase(), value.to_ascii_lowercase())
    });
    let fields: Vec<_> = fields.collect();
    let mut kinds = fields.iter().filter(|(key, _)| key == "type");
    let kind = kinds.next().map_or("bind", |(_, kind)| kind);
    if kinds.next().is_some() {
        return Refused("has several types; name one");
    }
    match kind {
        "cache" if fields.iter().any(|(key, _)| key == "from") => {
            Refused("a cache cannot begin with files of an image; copy them in a line before it")
        }
        "cache" => LeftOut(Some(NO_CACHE_MOUNTS)),
        "secret" => Refused(
            "builds get no secrets; fetch what needs one before you deploy, or name it in build.args if everybody with the image may know it",
        ),
        "ssh" => Refused(
            "builds have no SSH agent; fetch what needs one before you deploy, or over HTTPS",
        ),
        "bind" => Refused(
            "files cannot be mounted; copy them in a line before it, with COPY or COPY --from",
        ),
        "tmpfs" => Refused(
            "memory cannot be mounted; leave it out, and remove what the step leaves in that folder",
        ),
        _ => Refused(
            "is no mount that is known; only those with type=cache can be there, and are left out",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_makes_no_difference_is_left_out() {
        let read = |keyword, option: &str| {
            let (name, value) = option.split_once('=').unwrap_or((option, ""));
            meaning(keyword, name, value)
        };
        for mount in [
            "mount=type=cache,target=/root/.npm",
            "mount=target=/x,TYPE=Cache,sharing=locked,id=a",
            "mount=type=cache,dst=/x,readonly",
        ] {
            assert_eq!(
                read("RUN", mount),
                LeftOut(Some(NO_CACHE_MOUNTS)),
                "{mount}"
            );
        }
        assert_eq!(read("RUN", "network=default"), LeftOut(None));
        for link in ["link", "link=true", "link=TRUE", "link=1"] {
            assert_eq!(read("COPY", link), LeftOut(Some(NO_LINKS)), "{link}");
        }
        assert_eq!(read("ADD", "link=false"), LeftOut(None));
        for (keyword, option, part) in [
            ("RUN", "mount", "copy them"),
            ("RUN", "mount=target=/x", "copy them"),
            ("RUN", "mount=type=bind,from=a:1,target=/x", "copy them"),
            ("RUN", "mount=type=cache,from=a:1,target=/x", "of an image"),
            ("RUN", "mount=type=cache,target=/x,FROM=a:1", "of an image"),
            ("RUN", "mount=type=cache,target=/x,type=secret", "several"),
            ("RUN", "mount=Type=SECRET,id=a", "no secrets"),
            ("RUN", "mount=type=ssh", "SSH"),
            ("RUN", "mount=type=tmpfs,target=/x", "memory"),
            ("RUN", "mount=type=", "no mount"),
            ("RUN", "mount=type=caches", "no mount"),
            ("RUN", "network", "network of your projects"),
            ("RUN", "network=host", "network of your projects"),
            ("RUN", "network=Default", "network of your projects"),
            ("RUN", "network=none", "network of your projects"),
            ("RUN", "security=insecure", "rights"),
            ("RUN", "security=sandbox", "rights"),
            ("RUN", "Mount=type=cache", "not known"),
            ("RUN", "link", "not known"),
            ("COPY", "mount=type=cache", "not known"),
            ("COPY", "LINK", "not known"),
            ("COPY", "link=maybe", "true or false"),
            ("COPY", "chmod=755", "RUN chmod"),
            ("COPY", "parents", "lines of their own"),
            ("ADD", "exclude=*.md", "lines of their own"),
            ("ADD", "checksum=sha256:aa", "downloads"),
            ("COPY", "checksum=sha256:aa", "not known"),
            ("ADD", "unpack=false", "archives"),
            ("COPY", "", "not known"),
        ] {
            match read(keyword, option) {
                Refused(why) => assert!(why.contains(part), "{keyword} {option}: {why}"),
                LeftOut(note) => panic!("{keyword} {option}: {note:?}"),
            }
        }
    }
}
