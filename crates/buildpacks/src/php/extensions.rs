//! Extensions of PHP: which are in the official image, and what it takes to add others.

use super::composer::FILE;
use crate::context::BuildContext;
use crate::error::{Result, refused};
use crate::version::Version;

/// What is in the image already.
const THERE: [&str; 30] = [
    "core",
    "ctype",
    "curl",
    "date",
    "dom",
    "fileinfo",
    "filter",
    "ftp",
    "hash",
    "iconv",
    "json",
    "libxml",
    "mbstring",
    "mysqlnd",
    "openssl",
    "pcre",
    "pdo",
    "pdo_sqlite",
    "phar",
    "posix",
    "random",
    "readline",
    "reflection",
    "session",
    "simplexml",
    "sodium",
    "spl",
    "sqlite3",
    "standard",
    "tokenizer",
];
const ALSO_THERE: [&str; 4] = ["xml", "xmlreader", "xmlwriter", "zlib"];

/// Extensions of PHP's own sources, with the packages that they are built with.
const OWN: [(&str, &[&str]); 17] = [
    ("bcmath", &[]),
    ("calendar", &[]),
    ("exif", &[]),
    (
        "gd",
        &[
            "libfreetype6-dev",
            "libjpeg62-turbo-dev",
            "libpng-dev",
            "libwebp-dev",
        ],
    ),
    ("gettext", &[]),
    ("gmp", &["libgmp-dev"]),
    ("intl", &["libicu-dev"]),
    ("ldap", &["libldap2-dev"]),
    ("mysqli", &[]),
    ("opcache", &[]),
    ("pcntl", &[]),
    ("pdo_mysql", &[]),
    ("pdo_pgsql", &["libpq-dev"]),
    ("pgsql", &["libpq-dev"]),
    ("soap", &["libxml2-dev"]),
    ("sockets", &[]),
    ("zip", &["libzip-dev"]),
];

/// Extensions of others.
const PECL: [(&str, &[&str]); 5] = [
    ("apcu", &[]),
    ("imagick", &["libmagickwand-dev"]),
    ("mongodb", &["libssl-dev"]),
    ("redis", &[]),
    ("xdebug", &[]),
];

/// Writes what adds extensions: the usual ones of the platform, and those that are required.
pub(super) fn add<'e>(
    context: &mut BuildContext<'_>,
    version: Version,
    usual: &[&'static str],
    required: impl Iterator<Item = &'e str>,
) -> Result<()> {
    let mut own: Vec<&'static str> = usual.to_vec();
    let mut pecl: Vec<&'static str> = Vec::new();
    for name in required {
        let name = name.to_ascii_lowercase().replace('-', "_");
        let is = |(known, _): &&(&'static str, _)| *known == name;
        if THERE.contains(&name.as_str())
            || ALSO_THERE.contains(&name.as_str())
            || name == "zend_opcache"
        {
            continue;
        }
        match (OWN.iter().find(is), PECL.iter().find(is)) {
            (Some((known, _)), _) => own.push(known),
            (None, Some((known, _))) => pecl.push(known),
            (None, None) => {
                let advice = format!(
                    "requires ext-{name}, which is not known here; use the platform docker for it"
                );
                return Err(refused(FILE, advice));
            }
        }
    }
    // Since 8.5 it is part of PHP itself.
    own.retain(|name| *name != "opcache" || version < Version::minor(8, 5));
    for list in [&mut own, &mut pecl] {
        list.sort_unstable();
        list.dedup();
    }
    let all = OWN
        .iter()
        .chain(&PECL)
        .filter(|(name, _)| own.contains(name) || pecl.contains(name));
    let mut packages: Vec<_> = all.flat_map(|(_, packages)| *packages).copied().collect();
    packages.sort_unstable();
    packages.dedup();
    context.file.packages(&packages);
    if own.contains(&"gd") {
        context
            .file
            .script("docker-php-ext-configure gd --with-freetype --with-jpeg --with-webp");
    }
    let run = |context: &mut BuildContext<'_>, words: &[&str], names: &[&str]| {
        if !names.is_empty() {
            context.file.run(&[words, names].concat());
        }
    };
    run(context, &["docker-php-ext-install"], &own);
    run(context, &["pecl", "install"], &pecl);
    run(context, &["docker-php-ext-enable"], &pecl);
    Ok(())
}
