//! Paths in the repository, put into their one spelling by letters alone.

use std::borrow::Cow;

use unicode_normalization::{UnicodeNormalization, is_nfc};

use crate::limits::KEY_BYTES_MAX;
use crate::text::is_unprintable;

/// The one spelling of a relative path, or why it is none. Stars are letters like others here.
pub(super) fn parse(text: &str) -> Result<Cow<'_, str>, &'static str> {
    if let Some(why) = fault(text) {
        return Err(why);
    }
    let in_order =
        text.is_ascii() && !text.contains('\\') && text.split('/').all(|segment| !matches!(segment, "" | "." | ".."));
    if in_order {
        return Ok(Cow::Borrowed(text));
    }
    let ordered = put_in_order(text)?;
    // What only now stands at an end (`a /x/..`), or grew, is judged too: a key is its own spelling.
    match fault(&ordered) {
        Some(why) => Err(why),
        None => Ok(Cow::Owned(ordered)),
    }
}

/// Whether a text is the path of a file in its one spelling already, as nearly all are: plain letters, and no part that begins with
/// a dot. Seen in one go; what is not so plain may still be a path.
pub(super) fn is_plain(text: &str) -> bool {
    let mut before = b'/';
    let mut is_plain = text.len() <= KEY_BYTES_MAX;
    for byte in text.bytes() {
        let fits = byte.is_ascii_alphanumeric()
            || matches!(byte, b'_' | b'-')
            || matches!(byte, b'.' | b'/') && before != b'/';
        is_plain &= fits;
        before = byte;
    }
    is_plain && before != b'/'
}

/// Why these letters are no path, before and after they were put in order.
fn fault(text: &str) -> Option<&'static str> {
    if text.is_empty() {
        Some("a path is not empty")
    } else if text.len() > KEY_BYTES_MAX {
        Some("a path has at most 1024 bytes")
    } else if has_unprintable(text) {
        Some("a path has no control or invisible characters")
    } else if text.trim() != text {
        Some("a path has no white space at its ends")
    } else if text.starts_with(['/', '\\', '~']) || text.as_bytes().get(1) == Some(&b':') {
        Some("a path is relative to the root of the repository")
    } else {
        None
    }
}

/// One slash between two segments, nothing that only points around, one spelling of each letter.
fn put_in_order(text: &str) -> Result<String, &'static str> {
    let mut segments: Vec<&str> = Vec::new();
    for segment in text.split(['/', '\\']) {
        match segment {
            "" | "." => {}
            ".." if segments.pop().is_none() => return Err("the path leads out of the repository"),
            ".." => {}
            _ => segments.push(segment),
        }
    }
    if segments.is_empty() {
        return Err("the path names the repository itself; lock ** for all of it");
    }
    let joined = segments.join("/");
    Ok(if is_nfc(&joined) { joined } else { joined.nfc().collect() })
}

pub(super) fn has_unprintable(text: &str) -> bool {
    // Most texts are plain, and that is seen quickly.
    let plain = |byte: u8| byte == b' ' || byte.is_ascii_graphic();
    !text.bytes().all(plain) && text.chars().any(is_unprintable)
}
