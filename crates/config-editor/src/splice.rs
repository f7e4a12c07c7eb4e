//! Texts with a few places replaced, and what stands around a place. Knows no format.

use std::ops::Range;

/// One place, and what stands there afterwards.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Splice {
    pub(crate) range: Range<usize>,
    pub(crate) text: String,
}

impl Splice {
    pub(crate) fn insert(at: usize, text: impl Into<String>) -> Splice {
        Splice { range: at..at, text: text.into() }
    }

    pub(crate) fn replace(range: Range<usize>, text: impl Into<String>) -> Splice {
        Splice { range, text: text.into() }
    }

    pub(crate) fn remove(range: Range<usize>) -> Splice {
        Splice { range, text: String::new() }
    }
}

/// The text with all places replaced; none if they overlap or cut a character in two.
pub(crate) fn spliced(text: &str, splices: &[Splice]) -> Option<String> {
    let mut new = String::with_capacity(text.len() + splices.iter().map(|splice| splice.text.len()).sum::<usize>());
    let mut from = 0;
    for Splice { range, text: inserted } in splices {
        new.push_str(text.get(from..range.start)?);
        new.push_str(inserted);
        from = range.end;
    }
    new.push_str(text.get(from..)?);
    Some(new)
}

/// Where the line begins that a place is in.
pub(crate) fn line_start(text: &str, at: usize) -> usize {
    text[..at].rfind('\n').map_or(0, |newline| newline + 1)
}

/// Where the line ends that a place is in, before its line break.
pub(crate) fn line_end(text: &str, at: usize) -> usize {
    let end = text[at..].find('\n').map_or(text.len(), |newline| at + newline);
    if end > at && text[..end].ends_with('\r') { end - 1 } else { end }
}

/// Behind the line break of the line that a place is in.
pub(crate) fn next_line(text: &str, at: usize) -> usize {
    text[at..].find('\n').map_or(text.len(), |newline| at + newline + 1)
}

/// The line break that the text uses.
pub(crate) fn line_break(text: &str) -> &'static str {
    match text.find('\n') {
        Some(at) if text[..at].ends_with('\r') => "\r\n",
        _ => "\n",
    }
}

/// What a line begins with.
pub(crate) fn indentation(text: &str, at: usize) -> &str {
    let line = &text[line_start(text, at)..];
    &line[..line.len() - line.trim_start_matches([' ', '\t']).len()]
}
