//! Paths of the table of routes. They are matched as they are sent, without decoding or tolerance: `/v2/` is not `/v2`.

/// Names in a path, as sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[allow(missing_docs)]
pub struct PathNames<'a> {
    pub model: &'a str,
    pub version: &'a str,
    pub region: &'a str,
    pub repository: &'a str,
}

/// A parsed path.
pub struct Pattern {
    before: Vec<PathPiece>,
    /// Optional pieces between the other two.
    optional: Vec<PathPiece>,
    after: Vec<PathPiece>,
}

enum PathPiece {
    Text(&'static str),
    Model,
    Version,
    Region,
    Repository,
}

impl Pattern {
    pub fn new(path: &'static str) -> Self {
        let (before, rest) = path.split_once('[').unwrap_or((path, "]"));
        let (optional, after) = rest.split_once(']').unwrap_or_default();
        Self { before: pieces(before), optional: pieces(optional), after: pieces(after) }
    }

    /// The names in a path; `None` if it does not match.
    #[inline]
    pub fn names<'a>(&self, path: &'a str) -> Option<PathNames<'a>> {
        let mut names = PathNames::default();
        let rest = take(&self.before, path, &mut names)?;
        if take(&self.after, rest, &mut names).is_some_and(str::is_empty) {
            return Some(names);
        }
        if self.optional.is_empty() {
            return None;
        }
        let rest = take(&self.optional, rest, &mut names)?;
        take(&self.after, rest, &mut names)?.is_empty().then_some(names)
    }
}

fn pieces(text: &'static str) -> Vec<PathPiece> {
    // Every second part is a name in braces.
    let piece = |(at, part)| match (at % 2, part) {
        (_, "") => None,
        (0, text) => Some(PathPiece::Text(text)),
        (_, "model") => Some(PathPiece::Model),
        (_, "version") => Some(PathPiece::Version),
        (_, "region") => Some(PathPiece::Region),
        _ => Some(PathPiece::Repository),
    };
    text.split(['{', '}']).enumerate().filter_map(piece).collect()
}

/// Removes pieces from the start of a path and returns the rest; `None` if the path does not begin with them. A name is
/// not empty and ends with its segment.
#[inline]
fn take<'a>(pieces: &[PathPiece], mut rest: &'a str, names: &mut PathNames<'a>) -> Option<&'a str> {
    for piece in pieces {
        if let PathPiece::Text(text) = piece {
            rest = rest.strip_prefix(text)?;
            continue;
        }
        let end = memchr::memchr(b'/', rest.as_bytes()).unwrap_or(rest.len());
        let (name, behind) = rest.split_at(end);
        if name.is_empty() {
            return None;
        }
        match piece {
            PathPiece::Version if !name.bytes().all(|b| b.is_ascii_digit()) => return None,
            PathPiece::Version => names.version = name,
            PathPiece::Region => names.region = name,
            PathPiece::Repository => names.repository = name,
            PathPiece::Model | PathPiece::Text(_) => names.model = name,
        }
        rest = behind;
    }
    Some(rest)
}
