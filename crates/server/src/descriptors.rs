//! How many connections each listener may have, by the number of files that the process may open.
//!
//! A connection is a descriptor, and so are the database, stored contents and the sockets to instances
//! and providers. Without a share of each listener a flood of connections on the edge would leave none
//! for anything else.

use crate::edge::EdgeBind;
use estrade_listener::ListenerOptions;
use rustix::process::{Resource, getrlimit};

/// Fewest connections of a listener, however few descriptors there are.
const MIN_CONNECTIONS: usize = 16;
/// Parts of the descriptors that are for connections, of sixteen. Streams of models last for minutes; visits are short, and
/// idle ones make room.
const PLATFORM_PARTS: usize = 2;
const AI_PARTS: usize = 10;
const EDGE_PARTS: usize = 4;
const PARTS: usize = PLATFORM_PARTS + AI_PARTS + EDGE_PARTS;

/// The connections that listeners may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Shares {
    platform: usize,
    ai: usize,
    /// Of each port.
    edge: usize,
}

impl Shares {
    fn of(descriptors: usize, edge_ports: usize) -> Self {
        // The edge keeps stored files open, up to an eighth.
        let contents = descriptors / 8;
        let reserved = (descriptors / 8).clamp(64, 1024);
        let rest = descriptors.saturating_sub(contents + reserved);
        let share = |parts: usize, per_connection: usize| {
            (rest / PARTS * parts / per_connection).max(MIN_CONNECTIONS)
        };
        Self {
            platform: share(PLATFORM_PARTS, 1),
            // A call has a connection to its provider, a visit one to an instance.
            ai: share(AI_PARTS, 2),
            edge: share(EDGE_PARTS, 2 * edge_ports.max(1)),
        }
    }
}

/// Lowers the connections of listeners to what their share of the descriptors allows.
pub(crate) fn limit_connections(
    platform: &mut ListenerOptions,
    ai: &mut ListenerOptions,
    edge: &mut EdgeBind,
) {
    let Some(descriptors) = getrlimit(Resource::Nofile).current else {
        return;
    };
    let descriptors = usize::try_from(descriptors).unwrap_or(usize::MAX);
    let edge_ports = 1 + usize::from(edge.tls_address.is_some());
    let shares = Shares::of(descriptors, edge_ports);
    for (name, options, share) in [
        ("platform", platform, shares.platform),
        ("ai", ai, shares.ai),
        ("edge", &mut edge.options, shares.edge),
    ] {
        if options.max_connections > share {
            tracing::warn!(
                listener = name,
                descriptors,
                wanted = options.max_connections,
                allowed = share,
                "fewer connections than configured: the limit of open files (ulimit -n) is too low"
            );
            options.max_connections = share;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listeners_together_leave_descriptors_for_everything_else() {
        for descriptors in [1024, 4096, 20_000, 65_536, 1_048_576] {
            for ports in [1, 2] {
                let shares = Shares::of(descriptors, ports);
                let taken = shares.platform + 2 * shares.ai + 2 * ports * shares.edge;
                let left = descriptors - taken;
                assert!(left >= descriptors / 8 + 64, "{descriptors}: {shares:?}");
            }
        }
        let usual = Shares::of(524_288, 2);
        assert!(usual.platform.min(usual.ai).min(usual.edge) >= 10_000);
    }
}
