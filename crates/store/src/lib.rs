//! placeholder

pub mod blobs;
