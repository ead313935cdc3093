//! Columns by name in Arrow schemas, nested ones included, and their values as strings.
//!
//! Owns the lookup rule: the name itself, else a dotted path into structs, else a field of a
//! struct `metadata` (the layout of datatrove's writer).

use std::path::Path;

use arrow::array::{
    Array, ArrayRef, AsArray, LargeStringArray, RecordBatch, StringArray, StringViewArray,
};
use arrow::compute::{cast, is_null, nullif};
use arrow::datatypes::{DataType, FieldRef, Fields};
use arrow::error::ArrowError;

use crate::error::{Error, Result};

/// Struct in which names are looked up that are not at the top level.
pub(super) const METADATA: &str = "metadata";

/// What to do where a column is in a list.
const IN_LIST: &str = "; a row has one value of it, not a list of them: join the list, or make a row of \
                       each item, before";

/// A column that was found.
#[derive(Debug, Clone)]
pub(super) struct Column {
    /// Names from the top level down.
    pub path: Vec<String>,
    pub data_type: DataType,
}

/// Ways to cut a dotted name in two.
pub(super) fn splits(name: &str) -> impl Iterator<Item = (&str, &str)> {
    name.match_indices('.').map(|(at, _)| (&name[..at], &name[at + 1..]))
}

impl Column {
    /// Looks `name` up.
    pub(super) fn find(fields: &Fields, name: &str) -> Option<Self> {
        let nested = || {
            let inner = children(field(fields, METADATA).filter(|_| !name.contains('.'))?)?;
            Some(vec![field(fields, METADATA)?, field(inner, name)?])
        };
        let path = reach(fields, name).or_else(nested)?;
        Some(Self {
            path: path.iter().map(|field| field.name().clone()).collect(),
            data_type: path.last()?.data_type().clone(),
        })
    }

    /// Looks `name` up; where it is missing or not of a type that `serves`, the error says what
    /// was `expected`.
    pub(super) fn require(
        path: &Path,
        fields: &Fields,
        name: &str,
        expected: &str,
        serves: fn(&DataType) -> bool,
    ) -> Result<Self> {
        let column = Self::find(fields, name).ok_or_else(|| {
            let inside = if is_in_list(fields, name) { IN_LIST } else { "" };
            let reason = format!("is not in the file, which has: {}{inside}", describe(fields));
            Error::schema(path, name, reason)
        })?;
        if serves(&column.data_type) {
            return Ok(column);
        }
        let found = &column.data_type;
        let hint = match found {
            _ if found.is_binary() => {
                "; convert it to strings first, bytes are not taken for UTF-8"
            }
            _ if item(found).is_some() => IN_LIST,
            _ => "",
        };
        let reason =
            format!("is {found}, not {expected}{hint}; the file has: {}", describe(fields));
        Err(Error::schema(path, name, reason))
    }

    /// Its values in `batch`; where a struct around it is null, so is the value.
    pub(super) fn of(&self, batch: &RecordBatch) -> Result<ArrayRef, ArrowError> {
        let missing = || ArrowError::SchemaError(format!("no column {}", self.path.join(".")));
        let (first, rest) = self.path.split_first().ok_or_else(missing)?;
        let mut array = batch.column_by_name(first).ok_or_else(missing)?.clone();
        for name in rest {
            let outer = array.as_struct_opt().ok_or_else(missing)?;
            let inner = outer.column_by_name(name).ok_or_else(missing)?;
            array = nullif(inner, &is_null(outer)?)?;
        }
        Ok(array)
    }
}

fn field<'f>(fields: &'f Fields, name: &str) -> Option<&'f FieldRef> {
    fields.iter().find(|field| field.name() == name)
}

fn children(field: &FieldRef) -> Option<&Fields> {
    match field.data_type() {
        DataType::Struct(fields) => Some(fields),
        _ => None,
    }
}

fn reach<'f>(fields: &'f Fields, name: &str) -> Option<Vec<&'f FieldRef>> {
    let inside = |(outer, inner)| {
        let outer = field(fields, outer)?;
        let mut path = vec![outer];
        path.extend(reach(children(outer)?, inner)?);
        Some(path)
    };
    field(fields, name).map(|field| vec![field]).or_else(|| splits(name).find_map(inside))
}

/// The items of a list.
fn item(data_type: &DataType) -> Option<&FieldRef> {
    match data_type {
        DataType::List(item)
        | DataType::LargeList(item)
        | DataType::ListView(item)
        | DataType::LargeListView(item)
        | DataType::FixedSizeList(item, _) => Some(item),
        _ => None,
    }
}

/// Whether `name` reaches into the structs of a list, or is a field of them.
fn is_in_list(fields: &Fields, name: &str) -> bool {
    fields.iter().any(|field| {
        let rest = name.strip_prefix(field.name().as_str()).and_then(|rest| rest.strip_prefix('.'));
        let name = rest.unwrap_or(name);
        match item(field.data_type()).and_then(children) {
            Some(inner) => reach(inner, name).is_some() || is_in_list(inner, name),
            None => children(field).is_some_and(|inner| is_in_list(inner, name)),
        }
    })
}

/// Names of all columns, those of structs with dots, in lists behind `[]`.
fn describe(fields: &Fields) -> String {
    fn collect(fields: &Fields, prefix: &str, names: &mut Vec<String>) {
        for field in fields {
            let name = format!("{prefix}{}", field.name());
            match (children(field), item(field.data_type()).and_then(children)) {
                (Some(inner), _) => collect(inner, &format!("{name}."), names),
                (None, Some(inner)) => collect(inner, &format!("{name}[]."), names),
                (None, None) => names.push(name),
            }
        }
    }
    let mut names = Vec::new();
    collect(fields, "", &mut names);
    names.join(", ")
}

/// Whether values of that type are strings; those of a column without any value could be.
pub(super) fn is_string(data_type: &DataType) -> bool {
    match data_type {
        DataType::Dictionary(_, value) => is_string(value),
        other => other.is_string() || other.is_null(),
    }
}

/// Strings, or integers, which are taken as decimal text.
pub(super) fn is_id(data_type: &DataType) -> bool {
    match data_type {
        DataType::Dictionary(_, value) => is_id(value),
        other => is_string(other) || other.is_integer(),
    }
}

/// Strings, booleans and numbers.
pub(super) fn is_label(data_type: &DataType) -> bool {
    match data_type {
        DataType::Dictionary(_, value) => is_label(value),
        other => is_id(other) || other.is_floating() || *other == DataType::Boolean,
    }
}

/// Values of a column as strings.
#[derive(Debug, Clone)]
pub(super) enum Strings {
    Small(StringArray),
    Large(LargeStringArray),
    View(StringViewArray),
}

impl Strings {
    /// Of a column of strings, or of scalars, which are rendered.
    pub(super) fn new(column: &ArrayRef) -> Result<Self, ArrowError> {
        Ok(match column.data_type() {
            DataType::Utf8 => Self::Small(column.as_string::<i32>().clone()),
            DataType::LargeUtf8 => Self::Large(column.as_string::<i64>().clone()),
            DataType::Utf8View => Self::View(column.as_string_view().clone()),
            DataType::Dictionary(_, value) => Self::new(&cast(column, value)?)?,
            _ => Self::Large(cast(column, &DataType::LargeUtf8)?.as_string::<i64>().clone()),
        })
    }

    /// `len` values from `start` on, which are not copied.
    pub(super) fn slice(&self, start: usize, len: usize) -> Self {
        match self {
            Self::Small(array) => Self::Small(array.slice(start, len)),
            Self::Large(array) => Self::Large(array.slice(start, len)),
            Self::View(array) => Self::View(array.slice(start, len)),
        }
    }

    /// Value of a row, `None` for null.
    pub(super) fn get(&self, row: usize) -> Option<&str> {
        match self {
            Self::Small(array) => array.is_valid(row).then(|| array.value(row)),
            Self::Large(array) => array.is_valid(row).then(|| array.value(row)),
            Self::View(array) => array.is_valid(row).then(|| array.value(row)),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{Int64Array, StructArray};
    use arrow::buffer::NullBuffer;
    use arrow::datatypes::{Field, Schema};

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
        Column::find(&fields(), name).map(|column| column.path.join("/"))
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
        let error = Column::require(Path::new("f"), &fields(), "txt", "text", is_string);
        let message = error.err().map(|e| e.to_string()).unwrap_or_default();
        assert!(message.contains("`txt`"), "{message}");
        assert!(message.contains("text, metadata.url, metadata.text, other.url"), "{message}");
    }

    #[test]
    fn a_column_of_bytes_is_refused_with_a_hint() {
        let error = Column::require(Path::new("f"), &fields(), "other.url", "text", is_string);
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
        let column = Column::find(batch.schema().fields(), "s.n").ok_or("not found")?;
        let strings = Strings::new(&column.of(&batch)?)?;
        let found: Vec<_> = (0..3).map(|row| strings.get(row)).collect();
        assert_eq!(found, [Some("1"), None, Some("3")]);
        Ok(())
    }
}
