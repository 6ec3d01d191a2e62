//! What the crate promises, on a real Docker Engine.

mod builds;
mod images;
mod instances;
mod isolation;
mod limits;
mod output;
mod restart;
mod shell;
mod support;
