//! JSON as it is written many times a second: the same text as `serde_json` writes, for what answers and audit lines are made
//! of. Names of fields are our own and need no second look, and a text is looked at eight letters at a time. What they are not made
//! of is refused: keys that are no texts, and JSON inside of JSON (`RawValue`).

use serde::Serialize;
use serde::ser::{self, Error as _, Serializer};
use serde_json::Error;

/// Appends a value.
pub fn write<T: Serialize + ?Sized>(value: &T, out: &mut Vec<u8>) -> Result<(), Error> {
    value.serialize(Writer(out))
}

/// Appends a text in its quotes.
pub fn text(text: &str, out: &mut Vec<u8>) {
    if is_plain(text.as_bytes()) {
        plain(text.as_bytes(), out);
    } else {
        serde_json::to_writer(out, text).expect("writing to memory");
    }
}

/// Appends a text of letters, digits and signs that need no second look, in its quotes.
pub fn plain(text: &[u8], out: &mut Vec<u8>) {
    debug_assert!(is_plain(text), "looked at before");
    out.reserve(text.len() + 2);
    out.push(b'"');
    out.extend_from_slice(text);
    out.push(b'"');
}

/// Appends a whole number.
pub fn number(number: impl itoa::Integer, out: &mut Vec<u8>) {
    out.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
}

/// Whether nothing in a text has to be written in another way: no quote, no backslash, no control character.
fn is_plain(text: &[u8]) -> bool {
    const ONES: u64 = u64::from_ne_bytes([1; 8]);
    const HIGH: u64 = u64::from_ne_bytes([0x80; 8]);
    // Without a branch, so that sixteen are looked at in one go.
    let odd = |byte: u8| u8::from(byte < 0x20) | u8::from(byte == b'"') | u8::from(byte == b'\\');
    let all = |part: &[u8; 16]| part.iter().fold(0, |found, byte| found | odd(*byte)) == 0;
    if let Some(last) = text.last_chunk() {
        // The last sixteen may be looked at in part for the second time.
        return text.as_chunks().0.iter().all(all) && all(last);
    }
    // A short text is looked at as its first and its last eight or four.
    // Not zero exactly if some byte is less: a borrow begins nowhere else.
    let has_less = |word: u64, least: u8| word.wrapping_sub(ONES * u64::from(least)) & !word & HIGH;
    let has = |word: u64, byte: u8| has_less(word ^ (ONES * u64::from(byte)), 1);
    let is_plain = |word: u64| has_less(word, 0x20) | has(word, b'"') | has(word, b'\\') == 0;
    if let (Some(first), Some(last)) = (text.first_chunk(), text.last_chunk()) {
        return is_plain(u64::from_ne_bytes(*first)) && is_plain(u64::from_ne_bytes(*last));
    }
    if let (Some(first), Some(last)) = (text.first_chunk(), text.last_chunk()) {
        let (first, last) = (u32::from_ne_bytes(*first), u32::from_ne_bytes(*last));
        return is_plain(u64::from(first) << 32 | u64::from(last));
    }
    text.iter().all(|byte| odd(*byte) == 0)
}

struct Writer<'a>(&'a mut Vec<u8>);

impl<'a> Writer<'a> {
    fn begin(self, start: &[u8], end: &'static [u8]) -> Parts<'a> {
        self.0.extend_from_slice(start);
        Parts { out: self.0, is_first: true, end }
    }

    /// `{"name":`, for a variant that has something in it.
    fn variant(self, name: &str) -> Writer<'a> {
        self.0.push(b'{');
        text(name, self.0);
        self.0.push(b':');
        self
    }
}

/// Something with parts, up to its end.
struct Parts<'a> {
    out: &'a mut Vec<u8>,
    is_first: bool,
    end: &'static [u8],
}

impl Parts<'_> {
    fn comma(&mut self) {
        if !std::mem::replace(&mut self.is_first, false) {
            self.out.push(b',');
        }
    }

    fn element<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Error> {
        self.comma();
        write(value, self.out)
    }

    fn field<T: Serialize + ?Sized>(&mut self, name: &'static str, value: &T) -> Result<(), Error> {
        debug_assert!(is_plain(name.as_bytes()), "names of fields are our own");
        self.comma();
        self.out.reserve(name.len() + 3);
        self.out.push(b'"');
        self.out.extend_from_slice(name.as_bytes());
        self.out.extend_from_slice(b"\":");
        write(value, self.out)
    }

    fn finish(self) {
        self.out.extend_from_slice(self.end);
    }
}

macro_rules! numbers {
    ($($name:ident: $type:ty,)*) => {$(
        fn $name(self, of: $type) -> Result<(), Error> {
            number(of, self.0);
            Ok(())
        }
    )*};
}

impl<'a> Serializer for Writer<'a> {
    type Ok = ();
    type Error = Error;
    type SerializeSeq = Parts<'a>;
    type SerializeTuple = Parts<'a>;
    type SerializeTupleStruct = Parts<'a>;
    type SerializeTupleVariant = Parts<'a>;
    type SerializeMap = Parts<'a>;
    type SerializeStruct = Parts<'a>;
    type SerializeStructVariant = Parts<'a>;

    numbers! {
        serialize_i8: i8,
        serialize_i16: i16,
        serialize_i32: i32,
        serialize_i64: i64,
        serialize_i128: i128,
        serialize_u8: u8,
        serialize_u16: u16,
        serialize_u32: u32,
        serialize_u64: u64,
        serialize_u128: u128,
    }

    fn serialize_bool(self, yes: bool) -> Result<(), Error> {
        self.0.extend_from_slice(if yes { b"true" } else { b"false" });
        Ok(())
    }

    fn serialize_f32(self, number: f32) -> Result<(), Error> {
        serde_json::to_writer(self.0, &number)
    }

    fn serialize_f64(self, number: f64) -> Result<(), Error> {
        serde_json::to_writer(self.0, &number)
    }

    fn serialize_char(self, letter: char) -> Result<(), Error> {
        self.serialize_str(letter.encode_utf8(&mut [0; 4]))
    }

    fn serialize_str(self, value: &str) -> Result<(), Error> {
        text(value, self.0);
        Ok(())
    }

    fn serialize_bytes(self, bytes: &[u8]) -> Result<(), Error> {
        self.collect_seq(bytes)
    }

    fn serialize_none(self) -> Result<(), Error> {
        self.serialize_unit()
    }

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Result<(), Error> {
        value.serialize(self)
    }

    fn serialize_unit(self) -> Result<(), Error> {
        self.0.extend_from_slice(b"null");
        Ok(())
    }

    fn serialize_unit_struct(self, _: &'static str) -> Result<(), Error> {
        self.serialize_unit()
    }

    fn serialize_unit_variant(self, _: &'static str, _: u32, variant: &'static str) -> Result<(), Error> {
        self.serialize_str(variant)
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(self, _: &'static str, value: &T) -> Result<(), Error> {
        value.serialize(self)
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        value: &T,
    ) -> Result<(), Error> {
        let Writer(out) = self.variant(variant);
        write(value, out)?;
        out.push(b'}');
        Ok(())
    }

    fn serialize_seq(self, _: Option<usize>) -> Result<Parts<'a>, Error> {
        Ok(self.begin(b"[", b"]"))
    }

    fn serialize_tuple(self, _: usize) -> Result<Parts<'a>, Error> {
        Ok(self.begin(b"[", b"]"))
    }

    fn serialize_tuple_struct(self, _: &'static str, _: usize) -> Result<Parts<'a>, Error> {
        Ok(self.begin(b"[", b"]"))
    }

    fn serialize_tuple_variant(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        _: usize,
    ) -> Result<Parts<'a>, Error> {
        Ok(self.variant(variant).begin(b"[", b"]}"))
    }

    fn serialize_map(self, _: Option<usize>) -> Result<Parts<'a>, Error> {
        Ok(self.begin(b"{", b"}"))
    }

    fn serialize_struct(self, name: &'static str, _: usize) -> Result<Parts<'a>, Error> {
        // By such names serde_json speaks to itself.
        if name.starts_with("$serde_json::private::") {
            return Err(Error::custom("JSON inside of JSON is not written here"));
        }
        Ok(self.begin(b"{", b"}"))
    }

    fn serialize_struct_variant(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        _: usize,
    ) -> Result<Parts<'a>, Error> {
        Ok(self.variant(variant).begin(b"{", b"}}"))
    }
}

macro_rules! parts {
    ($($trait:ident::$name:ident($($field:ident)?) -> $way:ident,)*) => {$(
        impl ser::$trait for Parts<'_> {
            type Ok = ();
            type Error = Error;

            fn $name<T: Serialize + ?Sized>(&mut self, $($field: &'static str,)? value: &T) -> Result<(), Error> {
                self.$way($($field,)? value)
            }

            fn end(self) -> Result<(), Error> {
                self.finish();
                Ok(())
            }
        }
    )*};
}

parts! {
    SerializeSeq::serialize_element() -> element,
    SerializeTuple::serialize_element() -> element,
    SerializeTupleStruct::serialize_field() -> element,
    SerializeTupleVariant::serialize_field() -> element,
    SerializeStruct::serialize_field(name) -> field,
    SerializeStructVariant::serialize_field(name) -> field,
}

impl ser::SerializeMap for Parts<'_> {
    type Ok = ();
    type Error = Error;

    fn serialize_key<T: Serialize + ?Sized>(&mut self, key: &T) -> Result<(), Error> {
        self.comma();
        let start = self.out.len();
        write(key, self.out)?;
        if self.out.get(start) == Some(&b'"') { Ok(()) } else { Err(Error::custom("a key is a text")) }
    }

    fn serialize_value<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Error> {
        self.out.push(b':');
        write(value, self.out)
    }

    fn end(self) -> Result<(), Error> {
        self.finish();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    #[derive(Debug, Serialize)]
    enum Each {
        Unit,
        Newtype(Option<u8>),
        Tuple(i64, char),
        Struct { one: f64, two: [u8; 2] },
    }

    #[derive(Debug, Serialize)]
    struct Inner {
        name: String,
        #[serde(skip_serializing_if = "Option::is_none")]
        absent: Option<u8>,
    }

    #[derive(Debug, Serialize)]
    struct All {
        #[serde(flatten)]
        inner: Inner,
        each: Vec<Each>,
        map: BTreeMap<String, serde_json::Value>,
        unit: (),
        pair: (u128, i8),
        nothing: Vec<u8>,
        letters: Box<str>,
    }

    fn written(value: &impl Serialize) -> String {
        let mut out = Vec::new();
        write(value, &mut out).expect("has a form");
        String::from_utf8(out).expect("is a text")
    }

    proptest! {
        /// Texts of any length, so that what is special stands at every place of a word.
        #[test]
        fn a_text_is_written_as_serde_json_writes_it(text in "\\PC{0,20}|[ -~]{0,40}|[\\x00-\\x7f]{0,40}") {
            prop_assert_eq!(written(&text), serde_json::to_string(&text).unwrap());
        }

        #[test]
        fn a_value_is_written_as_serde_json_writes_it(
            texts in proptest::collection::vec("[\\x00-\\x7fäß€]{0,12}", 3),
            number in any::<i64>(),
            real in any::<f64>(),
            large in any::<u128>(),
        ) {
            let all = All {
                inner: Inner { name: texts[0].clone(), absent: None },
                each: vec![
                    Each::Unit,
                    Each::Newtype(None),
                    Each::Newtype(Some(7)),
                    Each::Tuple(number, '"'),
                    Each::Struct { one: real, two: [0, 255] },
                ],
                map: BTreeMap::from([(texts[1].clone(), serde_json::json!([{ "a": null, "b": true }, -1, 1.5]))]),
                unit: (),
                pair: (large, -1),
                nothing: Vec::new(),
                letters: texts[2].as_str().into(),
            };
            prop_assert_eq!(written(&all), serde_json::to_string(&all).unwrap());
        }
    }

    #[test]
    fn what_answers_are_not_made_of_is_refused() {
        assert!(write(&BTreeMap::from([(1, 2)]), &mut Vec::new()).is_err());
        let raw = serde_json::value::to_raw_value(&1).unwrap();
        assert!(write(&raw, &mut Vec::new()).is_err());
    }
}
