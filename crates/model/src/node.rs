//! Nodes: the servers that share a database.

use crate::Timestamp;
use crate::id::{Id, kind};
use serde::Serialize;

/// Identifies one run of a server: a new one at each start.
pub type NodeId = Id<kind::Node>;

/// Where a node listens.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, utoipa::ToSchema)]
pub struct NodeAddresses {
    /// The platform API and the panel.
    #[schema(example = "127.0.0.1:3000")]
    pub platform: String,
    /// The AI API.
    #[schema(example = "127.0.0.1:3100")]
    pub ai: String,
    /// Deployed projects.
    #[schema(example = "127.0.0.1:8080")]
    pub edge: String,
}

/// Whether a node works.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum NodeState {
    /// It renews its entry.
    Alive,
    /// It has not renewed its entry for 7 seconds in which the database could be reached.
    Down,
}

/// A node as its administrator sees it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Node {
    /// Identifier of this run of the server.
    #[serde(rename = "_id")]
    pub id: NodeId,
    /// The name of its machine.
    #[schema(example = "estrade-1")]
    pub hostname: String,
    /// The version of the server.
    #[schema(example = "0.1.0")]
    pub version: String,
    /// When it was started, by the clock of the database.
    pub started_at: Timestamp,
    /// When it renewed its entry last, by the clock of the database.
    pub last_seen_at: Timestamp,
    pub state: NodeState,
    /// Whether it is the one that answers.
    pub is_this_node: bool,
    /// Where it listens, as configured; port 0 is replaced by the one that was bound.
    pub addresses: NodeAddresses,
    /// Whether a Docker Engine answers there, so that it can build and run projects.
    pub has_engine: bool,
}

impl Node {
    pub fn is_alive(&self) -> bool {
        self.state == NodeState::Alive
    }
}
