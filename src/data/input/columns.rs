//! Columns by name, including nested ones, and batches of their values, for all formats.
//!
//! This module owns the lookup rule: the name itself, else a dotted path into structs, else a field
//! of a struct `metadata` (the layout of datatrove's writer).

use std::path::Path;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, BooleanArray, RecordBatch, StringViewArray};
use arrow_schema::{ArrowError, DataType, Field, FieldRef, Fields};
use arrow_select::nullif::nullif;

use super::values::{bytes, list_depth, lists, strings, vectors};
use polysift_base::error::{Error, Result};

/// How the values of a column are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ColumnKind {
    /// Strings.
    Text,
    /// Strings, or bytes read as UTF-8 with invalid sequences replaced by U+FFFD.
    LossyText,
    /// Strings, or integers as decimal text.
    Id,
    /// Strings, or numbers and booleans as they are written.
    Scalar,
    /// Scalars as for [`ColumnKind::Scalar`], or lists of them as JSON arrays of strings.
    ScalarOrList,
    /// Embeddings.
    Vectors,
}

/// A column to read.
#[derive(Debug, Clone)]
pub struct ColumnRequest {
    /// Name of the column; see [`super::DocumentReader::open`] for how it is found.
    pub name: String,
    /// Kind of values that the column may hold.
    pub kind: ColumnKind,
    /// Whether a file without the column is an error. If not, the column is read as nulls.
    pub required: bool,
}

impl ColumnRequest {
    /// Requests the column `name`.
    pub fn new(name: impl Into<String>, kind: ColumnKind, required: bool) -> Self {
        Self { name: name.into(), kind, required }
    }
}

/// A batch of at most 1024 rows; fewer if they are long.
#[derive(Debug, Clone, PartialEq)]
pub struct RowBatch {
    /// The [`super::DocumentInfo::row`] of each row, ascending; with gaps in JSON lines.
    pub rows: Vec<u64>,
    /// All columns of these rows, or those that are asked for.
    pub batch: RecordBatch,
}

pub(super) struct ColumnBatch {
    /// Row numbers in the file, ascending.
    pub rows: Vec<u64>,
    /// One array per requested column, in the order of the requests, with one value per row: lists
    /// as returned by [`vectors`] for embeddings, else a [`StringViewArray`].
    pub columns: Vec<ArrayRef>,
}

/// The requested columns of one row of a file.
#[derive(Clone, Copy)]
pub struct TableRow<'b> {
    /// Row in the file, counted from 0; in JSON lines the line number less one.
    pub row: u64,
    /// Index of the row in `batch`.
    pub(super) at: usize,
    pub(super) batch: &'b ColumnBatch,
    pub(super) requests: &'b [ColumnRequest],
}

impl TableRow<'_> {
    /// Returns the value of `column`; `None` for null and for a column that was not requested.
    pub fn text(&self, column: &str) -> Option<&str> {
        let place = self.requests.iter().position(|request| request.name == column)?;
        string_at(self.batch.columns[place].as_string_view_opt()?, self.at)
    }

    /// Returns [`Self::text`] of a column without which the row is useless.
    pub fn required_text(&self, column: &str) -> Result<&str, String> {
        self.text(column).ok_or_else(|| format!("`{column}` is null or missing"))
    }
}

/// Reads the rows of a file of any format in batches.
pub(super) trait ColumnReader: Send {
    /// Returns the next rows, from one to `max_rows` of them, or `None` at the end of the file.
    fn next_batch(&mut self, max_rows: usize) -> Result<Option<ColumnBatch>>;

    /// Skips the rows before `row`. An earlier reader set `rejected` of them aside; that number
    /// counts if the rows are not read again. Tables are always read from their first row.
    fn seek(&mut self, _row: u64, _rejected: u64) {}

    fn rejects(&self) -> &Rejects;

    /// Returns the bytes of the file read so far, if it is read from start to end.
    fn bytes_read(&self) -> Option<u64> {
        None
    }
}

/// A row that was set aside.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reject {
    /// Number of the row or line, counted from 0.
    pub row: u64,
    /// Why the row cannot be used.
    pub reason: String,
    /// The undecoded line without its end, or the beginning of one that is too long; else empty.
    pub raw: Vec<u8>,
}

/// Rows of a file that cannot be used. Up to a limit they are set aside, lines with their bytes. If
/// there are more, the file fails with a count over all of it.
pub(super) struct Rejects {
    limit: u64,
    /// Whether users can set the limit.
    is_limit_set: bool,
    pub count: u64,
    pub kept: Vec<Reject>,
}

impl Rejects {
    /// Creates an empty list for a reader that may set aside `limit` rows, as users can set it.
    pub(super) fn new(limit: u64) -> Self {
        Self { limit, is_limit_set: true, count: 0, kept: Vec::new() }
    }

    /// Creates an empty list for rows all of which must be usable.
    pub(super) fn refused() -> Self {
        Self { is_limit_set: false, ..Self::new(0) }
    }

    /// Creates an empty list without a limit, which keeps only the first reject.
    pub(super) fn counted() -> Self {
        Self { limit: u64::MAX, ..Self::refused() }
    }

    /// Counts a bad row. Rows within the limit are kept, and the first in any case for the message.
    pub(super) fn add(&mut self, row: u64, reason: String, raw: &[u8]) {
        self.count += 1;
        let most_kept = if self.is_limit_set { self.limit.max(1) } else { 1 };
        if (self.kept.len() as u64) < most_kept {
            self.kept.push(Reject { row, reason, raw: raw.to_vec() });
        }
    }

    /// Returns true if more rows are bad than allowed, so the file must fail.
    pub(super) fn exceeded(&self) -> bool {
        self.count > self.limit
    }

    /// Returns the error of the file if it must fail, after all of its rows were read.
    pub(super) fn finish(&self, path: &Path) -> Result<()> {
        if self.exceeded() { Err(self.error(path)) } else { Ok(()) }
    }

    /// Returns the error that names the first row and the count.
    pub(super) fn error(&self, path: &Path) -> Error {
        let (row, reason) =
            self.kept.first().map_or((0, ""), |first| (first.row, first.reason.as_str()));
        let count = self.count;
        let reason = if self.is_limit_set {
            format!("{reason}; a run with `--max-rejects {count}` sets such rows aside")
        } else {
            reason.to_owned()
        };
        Error::Row { path: path.to_owned(), row: row + 1, reason, count }
    }
}

impl ColumnKind {
    /// Converts a column that the kind [takes](Self::takes) for [`ColumnBatch::columns`].
    pub(super) fn decode(self, column: &ArrayRef) -> Result<ArrayRef, ArrowError> {
        Ok(match self {
            Self::Vectors => Arc::new(vectors(column)?),
            Self::ScalarOrList if list_item(column.data_type()).is_some() => {
                Arc::new(lists_as_json(column)?)
            }
            Self::LossyText if column.data_type().is_binary() => {
                let texts = bytes(column)?;
                let texts = texts.iter().map(|bytes| bytes.map(String::from_utf8_lossy));
                Arc::new(texts.collect::<StringViewArray>())
            }
            _ => Arc::new(strings(column)?),
        })
    }

    /// Names the values that the kind takes, for messages.
    pub(super) fn expected(self) -> &'static str {
        match self {
            Self::Text => "strings",
            Self::LossyText => "strings or bytes",
            Self::Id => "strings or integers",
            Self::Scalar => "strings, booleans, numbers or times",
            Self::ScalarOrList => "strings, numbers, booleans, times or a list of them",
            Self::Vectors => "lists of numbers, or lists of these",
        }
    }

    /// Returns true if a column of `data_type` may be read as the kind.
    pub(super) fn takes(self, data_type: &DataType) -> bool {
        match (self, data_type) {
            (Self::Vectors, _) => list_depth(data_type).is_some(),
            (
                Self::ScalarOrList,
                DataType::List(item) | DataType::LargeList(item) | DataType::FixedSizeList(item, _),
            ) => Self::Scalar.takes(item.data_type()),
            // A column that has only nulls could be one of strings.
            (_, other) if other.is_string() || other.is_null() => true,
            (Self::LossyText, other) if other.is_binary() => true,
            (Self::Text | Self::LossyText, _) => false,
            (_, other) if other.is_integer() => true,
            (Self::Id, _) => false,
            (_, DataType::Boolean | DataType::Timestamp(..) | DataType::Date32) => true,
            (_, other) => other.is_floating() || other.is_decimal(),
        }
    }
}

/// Name of the struct that is searched for names missing at the top level.
pub(crate) const METADATA: &str = "metadata";
#[derive(Debug, Clone)]
pub(crate) struct InputColumn {
    /// Names from the top level down.
    pub path: Vec<String>,
    /// The column's own field. It is nullable if a struct around it is.
    pub field: Field,
}

/// Returns the ways to split a dotted name in two, the shortest first part first.
pub(super) fn split_at_dots(name: &str) -> impl Iterator<Item = (&str, &str)> {
    name.match_indices('.').map(|(at, _)| (&name[..at], &name[at + 1..]))
}

impl InputColumn {
    /// Finds the column `name`, else the value at the dotted path `name`, else the field `name` of
    /// the struct `metadata`.
    pub(crate) fn find(fields: &Fields, name: &str) -> Option<Self> {
        let nested = || {
            let (_, outer) = fields.find(METADATA).filter(|_| !name.contains('.'))?;
            Some(vec![outer, struct_fields(outer)?.find(name)?.1])
        };
        let path = find_path(fields, name).or_else(nested)?;
        Some(Self {
            path: path.iter().map(|field| field.name().clone()).collect(),
            field: (path.last()?.as_ref().clone())
                .with_nullable(path.iter().any(|field| field.is_nullable())),
        })
    }

    /// Finds a requested column of the file `path`: `None` if it is missing and not required, else
    /// [`Error::Schema`] if it is missing or of a type that the request does not take.
    pub(super) fn requested(
        path: &Path,
        fields: &Fields,
        request: &ColumnRequest,
    ) -> Result<Option<Self>> {
        let ColumnRequest { name, kind, required } = request;
        // A request without a name is read as nulls, even if there is a column without a name.
        let Some(column) = Self::find(fields, name).filter(|_| !name.is_empty()) else {
            if !required {
                return Ok(None);
            }
            let reason = format!("is not in the file, which has: {}", names(fields, "").join(", "));
            return Err(Error::schema(path, name, reason));
        };
        let found = column.field.data_type();
        if kind.takes(found) {
            return Ok(Some(column));
        }
        let hint = match found {
            _ if found.is_binary() => {
                "; convert it to strings first, bytes are not taken for UTF-8"
            }
            _ if *kind != ColumnKind::Vectors && list_item(found).is_some() => {
                "; a row has one value of it, not a list of them: join the list, or make a row of \
                 each item, before"
            }
            _ => "",
        };
        let (expected, all) = (kind.expected(), names(fields, "").join(", "));
        let reason = format!("is {found}, not {expected}{hint}; the file has: {all}");
        Err(Error::schema(path, name, reason))
    }
}

/// Returns the column at `path` of `batch`. A value is null if a struct around it is null.
pub(crate) fn column_at(batch: &RecordBatch, path: &[String]) -> Result<ArrayRef, ArrowError> {
    let missing = || ArrowError::SchemaError(format!("no column {}", path.join(".")));
    let (first, rest) = path.split_first().ok_or_else(missing)?;
    let mut array = batch.column_by_name(first).ok_or_else(missing)?.clone();
    for name in rest {
        let outer = array.as_struct_opt().ok_or_else(missing)?;
        let inner = outer.column_by_name(name).ok_or_else(missing)?;
        array = match outer.nulls().filter(|nulls| nulls.null_count() > 0) {
            Some(nulls) => nullif(inner, &BooleanArray::new(!nulls.inner(), None))?,
            None => inner.clone(),
        };
    }
    Ok(array)
}

fn struct_fields(field: &FieldRef) -> Option<&Fields> {
    match field.data_type() {
        DataType::Struct(fields) => Some(fields),
        _ => None,
    }
}

/// Returns the path that the dotted `name` means.
fn find_path<'f>(fields: &'f Fields, name: &str) -> Option<Vec<&'f FieldRef>> {
    let inside = |(outer, inner): (&str, &str)| {
        let (_, outer) = fields.find(outer)?;
        Some([vec![outer], find_path(struct_fields(outer)?, inner)?].concat())
    };
    let whole = fields.find(name).map(|(_, field)| vec![field]);
    whole.or_else(|| split_at_dots(name).find_map(inside))
}

/// Returns the item of a list of any kind; `None` for other types.
fn list_item(data_type: &DataType) -> Option<&FieldRef> {
    match data_type {
        DataType::List(item)
        | DataType::LargeList(item)
        | DataType::ListView(item)
        | DataType::LargeListView(item)
        | DataType::FixedSizeList(item, _) => Some(item),
        _ => None,
    }
}

/// Lists all columns, with dots for structs and `[]` behind lists.
fn names(fields: &Fields, prefix: &str) -> Vec<String> {
    let of_field = |field: &FieldRef| {
        let name = format!("{prefix}{}", field.name());
        match (struct_fields(field), list_item(field.data_type()).and_then(struct_fields)) {
            (Some(inner), _) => names(inner, &format!("{name}.")),
            (None, Some(inner)) => names(inner, &format!("{name}[].")),
            (None, None) => vec![name],
        }
    };
    fields.iter().flat_map(of_field).collect()
}

/// Converts lists of scalars to JSON arrays of strings; a null list stays null.
fn lists_as_json(column: &ArrayRef) -> Result<StringViewArray, ArrowError> {
    let lists = lists(column)?;
    let items = strings(lists.values())?;
    let json = |row: usize| {
        let [start, end] = [row, row + 1].map(|at| lists.value_offsets()[at] as usize);
        join_as_json((start..end).map(|item| string_at(&items, item)))
    };
    Ok((0..lists.len()).map(|row| lists.is_valid(row).then(|| json(row))).collect())
}

/// Writes `items` as a JSON array of strings and nulls.
pub(super) fn join_as_json<'s>(items: impl Iterator<Item = Option<&'s str>>) -> String {
    items.collect::<serde_json::Value>().to_string()
}

/// Returns the string in `row`; `None` for null.
pub(super) fn string_at(strings: &StringViewArray, row: usize) -> Option<&str> {
    strings.is_valid(row).then(|| strings.value(row))
}

#[cfg(test)]
mod tests {
    use arrow_array::{Int64Array, StructArray};
    use arrow_buffer::NullBuffer;
    use arrow_schema::Schema;

    use super::*;

    fn fields() -> Fields {
        let inner = Fields::from(vec![
            Field::new("url", DataType::Utf8, true),
            Field::new("text", DataType::Int64, true),
        ]);
        Fields::from(vec![
            Field::new("text", DataType::Utf8, true),
            Field::new("metadata", DataType::Struct(inner.clone()), true),
            Field::new("other", DataType::Struct(inner), true),
            Field::new("other.url", DataType::Binary, true),
        ])
    }

    fn path(name: &str) -> Option<String> {
        InputColumn::find(&fields(), name).map(|column| column.path.join("/"))
    }

    fn requested(name: &str) -> Result<Option<InputColumn>> {
        let request =
            ColumnRequest { name: name.to_owned(), kind: ColumnKind::Text, required: true };
        InputColumn::requested(Path::new("f"), &fields(), &request)
    }

    #[test]
    fn names_are_looked_up_from_the_top_down() {
        assert_eq!(path("text").as_deref(), Some("text"));
        assert_eq!(path("url").as_deref(), Some("metadata/url"));
        assert_eq!(path("metadata.text").as_deref(), Some("metadata/text"));
        assert_eq!(path("other.url").as_deref(), Some("other.url"));
        assert_eq!(path("other.text").as_deref(), Some("other/text"));
        assert_eq!(path("other.none"), None);
    }

    #[test]
    fn a_missing_column_lists_those_there_are() {
        let error = requested("txt");
        let message = error.err().map(|e| e.to_string()).unwrap_or_default();
        assert!(message.contains("`txt`"), "{message}");
        assert!(message.contains("text, metadata.url, metadata.text, other.url"), "{message}");
    }

    #[test]
    fn a_column_of_bytes_is_refused_with_a_hint() {
        let error = requested("other.url");
        let message = error.err().map(|e| e.to_string()).unwrap_or_default();
        assert!(message.contains("Binary") && message.contains("UTF-8"), "{message}");
    }

    #[test]
    fn in_a_null_struct_the_value_is_null() -> Result<(), Box<dyn std::error::Error>> {
        let inner = Fields::from(vec![Field::new("n", DataType::Int64, true)]);
        let values: ArrayRef = Arc::new(Int64Array::from(vec![1, 2, 3]));
        let nulls = NullBuffer::from(vec![true, false, true]);
        let outer = StructArray::try_new(inner.clone(), vec![values], Some(nulls))?;
        let schema = Schema::new(vec![Field::new("s", DataType::Struct(inner), true)]);
        let batch = RecordBatch::try_new(Arc::new(schema), vec![Arc::new(outer)])?;
        let column = InputColumn::find(batch.schema().fields(), "s.n").ok_or("not found")?;
        let strings = strings(&column_at(&batch, &column.path)?)?;
        let found: Vec<_> = (0..3).map(|row| string_at(&strings, row)).collect();
        assert_eq!(found, [Some("1"), None, Some("3")]);
        Ok(())
    }
}
