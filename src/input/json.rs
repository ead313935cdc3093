//! A strict JSON parser that keeps numbers as they are written.
//!
//! Exists because what is read here is written again: a parser that turns numbers into f64 rounds
//! integers beyond 64 bits, and `serde_json` without extra features also rounds some decimals to
//! a neighbour. Here every value keeps its source, so a column of mixed types can be kept as text
//! to the letter. Accepts what RFC 8259 does, except surrogates without their pair.

use std::borrow::Cow;
use std::collections::HashMap;

/// Deepest nesting of arrays and objects, so that hostile input cannot exhaust the stack.
const MAX_DEPTH: usize = 128;

/// Objects up to this size are searched for duplicate keys without a table.
const SMALL_OBJECT: usize = 16;

/// A value and the text it was read from.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Json<'l> {
    /// As it stands in the line, without white space around it.
    pub raw: &'l str,
    /// What it is.
    pub value: Value<'l>,
}

/// Kinds of JSON values.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Value<'l> {
    Null,
    Bool(bool),
    /// Its literal is [`Json::raw`].
    Number,
    String(Cow<'l, str>),
    Array(Vec<Json<'l>>),
    /// In order of first appearance; of equal keys the last value counts.
    Object(Vec<(Cow<'l, str>, Json<'l>)>),
}

impl<'l> Json<'l> {
    /// Parses one line; the reason of a failure says at which byte (from 1) it is.
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

    /// Value of `key`, when this is an object that has it.
    pub(super) fn get(&self, key: &str) -> Option<&Self> {
        let Value::Object(entries) = &self.value else { return None };
        entries.iter().find(|(k, _)| k == key).map(|(_, value)| value)
    }

    /// Its keys, when this is an object.
    pub(super) fn keys(&self) -> impl Iterator<Item = &str> {
        let entries = if let Value::Object(entries) = &self.value { &entries[..] } else { &[] };
        entries.iter().map(|(key, _)| key.as_ref())
    }

    /// What this is, for messages.
    pub(super) fn kind(&self) -> &'static str {
        match self.value {
            Value::Null => "null",
            Value::Bool(_) => "a boolean",
            Value::Number => "a number",
            Value::String(_) => "a string",
            Value::Array(_) => "an array",
            Value::Object(_) => "an object",
        }
    }
}

struct Parser<'l> {
    text: &'l str,
    at: usize,
}

impl<'l> Parser<'l> {
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

    /// A value with the white space around it.
    fn value(&mut self, depth: usize) -> Result<Json<'l>, String> {
        self.skip_space();
        let start = self.at;
        let value = match self.peek() {
            Some(b'"') => Value::String(self.string()?),
            Some(b'{' | b'[') if depth == MAX_DEPTH => {
                return Err(self.error("more than 128 levels of nesting"));
            }
            Some(b'{') => Value::Object(self.object(depth + 1)?),
            Some(b'[') => Value::Array(self.array(depth + 1)?),
            Some(b'-' | b'0'..=b'9') => self.number()?,
            _ if self.word("null") => Value::Null,
            _ if self.word("true") => Value::Bool(true),
            _ if self.word("false") => Value::Bool(false),
            _ => return Err(self.error("no value")),
        };
        let raw = &self.text[start..self.at];
        self.skip_space();
        Ok(Json { raw, value })
    }

    fn word(&mut self, word: &str) -> bool {
        let found = self.text.as_bytes()[self.at..].starts_with(word.as_bytes());
        self.at += if found { word.len() } else { 0 };
        found
    }

    fn array(&mut self, depth: usize) -> Result<Vec<Json<'l>>, String> {
        let mut items = Vec::new();
        self.at += 1;
        self.skip_space();
        if self.eat(b']') {
            return Ok(items);
        }
        loop {
            items.push(self.value(depth)?);
            if self.eat(b']') {
                return Ok(items);
            }
            if !self.eat(b',') {
                return Err(self.error("no `,` or `]`"));
            }
        }
    }

    fn object(&mut self, depth: usize) -> Result<Vec<(Cow<'l, str>, Json<'l>)>, String> {
        let mut entries = Vec::new();
        self.at += 1;
        self.skip_space();
        if self.eat(b'}') {
            return Ok(entries);
        }
        loop {
            self.skip_space();
            if self.peek() != Some(b'"') {
                return Err(self.error("no key in quotes"));
            }
            let key = self.string()?;
            self.skip_space();
            if !self.eat(b':') {
                return Err(self.error("no `:`"));
            }
            entries.push((key, self.value(depth)?));
            if self.eat(b'}') {
                return Ok(last_of_duplicates(entries));
            }
            if !self.eat(b',') {
                return Err(self.error("no `,` or `}`"));
            }
        }
    }

    fn number(&mut self) -> Result<Value<'l>, String> {
        self.eat(b'-');
        if !self.eat(b'0') {
            self.digits()?;
        }
        if self.eat(b'.') {
            self.digits()?;
        }
        if self.eat(b'e') || self.eat(b'E') {
            let _sign = self.eat(b'+') || self.eat(b'-');
            self.digits()?;
        }
        Ok(Value::Number)
    }

    fn digits(&mut self) -> Result<(), String> {
        let start = self.at;
        while matches!(self.peek(), Some(b'0'..=b'9')) {
            self.at += 1;
        }
        if self.at == start { Err(self.error("no digit")) } else { Ok(()) }
    }

    fn string(&mut self) -> Result<Cow<'l, str>, String> {
        self.at += 1;
        let mut decoded: Option<String> = None;
        loop {
            let start = self.at;
            while self.peek().is_some_and(|b| b != b'"' && b != b'\\' && b >= b' ') {
                self.at += 1;
            }
            let plain = &self.text[start..self.at];
            match self.peek() {
                Some(b'"') => {
                    self.at += 1;
                    return Ok(match decoded {
                        None => Cow::Borrowed(plain),
                        Some(text) => Cow::Owned(text + plain),
                    });
                }
                Some(b'\\') => {
                    let text = decoded.get_or_insert_default();
                    text.push_str(plain);
                    text.push(self.escape()?);
                }
                _ => return Err(self.error("a control character in a string")),
            }
        }
    }

    fn escape(&mut self) -> Result<char, String> {
        let start = self.at;
        self.at += 1;
        let escaped = self.peek();
        self.at += 1;
        let plain = match escaped {
            Some(b'u') => return self.unicode_escape(start),
            Some(b @ (b'"' | b'\\' | b'/')) => char::from(b),
            Some(b'b') => '\u{8}',
            Some(b'f') => '\u{c}',
            Some(b'n') => '\n',
            Some(b'r') => '\r',
            Some(b't') => '\t',
            _ => {
                self.at -= 1;
                return Err(self.error("an unknown escape"));
            }
        };
        Ok(plain)
    }

    /// What follows `\u`, with the second half of a surrogate pair.
    fn unicode_escape(&mut self, start: usize) -> Result<char, String> {
        let first = self.hex()?;
        let code = if (0xD800..0xDC00).contains(&first) && self.word("\\u") {
            let second = self.hex()?;
            if (0xDC00..0xE000).contains(&second) {
                0x10000 + ((first - 0xD800) << 10) + (second - 0xDC00)
            } else {
                first
            }
        } else {
            first
        };
        char::from_u32(code).ok_or_else(|| {
            self.at = start;
            self.error(&format!("a surrogate without its pair (\\u{first:04x})"))
        })
    }

    fn hex(&mut self) -> Result<u32, String> {
        let digits = self.text.as_bytes().get(self.at..self.at + 4).unwrap_or_default();
        if digits.len() < 4 || !digits.iter().all(u8::is_ascii_hexdigit) {
            return Err(self.error("no four hexadecimal digits after \\u"));
        }
        self.at += 4;
        let value = |digit: &u8| char::from(*digit).to_digit(16).unwrap_or(0);
        Ok(digits.iter().fold(0, |code, digit| code * 16 + value(digit)))
    }
}

/// As Python and most parsers do it: the last value, at the place of the first.
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
