//! Patterns of paths, as `.dockerignore` has them: `*`, `?`, `[a-z]`, and `**` for any folders.

/// A pattern of paths.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Pattern {
    segments: Vec<Segment>,
    /// How many of the segments are [`Segment::Any`].
    open: usize,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Segment {
    /// Any number of folders.
    Any,
    Name(String),
    Glob(Vec<char>),
}

impl Segment {
    fn fits(&self, name: &str) -> bool {
        match self {
            Self::Any => true,
            Self::Name(same) => same == name,
            Self::Glob(pattern) => fits_name(pattern, name),
        }
    }
}

impl Pattern {
    /// Reads a pattern; none when it names nothing.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let mut segments = Vec::new();
        for part in text.split('/') {
            match part {
                "" | "." => {}
                ".." => drop(segments.pop()),
                "**" => segments.push(Segment::Any),
                part if part.contains(['*', '?', '[', '\\']) => {
                    segments.push(Segment::Glob(part.chars().collect()));
                }
                part => segments.push(Segment::Name(part.to_owned())),
            }
        }
        let open = segments
            .iter()
            .filter(|segment| **segment == Segment::Any)
            .count();
        (!segments.is_empty()).then_some(Self { segments, open })
    }

    /// How long it may take at most to compare it with a character of a path, as a number of characters.
    pub(crate) fn cost(&self) -> u64 {
        let cost = |segment: &Segment| match segment {
            Segment::Glob(pattern) => pattern.len() as u64,
            Segment::Any | Segment::Name(_) => 1,
        };
        self.segments.iter().map(cost).sum()
    }

    /// Whether it fits a path, or one of the folders around it.
    pub(crate) fn fits(&self, path: &[&str]) -> bool {
        match (self.open, self.segments.as_slice()) {
            // The two kinds that nearly everybody writes take no more than a comparison or two.
            (0, segments) => starts_with(path, segments),
            (1, [Segment::Any, rest @ ..]) if !rest.is_empty() => {
                path.windows(rest.len()).any(|part| starts_with(part, rest))
            }
            (_, segments) => fits_anywhere(segments, path),
        }
    }
}

fn starts_with(path: &[&str], segments: &[Segment]) -> bool {
    let pairs = || path.iter().zip(segments);
    path.len() >= segments.len() && pairs().all(|(name, segment)| segment.fits(name))
}

/// The same for any pattern. It walks over the pattern once and notes how much of the path each
/// part can reach, so it takes time in proportion to both lengths, whatever somebody writes.
fn fits_anywhere(segments: &[Segment], path: &[&str]) -> bool {
    let mut reach = vec![false; path.len() + 1];
    if let Some(first) = reach.first_mut() {
        *first = true;
    }
    for segment in segments {
        let mut next = vec![false; reach.len()];
        if *segment == Segment::Any {
            let mut open = false;
            for (slot, reached) in next.iter_mut().zip(&reach) {
                open |= *reached;
                *slot = open;
            }
        } else {
            for ((slot, reached), name) in next.iter_mut().skip(1).zip(&reach).zip(path) {
                *slot = *reached && segment.fits(name);
            }
        }
        reach = next;
    }
    reach.iter().skip(1).any(|fits| *fits)
}

/// Whether a pattern with `*`, `?` and `[…]` fits one name.
fn fits_name(pattern: &[char], name: &str) -> bool {
    let name: Vec<char> = name.chars().collect();
    let (mut at, mut in_name) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    while let Some(c) = name.get(in_name) {
        match one(pattern, at, *c) {
            One::Star => {
                star = Some((at + 1, in_name));
                at += 1;
            }
            One::Fits(next) => {
                at = next;
                in_name += 1;
            }
            One::Differs => match star {
                // Let the last star take one character more, and try again from there.
                Some((after, taken)) => {
                    star = Some((after, taken + 1));
                    at = after;
                    in_name = taken + 1;
                }
                None => return false,
            },
        }
    }
    pattern.iter().skip(at).all(|c| *c == '*')
}

enum One {
    Star,
    Fits(usize),
    Differs,
}

/// Compares one character with the pattern at a place.
fn one(pattern: &[char], at: usize, c: char) -> One {
    match pattern.get(at) {
        Some('*') => One::Star,
        Some('?') => One::Fits(at + 1),
        Some('[') => class(pattern, at + 1, c),
        Some('\\') if pattern.get(at + 1) == Some(&c) => One::Fits(at + 2),
        Some(same) if *same == c && c != '\\' => One::Fits(at + 1),
        _ => One::Differs,
    }
}

/// Compares with a class such as `[a-z]` or `[^0-9]`, which begins at `at`.
fn class(pattern: &[char], mut at: usize, c: char) -> One {
    let negated = pattern.get(at) == Some(&'^');
    if negated {
        at += 1;
    }
    let mut found = false;
    loop {
        let Some(low) = pattern.get(at) else {
            return One::Differs;
        };
        if *low == ']' {
            break;
        }
        let high = pattern
            .get(at + 2)
            .filter(|_| pattern.get(at + 1) == Some(&'-'));
        found |= (*low..=*high.unwrap_or(low)).contains(&c);
        at += if high.is_some() { 3 } else { 1 };
    }
    if found == negated {
        One::Differs
    } else {
        One::Fits(at + 1)
    }
}
