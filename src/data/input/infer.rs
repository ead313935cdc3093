//! Infers the types of JSON columns from every line of a file, and makes the arrays of those types.
//!
//! This module owns the rule that no integer and no text changes: integers that no Arrow type holds
//! exactly become text, and so do numbers beyond f64. Other fractions are rounded to f64. JSON text
//! is kept as written, with strings in quotes.
//!
//! | values of a column | type |
//! |---|---|
//! | none but null | `Utf8` |
//! | booleans | `Boolean` |
//! | strings | `Utf8` |
//! | integers in i64 | `Int64` |
//! | integers in u64 beyond i64 | `UInt64` |
//! | numbers with fractions; integers among them up to 2^53 | `Float64` |
//! | other integers; floats beyond f64; mixed scalars | `Utf8`; numbers, booleans as written |
//! | lists | `List` of the type of all items |
//! | objects | `Struct`, fields in order of first appearance |
//! | containers mixed with others; objects always empty or with too many keys | `Utf8`, JSON |

use std::sync::Arc;

use arrow_array::{
    ArrayRef, BooleanArray, Float64Array, Int64Array, ListArray, StringArray, StructArray,
    UInt64Array,
};
use arrow_buffer::{NullBuffer, OffsetBuffer};
use arrow_schema::{ArrowError, DataType, Field, Fields};
use serde::{Deserialize, Serialize};

use super::json::{Json, JsonValue};

/// A nested object with more distinct keys than this is a dictionary rather than a record.
const MAX_STRUCT_FIELDS: usize = 1000;
/// Integers up to this value are exact as f64.
const MAX_EXACT_F64: i128 = 1 << 53;

/// The values of a column seen so far.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub(super) enum JsonShape {
    /// Null only.
    #[default]
    Unknown,
    Scalar(Scalars),
    List(Box<JsonShape>),
    Struct(JsonColumns),
    /// Kept as JSON text.
    Json,
}

/// The columns of JSON lines files or the fields of nested objects, each with its shape.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct JsonColumns(pub(super) Vec<(String, JsonShape)>);

#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[expect(clippy::struct_excessive_bools, reason = "independent facts, any of which may hold")]
pub(super) struct Scalars {
    bools: bool,
    strings: bool,
    floats: bool,
    /// A number that fits neither 64-bit integers nor f64.
    oversized: bool,
    /// Smallest and largest integer.
    integers: Option<(i128, i128)>,
}

impl Scalars {
    /// Returns what one number shows of a column.
    fn of_number(literal: &str) -> Self {
        if literal.contains(['.', 'e', 'E']) {
            let oversized = literal.parse().is_ok_and(f64::is_infinite);
            return Self { floats: true, oversized, ..Self::default() };
        }
        let integers = literal.parse().ok().map(|value| (value, value));
        Self { oversized: integers.is_none(), integers, ..Self::default() }
    }

    fn merge(&mut self, other: Self) {
        self.bools |= other.bools;
        self.strings |= other.strings;
        self.floats |= other.floats;
        self.oversized |= other.oversized;
        if let Some((least, greatest)) = other.integers {
            let own = self.integers.unwrap_or((least, greatest));
            self.integers = Some((own.0.min(least), own.1.max(greatest)));
        }
    }

    /// Returns the narrowest type in the table above that holds all scalars seen.
    fn data_type(self) -> DataType {
        let within =
            |least, greatest| self.integers.is_some_and(|(a, b)| a >= least && b <= greatest);
        let numbers = self.floats || self.integers.is_some();
        if self.oversized || self.strings || self.bools && numbers {
            DataType::Utf8
        } else if self.bools {
            DataType::Boolean
        } else if self.floats {
            let exact = self.integers.is_none() || within(-MAX_EXACT_F64, MAX_EXACT_F64);
            if exact { DataType::Float64 } else { DataType::Utf8 }
        } else if within(i64::MIN.into(), i64::MAX.into()) {
            DataType::Int64
        } else if within(0, u64::MAX.into()) {
            DataType::UInt64
        } else {
            DataType::Utf8
        }
    }
}

impl JsonShape {
    /// Adds a value; null changes nothing.
    pub(super) fn observe(&mut self, json: &Json<'_>) {
        if json.value == JsonValue::Null {
            return;
        }
        if *self == Self::Unknown {
            *self = match json.value {
                JsonValue::Array(_) => Self::List(Box::default()),
                JsonValue::Object(_) => Self::Struct(JsonColumns::default()),
                _ => Self::Scalar(Scalars::default()),
            };
        }
        match (&mut *self, &json.value) {
            (Self::Scalar(seen), JsonValue::Bool(_)) => seen.bools = true,
            (Self::Scalar(seen), JsonValue::String(_)) => seen.strings = true,
            (Self::Scalar(seen), JsonValue::Number) => {
                seen.merge(Scalars::of_number(json.raw));
            }
            (Self::List(item), JsonValue::Array(items)) => {
                for value in items {
                    item.observe(value);
                }
            }
            (Self::Struct(fields), JsonValue::Object(_)) => fields.observe(json),
            _ => *self = Self::Json,
        }
        self.limit();
    }

    /// Adds the values that another file or place has shown.
    pub(super) fn merge(&mut self, other: Self) {
        match (&mut *self, other) {
            (_, Self::Unknown) => {}
            (Self::Unknown, other) => *self = other,
            (Self::Scalar(seen), Self::Scalar(other)) => seen.merge(other),
            (Self::List(item), Self::List(other)) => item.merge(*other),
            (Self::Struct(fields), Self::Struct(others)) => fields.merge(others),
            _ => *self = Self::Json,
        }
        self.limit();
    }

    /// Keeps an object as text if it has too many keys for a struct.
    fn limit(&mut self) {
        if matches!(self, Self::Struct(fields) if fields.0.len() > MAX_STRUCT_FIELDS) {
            *self = Self::Json;
        }
    }

    /// Returns the type of the column; values of which none is known have the type `unknown`.
    pub(super) fn data_type(&self, unknown: &DataType) -> DataType {
        match self {
            Self::Unknown => unknown.clone(),
            Self::Scalar(seen) => seen.data_type(),
            Self::List(item) => DataType::new_list(item.data_type(unknown), true),
            Self::Struct(fields) if !fields.0.is_empty() => {
                DataType::Struct(fields.fields(unknown))
            }
            Self::Struct(_) | Self::Json => DataType::Utf8,
        }
    }

    /// Converts the values of a column, all observed, to [`JsonShape::data_type`]; values of an
    /// unknown type become texts.
    pub(super) fn array(&self, values: &[Option<&Json<'_>>]) -> Result<ArrayRef, ArrowError> {
        let values: Vec<_> =
            values.iter().map(|json| json.filter(|json| json.value != JsonValue::Null)).collect();
        match self {
            Self::List(item) => list_array(item, &values),
            Self::Struct(fields) if !fields.0.is_empty() => {
                let objects = convert(&values, &self.data_type(&DataType::Utf8), |json| {
                    matches!(json.value, JsonValue::Object(_)).then_some(())
                })?;
                let nulls = objects.iter().map(Option::is_some).collect::<NullBuffer>();
                let (types, columns) = (fields.fields(&DataType::Utf8), fields.arrays(&values)?);
                Ok(Arc::new(StructArray::try_new(types, columns, Some(nulls))?))
            }
            Self::Scalar(seen) => scalar_array(&seen.data_type(), &values),
            Self::Unknown | Self::Struct(_) | Self::Json => {
                let raw = values.iter().map(|json| json.map(|json| json.raw));
                Ok(Arc::new(raw.collect::<StringArray>()))
            }
        }
    }
}

impl JsonColumns {
    /// Adds the values of an object. Its fields usually have the same order as in earlier objects.
    pub(super) fn observe(&mut self, object: &Json<'_>) {
        let JsonValue::Object(entries) = &object.value else { return };
        for (place, (key, value)) in entries.iter().enumerate() {
            self.shape(place, key).observe(value);
        }
    }

    /// Merges the columns of other files, and the types of columns in both.
    pub fn merge(&mut self, others: Self) {
        for (place, (name, shape)) in others.0.into_iter().enumerate() {
            self.shape(place, &name).merge(shape);
        }
    }

    /// Returns the shape of `name`, which is usually at the same `place`; it may be new.
    fn shape(&mut self, place: usize, name: &str) -> &mut JsonShape {
        let is_name = |(known, _): &(String, JsonShape)| known == name;
        let is_there = self.0.get(place).is_some_and(is_name);
        let known = if is_there { Some(place) } else { self.0.iter().position(is_name) };
        let at = known.unwrap_or(self.0.len());
        if known.is_none() {
            self.0.push((name.to_owned(), JsonShape::Unknown));
        }
        &mut self.0[at].1
    }

    /// Returns the columns; what has no values, also inside, has the type `unknown`.
    pub fn fields(&self, unknown: &DataType) -> Fields {
        let field =
            |(name, shape): &(String, JsonShape)| Field::new(name, shape.data_type(unknown), true);
        self.0.iter().map(field).collect()
    }

    /// Returns one array per column, with the values of `objects`; null where a key is missing.
    pub(super) fn arrays(
        &self,
        objects: &[Option<&Json<'_>>],
    ) -> Result<Vec<ArrayRef>, ArrowError> {
        let column = |(name, shape): &(String, JsonShape)| {
            let values: Vec<_> =
                objects.iter().map(|json| json.and_then(|j| j.get(name))).collect();
            shape.array(&values)
        };
        self.0.iter().map(column).collect()
    }
}

/// Applies `convert` to all values but null; `None` is an error: the file has changed since its
/// types were inferred.
fn convert<'j, 'l, T>(
    values: &'j [Option<&'j Json<'l>>],
    data_type: &DataType,
    convert: impl Fn(&'j Json<'l>) -> Option<T>,
) -> Result<Vec<Option<T>>, ArrowError> {
    let unexpected = |json: &Json<'_>| {
        let kind = json.kind();
        let reason = format!("the file changed while it was read: {kind} is no {data_type}");
        ArrowError::JsonError(reason)
    };
    let convert = |json: &'j Json<'l>| convert(json).ok_or_else(|| unexpected(json));
    values.iter().map(|json| json.map(convert).transpose()).collect()
}

/// Converts scalars to an array of `data_type`, one of those of [`Scalars::data_type`].
fn scalar_array(
    data_type: &DataType,
    values: &[Option<&Json<'_>>],
) -> Result<ArrayRef, ArrowError> {
    Ok(match data_type {
        DataType::Boolean => {
            Arc::new(BooleanArray::from(convert(values, data_type, Json::parsed::<bool>)?))
        }
        DataType::Int64 => Arc::new(Int64Array::from(convert(values, data_type, Json::parsed)?)),
        DataType::UInt64 => Arc::new(UInt64Array::from(convert(values, data_type, Json::parsed)?)),
        DataType::Float64 => {
            Arc::new(Float64Array::from(convert(values, data_type, Json::parsed)?))
        }
        _ => Arc::new(StringArray::from(convert(values, data_type, |json| match &json.value {
            JsonValue::String(text) => Some(text.as_ref()),
            JsonValue::Array(_) | JsonValue::Object(_) => None,
            _ => Some(json.raw),
        })?)),
    })
}

/// Converts lists of items of the shape `item`; a value may be null.
fn list_array(item: &JsonShape, values: &[Option<&Json<'_>>]) -> Result<ArrayRef, ArrowError> {
    let field = Arc::new(Field::new_list_field(item.data_type(&DataType::Utf8), true));
    let rows = convert(values, field.data_type(), |json| match &json.value {
        JsonValue::Array(items) => Some(items),
        _ => None,
    })?;
    let lengths = rows.iter().map(|items| items.map_or(0, Vec::len));
    let offsets = OffsetBuffer::from_lengths(lengths);
    let nulls = rows.iter().map(Option::is_some).collect::<NullBuffer>();
    let items: Vec<_> = rows.iter().flatten().flat_map(|items| items.iter()).map(Some).collect();
    Ok(Arc::new(ListArray::try_new(field, offsets, item.array(&items)?, Some(nulls))?))
}

#[cfg(test)]
#[path = "infer_tests.rs"]
mod tests;
