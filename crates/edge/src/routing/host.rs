//! Which site a `Host` means.

use std::borrow::Cow;

/// The host of a request in the form that host names are compared in: lower case, without port and
/// trailing dot.
pub(crate) fn canonical(host: &str) -> Cow<'_, str> {
    let host = match host.rsplit_once(':') {
        // The colons of an IPv6 address are inside brackets.
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    };
    let host = host.strip_suffix('.').unwrap_or(host);
    if host.bytes().any(|byte| byte.is_ascii_uppercase()) {
        Cow::Owned(host.to_ascii_lowercase())
    } else {
        Cow::Borrowed(host)
    }
}

/// The project that a canonical host names under one of the domains, as `{project}.{domain}`.
pub(crate) fn project_name<'h>(host: &'h str, domains: &[String]) -> Option<&'h str> {
    domains.iter().find_map(|domain| {
        let label = host.strip_suffix(domain.as_str())?.strip_suffix('.')?;
        (!label.is_empty() && !label.contains('.')).then_some(label)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_compared_without_port_case_and_final_dot() {
        for (host, same) in [
            ("my-site.localhost:8080", "my-site.localhost"),
            ("My-Site.LOCALHOST.", "my-site.localhost"),
            ("a.localhost.:80", "a.localhost"),
            ("[::1]:8080", "[::1]"),
            ("[::1]", "[::1]"),
            ("", ""),
        ] {
            assert_eq!(canonical(host), same, "{host}");
        }
    }

    #[test]
    fn a_project_is_one_label_under_a_domain() {
        let domains = ["localhost".to_owned(), "apps.localhost".to_owned()];
        for (host, project) in [
            ("my-site.localhost", Some("my-site")),
            ("my-site.apps.localhost", Some("my-site")),
            ("apps.localhost", Some("apps")),
            ("a.b.localhost", None),
            ("localhost", None),
            (".localhost", None),
            ("my-sitelocalhost", None),
            ("example.com", None),
            ("my-site.localhost.evil.com", None),
        ] {
            assert_eq!(project_name(host, &domains), project, "{host}");
        }
    }
}
