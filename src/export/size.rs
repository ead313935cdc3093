//! Sizes of rows in memory, and column types without dictionaries.
//!
//! Both exist so that files do not depend on how their rows came in batches: sizes are counted
//! row by row, and the keys of a dictionary (unlike its values) change from batch to batch.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, OffsetSizeTrait, RecordBatch};
use arrow_cast::cast;
use arrow_schema::{ArrowError, DataType, Field, FieldRef, Schema};

/// Counted for a value whose type has no width of its own.
const OTHER_BYTES: u64 = 8;

/// Uncompressed bytes of each row, offsets and null masks not counted.
pub(super) fn row_bytes(batch: &RecordBatch) -> Vec<u64> {
    let mut total = vec![0; batch.num_rows()];
    for column in batch.columns() {
        add(&mut total, &value_bytes(column));
    }
    total
}

fn add(total: &mut [u64], bytes: &[u64]) {
    for (total, bytes) in total.iter_mut().zip(bytes) {
        *total += bytes;
    }
}

/// Bytes of each value of `array`; 0 for a null.
fn value_bytes(array: &dyn Array) -> Vec<u64> {
    let len = array.len();
    let mut bytes = match array.data_type() {
        DataType::Utf8 => offset_bytes(array.as_string::<i32>().value_offsets(), 1),
        DataType::LargeUtf8 => offset_bytes(array.as_string::<i64>().value_offsets(), 1),
        DataType::Binary => offset_bytes(array.as_binary::<i32>().value_offsets(), 1),
        DataType::LargeBinary => offset_bytes(array.as_binary::<i64>().value_offsets(), 1),
        DataType::Utf8View => array.as_string_view().lengths().map(u64::from).collect(),
        DataType::BinaryView => array.as_binary_view().lengths().map(u64::from).collect(),
        DataType::List(_) => {
            let list = array.as_list::<i32>();
            list_bytes(list.value_offsets(), list.values())
        }
        DataType::LargeList(_) => {
            let list = array.as_list::<i64>();
            list_bytes(list.value_offsets(), list.values())
        }
        DataType::Map(_, _) => {
            let map = array.as_map();
            list_bytes(map.value_offsets(), map.entries())
        }
        DataType::FixedSizeList(_, size) => {
            let values = value_bytes(array.as_fixed_size_list().values());
            let size = usize::try_from(*size).unwrap_or_default();
            (0..len).map(|i| values[i * size..(i + 1) * size].iter().sum()).collect()
        }
        DataType::Struct(_) => {
            let mut total = vec![0; len];
            for child in array.as_struct().columns() {
                add(&mut total, &value_bytes(child));
            }
            total
        }
        other => vec![fixed_bytes(other).unwrap_or(OTHER_BYTES); len],
    };
    if let Some(nulls) = array.nulls() {
        for (i, bytes) in bytes.iter_mut().enumerate() {
            if nulls.is_null(i) {
                *bytes = 0;
            }
        }
    }
    bytes
}

/// Bytes of a value of a type whose values all have the same.
fn fixed_bytes(data_type: &DataType) -> Option<u64> {
    match data_type {
        DataType::Null => Some(0),
        DataType::Boolean => Some(1),
        DataType::FixedSizeBinary(size) => u64::try_from(*size).ok(),
        other => other.primitive_width().map(|width| width as u64),
    }
}

fn offset_bytes<O: OffsetSizeTrait>(offsets: &[O], width: u64) -> Vec<u64> {
    offsets.windows(2).map(|w| (w[1] - w[0]).as_usize() as u64 * width).collect()
}

fn list_bytes<O: OffsetSizeTrait>(offsets: &[O], values: &dyn Array) -> Vec<u64> {
    if let Some(width) = fixed_bytes(values.data_type()) {
        return offset_bytes(offsets, width);
    }
    let start = offsets[0].as_usize();
    let values = values.slice(start, offsets[offsets.len() - 1].as_usize() - start);
    let bytes = value_bytes(&values);
    let sum = |w: &[O]| bytes[w[0].as_usize() - start..w[1].as_usize() - start].iter().sum();
    offsets.windows(2).map(sum).collect()
}

/// `batch` with dictionaries replaced by their values, at every depth.
pub(super) fn dense(batch: &RecordBatch) -> Result<RecordBatch, ArrowError> {
    let mut fields = Vec::new();
    let mut columns: Vec<ArrayRef> = Vec::new();
    for (field, column) in batch.schema().fields().iter().zip(batch.columns()) {
        let data_type = dense_type(field.data_type());
        columns.push(if data_type == *field.data_type() {
            Arc::clone(column)
        } else {
            cast(column, &data_type)?
        });
        fields.push(field.as_ref().clone().with_data_type(data_type));
    }
    RecordBatch::try_new(Arc::new(Schema::new(fields)), columns)
}

fn dense_type(data_type: &DataType) -> DataType {
    match data_type {
        DataType::Dictionary(_, values) => dense_type(values),
        DataType::List(child) => DataType::List(dense_field(child)),
        DataType::LargeList(child) => DataType::LargeList(dense_field(child)),
        DataType::FixedSizeList(child, size) => DataType::FixedSizeList(dense_field(child), *size),
        DataType::Map(child, sorted) => DataType::Map(dense_field(child), *sorted),
        DataType::Struct(children) => DataType::Struct(children.iter().map(dense_field).collect()),
        other => other.clone(),
    }
}

fn dense_field(field: &FieldRef) -> FieldRef {
    let data_type = dense_type(field.data_type());
    Arc::new(Field::clone(field).with_data_type(data_type))
}

#[cfg(test)]
mod tests {
    use arrow_array::types::Int32Type;
    use arrow_array::{Int32Array, ListArray, StringArray};
    use arrow_buffer::OffsetBuffer;

    use super::*;

    #[test]
    fn a_row_has_the_size_of_its_values() -> Result<(), ArrowError> {
        let texts: ArrayRef =
            Arc::new(StringArray::from(vec![Some("ab"), None, Some("äöü"), Some("")]));
        let numbers: ArrayRef = Arc::new(Int32Array::from(vec![Some(1), None, Some(3), Some(4)]));
        let lists = ListArray::try_new(
            Arc::new(Field::new("element", DataType::Utf8, true)),
            OffsetBuffer::new(vec![0, 2, 2, 3, 4].into()),
            Arc::clone(&texts),
            None,
        )?;
        let batch = RecordBatch::try_from_iter([
            ("text", texts),
            ("number", numbers),
            ("list", Arc::new(lists) as ArrayRef),
        ])?;
        assert_eq!(row_bytes(&batch), [2 + 4 + 2, 0, 6 + 4 + 6, 4]);
        assert_eq!(row_bytes(&batch.slice(2, 2)), [6 + 4 + 6, 4]);
        Ok(())
    }

    #[test]
    fn dictionaries_become_their_values_inside_lists_too() -> Result<(), ArrowError> {
        let words: arrow_array::DictionaryArray<Int32Type> =
            vec![Some("a"), Some("b"), None, Some("a")].into_iter().collect();
        let field = Arc::new(Field::new("element", words.data_type().clone(), true));
        let offsets = OffsetBuffer::from_lengths([3, 1]);
        let lists = ListArray::try_new(field, offsets, Arc::new(words), None)?;
        let batch = RecordBatch::try_from_iter([("x", Arc::new(lists) as ArrayRef)])?;
        let dense = dense(&batch)?;
        let values = dense.column(0).as_list::<i32>().values();
        let values: Vec<_> = values.as_string::<i32>().iter().collect();
        assert_eq!(values, [Some("a"), Some("b"), None, Some("a")]);
        Ok(())
    }
}
