//! Objects in a bucket of any S3-compatible server, read through a [`cache`] on this node's disk.
//!
//! # Writing
//!
//! A staging is packs of at most 8 MiB and large files. Each is one PUT, or an upload in parts if it is longer than
//! 64 MiB ([`upload`]); the ends of small stagings that wait at the same moment share one ([`shared_put`]). What is
//! acknowledged was answered by the server with success. The spool file of what was put is renamed into the cache, so
//! that the node that deployed serves at once.
//!
//! Nothing counts on conditional requests: some servers ignore the condition. Names are random, so that two nodes
//! never put the same object, and a request that is repeated puts the same bytes again.
//!
//! # Reading
//!
//! Who wants an open file gets one from the cache, where each object is fetched once however many wait for it
//! ([`flights`], [`fetch`]). An object carries the BLAKE3 hash of its bytes as metadata, and the cached file in its
//! name: no byte is served before it was compared. Small contents are read as ranges as long as nobody else wants
//! the same pack.
//!
//! # Outages
//!
//! Requests are repeated with backoff and jitter for about ten seconds ([`retry`]). If the bucket answers nothing else
//! by then, all that need it fail at once with [`Unavailable`](crate::BlobError::Unavailable) until it does
//! ([`outage`]); what is cached is served. A server that takes a body and says nothing is noticed later: after the time
//! that the body may take ([`client`]).
//!
//! # Garbage collection with many nodes
//!
//! Claims protect objects from the collector of the same process. From that of another node they are protected like
//! this. Let an object be put at P, and its row be committed at C.
//!
//! - *Mark.* The collector lists the bucket, asks the database for each object, and notes when it met one without a
//!   row for the first time: M. An object that is not there yet is not marked, so P ≤ M. The note goes when a row is
//!   met.
//! - *Grace.* It deletes an object only when `max(M, P)` is longer ago than the grace period G, and asks the database
//!   directly before. P is the bucket's, translated by its own `Date` to the collector's clock ([`clock`]): both ends
//!   of the age are measured by one clock, however wrong the nodes' are.
//! - *Commit.* A release that takes longer than G from its first put to its commit could lose an object. G is hours
//!   and the time of an upload is bounded by less; and a commit that was delayed all the same, as by a suspended
//!   machine, is what the next rule is for.
//! - *Reuse.* A staging puts nothing for contents that have rows. The committing transaction checks that these rows
//!   are there still, and rows are deleted a grace period before their objects: so a row that is there when it commits
//!   names an object that is there, too.
//!
//! So an object that a row names is deleted only if its commit took longer than G. One collector runs at a time; a
//! second one would do no harm, as deleting twice is deleting once. A restored database finds its objects for G after
//! they lost their rows. A collector deletes nothing in a bucket whose owner's record is not its installation's.

mod blocking;
mod cache;
mod client;
mod clock;
mod failure;
mod fetch;
mod flights;
mod listing;
mod names;
mod outage;
mod put;
mod recent;
mod records;
mod retry;
mod settings;
mod shared_put;
mod storage;
mod upload;

pub use settings::{InvalidS3Endpoint, S3Credentials, S3Endpoint, S3Settings};
pub(super) use storage::S3Storage;
