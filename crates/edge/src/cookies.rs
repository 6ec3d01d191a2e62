//! Cookies that a project sets: for its own hosts, and never for the domain that it shares with others.
//!
//! Projects are neighbours under one domain. A cookie whose `Domain` is that domain, or a parent of
//! it, is sent to all of them, and could replace theirs. Without the attribute it is for the host that
//! set it only.

/// A `Set-Cookie` without a `Domain` that projects share; none when it has no such attribute.
pub(crate) fn restrict(cookie: &[u8], edge_domains: &[String]) -> Option<Vec<u8>> {
    let is_kept = |attribute: &&[u8]| !names_shared_domain(attribute, edge_domains);
    let mut parts = cookie.split(|byte| *byte == b';');
    // The first part is the cookie itself, whatever it is called.
    let first = parts.next()?;
    let attributes: Vec<_> = parts.collect();
    let kept: Vec<_> = attributes.iter().copied().filter(is_kept).collect();
    if kept.len() == attributes.len() {
        return None;
    }
    let mut restricted = first.to_vec();
    for attribute in kept {
        restricted.push(b';');
        restricted.extend_from_slice(attribute);
    }
    Some(restricted)
}

/// Restricts every `Set-Cookie` among header lines.
pub(crate) fn restrict_lines(lines: &mut Vec<u8>, edge_domains: &[String]) {
    const NAME: &[u8] = b"set-cookie:";
    let mut restricted = Vec::with_capacity(lines.len());
    for line in lines.split_inclusive(|byte| *byte == b'\n') {
        let cookie = line
            .split_at_checked(NAME.len())
            .filter(|(name, _)| name.eq_ignore_ascii_case(NAME))
            .and_then(|(_, value)| restrict(value.trim_ascii(), edge_domains));
        match cookie {
            Some(cookie) => {
                restricted.extend_from_slice(b"set-cookie: ");
                restricted.extend_from_slice(&cookie);
                restricted.extend_from_slice(b"\r\n");
            }
            None => restricted.extend_from_slice(line),
        }
    }
    *lines = restricted;
}

fn names_shared_domain(attribute: &[u8], edge_domains: &[String]) -> bool {
    let Ok(attribute) = std::str::from_utf8(attribute) else {
        return false;
    };
    let Some((name, domain)) = attribute.split_once('=') else {
        return false;
    };
    if !name.trim().eq_ignore_ascii_case("domain") {
        return false;
    }
    let domain = domain.trim().trim_matches('"').trim_matches('.');
    let domain = domain.to_ascii_lowercase();
    edge_domains.iter().any(|edge| {
        let above = edge.strip_suffix(domain.as_str());
        above.is_some_and(|above| above.is_empty() || above.ends_with('.'))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn restricted(cookie: &str) -> Option<String> {
        let domains = ["apps.example.com".to_owned(), "localhost".to_owned()];
        let restricted = restrict(cookie.as_bytes(), &domains)?;
        Some(String::from_utf8(restricted).unwrap())
    }

    #[test]
    fn a_domain_that_is_shared_is_left_out() {
        for (cookie, left) in [
            ("a=1; Domain=apps.example.com; Path=/", "a=1; Path=/"),
            ("a=1;domain = .Apps.Example.Com.", "a=1"),
            ("a=1; DOMAIN=example.com", "a=1"),
            ("a=1; Domain=com", "a=1"),
            (
                "a=1; Domain=localhost; Domain=x.localhost",
                "a=1; Domain=x.localhost",
            ),
            ("a=1; Secure; Domain=\"localhost\"", "a=1; Secure"),
        ] {
            assert_eq!(restricted(cookie).as_deref(), Some(left), "{cookie}");
        }
        for kept in [
            "a=1",
            "domain=localhost; Path=/",
            "a=1; Domain=my-site.apps.example.com",
            "a=1; Domain=shop.test; HttpOnly",
            "a=1; Domain=ple.com",
            "a=1; Domain",
        ] {
            assert_eq!(restricted(kept), None, "{kept}");
        }
    }

    #[test]
    fn only_lines_with_cookies_change() {
        let mut lines =
            b"x: domain=localhost\r\nSet-Cookie: a=1; Domain=localhost\r\nset-cookie:b=2\r\n"
                .to_vec();
        restrict_lines(&mut lines, &["localhost".to_owned()]);
        assert_eq!(
            lines,
            b"x: domain=localhost\r\nset-cookie: a=1\r\nset-cookie:b=2\r\n"
        );
    }
}
