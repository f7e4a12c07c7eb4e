//! Numbers from strangers: any JSON number or its text, so that what is out of range is refused with the right word.

use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{Deserializer, Error, Visitor};
use serde::{Deserialize, Serialize, Serializer};

/// A whole number of any size. What is none (`1.5`, `"NaN"`) is out of every range, so that it is refused with the
/// word of its field.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Whole(pub i128);

impl Whole {
    /// In place of what is no whole number.
    pub const NONE: Whole = Whole(i128::MIN);
}

impl<'de> Deserialize<'de> for Whole {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Whole, D::Error> {
        struct AnyNumber;
        impl Visitor<'_> for AnyNumber {
            type Value = Whole;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a whole number")
            }

            fn visit_i64<E: Error>(self, number: i64) -> Result<Whole, E> {
                Ok(Whole(number.into()))
            }

            fn visit_u64<E: Error>(self, number: u64) -> Result<Whole, E> {
                Ok(Whole(number.into()))
            }

            fn visit_f64<E: Error>(self, number: f64) -> Result<Whole, E> {
                // Too large for an integer, or written as 1e18: still a whole number.
                Ok(if number.fract() == 0.0 { Whole(number as i128) } else { Whole::NONE })
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Whole, E> {
                Ok(text.parse().map_or(Whole::NONE, Whole))
            }
        }
        deserializer.deserialize_any(AnyNumber)
    }
}

impl Serialize for Whole {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        i64::try_from(self.0).unwrap_or(if self.0 < 0 { i64::MIN } else { i64::MAX }).serialize(serializer)
    }
}

impl From<u32> for Whole {
    fn from(number: u32) -> Whole {
        Whole(number.into())
    }
}

impl From<u64> for Whole {
    fn from(number: u64) -> Whole {
        Whole(number.into())
    }
}

impl JsonSchema for Whole {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "integer".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "integer" })
    }
}
