//! Opens a page in the browser of the desktop, where there is one.

use std::process::{Command, Stdio};

/// Opens an address of the web; false where there is no desktop, or nothing that opens it.
pub fn open(address: &str) -> bool {
    // Through SSH a browser would open on the machine at the other end, if anywhere.
    let is_remote = std::env::var_os("SSH_CONNECTION").is_some();
    if is_remote || !has_desktop() {
        return false;
    }
    let mut opener = opener();
    opener
        .arg(address)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    opener.spawn().is_ok()
}

#[cfg(any(target_os = "macos", windows))]
fn has_desktop() -> bool {
    true
}

#[cfg(not(any(target_os = "macos", windows)))]
fn has_desktop() -> bool {
    let is_set = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    is_set("DISPLAY") || is_set("WAYLAND_DISPLAY")
}

#[cfg(target_os = "macos")]
fn opener() -> Command {
    Command::new("open")
}

#[cfg(windows)]
fn opener() -> Command {
    // Not `cmd /C start`, which reads `&` in an address as the end of a command.
    let mut opener = Command::new("rundll32");
    opener.arg("url.dll,FileProtocolHandler");
    opener
}

#[cfg(not(any(target_os = "macos", windows)))]
fn opener() -> Command {
    Command::new("xdg-open")
}
