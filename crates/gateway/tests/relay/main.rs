//! The relay against real sockets: a scripted provider on one side, a caller on the other.

mod answers;
mod cuts;
mod failures;
mod limits;
mod refusals;
mod streams;
mod support;
