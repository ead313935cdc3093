//! The output's columns: all columns of the inputs, or those that the inputs share.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{ArrayRef, RecordBatch, new_null_array};
use arrow_schema::{ArrowError, DataType, Field, FieldRef, Schema, SchemaRef};

use super::config::MixColumns;
use super::draw::DrawnFile;
use polysift_base::error::{Error, Result};
use polysift_data::input::retyped;

/// Added columns: the source of a row, and the number of its document's copy, from 0.
const ADDED: [(&str, DataType); 2] = [("source", DataType::Utf8), ("copy", DataType::Int32)];

pub(super) struct MixSchema {
    /// Columns of the inputs: their names there, and their names and types in the output.
    pub(super) inputs: Vec<(String, Field)>,
    pub(super) left_out: Vec<String>,
}

impl MixSchema {
    /// Chooses the columns of `files` to write. Whole numbers of different sizes count as one type,
    /// as do texts and dictionaries of texts; whole numbers beside fractions become fractions.
    /// Fails if a column has two incompatible types and is `text` or all are requested.
    pub(crate) fn new(files: &[DrawnFile], columns: MixColumns, text: &str) -> Result<Self> {
        let mut found: Vec<(String, Option<DataType>, usize)> = Vec::new();
        // A file without rows says nothing about columns.
        let has_rows = |file: &&DrawnFile| file.counted.num_rows > 0;
        let num_files = files.iter().filter(has_rows).count();
        for DrawnFile { file, counted, .. } in files.iter().filter(has_rows) {
            for field in counted.schema.fields() {
                let known = found.iter_mut().find(|(name, ..)| name == field.name());
                let Some((name, data_type, count)) = known else {
                    found.push((field.name().clone(), Some(widen(field.data_type())), 1));
                    continue;
                };
                *count += 1;
                let Some(before) = data_type.take() else { continue };
                *data_type = common_type(&before, &widen(field.data_type()));
                if data_type.is_none() && (columns == MixColumns::Union || name == text) {
                    let reason = format!("is {}, and {before} in files before", field.data_type());
                    return Err(Error::schema(&file.path, field.name(), reason));
                }
            }
        }
        let (mut kept, mut left_out) = (Vec::new(), Vec::new());
        for (name, data_type, count) in found {
            match data_type {
                Some(data_type) if count == num_files || columns == MixColumns::Union => {
                    kept.push((name, data_type));
                }
                _ => left_out.push(name),
            }
        }
        let is_taken = |new: &str, name: &str| {
            ADDED.iter().any(|(added, _)| *added == new)
                || new != name && kept.iter().any(|(other, _)| other == new)
        };
        let field = |(name, data_type): &(String, DataType)| {
            let mut new = name.clone();
            while is_taken(&new, name) {
                new.insert_str(0, "input_");
            }
            (name.clone(), Field::new(new, data_type.clone(), true))
        };
        Ok(Self { inputs: kept.iter().map(field).collect(), left_out })
    }

    /// Returns the schema of the files of the mixture.
    pub(crate) fn output_schema(&self) -> SchemaRef {
        let narrowed = |field: Field| field.clone().with_data_type(narrow(field.data_type()));
        Arc::new(Schema::new(self.fields().map(narrowed).collect::<Vec<_>>()))
    }

    /// Returns the columns of inputs, with offsets wide enough for the texts of any number of rows,
    /// and the added ones.
    pub(super) fn fields(&self) -> impl Iterator<Item = Field> {
        let added = ADDED.map(|(name, data_type)| Field::new(name, data_type, false));
        self.inputs.iter().map(|(_, field)| field.clone()).chain(added)
    }

    /// Converts the columns of `batch` to the columns of inputs in [`MixSchema::fields`]. Fails if
    /// a whole number is not exact in a column of fractions.
    pub(super) fn convert(&self, batch: &RecordBatch) -> Result<Vec<ArrayRef>, ArrowError> {
        let column = |(name, field): &(String, Field)| match batch.column_by_name(name) {
            Some(column) => {
                if *field.data_type() == DataType::Float64 && column.data_type().is_integer() {
                    check_exact(name, column)?;
                }
                retyped(column, field.data_type())
            }
            None => Ok(new_null_array(field.data_type(), batch.num_rows())),
        };
        self.inputs.iter().map(column).collect()
    }
}

/// Checks that all numbers of the column `name` of whole numbers are exact in f64.
fn check_exact(name: &str, column: &ArrayRef) -> Result<(), ArrowError> {
    let numbers = retyped(column, &DataType::Int64)?;
    let mut numbers = numbers.as_primitive::<Int64Type>().iter().flatten();
    let wrong = numbers.find(|number| number.unsigned_abs() > 1 << f64::MANTISSA_DIGITS);
    wrong.map_or(Ok(()), |number| {
        Err(ArrowError::CastError(format!(
            "column `{name}` holds {number}, but fractions in another file, which are not exact \
             beyond 2^53; give the column one type in all files"
        )))
    })
}

/// Returns `data_type` without details of the layout in memory.
fn widen(data_type: &DataType) -> DataType {
    match data_type {
        DataType::Utf8 | DataType::Utf8View => DataType::LargeUtf8,
        DataType::Binary | DataType::BinaryView => DataType::LargeBinary,
        other => other.clone(),
    }
}

/// Returns the type in a file of a type that [`widen`] returned.
fn narrow(data_type: &DataType) -> DataType {
    match data_type {
        DataType::LargeUtf8 => DataType::Utf8,
        DataType::LargeBinary => DataType::Binary,
        other => other.clone(),
    }
}

/// Returns true if the types differ at most in the names of the items of lists and of the entries
/// of maps. [`DataType::equals_datatype`] ignores the names of a struct's fields too.
fn is_same(a: &DataType, b: &DataType) -> bool {
    let is_item = |a: &FieldRef, b: &FieldRef| {
        a.is_nullable() == b.is_nullable() && is_same(a.data_type(), b.data_type())
    };
    match (a, b) {
        (DataType::List(a), DataType::List(b))
        | (DataType::LargeList(a), DataType::LargeList(b)) => is_item(a, b),
        (DataType::FixedSizeList(a, n), DataType::FixedSizeList(b, m)) => n == m && is_item(a, b),
        (DataType::Map(a, _), DataType::Map(b, _)) => match (a.data_type(), b.data_type()) {
            (DataType::Struct(a), DataType::Struct(b)) => {
                a.iter().zip(b).all(|(a, b)| is_item(a, b))
            }
            _ => false,
        },
        (DataType::Struct(a), DataType::Struct(b)) => {
            let is_field = |(a, b): (&FieldRef, &FieldRef)| a.name() == b.name() && is_item(a, b);
            a.len() == b.len() && a.iter().zip(b).all(is_field)
        }
        _ => a.equals_datatype(b),
    }
}

/// Returns the type that holds values of both types, if any. Nothing is known of all-null values.
fn common_type(a: &DataType, b: &DataType) -> Option<DataType> {
    let is_small = |data_type: &DataType| data_type.is_integer() && *data_type != DataType::UInt64;
    let is_number = |data_type: &DataType| is_small(data_type) || data_type.is_floating();
    match (a, b) {
        _ if is_same(a, b) => Some(a.clone()),
        (DataType::Null, other) | (other, DataType::Null) => Some(other.clone()),
        _ if is_small(a) && is_small(b) => Some(DataType::Int64),
        _ if is_number(a) && is_number(b) => Some(DataType::Float64),
        (DataType::List(a), DataType::List(b)) => common_field(a, b).map(DataType::List),
        (DataType::Struct(a), DataType::Struct(b)) if a.len() == b.len() => {
            let field = |(a, b): (&FieldRef, &FieldRef)| {
                common_field(a, b).filter(|_| a.name() == b.name())
            };
            a.iter().zip(b).map(field).collect::<Option<_>>().map(DataType::Struct)
        }
        _ => None,
    }
}

/// Returns the field with the name of `a` that holds values of both fields. Whole numbers beside
/// fractions have none, because only columns are checked for numbers that are not exact.
fn common_field(a: &FieldRef, b: &FieldRef) -> Option<FieldRef> {
    let data_type = common_type(a.data_type(), b.data_type())?;
    if data_type == DataType::Float64 && (a.data_type().is_integer() || b.data_type().is_integer())
    {
        return None;
    }
    Some(Arc::new(Field::new(a.name(), data_type, a.is_nullable() || b.is_nullable())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_that_hold_the_same_values_are_one() {
        use DataType::{Boolean, Float32, Float64, Int8, Int64, LargeUtf8, Null, UInt32, UInt64};
        let list = |name: &str| DataType::List(Arc::new(Field::new(name, Int64, true)));
        assert_eq!(common_type(&Int8, &UInt32), Some(Int64));
        assert_eq!(common_type(&Int8, &Float32), Some(Float64));
        assert_eq!(common_type(&Null, &LargeUtf8), Some(LargeUtf8));
        assert_eq!(common_type(&list("item"), &list("element")), Some(list("item")));
        for (a, b) in [(Int64, UInt64), (LargeUtf8, Int64), (Boolean, Int64)] {
            assert_eq!(common_type(&a, &b), None);
        }
        let of = |names: [&str; 2]| {
            DataType::Struct(names.map(|name| Field::new(name, LargeUtf8, true)).to_vec().into())
        };
        assert_eq!(common_type(&of(["a", "b"]), &of(["a", "b"])), Some(of(["a", "b"])));
        assert_eq!(common_type(&of(["a", "b"]), &of(["b", "a"])), None);
        let list = |item: &DataType| DataType::new_list(item.clone(), true);
        let inside =
            |item: &DataType| DataType::Struct(vec![Field::new("scores", list(item), true)].into());
        assert_eq!(common_type(&inside(&Null), &inside(&Float64)), Some(inside(&Float64)));
        assert_eq!(common_type(&inside(&Int8), &inside(&UInt32)), Some(inside(&Int64)));
        assert_eq!(common_type(&inside(&Int8), &inside(&Float64)), None);
        assert_eq!(
            common_type(&inside(&Null), &inside(&list(&Int64))),
            Some(inside(&list(&Int64)))
        );
    }
}
