//! Shares the process's limit of file descriptors among the listeners and the sockets of their upstreams.
//!
//! A connection is a descriptor, and so are the database, stored contents and the sockets to instances and providers.
//! Without a bound, a flood of connections on the edge, or of requests on a few of them, would leave none for anything
//! else. So a part of them is not for connections, each listener has a reserved minimum and so have the sockets of its
//! upstreams, and the rest is first come, first served.

use crate::edge::EdgeBind;
use estrade_listener::{DescriptorPool, DescriptorShare, ListenerOptions, UpstreamBudget};
use rustix::process::{Resource, getrlimit};

/// Fewest connections that a listener or its upstreams have for themselves, however few descriptors there are.
const MIN_CONNECTIONS: usize = 16;
/// Part of the descriptors for connections that each listener has for itself.
const RESERVED_PART: usize = 16;
/// Parts that the sockets to providers and instances have for themselves.
const RESERVED_AI_PART: usize = 8;
const RESERVED_EDGE_PART: usize = 4;
/// Sockets of upstreams for each connection that a listener may have, where descriptors are plenty. A connection has one
/// request under way, but for HTTP/2.
const UPSTREAMS_PER_CONNECTION: usize = 4;
/// Fewest sockets of upstreams that are allowed, where descriptors are plenty.
const MIN_UPSTREAMS: usize = 1024;

/// The configured limits of connections.
#[derive(Debug, Clone, Copy)]
struct ConnectionLimits {
    platform: usize,
    ai: usize,
    /// On each port.
    edge: usize,
    edge_ports: usize,
}

/// What each may take when they share.
#[derive(Debug)]
struct Shares {
    platform: DescriptorShare,
    ai: DescriptorShare,
    /// Of each port.
    edge: DescriptorShare,
    ai_upstreams: DescriptorShare,
    edge_upstreams: DescriptorShare,
}

/// How many sockets to providers and to instances there may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct MaxUpstreams {
    ai: usize,
    edge: usize,
}

impl ConnectionLimits {
    /// The descriptors of all connections, without those of upstreams.
    fn connections(self) -> usize {
        let edge = self.edge.saturating_mul(self.edge_ports);
        self.platform.saturating_add(self.ai).saturating_add(edge)
    }

    /// The descriptors that all of them take: one for a connection of the platform API, two for a call and its provider,
    /// and for a visit and its instance.
    fn descriptors(self) -> usize {
        let edge = self.edge.saturating_mul(self.edge_ports);
        let upstreams = self.ai.saturating_add(edge);
        self.connections().saturating_add(upstreams)
    }

    /// How many sockets of upstreams there may be when so many descriptors in all are enough for every connection; none
    /// when they are not.
    fn max_upstreams(self, descriptors: usize) -> Option<MaxUpstreams> {
        let usable = usable(descriptors);
        if self.descriptors() > usable {
            return None;
        }
        let edge = self.edge.saturating_mul(self.edge_ports);
        let left = usable - self.connections();
        // At least one for each connection.
        let for_ai = left / self.ai.saturating_add(edge).max(1) * self.ai;
        let wanted = |connections: usize| {
            let wanted = connections.saturating_mul(UPSTREAMS_PER_CONNECTION);
            wanted.max(MIN_UPSTREAMS)
        };
        Some(MaxUpstreams {
            ai: wanted(self.ai).min(for_ai).max(MIN_CONNECTIONS),
            edge: wanted(edge).min(left - for_ai).max(MIN_CONNECTIONS),
        })
    }

    /// How so many descriptors in all are shared.
    fn shares(self, descriptors: usize) -> Shares {
        let usable = usable(descriptors);
        let reserved = |part: usize| (usable / part).max(MIN_CONNECTIONS);
        let (platform, ai) = (reserved(RESERVED_PART), reserved(RESERVED_PART));
        let edge = reserved(RESERVED_PART * self.edge_ports);
        let (to_providers, to_instances) =
            (reserved(RESERVED_AI_PART), reserved(RESERVED_EDGE_PART));
        let taken = platform + ai + edge * self.edge_ports + to_providers + to_instances;
        let pool = DescriptorPool::new(usable.saturating_sub(taken));
        Shares {
            platform: pool.share(platform, 1),
            ai: pool.share(ai, 1),
            edge: pool.share(edge, 1),
            ai_upstreams: pool.share(to_providers, 1),
            edge_upstreams: pool.share(to_instances, 1),
        }
    }
}

/// The descriptors for connections. The edge keeps stored files open, up to an eighth; another eighth, up to 1024, is
/// for everything else.
fn usable(descriptors: usize) -> usize {
    let contents = descriptors / 8;
    let others = (descriptors / 8).clamp(64, 1024);
    descriptors.saturating_sub(contents + others)
}

/// A limit of open files with which so many are usable.
fn limit_for(connections: usize) -> usize {
    connections
        .saturating_add(1024)
        .saturating_mul(8)
        .div_ceil(7)
}

/// Limits the sockets to instances, and makes the listeners share the descriptors when there are too few for all
/// connections that are configured. Returns the limit of the sockets to providers.
pub(crate) fn share_descriptors(
    platform: &mut ListenerOptions,
    ai: &mut ListenerOptions,
    edge: &mut EdgeBind,
) -> UpstreamBudget {
    let descriptors = getrlimit(Resource::Nofile).current;
    let descriptors = descriptors.and_then(|limit| usize::try_from(limit).ok());
    let descriptors = descriptors.unwrap_or(usize::MAX);
    let limits = ConnectionLimits {
        platform: platform.max_connections,
        ai: ai.max_connections,
        edge: edge.options.max_connections,
        edge_ports: 1 + usize::from(edge.tls_address.is_some()),
    };
    if let Some(max) = limits.max_upstreams(descriptors) {
        edge.edge.proxy.upstreams = UpstreamBudget::new(max.edge, None);
        return UpstreamBudget::new(max.ai, None);
    }
    let shares = limits.shares(descriptors);
    for (options, share) in [
        (platform, shares.platform),
        (ai, shares.ai),
        (&mut edge.options, shares.edge),
    ] {
        // Also, because one address may have half of them.
        options.max_connections = options.max_connections.min(share.max_connections());
        options.descriptors = Some(share);
    }
    tracing::warn!(
        open_files = descriptors,
        needed = limit_for(limits.descriptors()),
        "the limit of open files is too low for all connections that limits.connections allows; the listeners share \
         what there is. Raise it with `ulimit -n`, or LimitNOFILE= of the systemd unit"
    );
    let budget = |share: DescriptorShare| UpstreamBudget::new(share.max_connections(), Some(share));
    edge.edge.proxy.upstreams = budget(shares.edge_upstreams);
    budget(shares.ai_upstreams)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits(edge_ports: usize) -> ConnectionLimits {
        ConnectionLimits {
            platform: 10_000,
            ai: 10_000,
            edge: 10_000,
            edge_ports,
        }
    }

    #[test]
    fn connections_and_sockets_together_leave_descriptors_for_everything_else() {
        for descriptors in [1024, 4096, 20_000, 50_000] {
            for ports in [1, 2] {
                assert_eq!(limits(ports).max_upstreams(descriptors), None);
                let shares = limits(ports).shares(descriptors);
                // Each of them alone leaves the others what is theirs.
                let alone = [
                    shares.platform.max_connections(),
                    shares.ai.max_connections(),
                    shares.edge.max_connections(),
                    shares.ai_upstreams.max_connections(),
                    shares.edge_upstreams.max_connections(),
                ];
                let left = descriptors / 8 + 64 + 4 * usable(descriptors) / 20;
                assert!(
                    alone.iter().all(|taken| taken + left <= descriptors),
                    "{descriptors} {ports}: {alone:?}"
                );
            }
        }
    }

    #[test]
    fn a_listener_may_use_what_others_do_not() {
        let shares = limits(1).shares(20_000);
        for share in [
            &shares.platform,
            &shares.ai,
            &shares.edge,
            &shares.ai_upstreams,
            &shares.edge_upstreams,
        ] {
            assert!(share.max_connections() > 8000, "{shares:?}");
        }
    }

    #[test]
    fn nothing_is_shared_when_there_is_enough() {
        for ports in [1, 2] {
            let limits = limits(ports);
            let needed = limit_for(limits.descriptors());
            assert_eq!(limits.max_upstreams(needed - 2000), None);
            for descriptors in [needed, 524_288] {
                let max = limits.max_upstreams(descriptors).unwrap();
                let all = limits.connections() + max.ai + max.edge;
                assert!(all <= usable(descriptors), "{max:?}");
                assert!(max.ai >= 10_000 && max.edge >= 10_000 * ports, "{max:?}");
            }
            let max = limits.max_upstreams(usize::MAX).unwrap();
            assert_eq!((max.ai, max.edge), (40_000, 40_000 * ports));
        }
    }

    #[test]
    fn few_descriptors_are_no_reason_to_serve_nobody() {
        let shares = limits(2).shares(100);
        for share in [
            shares.platform,
            shares.ai,
            shares.edge,
            shares.ai_upstreams,
            shares.edge_upstreams,
        ] {
            assert_eq!(share.max_connections(), MIN_CONNECTIONS);
        }
    }
}
