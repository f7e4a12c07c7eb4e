//! What a plain word of YAML means: the core schema of YAML 1.2, and nothing of 1.1. Knows no document.

use std::borrow::Cow;

/// A scalar as it was written.
#[derive(Clone, Debug)]
pub(crate) struct Scalar<'a> {
    pub text: Cow<'a, str>,
    /// Written without quotes, so that it may mean a number.
    pub plain: bool,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Meaning<'s> {
    Null,
    Bool(bool),
    Integer(i64),
    Float(f64),
    Text(&'s str),
}

impl Meaning<'_> {
    pub(crate) fn noun(&self) -> &'static str {
        match self {
            Meaning::Null => "nothing",
            Meaning::Bool(_) => "a truth value",
            Meaning::Integer(_) => "a whole number",
            Meaning::Float(_) => "a number",
            Meaning::Text(_) => "a text",
        }
    }
}

impl Scalar<'_> {
    pub(crate) fn meaning(&self) -> Meaning<'_> {
        if !self.plain {
            return Meaning::Text(&self.text);
        }
        match &*self.text {
            "" | "~" | "null" | "Null" | "NULL" => Meaning::Null,
            "true" | "True" | "TRUE" => Meaning::Bool(true),
            "false" | "False" | "FALSE" => Meaning::Bool(false),
            text if !text.starts_with(|c: char| c.is_ascii_digit() || "+-.".contains(c)) => Meaning::Text(text),
            text => integer(text)
                .map(Meaning::Integer)
                .or_else(|| float(text).map(Meaning::Float))
                .unwrap_or(Meaning::Text(text)),
        }
    }
}

fn integer(text: &str) -> Option<i64> {
    let based = |digits: &str, base| {
        let plain = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_alphanumeric());
        plain.then(|| i64::from_str_radix(digits, base).ok()).flatten()
    };
    if let Some(digits) = text.strip_prefix("0x") {
        return based(digits, 16);
    }
    if let Some(digits) = text.strip_prefix("0o") {
        return based(digits, 8);
    }
    text.parse().ok()
}

fn float(text: &str) -> Option<f64> {
    // The standard parser takes words such as `inf` and `nan`, which YAML writes otherwise.
    let digits = text.bytes().any(|b| b.is_ascii_digit());
    let letters = text.bytes().all(|b| b.is_ascii_digit() || matches!(b, b'+' | b'-' | b'.' | b'e' | b'E'));
    (digits && letters).then(|| text.parse().ok()).flatten().filter(|number: &f64| number.is_finite())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_mean_what_the_core_schema_says() {
        let table = [
            ("", Meaning::Null),
            ("~", Meaning::Null),
            ("true", Meaning::Bool(true)),
            ("yes", Meaning::Text("yes")),
            ("on", Meaning::Text("on")),
            ("12", Meaning::Integer(12)),
            ("-3", Meaning::Integer(-3)),
            ("0x1F", Meaning::Integer(31)),
            ("0o17", Meaning::Integer(15)),
            ("0x-1", Meaning::Text("0x-1")),
            ("1.5", Meaning::Float(1.5)),
            ("1e3", Meaning::Float(1000.0)),
            ("99999999999999999999", Meaning::Float(1e20)),
            ("1e999", Meaning::Text("1e999")),
            ("inf", Meaning::Text("inf")),
            ("e", Meaning::Text("e")),
            ("1.2.3", Meaning::Text("1.2.3")),
        ];
        for (text, expected) in table {
            assert_eq!(Scalar { text: text.into(), plain: true }.meaning(), expected, "{text}");
            assert_eq!(Scalar { text: text.into(), plain: false }.meaning(), Meaning::Text(text));
        }
    }
}
