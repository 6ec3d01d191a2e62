//! Every page that links lead to.

use crate::browser::Browser;
use std::collections::{HashSet, VecDeque};

/// What is no page: files to download.
const DOWNLOADS: [&str; 4] = [".csv", ".txt", "/source", "/sign-out"];
/// Segments of a path that are longer are ids.
const MAX_NAME: usize = 15;

/// Pages that are known and were not opened.
#[derive(Default)]
pub(crate) struct Crawl {
    waiting: VecDeque<String>,
    known: HashSet<String>,
}

impl Crawl {
    /// Begins with these.
    pub(crate) fn new(paths: impl IntoIterator<Item = String>) -> Self {
        let mut crawl = Self::default();
        for path in paths {
            crawl.known.insert(kind(&path));
            crawl.waiting.push_back(path);
        }
        crawl
    }

    /// A page that was not opened.
    pub(crate) fn next(&mut self) -> Option<String> {
        self.waiting.pop_front()
    }

    /// Notes where the links of the open page lead, one page of each kind.
    pub(crate) async fn note_links(&mut self, browser: &Browser) {
        const LINKS: &str = "return [...document.querySelectorAll('a[href]')].map(link => link.getAttribute('href'))";
        let links = browser.run(LINKS, Vec::new()).await;
        for link in links.as_array().expect("a list") {
            let link = link.as_str().unwrap_or_default();
            if is_page(link) && self.known.insert(kind(link)) {
                self.waiting.push_back(link.to_owned());
            }
        }
    }

    /// Whether a page of this shape was found.
    pub(crate) fn has_seen(&self, shape: &str) -> bool {
        self.known.contains(shape) || self.known.contains(&of_team(shape))
    }
}

fn is_page(link: &str) -> bool {
    let path = link.split(['?', '#']).next().unwrap_or_default();
    let is_download = DOWNLOADS.iter().any(|end| path.ends_with(end));
    // The same pages in another scope are opened by those who look at the scope; pages of a team are there only.
    let is_own = !link.contains("team=") || path.starts_with("/panel/team/");
    path.starts_with("/panel/") && !is_download && is_own
}

/// What makes a page one of its own: the same path in a team is another.
fn kind(path: &str) -> String {
    let shape = shape(path);
    if path.contains("team=") {
        of_team(&shape)
    } else {
        shape
    }
}

fn of_team(shape: &str) -> String {
    format!("{shape} of a team")
}

/// The shape of a page: its path with `{id}` for ids.
pub(crate) fn shape(path: &str) -> String {
    let path = path.split(['?', '#']).next().unwrap_or_default();
    let name = |segment: &'_ str| {
        if segment.len() > MAX_NAME {
            "{id}".to_owned()
        } else {
            segment.to_owned()
        }
    };
    path.split('/').map(name).collect::<Vec<_>>().join("/")
}

#[test]
fn ids_make_no_difference() {
    let one = "/panel/projects/storefront/releases/0123456789abcdef01234567?tab=log#end";
    assert_eq!(shape(one), "/panel/projects/storefront/releases/{id}");
    assert_eq!(kind("/panel/team?team=x"), "/panel/team of a team");
    assert_eq!(kind(one), shape(one));
    assert!(is_page("/panel/keys?before=x"));
    assert!(is_page("/panel/team/members/x?team=y"));
    assert!(!is_page("/panel/keys?team=y"));
    assert!(!is_page("/panel/usage.csv?by=day"));
    assert!(!is_page("https://example.com/panel/"));
}
