//! The JSON Schema of a document, and the patterns in it. The shape itself is stated by the structs.

use std::borrow::Cow;
use std::sync::LazyLock;

use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde_json::Value;

use crate::document::Document;

pub use lockkeeper_core::key::logical::{LOGICAL_PATTERN as LOGICAL_KEY_PATTERN, PATH_PATTERN as FILE_PATH_PATTERN};
pub(crate) const FEATURE_ID_PATTERN: &str = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$";
pub const PACKAGE_ID_PATTERN: &str = r"^[a-z][a-z0-9_-]{0,63}$";

/// The JSON Schema (2020-12) of a document.
pub fn schema() -> Value {
    shared().clone()
}

pub(crate) fn shared() -> &'static Value {
    static SCHEMA: LazyLock<Value> =
        LazyLock::new(|| SchemaSettings::draft2020_12().into_generator().into_root_schema_for::<Document>().to_value());
    &SCHEMA
}

/// A pattern of the schema as code: no engine for patterns is needed for four of them.
pub(crate) struct Pattern {
    pub text: &'static str,
    pub takes: fn(&str) -> bool,
    /// What a text that is not taken is not.
    pub noun: &'static str,
    pub example: &'static str,
}

pub(crate) const PATTERNS: [Pattern; 4] = [
    Pattern {
        text: FEATURE_ID_PATTERN,
        takes: |text| lockkeeper_core::key::logical::feature_id(text).is_some(),
        noun: "a feature id: 1 to 128 letters, digits, dots, underscores and hyphens",
        example: "FEAT-123",
    },
    Pattern {
        text: LOGICAL_KEY_PATTERN,
        takes: is_logical_key,
        noun: "a logical key (api: db: event: flag: env: contract: feature:)",
        example: "api:GET /v1/users",
    },
    Pattern {
        text: FILE_PATH_PATTERN,
        takes: is_file_path,
        noun: "a path from the root of the repository, without a slash in front or white space behind",
        example: "src/api/users.py",
    },
    Pattern {
        text: PACKAGE_ID_PATTERN,
        takes: is_package_id,
        noun: "a package id: a lower-case letter, then up to 63 of a-z 0-9 _ -",
        example: "backend-api",
    },
];

fn is_logical_key(text: &str) -> bool {
    let Some((prefix, rest)) = text.split_once(':') else { return false };
    lockkeeper_core::key::logical::PREFIXES.contains(&prefix) && !rest.is_empty() && !rest.contains(is_line_end)
}

fn is_file_path(text: &str) -> bool {
    // A dot of the pattern takes no end of a line, so only the first line has to have something in it.
    !text.starts_with('/') && !text.starts_with(is_line_end) && !text.is_empty() && !text.ends_with(char::is_whitespace)
}

fn is_package_id(text: &str) -> bool {
    let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'_' | b'-');
    text.len() <= 64 && text.starts_with(|c: char| c.is_ascii_lowercase()) && text.bytes().all(plain)
}

fn is_line_end(c: char) -> bool {
    matches!(c, '\n' | '\r' | '\u{2028}' | '\u{2029}')
}

/// Stands for a text with a pattern wherever the schema is made.
macro_rules! patterned {
    ($name:ident, $pattern:expr, $description:literal) => {
        pub(crate) struct $name;

        impl JsonSchema for $name {
            fn schema_name() -> Cow<'static, str> {
                stringify!($name).into()
            }

            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                json_schema!({ "type": "string", "pattern": $pattern, "description": $description })
            }
        }
    };
}

patterned!(FilePath, FILE_PATH_PATTERN, "A path, relative to the root of the repository.");
patterned!(LogicalKey, LOGICAL_KEY_PATTERN, "A logical key.");
patterned!(FeatureId, FEATURE_ID_PATTERN, "The id of a feature.");
patterned!(PackageId, PACKAGE_ID_PATTERN, "The name of a package.");

/// A section whose inside is left to its users; only its size is bounded.
pub(crate) struct FreeShape;

impl JsonSchema for FreeShape {
    fn schema_name() -> Cow<'static, str> {
        "FreeShape".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": ["object", "array", "string", "number", "integer", "boolean"] })
    }

    fn inline_schema() -> bool {
        true
    }
}
