//! Configuration of host names.

use estrade_model::domain::HostName;
use std::net::SocketAddr;

/// Host names of projects.
#[derive(Debug, Clone)]
pub struct DomainSettings {
    /// A project is reached at `{project}.{domain}`, for each of these.
    pub edge: Vec<String>,
    /// The installation's own public hosts, which no project can use.
    pub own_hosts: Vec<String>,
    /// Whether DNS must prove whose a domain is.
    pub verify: bool,
    /// The DNS server for look-ups; none: those of the system.
    pub dns_server: Option<SocketAddr>,
}

impl Default for DomainSettings {
    fn default() -> Self {
        Self {
            edge: vec!["localhost".into()],
            own_hosts: Vec::new(),
            verify: true,
            dns_server: None,
        }
    }
}

impl DomainSettings {
    /// Whether a name is, or may become, one that we serve by ourselves.
    pub(crate) fn is_reserved(&self, name: &HostName) -> bool {
        let own = self.edge.iter().chain(&self.own_hosts);
        own.into_iter().any(|host| name.is_within(host))
    }

    /// The project that a host names under one of the edge's domains, whether it exists or not.
    pub(crate) fn project_of<'h>(&self, host: &'h HostName) -> Option<&'h str> {
        self.edge.iter().find_map(|domain| {
            let label = host
                .as_str()
                .strip_suffix(domain.as_str())?
                .strip_suffix('.')?;
            (!label.contains('.')).then_some(label)
        })
    }

    /// Where a CNAME of a project's domain may lead.
    pub(crate) fn targets(&self, project: &str) -> Vec<String> {
        let host = |domain: &String| format!("{project}.{domain}");
        self.edge.iter().map(host).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_project_is_one_label_under_any_of_the_domains() {
        let settings = DomainSettings {
            edge: vec!["localhost".into(), "apps.localhost".into()],
            own_hosts: vec!["cloud.example.com".into()],
            ..DomainSettings::default()
        };
        for (host, project, reserved) in [
            ("shop.localhost", Some("shop"), true),
            ("shop.apps.localhost", Some("shop"), true),
            ("a.b.localhost", None, true),
            ("shop.example.com", None, false),
            ("cloud.example.com", None, true),
            ("a.cloud.example.com", None, true),
            ("mycloud.example.com", None, false),
            ("notlocalhost.com", None, false),
        ] {
            let host: HostName = host.parse().unwrap();
            assert_eq!(settings.project_of(&host), project, "{host}");
            assert_eq!(settings.is_reserved(&host), reserved, "{host}");
        }
    }
}
