//! Text from strangers, made harmless before it is stored or shown.

use std::borrow::Cow;

/// Whether a character may steer a terminal or hide what a text says: controls, bidi and zero-width marks.
pub fn is_unprintable(c: char) -> bool {
    c.is_control()
        || matches!(c,
            // Line ends, directions, and what marks annotations.
            '\u{2028}'..='\u{202e}' | '\u{fff9}'..='\u{fffb}'
            // What Unicode calls ignorable: it has no shape of its own, so two names with and without it look alike.
            | '\u{00ad}' | '\u{034f}' | '\u{061c}' | '\u{115f}'..='\u{1160}' | '\u{17b4}'..='\u{17b5}'
            | '\u{180b}'..='\u{180f}' | '\u{200b}'..='\u{200f}' | '\u{2060}'..='\u{206f}' | '\u{3164}'
            | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{ffa0}' | '\u{fff0}'..='\u{fff8}' | '\u{1bca0}'..='\u{1bca3}'
            | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e0fff}')
}

/// A word as a shell reads it back: what is hinted at can be pasted, whatever strangers call their files.
pub fn shell_word(word: &str) -> Cow<'_, str> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_-./:=@%+,".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return Cow::Borrowed(word);
    }
    if !word.chars().any(char::is_control) {
        return Cow::Owned(format!("'{}'", word.replace('\'', "'\\''")));
    }
    // A line that ends in the middle of a word would be a command of its own.
    let mut quoted = String::from("$'");
    for c in word.chars() {
        match c {
            '\'' | '\\' => quoted.extend(['\\', c]),
            control if control.is_control() => quoted.extend(format!("\\u{:04x}", u32::from(control)).chars()),
            plain => quoted.push(plain),
        }
    }
    quoted.push('\'');
    Cow::Owned(quoted)
}

/// One line of printable text: every run of white space and unprintable characters becomes one space.
pub fn one_line(text: &str) -> Cow<'_, str> {
    let plain = |byte: u8| byte == b' ' || byte.is_ascii_graphic();
    if text.bytes().all(plain) && text.trim() == text && !text.contains("  ") {
        return Cow::Borrowed(text);
    }
    let mut line = String::with_capacity(text.len());
    for word in text.split(|c: char| c.is_whitespace() || is_unprintable(c)).filter(|word| !word.is_empty()) {
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(word);
    }
    Cow::Owned(line)
}

/// A text in which `%20` stands for a blank and so on. What is no such code stands for itself.
pub fn percent_decoded(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        let digit = |at: usize| after.get(at).and_then(|digit| char::from(*digit).to_digit(16));
        match (byte, digit(0), digit(1)) {
            (b'%', Some(high), Some(low)) => {
                bytes.push((high * 16 + low) as u8);
                rest = &after[2..];
            }
            _ => {
                bytes.push(byte);
                rest = after;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// How many letters have to be changed, added or left out to come from one word to the other.
pub fn distance(one: &str, other: &str) -> usize {
    let other: Vec<char> = other.chars().collect();
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (i, a) in one.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, b) in other.iter().enumerate() {
            let changed = diagonal + usize::from(a != *b);
            diagonal = row[j + 1];
            row[j + 1] = changed.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[other.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_for_a_shell_is_one_word_whatever_is_in_it() {
        assert_eq!(shell_word("src/a.rs:1-5"), "src/a.rs:1-5");
        assert_eq!(shell_word(""), "''");
        assert_eq!(shell_word("it'; touch x; '.md"), r"'it'\''; touch x; '\''.md'");
        assert_eq!(shell_word("n\ntouch x\n\u{1b}it's\\"), r"$'n\u000atouch x\u000a\u001bit\'s\\'", "and one line");
    }

    #[test]
    fn terminal_escapes_and_bidi_marks_become_spaces() {
        assert_eq!(one_line("\x1b[31mred\x1b[0m\n\tnext\u{202e}evil"), "[31mred [0m next evil");
        assert_eq!(one_line("  plain  text "), "plain text");
        assert_eq!(one_line("\u{0}\u{7f}"), "");
        assert!(matches!(one_line("plain text"), Cow::Borrowed("plain text")));
    }

    /// U+034F and the like have no shape: two names with and without one look alike.
    #[test]
    fn what_has_no_shape_is_unprintable() {
        let ignorable = [
            0xad..=0xad,
            0x34f..=0x34f,
            0x61c..=0x61c,
            0x115f..=0x1160,
            0x17b4..=0x17b5,
            0x180b..=0x180f,
            0x200b..=0x200f,
            0x202a..=0x202e,
            0x2060..=0x206f,
            0x3164..=0x3164,
            0xfe00..=0xfe0f,
            0xfeff..=0xfeff,
            0xffa0..=0xffa0,
            0xfff0..=0xfff8,
            0x1_bca0..=0x1_bca3,
            0x1_d173..=0x1_d17a,
            0xe_0000..=0xe_0fff,
        ];
        for number in ignorable.into_iter().flatten() {
            assert!(is_unprintable(char::from_u32(number).unwrap()), "U+{number:04X}");
        }
        assert!(!"aä€語🙂\u{300}".chars().any(is_unprintable));
    }

    #[test]
    fn percent_signs_are_decoded_where_they_mean_something() {
        assert_eq!(percent_decoded("a%20b%2Fc%C3%A4"), "a b/cä");
        assert_eq!(percent_decoded("100%, %zz and %4"), "100%, %zz and %4");
    }

    #[test]
    fn words_differ_by_as_many_letters_as_have_to_be_changed() {
        assert_eq!((distance("", "abc"), distance("kitten", "sitting"), distance("a", "a")), (3, 3, 0));
    }
}
