//! JSON values that keep numbers as they are written.
//!
//! This parser exists because the values read here are written again. A parser that turns numbers
//! into f64 rounds integers beyond 2^53, and decimals of columns that stay text. Here every value
//! keeps its source, so a column of mixed types can be kept as verbatim text. Objects and arrays
//! are parsed here, scalars by `serde_json`: by RFC 8259, except for unpaired surrogates.

use std::borrow::Cow;
use std::collections::HashMap;
use std::str::FromStr;

use serde::Deserialize;
use serde::de::IgnoredAny;

/// Maximum nesting of arrays and objects, so that hostile input cannot exhaust the stack.
const MAX_DEPTH: usize = 48; // of the 100 levels of Parquet that pyarrow reads, a list takes two
/// Objects up to this size are searched for duplicate keys without a hash table.
const SMALL_OBJECT: usize = 16;

/// A value and the text it was read from.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Json<'l> {
    /// The text in the line, without white space around it.
    pub raw: &'l str,
    pub value: JsonValue<'l>,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) enum JsonValue<'l> {
    Null,
    Bool(bool),
    /// The literal is [`Json::raw`].
    Number,
    String(Cow<'l, str>),
    Array(Vec<Json<'l>>),
    /// Entries in order of first appearance; of equal keys the last value counts.
    Object(Vec<(Cow<'l, str>, Json<'l>)>),
}

impl<'l> Json<'l> {
    /// Parses one line. The error gives the byte (from 1) of the failure.
    pub(super) fn parse(line: &'l [u8]) -> Result<Self, String> {
        let text = std::str::from_utf8(line)
            .map_err(|e| format!("is not UTF-8 at byte {}", e.valid_up_to() + 1))?;
        let mut parser = Parser { text, at: 0 };
        let json = parser.value(0)?;
        if parser.at < text.len() {
            return Err(parser.error("more text after the value"));
        }
        Ok(json)
    }

    /// Returns the value of `key` if this is an object that has it.
    pub(super) fn get(&self, key: &str) -> Option<&Self> {
        let JsonValue::Object(entries) = &self.value else { return None };
        entries.iter().find(|(k, _)| k == key).map(|(_, value)| value)
    }

    /// Returns the keys of an object; none for other values.
    pub(super) fn keys(&self) -> impl Iterator<Item = &str> {
        let entries = if let JsonValue::Object(entries) = &self.value { &entries[..] } else { &[] };
        entries.iter().map(|(key, _)| key.as_ref())
    }

    /// Returns the value of `T`, a type of numbers or `bool`, that this is; `None` for others.
    pub(super) fn parsed<T: FromStr>(&self) -> Option<T> {
        self.raw.parse().ok()
    }

    /// Names the kind of value with its article, for messages.
    pub(super) fn kind(&self) -> &'static str {
        match self.value {
            JsonValue::Null => "null",
            JsonValue::Bool(_) => "a boolean",
            JsonValue::Number => "a number",
            JsonValue::String(_) => "a string",
            JsonValue::Array(_) => "an array",
            JsonValue::Object(_) => "an object",
        }
    }
}

struct Parser<'l> {
    text: &'l str,
    at: usize,
}

impl<'l> Parser<'l> {
    /// Says that `what` is wrong here, or that the line ends early.
    fn error(&self, what: &str) -> String {
        if self.at >= self.text.len() {
            format!("is not JSON: the line ends early, at byte {}", self.text.len())
        } else {
            format!("is not JSON: {what} at byte {}", self.at + 1)
        }
    }

    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    /// Skips `byte` if it is next; returns whether it was.
    fn eat(&mut self, byte: u8) -> bool {
        let found = self.peek() == Some(byte);
        self.at += usize::from(found);
        found
    }

    fn skip_space(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\r' | b'\n')) {
            self.at += 1;
        }
    }

    /// Parses a value and the white space around it.
    fn value(&mut self, depth: usize) -> Result<Json<'l>, String> {
        self.skip_space();
        let start = self.at;
        let value = match self.peek() {
            Some(b'{' | b'[') if depth == MAX_DEPTH => {
                return Err(self.error(&format!("more than {MAX_DEPTH} levels of nesting")));
            }
            Some(b'{') => {
                let entries = self.items(b'}', |parser| parser.entry(depth + 1))?;
                JsonValue::Object(last_of_duplicates(entries))
            }
            Some(b'[') => JsonValue::Array(self.items(b']', |parser| parser.value(depth + 1))?),
            Some(b'"') => JsonValue::String(self.scalar::<Text<'_>>()?.0),
            Some(b't' | b'f') => JsonValue::Bool(self.scalar()?),
            Some(b'n') => self.scalar().map(|()| JsonValue::Null)?,
            _ => self.scalar().map(|IgnoredAny| JsonValue::Number)?,
        };
        let raw = &self.text[start..self.at];
        self.skip_space();
        Ok(Json { raw, value })
    }

    /// Parses an array or an object from its first bracket to `end`; `item` skips space around.
    fn items<T>(
        &mut self,
        end: u8,
        mut item: impl FnMut(&mut Self) -> Result<T, String>,
    ) -> Result<Vec<T>, String> {
        let mut items = Vec::new();
        self.at += 1;
        self.skip_space();
        if self.eat(end) {
            return Ok(items);
        }
        loop {
            items.push(item(self)?);
            if self.eat(end) {
                return Ok(items);
            }
            if !self.eat(b',') {
                return Err(self.error(&format!("no `,` or `{}`", char::from(end))));
            }
        }
    }

    /// Parses a key and its value, with space around both.
    fn entry(&mut self, depth: usize) -> Result<(Cow<'l, str>, Json<'l>), String> {
        self.skip_space();
        if self.peek() != Some(b'"') {
            return Err(self.error("no key in quotes"));
        }
        let key = self.scalar::<Text<'_>>()?.0;
        self.skip_space();
        if !self.eat(b':') {
            return Err(self.error("no `:`"));
        }
        Ok((key, self.value(depth)?))
    }

    /// Parses a value that is neither an object nor an array.
    fn scalar<T: Deserialize<'l>>(&mut self) -> Result<T, String> {
        let rest = &self.text[self.at..];
        let mut values = serde_json::Deserializer::from_str(rest).into_iter::<T>();
        match values.next() {
            Some(Ok(value)) => {
                self.at += values.byte_offset();
                Ok(value)
            }
            Some(Err(error)) if !error.is_eof() => {
                let text = error.to_string();
                let what = text.split(" at line ").next().unwrap_or_default();
                let is_surrogate = what.ends_with("hex escape");
                let what = if is_surrogate { "a surrogate without its pair" } else { what };
                Err(format!("is not JSON: {what} at byte {}", self.at + error.column()))
            }
            Some(Err(_)) | None => {
                self.at = self.text.len();
                Err(self.error(""))
            }
        }
    }
}

#[derive(Deserialize)]
struct Text<'l>(#[serde(borrow)] Cow<'l, str>);

/// Keeps the last value at the place of the first, as Python and most parsers do.
fn last_of_duplicates<'l>(entries: Vec<(Cow<'l, str>, Json<'l>)>) -> Vec<(Cow<'l, str>, Json<'l>)> {
    if entries.len() <= SMALL_OBJECT {
        let repeated =
            (1..entries.len()).any(|i| entries[..i].iter().any(|(key, _)| *key == entries[i].0));
        if !repeated {
            return entries;
        }
    }
    let mut places = HashMap::new();
    let mut unique: Vec<(Cow<'l, str>, Json<'l>)> = Vec::with_capacity(entries.len());
    for (key, value) in entries {
        let place = *places.entry(key.clone()).or_insert(unique.len());
        match unique.get_mut(place) {
            Some(entry) => entry.1 = value,
            None => unique.push((key, value)),
        }
    }
    unique
}

#[cfg(test)]
#[path = "json_tests.rs"]
mod tests;
