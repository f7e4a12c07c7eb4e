//! The part of a file that a lock covers: lines `start..=end`, counted from 1.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Lines of a file, both ends included. The whole file is every line there is or will be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Span {
    start: u32,
    end: u32,
}

/// Why a pair of numbers is no span. Nothing was changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidRange {
    #[error("lines count from 1, and {0} is not one")]
    NotALine(i128),
    #[error("the range starts at line {start}, after its end at line {end}")]
    Backwards { start: i128, end: i128 },
    #[error(
        "line {0} is more than any file has; leave the end out, as in 10-, to mean the end of the file (in JSON: end_line -1)"
    )]
    TooLarge(i128),
    #[error("an end_line needs a start_line")]
    NoStart,
    #[error("'{0}' is no range of lines; write 10-50, 10, or 10- for everything from line 10")]
    Unreadable(String),
    #[error("only a file has lines; {0} is locked as a whole")]
    NotAFile(String),
}

impl Span {
    /// The end of a span that has none. Not a line number: one more than the largest.
    const TO_END: u32 = u32::MAX;

    /// Not after any other in the order of spans.
    pub(crate) const FIRST: Span = Span { start: 1, end: 1 };

    pub const WHOLE: Span = Span { start: 1, end: Span::TO_END };

    /// Checks numbers from outside. No numbers: the whole file; end missing or -1: to the end.
    pub fn checked(start: Option<i128>, end: Option<i128>) -> Result<Span, InvalidRange> {
        let end = end.filter(|&end| end != -1);
        let Some(start) = start else {
            return if end.is_none() { Ok(Span::WHOLE) } else { Err(InvalidRange::NoStart) };
        };
        let line = |number: i128| match number {
            ..1 => Err(InvalidRange::NotALine(number)),
            1.. if number < i128::from(Span::TO_END) => Ok(number as u32),
            _ => Err(InvalidRange::TooLarge(number)),
        };
        let first = line(start)?;
        let Some(end) = end else { return Ok(Span { start: first, end: Span::TO_END }) };
        let last = line(end)?;
        if first > last { Err(InvalidRange::Backwards { start, end }) } else { Ok(Span { start: first, end: last }) }
    }

    /// Reads `10-50`, `10` or `10-`.
    pub fn parse(text: &str) -> Result<Span, InvalidRange> {
        let unreadable = || InvalidRange::Unreadable(crate::text::one_line(text).chars().take(40).collect());
        let number = |digits: &str| -> Result<i128, InvalidRange> {
            let plain = !digits.is_empty() && digits.len() <= 30 && digits.bytes().all(|b| b.is_ascii_digit());
            if plain { digits.parse().map_err(|_| unreadable()) } else { Err(unreadable()) }
        };
        match text.split_once('-') {
            None => number(text).and_then(|line| Span::checked(Some(line), Some(line))),
            Some((start, "")) => Span::checked(Some(number(start)?), None),
            Some((start, end)) => Span::checked(Some(number(start)?), Some(number(end)?)),
        }
    }

    /// Whether a text behind a colon means lines. `0` and `9-3` do: they are refused as lines, not as a path.
    pub fn is_meant_by(text: &str) -> bool {
        text.bytes().all(|b| b.is_ascii_digit() || b == b'-') && text.bytes().any(|b| b.is_ascii_digit())
    }

    /// A path, and the lines behind its colon: `src/auth.rs:10-50`.
    pub fn behind_colon(text: &str) -> Option<(&str, &str)> {
        text.rsplit_once(':').filter(|(path, lines)| !path.is_empty() && Span::is_meant_by(lines))
    }

    /// From numbers that are known to be in order, as the rules compute them.
    pub(crate) fn between(start: u32, end: u32) -> Span {
        assert!(1 <= start && start <= end, "a span of lines {start} to {end}");
        Span { start, end }
    }

    pub const fn start(self) -> u32 {
        self.start
    }

    /// The last line; `None`: to the end of the file.
    pub const fn last(self) -> Option<u32> {
        if self.end == Span::TO_END { None } else { Some(self.end) }
    }

    /// The last line, or a number behind every line.
    pub(crate) const fn end(self) -> u32 {
        self.end
    }

    pub const fn is_whole(self) -> bool {
        self.start == 1 && self.end == Span::TO_END
    }

    pub const fn overlaps(self, other: Span) -> bool {
        self.start <= other.end && other.start <= self.end
    }

    /// The lines that both have.
    pub fn intersection(self, other: Span) -> Option<Span> {
        self.overlaps(other).then(|| Span { start: self.start.max(other.start), end: self.end.min(other.end) })
    }
}

impl fmt::Display for Span {
    /// `10-50`, `10`, `10-` (to the end), or `all`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.start, self.last()) {
            (1, None) => f.write_str("all"),
            (start, None) => write!(f, "{start}-"),
            (start, Some(end)) if start == end => write!(f, "{start}"),
            (start, Some(end)) => write!(f, "{start}-{end}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_reads_back() {
        for text in ["1", "10-50", "7-", "4294967294"] {
            assert_eq!(Span::parse(text).unwrap().to_string(), text);
        }
        assert_eq!(Span::parse("1-").unwrap(), Span::WHOLE);
        assert_eq!(Span::parse("10-10").unwrap().to_string(), "10");
    }

    #[test]
    fn bad_ranges_are_refused_with_their_reason() {
        assert_eq!(Span::checked(Some(0), Some(5)), Err(InvalidRange::NotALine(0)));
        assert_eq!(Span::checked(Some(-3), None), Err(InvalidRange::NotALine(-3)));
        assert_eq!(Span::checked(Some(5), Some(4)), Err(InvalidRange::Backwards { start: 5, end: 4 }));
        assert_eq!(Span::checked(Some(5), Some(1 << 32)), Err(InvalidRange::TooLarge(1 << 32)));
        assert_eq!(Span::checked(Some(u64::MAX.into()), None), Err(InvalidRange::TooLarge(u64::MAX.into())));
        assert_eq!(Span::checked(None, Some(4)), Err(InvalidRange::NoStart));
        for text in ["", "-", "a", "1-b", "-5", "+5", "1-2-3", "1 -2", "99999999999999999999999999999999999"] {
            assert!(matches!(Span::parse(text), Err(InvalidRange::Unreadable(_))), "{text}");
        }
    }

    #[test]
    fn the_whole_file_overlaps_every_span() {
        assert_eq!(Span::checked(None, None).unwrap(), Span::WHOLE);
        assert_eq!(Span::checked(None, Some(-1)).unwrap(), Span::WHOLE);
        assert!(Span::WHOLE.overlaps(Span::parse("4294967294").unwrap()));
        assert!(!Span::parse("1-9").unwrap().overlaps(Span::parse("10-").unwrap()));
    }
}
