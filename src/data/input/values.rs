//! Values of columns as text, as JSON and as the embeddings that an input already has, and columns
//! of one type as another. All vectors of a file have the same width. Their values become f32 (f64
//! is rounded to nearest); they are not checked to be finite.
//!
//! The types are those of Parquet files without dictionaries ([`super::dense`]). The crate
//! `arrow-cast` converts all types, but took 8% of a build (`benches/runs/2026-11-29-size.md`).

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::timezone::Tz;
use arrow_array::types::{
    ArrowTemporalType, Decimal32Type, Decimal64Type, Decimal128Type, Decimal256Type, Float16Type,
    Float32Type, Float64Type, Int64Type,
};
use arrow_array::{
    Array, ArrayRef, BinaryViewArray, BooleanArray, Float64Array, Int64Array, LargeBinaryArray,
    LargeListArray, LargeStringArray, PrimitiveArray, StringArray, StringViewArray,
    downcast_integer_array, downcast_primitive_array, downcast_temporal_array, make_array,
    new_null_array,
};
use arrow_buffer::{ArrowNativeType, OffsetBuffer};
use arrow_data::ArrayData;
use arrow_schema::{ArrowError, DataType, Field, FieldRef};
use arrow_select::filter::filter;
use chrono::SecondsFormat;
use serde_json::{Map, Value};

/// Returns the values of a column as strings: numbers as Rust writes them, times by RFC 3339, bytes
/// as hexadecimal digits. Fails for lists, structs and times that the calendar does not have.
pub fn strings(column: &ArrayRef) -> Result<StringViewArray, ArrowError> {
    Ok(match column.data_type() {
        DataType::Utf8View => column.as_string_view().clone(),
        DataType::Utf8 => column.as_string::<i32>().into(),
        DataType::LargeUtf8 => column.as_string::<i64>().into(),
        DataType::Null => StringViewArray::new_null(column.len()),
        other => {
            let wrong = || ArrowError::CastError(format!("a value of {other} cannot be shown"));
            let text = |row| scalar_text(column, row).ok_or_else(wrong);
            let valid = |row| column.is_valid(row).then(|| text(row)).transpose();
            (0..column.len()).map(valid).collect::<Result<_, _>>()?
        }
    })
}

/// Returns the values of a column of bytes; an error for other types.
pub(super) fn bytes(column: &ArrayRef) -> Result<BinaryViewArray, ArrowError> {
    Ok(match column.data_type() {
        DataType::BinaryView => column.as_binary_view().clone(),
        DataType::Binary => column.as_binary::<i32>().into(),
        DataType::LargeBinary => column.as_binary::<i64>().into(),
        DataType::FixedSizeBinary(_) => column.as_fixed_size_binary().iter().collect(),
        other => return Err(cast_error(other, "bytes")),
    })
}

/// Returns the numbers of a column as f64; integers from 2^53 on are rounded.
#[expect(clippy::cast_lossless, reason = "the macro writes the code for all types of integers")]
pub(super) fn floats(column: &ArrayRef) -> Result<Float64Array, ArrowError> {
    Ok(downcast_integer_array!(
        column => column.unary::<_, Float64Type>(|value| value as f64),
        DataType::Float16 => column.as_primitive::<Float16Type>().unary(half::f16::to_f64),
        DataType::Float32 => column.as_primitive::<Float32Type>().unary(f64::from),
        DataType::Float64 => column.as_primitive::<Float64Type>().clone(),
        other => return Err(cast_error(other, "numbers"))
    ))
}

/// Returns the lists of a column with 64-bit offsets; the items are not copied.
pub(super) fn lists(column: &ArrayRef) -> Result<LargeListArray, ArrowError> {
    let (lengths, items): (OffsetBuffer<i64>, &ArrayRef) = match column.data_type() {
        DataType::LargeList(_) => return Ok(column.as_list::<i64>().clone()),
        DataType::List(_) => {
            let list = column.as_list::<i32>();
            let offsets: Vec<i64> = list.value_offsets().iter().copied().map(i64::from).collect();
            (OffsetBuffer::new(offsets.into()), list.values())
        }
        DataType::FixedSizeList(_, size) => {
            let lengths = std::iter::repeat_n(usize::try_from(*size).unwrap_or(0), column.len());
            (OffsetBuffer::from_lengths(lengths), column.as_fixed_size_list().values())
        }
        other => return Err(cast_error(other, "lists")),
    };
    let field = Arc::new(Field::new_list_field(items.data_type().clone(), true));
    LargeListArray::try_new(field, lengths, Arc::clone(items), column.nulls().cloned())
}

/// Returns a column as one of the type `to`, which holds its values: texts, bytes, numbers as Int64
/// or Float64, lists and structs of such values or with other names inside, and nulls as any type.
pub fn retyped(column: &ArrayRef, to: &DataType) -> Result<ArrayRef, ArrowError> {
    Ok(match (column.data_type(), to) {
        (from, to) if from == to => Arc::clone(column),
        (_, to) if column.logical_null_count() == column.len() => new_null_array(to, column.len()),
        (_, DataType::Utf8View) => Arc::new(strings(column)?),
        (_, DataType::Utf8) => Arc::new(strings(column)?.iter().collect::<StringArray>()),
        (_, DataType::LargeUtf8) => Arc::new(strings(column)?.iter().collect::<LargeStringArray>()),
        (_, DataType::LargeBinary) => Arc::new(bytes(column)?.iter().collect::<LargeBinaryArray>()),
        (_, DataType::Float64) => Arc::new(floats(column)?),
        (_, DataType::Int64) => Arc::new(integers(column)?),
        (_, to) => make_array(rename_inside(column.to_data(), to)?),
    })
}

/// Returns integers as i64; null where they exceed it.
fn integers(column: &ArrayRef) -> Result<Int64Array, ArrowError> {
    Ok(downcast_integer_array!(
        column => column.unary_opt::<_, Int64Type>(ArrowNativeType::to_i64),
        other => return Err(cast_error(other, "integers"))
    ))
}

/// Returns `data` with the type `to`, which differs in names and in the types of values inside.
fn rename_inside(data: ArrayData, to: &DataType) -> Result<ArrayData, ArrowError> {
    let fields: Vec<&DataType> = match to {
        DataType::List(field)
        | DataType::LargeList(field)
        | DataType::FixedSizeList(field, _)
        | DataType::Map(field, _) => vec![field.data_type()],
        DataType::Struct(fields) => fields.iter().map(|field| field.data_type()).collect(),
        _ => Vec::new(),
    };
    let children = data.child_data().iter().map(|child| make_array(child.clone())).zip(fields);
    let children = children.map(|(child, to)| Ok(retyped(&child, to)?.into_data()));
    let children = children.collect::<Result<_, ArrowError>>()?;
    data.into_builder().data_type(to.clone()).child_data(children).build()
}

/// Says that the type `found` is not what was `expected`.
fn cast_error(found: &DataType, expected: &str) -> ArrowError {
    ArrowError::CastError(format!("{found} cannot be read as {expected}"))
}

/// Returns a value that is not null as JSON; it becomes text if JSON lacks its type.
pub(super) fn to_json(column: &dyn Array, row: usize) -> Value {
    let item = |column: &ArrayRef, row| {
        if column.is_valid(row) { to_json(column, row) } else { Value::Null }
    };
    let items = |items: ArrayRef| (0..items.len()).map(|row| item(&items, row)).collect();
    match column.data_type() {
        DataType::List(_) => items(column.as_list::<i32>().value(row)),
        DataType::LargeList(_) => items(column.as_list::<i64>().value(row)),
        DataType::FixedSizeList(..) => items(column.as_fixed_size_list().value(row)),
        DataType::Map(..) => items(Arc::new(column.as_map().value(row))),
        DataType::Struct(fields) => {
            let values = fields.iter().zip(column.as_struct().columns());
            let values = values.map(|(field, column)| (field.name().clone(), item(column, row)));
            values.collect::<Map<_, _>>().into()
        }
        DataType::Boolean => column.as_boolean().value(row).into(),
        DataType::Null => Value::Null,
        other => {
            let text = scalar_text(column, row).unwrap_or_else(|| format!("a value of {other}"));
            let number = (other.is_integer() || other.is_floating()).then(|| text.parse().ok());
            number.flatten().map_or(Value::String(text), Value::Number)
        }
    }
}

/// Returns the scalar of `column` in `row`, which is not null, as by [`strings`].
fn scalar_text(column: &dyn Array, row: usize) -> Option<String> {
    downcast_temporal_array!(
        column => time_text(column, row),
        DataType::Utf8 => Some(column.as_string::<i32>().value(row).to_owned()),
        DataType::LargeUtf8 => Some(column.as_string::<i64>().value(row).to_owned()),
        DataType::Utf8View => Some(column.as_string_view().value(row).to_owned()),
        DataType::Binary => Some(hexadecimal(column.as_binary::<i32>().value(row))),
        DataType::LargeBinary => Some(hexadecimal(column.as_binary::<i64>().value(row))),
        DataType::BinaryView => Some(hexadecimal(column.as_binary_view().value(row))),
        DataType::FixedSizeBinary(_) => Some(hexadecimal(column.as_fixed_size_binary().value(row))),
        DataType::Boolean => Some(column.as_boolean().value(row).to_string()),
        DataType::Decimal32(..) => Some(column.as_primitive::<Decimal32Type>().value_as_string(row)),
        DataType::Decimal64(..) => Some(column.as_primitive::<Decimal64Type>().value_as_string(row)),
        DataType::Decimal128(..) => Some(column.as_primitive::<Decimal128Type>().value_as_string(row)),
        DataType::Decimal256(..) => Some(column.as_primitive::<Decimal256Type>().value_as_string(row)),
        _ => downcast_primitive_array!(
            column => Some(format!("{:?}", column.value(row))),
            _ => None
        )
    )
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes
        .iter()
        .flat_map(|byte| [byte >> 4, byte & 15])
        .map(|digit| b"0123456789abcdef"[usize::from(digit)] as char)
        .collect()
}

/// Writes a time by RFC 3339, in UTC if its zone is a name; `None` if the calendar lacks it.
fn time_text<T: ArrowTemporalType>(column: &PrimitiveArray<T>, row: usize) -> Option<String>
where
    i64: From<T::Native>,
{
    match column.data_type() {
        DataType::Date32 | DataType::Date64 => Some(column.value_as_date(row)?.to_string()),
        DataType::Time32(_) | DataType::Time64(_) => Some(column.value_as_time(row)?.to_string()),
        DataType::Timestamp(_, Some(zone)) => {
            // Zones that are names and not offsets are not known here.
            let zone = zone.parse::<Tz>().or_else(|_| "+00:00".parse()).ok()?;
            let time = column.value_as_datetime_with_tz(row, zone)?;
            Some(time.to_rfc3339_opts(SecondsFormat::AutoSi, true))
        }
        _ => Some(format!("{:?}", column.value_as_datetime(row)?)),
    }
}

/// Width of the vectors of a file, set by the first vector.
#[derive(Debug, Default)]
pub(super) struct Width(Option<usize>);

impl Width {
    /// Checks vectors of these `lengths`: none may be empty or differ in width from earlier ones.
    pub(super) fn check(&mut self, lengths: impl Iterator<Item = usize>) -> Result<(), String> {
        for length in lengths {
            if length == 0 {
                return Err("an embedding is empty".to_owned());
            }
            let width = *self.0.get_or_insert(length);
            if length != width {
                return Err(format!("an embedding has {length} values, those before have {width}"));
            }
        }
        Ok(())
    }

    /// Like [`Self::check`], for the vectors of `row`, which must not hold a null.
    pub(super) fn check_row(&mut self, vectors: &LargeListArray, row: usize) -> Result<(), String> {
        if vectors.is_null(row) {
            return Ok(());
        }
        let chunks = vectors.value(row);
        if chunks.null_count() > 0 {
            return Err("an embedding is null".to_owned());
        }
        let chunks = chunks.as_list::<i64>();
        if chunks.iter().flatten().any(|chunk| chunk.null_count() > 0) {
            return Err("an embedding holds a null".to_owned());
        }
        self.check(chunks.value_offsets().windows(2).map(|at| (at[1] - at[0]) as usize))
    }
}

/// Returns the number of list levels (1: one vector, 2: a list of vectors); `None` for other types.
pub(super) fn list_depth(data_type: &DataType) -> Option<usize> {
    match data_type {
        DataType::List(item) | DataType::LargeList(item) | DataType::FixedSizeList(item, _) => {
            let inner = item.data_type();
            if inner.is_floating() || inner.is_integer() {
                return Some(1);
            }
            list_depth(inner).filter(|levels| *levels == 1).map(|levels| levels + 1)
        }
        _ => None,
    }
}

/// Returns the vectors of a column that has a [`list_depth`], as lists of lists of f32:
/// `[[...], [...]]`, or `[...]` for a single vector.
pub(super) fn vectors(column: &ArrayRef) -> Result<LargeListArray, ArrowError> {
    let item = |data_type| -> FieldRef { Arc::new(Field::new_list_field(data_type, true)) };
    let vector = item(DataType::LargeList(item(DataType::Float32)));
    let outer = lists(column)?;
    if list_depth(column.data_type()) == Some(2) {
        let inner: ArrayRef = Arc::new(lists_of_f32(lists(outer.values())?)?);
        let (offsets, nulls) = (outer.offsets().clone(), outer.nulls().cloned());
        return LargeListArray::try_new(vector, offsets, inner, nulls);
    }
    let rows = lists_of_f32(outer)?;
    // An empty list is no vector, rather than a vector of width 0.
    let is_vector = |row| rows.is_valid(row) && rows.value_length(row) > 0;
    let has_vector: Vec<bool> = (0..rows.len()).map(is_vector).collect();
    let offsets = OffsetBuffer::from_lengths(has_vector.iter().map(|has| usize::from(*has)));
    let values = filter(&rows, &BooleanArray::from(has_vector))?;
    LargeListArray::try_new(vector, offsets, values, rows.nulls().cloned())
}

/// Returns `lists` of numbers as lists of f32.
fn lists_of_f32(lists: LargeListArray) -> Result<LargeListArray, ArrowError> {
    let (_, offsets, values, nulls) = lists.into_parts();
    let values: ArrayRef = match values.data_type() {
        DataType::Float32 => values,
        _ => Arc::new(floats(&values)?.unary::<_, Float32Type>(|value| value as f32)),
    };
    let item = Arc::new(Field::new_list_field(DataType::Float32, true));
    LargeListArray::try_new(item, offsets, values, nulls)
}

/// Returns the number of [`vectors`] of `row` and their values `[num_chunks, D]`; `None` for null.
pub(super) fn row_vectors(vectors: &LargeListArray, row: usize) -> Option<(usize, &[f32])> {
    if vectors.is_null(row) {
        return None;
    }
    let chunks = vectors.values().as_list::<i64>();
    let [first, end] = [row, row + 1].map(|at| vectors.value_offsets()[at] as usize);
    let [start, stop] = [first, end].map(|at| chunks.value_offsets()[at] as usize);
    Some((end - first, &chunks.values().as_primitive::<Float32Type>().values()[start..stop]))
}

#[cfg(test)]
mod tests {
    use arrow_array::types::{Int32Type, TimestampMicrosecondType, TimestampSecondType};
    use arrow_array::{
        Date32Array, Decimal128Array, FixedSizeListArray, Float32Array, Int8Array, Int32Array,
        ListArray, StructArray, TimestampMicrosecondArray, UInt64Array,
    };

    use super::*;

    fn texts(column: impl Array + 'static) -> Result<Vec<String>, ArrowError> {
        let column: ArrayRef = Arc::new(column);
        Ok(strings(&column)?.iter().map(|text| text.unwrap_or("null").to_owned()).collect())
    }

    #[test]
    fn scalars_are_written_as_their_values() -> Result<(), ArrowError> {
        assert_eq!(texts(Int8Array::from(vec![Some(-3), None]))?, ["-3", "null"]);
        assert_eq!(texts(UInt64Array::from(vec![u64::MAX]))?, ["18446744073709551615"]);
        let floats = Float32Array::from(vec![0.1, 1.0, -2.5, 1e20, f32::NAN]);
        assert_eq!(texts(floats)?, ["0.1", "1.0", "-2.5", "1e20", "NaN"]);
        assert_eq!(texts(BooleanArray::from(vec![true, false]))?, ["true", "false"]);
        let decimals = Decimal128Array::from(vec![12_345, -5]).with_precision_and_scale(9, 2)?;
        assert_eq!(texts(decimals)?, ["123.45", "-0.05"]);
        assert_eq!(texts(LargeBinaryArray::from(vec![&b"\x00\xff"[..]]))?, ["00ff"]);
        Ok(())
    }

    /// 2001-09-09T01:46:40Z is the second 1,000,000,000 of POSIX.
    #[test]
    fn times_are_written_by_rfc_3339() -> Result<(), ArrowError> {
        type Seconds = PrimitiveArray<TimestampSecondType>;
        assert_eq!(texts(Seconds::from(vec![1_000_000_000]))?, ["2001-09-09T01:46:40"]);
        let zones = [("UTC", "2001-09-09T01:46:40Z"), ("+02:00", "2001-09-09T03:46:40+02:00")];
        for (zone, expected) in zones {
            let times = Seconds::from(vec![1_000_000_000]).with_timezone(zone);
            assert_eq!(texts(times)?, [expected], "{zone}");
        }
        let times = TimestampMicrosecondArray::from(vec![1_000_000_000_000_001]);
        assert_eq!(texts(times)?, ["2001-09-09T01:46:40.000001"]);
        assert_eq!(texts(Date32Array::from(vec![Some(11_574), None]))?, ["2001-09-09", "null"]);
        let never = PrimitiveArray::<TimestampMicrosecondType>::from(vec![i64::MAX]);
        assert!(texts(never).is_err());
        Ok(())
    }

    #[test]
    fn nested_values_are_json() {
        let list = ListArray::from_iter_primitive::<Int32Type, _, _>([Some([Some(1), None])]);
        assert_eq!(to_json(&list, 0).to_string(), "[1,null]");
        let columns: [(_, ArrayRef); 2] = [
            ("a", Arc::new(Float32Array::from(vec![0.1]))),
            ("b", Arc::new(StringArray::from(vec!["x"]))),
        ];
        let fields = columns.map(|(name, column)| {
            (Arc::new(Field::new(name, column.data_type().clone(), true)), column)
        });
        let row = StructArray::from(fields.to_vec());
        assert_eq!(to_json(&row, 0).to_string(), r#"{"a":0.1,"b":"x"}"#);
    }

    #[test]
    fn lists_keep_their_items_under_another_name() -> Result<(), ArrowError> {
        let list = ListArray::from_iter_primitive::<Int32Type, _, _>([Some([Some(1)]), None]);
        let column: ArrayRef = Arc::new(list.clone());
        let to = DataType::List(Arc::new(Field::new("element", DataType::Int32, true)));
        let retyped = retyped(&column, &to)?;
        assert_eq!((retyped.data_type(), retyped.len(), retyped.null_count()), (&to, 2, 1));
        assert_eq!(retyped.as_list::<i32>().values(), list.values());
        Ok(())
    }

    #[test]
    fn numbers_widen() -> Result<(), ArrowError> {
        let column: ArrayRef = Arc::new(Int32Array::from(vec![Some(-7), None]));
        let floats = retyped(&column, &DataType::Float64)?;
        assert_eq!(
            floats.as_primitive::<Float64Type>(),
            &Float64Array::from(vec![Some(-7.0), None])
        );
        let integers = retyped(&column, &DataType::Int64)?;
        assert_eq!(integers.as_primitive::<Int64Type>(), &Int64Array::from(vec![Some(-7), None]));
        assert!(retyped(&column, &DataType::LargeBinary).is_err());
        Ok(())
    }

    #[test]
    fn one_plain_list_is_one_vector() -> Result<(), Box<dyn std::error::Error>> {
        let column: ArrayRef = Arc::new(ListArray::from_iter_primitive::<Float64Type, _, _>([
            Some(vec![Some(0.1), Some(2.0)]),
            None,
            Some(vec![]),
            Some(vec![Some(1.0), None]),
        ]));
        assert_eq!(list_depth(column.data_type()), Some(1));
        let vectors = vectors(&column)?;
        assert_eq!(row_vectors(&vectors, 0), Some((1, &[0.1, 2.0][..])));
        assert_eq!(row_vectors(&vectors, 1), None);
        assert_eq!(row_vectors(&vectors, 2), Some((0, &[][..])));
        let mut width = Width::default();
        let checks = [0, 1, 2, 3].map(|row| width.check_row(&vectors, row).is_ok());
        assert_eq!(checks, [true, true, true, false]);
        Ok(())
    }

    #[test]
    fn a_fixed_size_list_of_halves_serves() -> Result<(), Box<dyn std::error::Error>> {
        let half = |value: f32| Some(half::f16::from_f32(value));
        let column: ArrayRef =
            Arc::new(FixedSizeListArray::from_iter_primitive::<Float16Type, _, _>(
                [Some(vec![half(0.5), half(-2.0)]), None],
                2,
            ));
        let vectors = vectors(&column)?;
        assert_eq!(row_vectors(&vectors, 0), Some((1, &[0.5, -2.0][..])));
        assert_eq!(row_vectors(&vectors, 1), None);
        Ok(())
    }

    #[test]
    fn scalars_and_deeper_lists_do_not_serve() {
        let list = |item| DataType::List(Arc::new(Field::new_list_field(item, true)));
        assert_eq!(list_depth(&DataType::Float32), None);
        assert_eq!(list_depth(&list(DataType::Utf8)), None);
        assert_eq!(list_depth(&list(list(list(DataType::Float32)))), None);
        let integers = ListArray::from_iter_primitive::<Int32Type, _, _>([Some([Some(1)])]);
        assert_eq!(list_depth(integers.data_type()), Some(1));
    }

    #[test]
    fn widths_agree_within_a_file() {
        let mut width = Width::default();
        assert!(width.check([].into_iter()).is_ok());
        assert!(width.check([0].into_iter()).is_err());
        assert!(width.check([2, 2].into_iter()).is_ok());
        assert!(width.check([1].into_iter()).is_err_and(|e| e.contains("1 values")));
    }
}
