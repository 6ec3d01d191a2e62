//! Tests of the whole server, through its sockets, see `tests/`. They start it with
//! `estrade_testkit` and act on it as users do.
