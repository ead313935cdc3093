//! Lines of JSON as records: which lines are usable, and what they hold.
//!
//! Owns the check of a line, which both readers apply so that they agree on every row. Lines
//! that fail it are counted and set aside (`rejects`).

use super::json::{Json, Value};
use super::lines::{Line, Lines};
use super::record::{Fields, Record, Wanted};
use super::rejects::{Reject, Rejects};
use super::vectors::Width;
use super::{InputFile, column};
use crate::config::InputConfig;
use crate::error::{Error, Result};

/// A column that none of the first objects has is taken to be misspelt.
const OBJECTS_BEFORE_COLUMNS_ARE_MISSED: u64 = 1000;

/// Decides, line by line from the start of a file, what is usable.
pub(super) struct Checker {
    wanted: Wanted,
    width: Width,
    objects: u64,
    /// Required columns that no object had so far.
    unseen: Vec<String>,
    /// Keys of the first object, for the message about missing columns.
    first_keys: String,
}

impl Checker {
    pub(super) fn new(wanted: Wanted) -> Self {
        let unseen = wanted.required().map(ToOwned::to_owned).collect();
        Self { wanted, width: Width::default(), objects: 0, unseen, first_keys: String::new() }
    }

    /// The object on the line and the wanted values in it, or why the line cannot be used.
    pub(super) fn check<'l>(&mut self, line: &'l Line) -> Result<(Json<'l>, Fields), String> {
        let json = object(line)?;
        if self.objects == 0 {
            self.first_keys = json.keys().collect::<Vec<_>>().join(", ");
        }
        self.unseen.retain(|name| find(&json, name).is_none());
        let fields = self.fields(&json)?;
        self.objects += 1;
        Ok((json, fields))
    }

    fn fields(&mut self, json: &Json<'_>) -> Result<Fields, String> {
        let wanted = &self.wanted;
        let embeddings = match wanted.embeddings.as_deref().and_then(|name| present(json, name)) {
            None => None,
            Some(value) => {
                let vectors = vectors(value)?;
                self.width.check(&vectors)?;
                Some(vectors)
            }
        };
        let (language, script) = wanted
            .language
            .as_ref()
            .map_or((None, None), |(code, script)| (Some(code.as_str()), script.as_deref()));
        Ok(Fields {
            text: string(json, Some(&wanted.text))?,
            id: id(json, &wanted.id)?,
            language: string(json, language)?,
            script: string(json, script)?,
            split: string(json, wanted.split.as_deref())?,
            embeddings,
            label: wanted.label.as_deref().and_then(|name| as_written(json, name)),
            source: wanted.source.as_deref().and_then(|name| as_written(json, name)),
        })
    }

    /// Whether a required column is missing, as far as the lines up to here tell.
    fn missed(&self, at_end: bool) -> Option<&str> {
        let enough = self.objects == OBJECTS_BEFORE_COLUMNS_ARE_MISSED || at_end;
        (enough && self.objects > 0).then(|| self.unseen.first())?.map(String::as_str)
    }
}

/// The records of a file.
pub(super) struct JsonRecords {
    lines: Lines,
    line: Line,
    checker: Checker,
    rejects: Rejects,
}

impl JsonRecords {
    pub(super) fn open(file: &InputFile, config: &InputConfig, wanted: Wanted) -> Result<Self> {
        Ok(Self {
            lines: Lines::open(file, config.max_document_bytes)?,
            line: Line::default(),
            checker: Checker::new(wanted),
            rejects: Rejects::new(config.max_rejects),
        })
    }

    pub(super) fn rejects(&self) -> &[Reject] {
        self.rejects.kept()
    }

    /// See [`Lines::bytes_read`].
    pub(super) fn bytes_read(&self) -> u64 {
        self.lines.bytes_read()
    }

    /// The next usable line as a record.
    pub(super) fn next_record(&mut self) -> Result<Option<Record>> {
        let mut record = None;
        while record.is_none() {
            let read = self.visit(|checker, row, _, fields| {
                record = Some(checker.wanted.record(row, fields));
                Ok(())
            })?;
            if !read {
                break;
            }
        }
        Ok(record)
    }

    /// Hands every usable line to `each`.
    pub(super) fn for_each(&mut self, mut each: impl FnMut(&Json<'_>) -> Result<()>) -> Result<()> {
        while self.visit(|_, _, json, _| each(json))? {}
        Ok(())
    }

    /// Reads one line and hands it to `each` if it is usable; false at the end of the file.
    fn visit(
        &mut self,
        each: impl FnOnce(&Checker, u64, &Json<'_>, Fields) -> Result<()>,
    ) -> Result<bool> {
        let read = self.lines.read(&mut self.line)?;
        if read {
            match self.checker.check(&self.line) {
                Ok((json, fields)) => each(&self.checker, self.line.row, &json, fields)?,
                Err(reason) => {
                    self.rejects.add(self.line.row, reason, &self.line.bytes);
                    if self.rejects.exceeded() {
                        return Err(self.count_the_rest());
                    }
                }
            }
        }
        if let Some(name) = self.checker.missed(!read) {
            let reason = format!("is in no line; the first has: {}", self.checker.first_keys);
            return Err(Error::schema(self.lines.path(), name, reason));
        }
        Ok(read)
    }

    /// Counts the bad lines to the end of a file that has failed.
    fn count_the_rest(&mut self) -> Error {
        loop {
            match self.lines.read(&mut self.line) {
                Err(error) => return error,
                Ok(false) => return self.rejects.error(self.lines.path()),
                Ok(true) => {
                    if let Err(reason) = self.checker.check(&self.line) {
                        self.rejects.add(self.line.row, reason, &self.line.bytes);
                    }
                }
            }
        }
    }
}

/// The object on a line, or why there is none.
pub(super) fn object(line: &Line) -> Result<Json<'_>, String> {
    let parsed = line.whole().and_then(Json::parse).and_then(|json| match json.value {
        Value::Object(_) => Ok(json),
        _ => Err(format!("is {}, not a JSON object", json.kind())),
    });
    parsed.map_err(|reason| match line.bytes.trim_ascii_start() {
        [b'[', ..] if line.row == 0 => {
            format!("{reason}; if the file is one JSON array, `jq -c '.[]'` makes lines of it")
        }
        b"{" if line.row == 0 => {
            format!("{reason}; if objects go over several lines, `jq -c .` makes a line of each")
        }
        _ => reason,
    })
}

/// Value of the column `name`: a key, a dotted path, or a key of `metadata`.
fn find<'j, 'l>(json: &'j Json<'l>, name: &str) -> Option<&'j Json<'l>> {
    let reach = |json: &'j Json<'l>| -> Option<&'j Json<'l>> {
        column::splits(name).find_map(|(outer, inner)| find(json.get(outer)?, inner))
    };
    let nested = || json.get(column::METADATA).filter(|_| !name.contains('.'))?.get(name);
    json.get(name).or_else(|| reach(json)).or_else(nested)
}

/// [`find`] without null.
fn present<'j, 'l>(json: &'j Json<'l>, name: &str) -> Option<&'j Json<'l>> {
    find(json, name).filter(|value| value.value != Value::Null)
}

fn wrong(name: &str, value: &Json<'_>, expected: &str) -> String {
    format!("`{name}` is {}, not {expected}", value.kind())
}

fn string(json: &Json<'_>, name: Option<&str>) -> Result<Option<String>, String> {
    let Some((name, value)) = name.and_then(|name| Some((name, present(json, name)?))) else {
        return Ok(None);
    };
    match &value.value {
        Value::String(text) => Ok(Some(text.as_ref().to_owned())),
        _ => Err(wrong(name, value, "a string")),
    }
}

/// Strings as they are, anything else as it is written.
fn as_written(json: &Json<'_>, name: &str) -> Option<String> {
    present(json, name).map(|value| match &value.value {
        Value::String(text) => text.to_string(),
        _ => value.raw.to_owned(),
    })
}

/// Strings as they are, integers as they are written.
fn id(json: &Json<'_>, name: &str) -> Result<Option<String>, String> {
    match present(json, name) {
        Some(value) if is_integer(value) => Ok(Some(value.raw.to_owned())),
        Some(value) if !matches!(value.value, Value::String(_)) => {
            Err(wrong(name, value, "a string or an integer"))
        }
        _ => string(json, Some(name)),
    }
}

fn is_integer(value: &Json<'_>) -> bool {
    value.value == Value::Number && !value.raw.contains(['.', 'e', 'E'])
}

/// A list of vectors, or one vector.
fn vectors(value: &Json<'_>) -> Result<Vec<Vec<f32>>, String> {
    let wrong = || "the embeddings are not a list of lists of numbers".to_owned();
    let Value::Array(items) = &value.value else { return Err(wrong()) };
    let number = |item: &Json<'_>| match item.value {
        // By way of f64, as Python reads it.
        Value::Number => item.raw.parse::<f64>().map(|number| number as f32).map_err(|_| wrong()),
        _ => Err(wrong()),
    };
    let vector = |items: &[Json<'_>]| items.iter().map(number).collect::<Result<Vec<f32>, _>>();
    if items.first().is_some_and(|item| item.value == Value::Number) {
        return Ok(vec![vector(items)?]);
    }
    let list = |item: &Json<'_>| match &item.value {
        Value::Array(items) => vector(items),
        _ => Err(wrong()),
    };
    items.iter().map(list).collect()
}
