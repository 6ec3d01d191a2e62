//! Shares the process's limit of file descriptors among the listeners.
//!
//! A connection is a descriptor, and so are the database, stored contents and the sockets to instances and providers.
//! Without a bound, a flood of connections on the edge would leave none for anything else. So a part of them is not for
//! connections, each listener has a reserved minimum, and the rest is first come, first served.

use crate::edge::EdgeBind;
use estrade_listener::{DescriptorPool, DescriptorShare, ListenerOptions};
use rustix::process::{Resource, getrlimit};

/// Fewest connections that a listener has for itself, however few descriptors there are.
const MIN_CONNECTIONS: usize = 16;
/// Part of the descriptors for connections that each listener has for itself.
const RESERVED_PART: usize = 16;
/// Descriptors of a connection of the platform API, of a call and its provider, of a visit and its instance.
const PLATFORM_COST: usize = 1;
const AI_COST: usize = 2;
const EDGE_COST: usize = 2;

/// The configured limits of connections.
#[derive(Debug, Clone, Copy)]
struct Wanted {
    platform: usize,
    ai: usize,
    /// On each port.
    edge: usize,
    edge_ports: usize,
}

/// What listeners may take.
#[derive(Debug)]
struct Shares {
    platform: DescriptorShare,
    ai: DescriptorShare,
    /// Of each port.
    edge: DescriptorShare,
}

impl Wanted {
    /// The descriptors that all of them take.
    fn descriptors(self) -> usize {
        let Self {
            platform,
            ai,
            edge,
            edge_ports,
        } = self;
        [
            platform.saturating_mul(PLATFORM_COST),
            ai.saturating_mul(AI_COST),
            edge.saturating_mul(EDGE_COST * edge_ports),
        ]
        .into_iter()
        .fold(0, usize::saturating_add)
    }

    /// How this is made possible with so many descriptors in all; none when there are enough.
    fn shares(self, descriptors: usize) -> Option<Shares> {
        let usable = usable(descriptors);
        if self.descriptors() <= usable {
            return None;
        }
        let reserved = |cost: usize, ports: usize| {
            (usable / RESERVED_PART / (cost * ports)).max(MIN_CONNECTIONS)
        };
        let platform = reserved(PLATFORM_COST, 1);
        let ai = reserved(AI_COST, 1);
        let edge = reserved(EDGE_COST, self.edge_ports);
        let taken = platform * PLATFORM_COST + ai * AI_COST + edge * EDGE_COST * self.edge_ports;
        let pool = DescriptorPool::new(usable.saturating_sub(taken));
        Some(Shares {
            platform: pool.share(platform, PLATFORM_COST),
            ai: pool.share(ai, AI_COST),
            edge: pool.share(edge, EDGE_COST),
        })
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

/// Makes the listeners share the descriptors when there are too few for all connections that are configured.
pub(crate) fn share_descriptors(
    platform: &mut ListenerOptions,
    ai: &mut ListenerOptions,
    edge: &mut EdgeBind,
) {
    let Some(descriptors) = getrlimit(Resource::Nofile).current else {
        return;
    };
    let descriptors = usize::try_from(descriptors).unwrap_or(usize::MAX);
    let wanted = Wanted {
        platform: platform.max_connections,
        ai: ai.max_connections,
        edge: edge.options.max_connections,
        edge_ports: 1 + usize::from(edge.tls_address.is_some()),
    };
    let Some(shares) = wanted.shares(descriptors) else {
        return;
    };
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
        needed = limit_for(wanted.descriptors()),
        "the limit of open files is too low for all connections that limits.connections allows; the listeners share \
         what there is. Raise it with `ulimit -n`, or LimitNOFILE= of the systemd unit"
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted(edge_ports: usize) -> Wanted {
        Wanted {
            platform: 10_000,
            ai: 10_000,
            edge: 10_000,
            edge_ports,
        }
    }

    #[test]
    fn listeners_together_leave_descriptors_for_everything_else() {
        for descriptors in [1024, 4096, 20_000, 50_000] {
            for ports in [1, 2] {
                let shares = wanted(ports).shares(descriptors).unwrap();
                // Each of them alone leaves the others what is theirs.
                let alone = [
                    shares.platform.max_connections() * PLATFORM_COST,
                    shares.ai.max_connections() * AI_COST,
                    shares.edge.max_connections() * EDGE_COST,
                ];
                let left = descriptors / 8 + 64 + 2 * usable(descriptors) / 20;
                assert!(
                    alone.iter().all(|taken| taken + left <= descriptors),
                    "{descriptors} {ports}: {alone:?}"
                );
            }
        }
    }

    #[test]
    fn a_listener_may_use_what_others_do_not() {
        let shares = wanted(1).shares(20_000).unwrap();
        assert!(shares.ai.max_connections() > 7000, "{shares:?}");
        assert!(shares.edge.max_connections() > 7000, "{shares:?}");
        assert!(shares.platform.max_connections() >= 10_000, "{shares:?}");
    }

    #[test]
    fn nothing_is_shared_when_there_is_enough() {
        for ports in [1, 2] {
            let needed = limit_for(wanted(ports).descriptors());
            assert!(wanted(ports).shares(needed).is_none());
            assert!(wanted(ports).shares(needed - 2000).is_some());
            assert!(wanted(ports).shares(524_288).is_none());
        }
    }

    #[test]
    fn few_descriptors_are_no_reason_to_serve_nobody() {
        let shares = wanted(2).shares(100).unwrap();
        for share in [shares.platform, shares.ai, shares.edge] {
            assert_eq!(share.max_connections(), MIN_CONNECTIONS);
        }
    }
}
