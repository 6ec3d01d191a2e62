//! HTTP/1.1 as RFC 9112 defines it: message framing, heads, a client with its connection pool, and
//! the server loop of the fast path.
