//! The error of a listener that cannot be opened.

use std::io;
use std::net::SocketAddr;

/// Adds the name and the address of the listener to the error of its socket.
pub(crate) fn listen_error(
    name: &'static str,
    address: SocketAddr,
) -> impl FnOnce(io::Error) -> io::Error {
    move |error| {
        io::Error::new(
            error.kind(),
            format!("cannot listen on {address} ({name}): {error}"),
        )
    }
}
