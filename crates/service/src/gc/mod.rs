//! Garbage collection: removes what no row or project needs any more.

pub mod blobs;
pub mod rows;
pub mod startup;
