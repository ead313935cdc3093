//! Lines of JSON as rows: checks which lines are usable, and reads their values. The readers of
//! some and of all columns share the check, so they agree on every row.

use std::borrow::Cow;
use std::sync::Arc;

use arrow_array::ArrayRef;
use arrow_array::builder::{Float32Builder, LargeListBuilder, StringViewBuilder};

use super::columns::{
    self, ColumnBatch, ColumnKind, ColumnReader, ColumnRequest, METADATA, Rejects, join_as_json,
};
use super::json::{Json, JsonValue};
use super::lines::{LineReader, TextLine};
use super::values::Width;
use super::{BATCH_BYTES, InputFile};
use polysift_base::error::{Error, Result};
use polysift_base::progress::Stop;

/// A required column is reported as missing if none of this many first objects has it.
const OBJECTS_BEFORE_COLUMNS_ARE_MISSED: u64 = 1000;

/// Checks line by line from the start of a file.
pub(super) struct LineChecker {
    columns: Vec<ColumnRequest>,
    width: Width,
    objects: u64,
    /// Required columns that no object has had so far.
    unseen: Vec<String>,
    /// Keys of the first object, for the message about missing columns.
    first_keys: String,
}

pub(super) enum JsonField<'j> {
    Null,
    Text(Cow<'j, str>),
    Vectors(Vec<Vec<f32>>),
}

impl LineChecker {
    pub(super) fn new(columns: Vec<ColumnRequest>) -> Self {
        let unseen = columns.iter().filter(|column| column.required);
        let unseen = unseen.map(|column| column.name.clone()).collect();
        Self { columns, width: Width::default(), objects: 0, unseen, first_keys: String::new() }
    }

    /// Returns one value per column of the object on the next line, or why it cannot be used.
    pub(super) fn fields<'j>(&mut self, json: &'j Json<'_>) -> Result<Vec<JsonField<'j>>, String> {
        if self.objects == 0 {
            self.first_keys = json.keys().collect::<Vec<_>>().join(", ");
        }
        self.unseen.retain(|name| find(json, name).is_none());
        let width = &mut self.width;
        let fields = self.columns.iter().map(|column| read_field(json, column, width));
        let fields = fields.collect::<Result<_, _>>()?;
        self.objects += 1;
        Ok(fields)
    }
}

pub(super) struct JsonReader {
    lines: LineReader,
    line: TextLine,
    checker: LineChecker,
    rejects: Rejects,
    /// Earlier rows are only checked.
    first_row: u64,
}

impl JsonReader {
    pub(super) fn open(
        file: &InputFile,
        columns: Vec<ColumnRequest>,
        max_bytes: u64,
        rejects: Rejects,
    ) -> Result<Self> {
        let (lines, line) = (LineReader::open(file, max_bytes)?, TextLine::default());
        Ok(Self { lines, line, checker: LineChecker::new(columns), rejects, first_row: 0 })
    }

    /// Reads one line. If it is usable, passes its row, values and object to `each`. Returns false
    /// at the end of the file. A file that has failed is read to its end for the count.
    pub(super) fn visit_line(
        &mut self,
        each: impl FnOnce(u64, Vec<JsonField<'_>>, &Json<'_>) -> Result<()>,
    ) -> Result<bool> {
        Stop::of_process().check()?;
        let read = self.lines.read(&mut self.line)?;
        let (row, has_failed) = (self.line.row, self.rejects.exceeded());
        if read {
            let visited = parse_object(&self.line).and_then(|json| {
                let fields = self.checker.fields(&json)?;
                Ok(if has_failed { Ok(()) } else { each(row, fields, &json) })
            });
            match visited {
                Ok(result) => result?,
                Err(reason) => self.rejects.add(row, reason, &self.line.bytes),
            }
        } else {
            self.rejects.finish(&self.lines.path)?;
        }
        let LineChecker { objects, unseen, first_keys, .. } = &self.checker;
        let is_enough = *objects == OBJECTS_BEFORE_COLUMNS_ARE_MISSED || !read && *objects > 0;
        match unseen.first() {
            Some(name) if is_enough && !self.rejects.exceeded() => {
                let reason = format!("is in no line; the first has: {first_keys}");
                Err(Error::schema(&self.lines.path, name, reason))
            }
            _ => Ok(read),
        }
    }
}

impl ColumnReader for JsonReader {
    fn next_batch(&mut self, max_rows: usize) -> Result<Option<ColumnBatch>> {
        let builder = |column: &ColumnRequest| match column.kind {
            ColumnKind::Vectors => ColumnBuilder::Vectors(LargeListBuilder::default()),
            _ => ColumnBuilder::Strings(StringViewBuilder::default()),
        };
        let mut columns: Vec<_> = self.checker.columns.iter().map(builder).collect();
        let (mut rows, mut bytes, first_row) = (Vec::new(), 0, self.first_row);
        while rows.len() < max_rows && bytes < BATCH_BYTES {
            let num_rows = rows.len();
            let push = |row: u64, fields: Vec<JsonField<'_>>, _: &Json<'_>| {
                if row >= first_row {
                    rows.push(row);
                    columns.iter_mut().zip(fields).for_each(|(column, field)| column.push(field));
                }
                Ok(())
            };
            if !self.visit_line(push)? {
                break;
            }
            bytes += if rows.len() > num_rows { self.line.bytes.len() } else { 0 };
        }
        let columns = columns.into_iter().map(ColumnBuilder::finish).collect();
        Ok((!rows.is_empty()).then_some(ColumnBatch { rows, columns }))
    }

    /// Sets the first row. Earlier lines are still read and checked.
    fn seek(&mut self, row: u64, _rejected: u64) {
        self.first_row = row;
    }

    fn rejects(&self) -> &Rejects {
        &self.rejects
    }

    fn bytes_read(&self) -> Option<u64> {
        Some(self.lines.bytes_read())
    }
}

enum ColumnBuilder {
    Strings(StringViewBuilder),
    Vectors(LargeListBuilder<LargeListBuilder<Float32Builder>>),
}

impl ColumnBuilder {
    fn push(&mut self, field: JsonField<'_>) {
        match (self, field) {
            (Self::Strings(texts), JsonField::Text(text)) => texts.append_value(text),
            (Self::Strings(texts), _) => texts.append_null(),
            (Self::Vectors(rows), JsonField::Vectors(vectors)) => {
                for vector in vectors {
                    rows.values().values().append_slice(&vector);
                    rows.values().append(true);
                }
                rows.append(true);
            }
            (Self::Vectors(rows), _) => rows.append(false),
        }
    }

    fn finish(self) -> ArrayRef {
        match self {
            Self::Strings(mut texts) => Arc::new(texts.finish()),
            Self::Vectors(mut rows) => Arc::new(rows.finish()),
        }
    }
}

/// Returns the keys of the first object of `file`, or none if it has no lines.
pub(super) fn first_keys(file: &InputFile, max_bytes: u64) -> Result<Vec<String>> {
    let (mut lines, mut line) = (LineReader::open(file, max_bytes)?, TextLine::default());
    if !lines.read(&mut line)? {
        return Ok(Vec::new());
    }
    let (path, row) = (file.path.clone(), line.row + 1);
    let json = parse_object(&line).map_err(|reason| Error::Row { path, row, reason, count: 1 })?;
    Ok(json.keys().map(ToOwned::to_owned).collect())
}

/// Returns the object on the line, or why there is none.
pub(super) fn parse_object(line: &TextLine) -> Result<Json<'_>, String> {
    let parsed = line.whole_line().and_then(Json::parse).and_then(|json| match json.value {
        JsonValue::Object(_) => Ok(json),
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

/// Returns the value of the column `name`: a key, a dotted path, or a key of `metadata`.
pub(super) fn find<'j, 'l>(json: &'j Json<'l>, name: &str) -> Option<&'j Json<'l>> {
    let nested = || json.get(METADATA).filter(|_| !name.contains('.'))?.get(name);
    find_path(json, name).or_else(nested)
}

/// Returns the value at the dotted path `name`.
fn find_path<'j, 'l>(json: &'j Json<'l>, name: &str) -> Option<&'j Json<'l>> {
    let inside = |(outer, inner)| find_path(json.get(outer)?, inner);
    json.get(name).or_else(|| columns::split_at_dots(name).find_map(inside))
}

/// Reads the value of `column` as its kind. Embeddings must have the `width` of earlier ones.
fn read_field<'j>(
    json: &'j Json<'_>,
    column: &ColumnRequest,
    width: &mut Width,
) -> Result<JsonField<'j>, String> {
    let name = &column.name;
    let found = if name.is_empty() { None } else { find(json, name) };
    let found = found.filter(|found| found.value != JsonValue::Null);
    let Some(value) = found else { return Ok(JsonField::Null) };
    let wrong = |expected| Err(format!("`{name}` is {}, not {expected}", value.kind()));
    match (column.kind, &value.value) {
        (ColumnKind::Vectors, _) => {
            let vectors =
                parse_vectors(value).ok_or("the embeddings are not a list of lists of numbers")?;
            width.check(vectors.iter().map(Vec::len))?;
            Ok(JsonField::Vectors(vectors))
        }
        (_, JsonValue::String(text)) => Ok(JsonField::Text(Cow::Borrowed(text))),
        (ColumnKind::Text | ColumnKind::LossyText, _) => wrong("a string"),
        (ColumnKind::Id, _) if !is_integer(value) => wrong("a string or an integer"),
        (ColumnKind::ScalarOrList, JsonValue::Array(items)) => {
            let items = items.iter().map(|item| match &item.value {
                JsonValue::Null => Ok(None),
                _ => {
                    scalar(item).ok_or_else(|| format!("`{name}` holds {}", item.kind())).map(Some)
                }
            });
            let items = items.collect::<Result<Vec<_>, _>>()?;
            Ok(JsonField::Text(Cow::Owned(join_as_json(items.into_iter()))))
        }
        _ => match scalar(value) {
            Some(text) => Ok(JsonField::Text(Cow::Borrowed(text))),
            None => wrong("a string, a boolean or a number"),
        },
    }
}

/// Returns a string's content, or a number or boolean as it is written; `None` for others.
fn scalar<'j>(value: &'j Json<'_>) -> Option<&'j str> {
    match &value.value {
        JsonValue::String(text) => Some(text),
        JsonValue::Number | JsonValue::Bool(_) => Some(value.raw),
        JsonValue::Null | JsonValue::Array(_) | JsonValue::Object(_) => None,
    }
}

fn is_integer(value: &Json<'_>) -> bool {
    value.value == JsonValue::Number && !value.raw.contains(['.', 'e', 'E'])
}

/// Parses embeddings: a list of lists of numbers, or one list of numbers; `None` for others.
fn parse_vectors(value: &Json<'_>) -> Option<Vec<Vec<f32>>> {
    let JsonValue::Array(items) = &value.value else { return None };
    if items.first().is_some_and(|item| item.value == JsonValue::Number) {
        return Some(vec![parse_vector(value)?]);
    }
    items.iter().map(parse_vector).collect()
}

/// Parses a list of numbers, as f64 first, as in Python; `None` for anything else.
fn parse_vector(value: &Json<'_>) -> Option<Vec<f32>> {
    let JsonValue::Array(items) = &value.value else { return None };
    items.iter().map(|item| item.parsed().map(|number: f64| number as f32)).collect()
}
