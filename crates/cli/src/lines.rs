//! Lines behind a colon that are none: what was probably meant. Knows no file.

use lockkeeper_core::span::Span;

/// In the place of lines that nobody can guess. No shell takes it for a range by accident.
const UNKNOWN: &str = "START-END";

/// A path with the lines that were probably meant.
pub(crate) fn meant(path: &str, lines: &str) -> String {
    format!("{path}:{}", guess(lines).as_deref().unwrap_or(UNKNOWN))
}

/// Lines as pages of the web name them behind a `#`, without columns: `5-9` for `L5-L9`, `L5-9` and `L5C2-L9C14`.
pub(crate) fn of_a_page(fragment: &str) -> Option<String> {
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let line = |part: &str| {
        let (line, column) = part.split_once('C').unwrap_or((part, "1"));
        (is_number(line) && is_number(column)).then(|| line.to_owned())
    };
    let lines = fragment.strip_prefix('L')?;
    match lines.split_once('-') {
        None => line(lines),
        Some((start, end)) => Some(format!("{}-{}", line(start)?, line(end.strip_prefix('L').unwrap_or(end))?)),
    }
}

/// `20-30` for `30-20`, `L20-L30` and `20..30`; `1-3` for `0-3`; an open end for one that is too far away.
fn guess(lines: &str) -> Option<String> {
    let plain = lines.replace("..", "-").replace([',', 'L', 'l'], "-");
    let numbers = plain.split('-').filter(|digits| !digits.is_empty());
    let numbers: Vec<u128> = numbers.map(str::parse).collect::<Result<_, _>>().ok()?;
    let guess = match numbers[..] {
        // `-5` may be up to line five as well as a slip.
        _ if lines.starts_with('-') => return None,
        [line] if lines.ends_with('-') => format!("{}-", line.max(1)),
        [line] => line.max(1).to_string(),
        [start, end] if end >= u128::from(u32::MAX) => format!("{}-", start.max(1)),
        [0, end] => format!("1-{end}"),
        [start, end] => format!("{}-{}", start.min(end), start.max(end)),
        _ => return None,
    };
    Span::parse(&guess).ok().map(|_| guess)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_lines_that_can_be_locked_are_guessed() {
        for (typed, guessed) in [
            ("30-20", "20-30"),
            ("0-3", "1-3"),
            ("0", "1"),
            ("0-", "1-"),
            ("L10-L50", "10-50"),
            ("10..50", "10-50"),
            ("10--50", "10-50"),
            ("7-99999999999", "7-"),
        ] {
            assert_eq!(meant("a.rs", typed), format!("a.rs:{guessed}"), "{typed}");
        }
        for typed in ["a-b", "", "-5", "1-2-3", "3-0", "0-0", "99999999999", "1+5", &"9".repeat(60)] {
            assert_eq!(meant("a.rs", typed), "a.rs:START-END", "{typed}");
        }
    }

    #[test]
    fn only_lines_of_a_page_are_taken_for_some() {
        for (fragment, lines) in [("L10", "10"), ("L5-L9", "5-9"), ("L5-9", "5-9"), ("L5C2-L9C14", "5-9")] {
            assert_eq!(of_a_page(fragment).as_deref(), Some(lines), "{fragment}");
        }
        for other in ["", "L", "10", "L5-", "L-9", "L5-L", "L5C", "Left", "license", "L5-9-12"] {
            assert_eq!(of_a_page(other), None, "{other}");
        }
    }
}
