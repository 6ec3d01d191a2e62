//! Finds the patterns that fit a path, without holding it against each of them.
//!
//! Patterns without variable parts are in a hash map by their whole path. The others are in a trie
//! of segments, so that a request only visits the branches that its own segments lead to. Threads of
//! the edge are shared: what one site's rules cost is what every other site waits.

use crate::static_files::pattern::{Pattern, Segment};
use foldhash::fast::RandomState;
use std::collections::HashMap;

/// Most nodes that one path visits. The limits of a release
/// (`MAX_PLACEHOLDER_RULES` × `MAX_SEGMENTS`) stay below it; older releases had no such limits.
const MAX_VISITS: usize = 4096;

/// The patterns of a file of rules, by their positions in it.
#[derive(Debug, Default)]
pub(crate) struct PatternIndex {
    exact: HashMap<Box<str>, Vec<u32>, RandomState>,
    nodes: Vec<Node>,
}

#[derive(Debug, Default)]
struct Node {
    /// Children by their literal segment, sorted.
    literals: Vec<(Box<str>, u32)>,
    placeholder: Option<u32>,
    /// Patterns that take whatever follows.
    splats: Vec<u32>,
    /// Patterns that end here.
    ends: Vec<u32>,
}

/// The patterns that fit a path, the first one first.
#[derive(Debug, Default)]
pub(crate) struct Matches {
    pub(crate) positions: Vec<u32>,
    /// How many entries of the index were looked at.
    pub(crate) visits: usize,
}

impl PatternIndex {
    pub(crate) fn new<'p>(patterns: impl Iterator<Item = &'p Pattern>) -> Self {
        let mut index = Self::default();
        for (position, pattern) in (0_u32..).zip(patterns) {
            match pattern.literal_path() {
                Some(path) => index.exact.entry(path.into()).or_default().push(position),
                None => index.insert(pattern.segments(), position),
            }
        }
        index
    }

    fn insert(&mut self, segments: &[Segment], position: u32) {
        if self.nodes.is_empty() {
            self.nodes.push(Node::default());
        }
        let mut at = 0;
        for segment in segments {
            match segment {
                Segment::Splat => {
                    self.nodes[at].splats.push(position);
                    return;
                }
                Segment::Placeholder(_) => at = self.placeholder_child(at),
                Segment::Literal(text) => at = self.literal_child(at, text),
            }
        }
        self.nodes[at].ends.push(position);
    }

    fn placeholder_child(&mut self, at: usize) -> usize {
        let next = self.nodes.len();
        if let Some(child) = self.nodes[at].placeholder {
            return child as usize;
        }
        self.nodes[at].placeholder = u32::try_from(next).ok();
        self.nodes.push(Node::default());
        next
    }

    fn literal_child(&mut self, at: usize, text: &str) -> usize {
        let next = self.nodes.len();
        let literals = &mut self.nodes[at].literals;
        match literals.binary_search_by(|(known, _)| (**known).cmp(text)) {
            Ok(found) => literals[found].1 as usize,
            Err(free) => {
                let number = u32::try_from(next).unwrap_or(u32::MAX);
                literals.insert(free, (text.into(), number));
                self.nodes.push(Node::default());
                next
            }
        }
    }

    /// The patterns that fit a canonical path. A trailing slash does not matter.
    pub(crate) fn find(&self, path: &str) -> Matches {
        let path = path.trim_start_matches('/');
        let path = path.strip_suffix('/').unwrap_or(path);
        let mut matches = Matches {
            positions: Vec::new(),
            visits: 1,
        };
        if let Some(positions) = self.exact.get(path) {
            matches.positions.extend(positions);
        }
        if let Some(root) = self.nodes.first() {
            self.descend(root, path, &mut matches);
        }
        matches.positions.sort_unstable();
        matches
    }

    /// Recursion ends with the longest pattern, which has few segments.
    fn descend(&self, node: &Node, rest: &str, matches: &mut Matches) {
        matches.visits += 1;
        if matches.visits > MAX_VISITS {
            return;
        }
        matches.positions.extend(&node.splats);
        if rest.is_empty() {
            matches.positions.extend(&node.ends);
            return;
        }
        let (head, tail) = rest.split_once('/').unwrap_or((rest, ""));
        let literal = node
            .literals
            .binary_search_by(|(known, _)| (**known).cmp(head));
        let literal = literal.ok().map(|found| node.literals[found].1);
        let placeholder = node.placeholder.filter(|_| !head.is_empty());
        for child in [literal, placeholder].into_iter().flatten() {
            if let Some(child) = self.nodes.get(child as usize) {
                self.descend(child, tail, matches);
            }
        }
    }

    /// How much memory it takes, roughly.
    pub(crate) fn bytes(&self) -> usize {
        let exact = self.exact.iter();
        let exact = exact.map(|(path, positions)| path.len() + positions.capacity() * 4 + 48);
        let nodes = self.nodes.iter().map(|node| {
            let literals = node.literals.iter().map(|(text, _)| text.len() + 24);
            let positions = node.splats.capacity() + node.ends.capacity();
            literals.sum::<usize>() + positions * 4 + size_of::<Node>()
        });
        exact.sum::<usize>() + nodes.sum::<usize>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use estrade_model::site_rules::{MAX_PLACEHOLDER_RULES, MAX_REDIRECTS, MAX_SEGMENTS};

    fn patterns(texts: impl IntoIterator<Item = String>) -> Vec<Pattern> {
        let parse = |text: String| Pattern::parse(&text).unwrap();
        texts.into_iter().map(parse).collect()
    }

    /// The index finds what a look at every pattern finds, in the same order.
    #[test]
    fn it_finds_what_comparing_all_finds() {
        let segments = ["a", "b", ":x", ":y", "*"];
        let mut texts = vec!["/".to_owned()];
        for first in segments {
            texts.push(format!("/{first}"));
            for second in segments {
                texts.push(format!("/{first}/{second}"));
                texts.push(format!("/{first}/{second}/b"));
            }
        }
        texts.retain(|text| Pattern::parse(text).is_some());
        let all = patterns(texts);
        let index = PatternIndex::new(all.iter());
        for path in [
            "/", "/a", "/a/", "/b/a", "/a/b/", "/c", "/c/d", "/a/b/b", "/a/b/c", "/a/b/b/b", "/é/b",
        ] {
            let fits = |(at, pattern): (u32, &Pattern)| pattern.captures(path).map(|_| at);
            let expected: Vec<_> = (0..).zip(&all).filter_map(fits).collect();
            assert_eq!(index.find(path).positions, expected, "{path}");
        }
    }

    #[test]
    fn thousands_of_rules_cost_a_request_a_few_looks() {
        let exact = patterns((0..MAX_REDIRECTS).map(|number| format!("/old/{number}")));
        let found = PatternIndex::new(exact.iter()).find("/old/1999");
        assert_eq!((found.positions, found.visits), (vec![1999], 1));

        let deep = "/a".repeat(MAX_SEGMENTS - 2);
        let splats = patterns((0..MAX_REDIRECTS).map(|number| format!("{deep}/{number}/*")));
        let found = PatternIndex::new(splats.iter()).find(&format!("{deep}/7/x/y"));
        assert_eq!(found.positions, [7]);
        assert!(found.visits <= MAX_SEGMENTS + 2, "{}", found.visits);
    }

    /// The most branches that placeholders can make within the limits of a release.
    #[test]
    fn placeholders_are_bounded_by_the_limits_of_a_release() {
        let mixed = |number: usize| {
            let branches = (0..7).map(|bit| if number >> bit & 1 == 0 { "/a" } else { "/:x" });
            let branches: String = branches.collect();
            format!("{branches}{}/end", "/a".repeat(MAX_SEGMENTS - 8))
        };
        let worst = patterns((0..MAX_PLACEHOLDER_RULES).map(mixed));
        let index = PatternIndex::new(worst.iter());
        let found = index.find(&"/a".repeat(MAX_SEGMENTS));
        assert!(found.positions.is_empty());
        assert!(found.visits < MAX_VISITS, "{}", found.visits);
        let found = index.find(&format!("{}/end", "/a".repeat(MAX_SEGMENTS - 1)));
        assert_eq!(found.positions.len(), MAX_PLACEHOLDER_RULES);
    }
}
