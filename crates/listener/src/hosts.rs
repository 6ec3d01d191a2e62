//! Which hosts a listener answers to.
//!
//! A page in a browser may reach a listener on the loopback address under a name of its own, once it
//! lets that name point there (DNS rebinding). The browser then takes both for one origin. What it
//! cannot do is send another `Host` than that name.

use std::net::IpAddr;
use std::sync::Arc;

/// The hosts that requests may name, besides those that always mean this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AllowedHosts(Arc<[String]>);

impl FromIterator<String> for AllowedHosts {
    fn from_iter<I: IntoIterator<Item = String>>(hosts: I) -> Self {
        let canonical = |host: String| host.trim_end_matches('.').to_ascii_lowercase();
        Self(hosts.into_iter().map(canonical).collect())
    }
}

impl AllowedHosts {
    /// Whether a request may name this authority, with or without a port. None at all is no browser.
    pub fn allows(&self, authority: &str) -> bool {
        let host = host_of(authority);
        if host.is_empty() || host == "localhost" || host.ends_with(".localhost") {
            return true;
        }
        let is_loopback = |ip: IpAddr| ip.to_canonical().is_loopback();
        host.parse().is_ok_and(is_loopback) || self.0.contains(&host)
    }
}

/// The host of an authority, in lower case.
fn host_of(authority: &str) -> String {
    let authority = authority.trim();
    let host = match authority.strip_prefix('[') {
        Some(literal) => literal.split(']').next().unwrap_or_default(),
        None => authority.split(':').next().unwrap_or_default(),
    };
    host.trim_end_matches('.').to_ascii_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_this_machine_and_those_that_were_listed_are_allowed() {
        let hosts = ["Cloud.Example.com.".to_owned(), "10.0.0.7".to_owned()];
        let hosts: AllowedHosts = hosts.into_iter().collect();
        for allowed in [
            "",
            "localhost",
            "LOCALHOST:3000",
            "a.localhost",
            "127.0.0.1:3000",
            "127.9.9.9",
            "[::1]:3000",
            "[::ffff:127.0.0.1]",
            "cloud.example.com:443",
            "10.0.0.7",
        ] {
            assert!(hosts.allows(allowed), "{allowed}");
        }
        for refused in [
            "evil.example",
            "localhost.evil.example",
            "127.0.0.1.evil.example",
            "x.cloud.example.com",
            "10.0.0.8",
            "[::2]",
        ] {
            assert!(!hosts.allows(refused), "{refused}");
        }
    }
}
