//! Tests of the account panel in Chromium, see `tests/`. They start the server with `estrade_testkit` and click as
//! people do. `./test browser` runs them: they need Debian's `chromium` and `chromium-driver`, and axe-core from npm.
