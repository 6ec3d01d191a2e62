//! Icons as inline SVG, drawn for this panel on a grid of 24.

use askama::filters::HtmlSafe;
use std::fmt;

/// An icon by name; an unknown one is empty.
#[derive(Debug, Clone, Copy)]
pub struct Icon(pub &'static str);

/// An icon by name, for templates.
pub fn icon(name: &str) -> Icon {
    let known = PATHS.iter().find(|(known, _)| *known == name);
    Icon(known.map_or("", |(known, _)| known))
}

const PATHS: &[(&str, &str)] = &[
    (
        "projects",
        "M12 3 3 7.5l9 4.5 9-4.5L12 3zM3 12l9 4.5 9-4.5M3 16.5 12 21l9-4.5",
    ),
    (
        "network",
        "M9 3h6v5H9zM3 16h6v5H3zM15 16h6v5h-6zM12 8v4M6 16v-4h12v4",
    ),
    (
        "workspaces",
        "M4 4h7v7H4zM13 4h7v7h-7zM4 13h7v7H4zM13 13h7v7h-7z",
    ),
    (
        "key",
        "M15.5 3.5a5 5 0 1 1-3.9 8.1L4 19.2V21h3v-2h2v-2h2l1.6-1.6M16.5 7.5h.01",
    ),
    ("chart", "M4 20V11m5.3 9V4m5.4 16v-7M20 20V8"),
    ("calls", "M4 6h10M4 12h16M4 18h7M17 4l3 2-3 2M14 16l3 2-3 2"),
    ("play", "M7 4.5v15l12-7.5-12-7.5z"),
    (
        "model",
        "M12 3l7.5 4.3v9.4L12 21l-7.5-4.3V7.3L12 3zM12 12l7.5-4.7M12 12v9M12 12 4.5 7.3",
    ),
    (
        "team",
        "M9 11a3.5 3.5 0 1 0 0-7 3.5 3.5 0 0 0 0 7zM2.5 20c.3-3.6 2.9-6 6.5-6s6.2 2.4 6.5 6M16 4.3a3.5 3.5 0 0 1 0 6.5M18 14.4c2 .8 3.3 2.8 3.5 5.6",
    ),
    ("audit", "M6 3h9l4 4v14H6V3zM14 3v5h5M9 12h7M9 16h7"),
    (
        "shield",
        "M12 3l8 3v6c0 4.5-3.2 7.9-8 9-4.8-1.1-8-4.5-8-9V6l8-3zM9 12l2.2 2.2L15.5 10",
    ),
    ("device", "M3 5h18v11H3zM8 20h8M12 16v4"),
    (
        "person",
        "M12 12a4 4 0 1 0 0-8 4 4 0 0 0 0 8zM4.5 21c.4-4 3.4-6.5 7.5-6.5s7.1 2.5 7.5 6.5",
    ),
    (
        "accounts",
        "M4 5h16v14H4zM9 12a2 2 0 1 0 0-4 2 2 0 0 0 0 4zM6 16.5c.3-1.7 1.5-2.7 3-2.7s2.7 1 3 2.7M14.5 9.5h3M14.5 13h3",
    ),
    ("plug", "M9 3v5M15 3v5M6 8h12v3a6 6 0 0 1-12 0V8zM12 17v4"),
    ("pulse", "M3 12h4l2.5-7 5 14 2.5-7h4"),
    ("menu", "M4 7h16M4 12h16M4 17h16"),
    (
        "search",
        "M10.5 17a6.5 6.5 0 1 0 0-13 6.5 6.5 0 0 0 0 13zM15.5 15.5 20 20",
    ),
    ("plus", "M12 5v14M5 12h14"),
    ("copy", "M9 9h11v11H9zM5 15H4V4h11v1"),
    ("check", "M5 12.5l4.5 4.5L19 7.5"),
    ("close", "M6 6l12 12M18 6 6 18"),
    ("chevron", "M7 10l5 5 5-5"),
    ("right", "M10 7l5 5-5 5"),
    ("external", "M14 4h6v6M20 4l-9 9M18 14v6H4V6h6"),
    (
        "trash",
        "M4 7h16M9 7V4h6v3M6 7l1 13h10l1-13M10 11v5M14 11v5",
    ),
    ("restart", "M4 12a8 8 0 1 1 2.5 5.8M4 20v-5h5"),
    ("upload", "M12 16V4M7 9l5-5 5 5M4 20h16"),
    ("download", "M12 4v12M7 11l5 5 5-5M4 20h16"),
    ("rollback", "M9 7 4 12l5 5M4 12h10a6 6 0 0 1 6 6v1"),
    (
        "rotate",
        "M4 9a8 8 0 0 1 14-3l2 2M20 4v4h-4M20 15a8 8 0 0 1-14 3l-2-2M4 20v-4h4",
    ),
    (
        "globe",
        "M12 21a9 9 0 1 0 0-18 9 9 0 0 0 0 18zM3 12h18M12 3c2.5 2.6 3.8 5.6 3.8 9s-1.3 6.4-3.8 9c-2.5-2.6-3.8-5.6-3.8-9S9.500 5.600 12 3z",
    ),
    (
        "disk",
        "M4 6c0-1.700 3.600-3 8-3s8 1.300 8 3-3.600 3-8 3-8-1.300-8-3zM4 6v12c0 1.700 3.600 3 8 3s8-1.300 8-3V6M4 12c0 1.700 3.600 3 8 3s8-1.300 8-3",
    ),
    (
        "gear",
        "M12 15.500a3.500 3.500 0 1 0 0-7 3.500 3.500 0 0 0 0 7zM12 2.500v3M12 18.500v3M2.500 12h3M18.500 12h3M5.300 5.300l2.100 2.100M16.600 16.600l2.100 2.100M18.700 5.300l-2.100 2.100M7.400 16.600l-2.100 2.100",
    ),
    ("logs", "M4 4h16v16H4zM8 9l2.500 2.500L8 14M13 15h4"),
    ("warning", "M12 4 2.500 20h19L12 4zM12 10v5M12 17.500h.01"),
    (
        "info",
        "M12 21a9 9 0 1 0 0-18 9 9 0 0 0 0 18zM12 11v6M12 7.500h.01",
    ),
    ("lock", "M6 11h12v9H6zM8.500 11V8a3.500 3.500 0 0 1 7 0v3"),
    ("sign-out", "M14 4H5v16h9M10 12h11M17 8l4 4-4 4"),
    ("mail", "M3 5h18v14H3zM3 6.500l9 7 9-7"),
    ("folder", "M3 6h6l2 2.500h10V19H3V6z"),
    (
        "clock",
        "M12 21a9 9 0 1 0 0-18 9 9 0 0 0 0 18zM12 7v5l3.500 2",
    ),
    ("pause", "M8 5v14M16 5v14"),
    (
        "keyboard",
        "M3 6h18v12H3zM7 10h.01M11 10h.01M15 10h.01M7 14h10",
    ),
];

impl fmt::Display for Icon {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some((_, path)) = PATHS.iter().find(|(name, _)| *name == self.0) else {
            return Ok(());
        };
        write!(
            f,
            r#"<svg class="icon" viewBox="0 0 24 24" fill="none" stroke="currentColor" stroke-width="1.7" stroke-linecap="round" stroke-linejoin="round" aria-hidden="true" focusable="false"><path d="{path}"/></svg>"#
        )
    }
}

// A name selects one of the drawings above and is not written itself.
impl HtmlSafe for Icon {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_icon_is_one_of_ours() {
        assert!(icon("key").to_string().starts_with("<svg"));
        assert_eq!(icon("<script>").to_string(), "");
    }
}
