//! Embeddings that the input already has. All vectors of a file have the same width. Values become
//! f32 (f64 is rounded to nearest); they are not checked to be finite.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::Float32Type;
use arrow_array::{Array, ArrayRef, BooleanArray, LargeListArray};
use arrow_buffer::OffsetBuffer;
use arrow_schema::{ArrowError, DataType, Field, FieldRef};
use arrow_select::filter::filter;

use super::values::{floats, lists};

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
pub(super) fn depth(data_type: &DataType) -> Option<usize> {
    match data_type {
        DataType::List(item) | DataType::LargeList(item) | DataType::FixedSizeList(item, _) => {
            let inner = item.data_type();
            if inner.is_floating() || inner.is_integer() {
                return Some(1);
            }
            depth(inner).filter(|levels| *levels == 1).map(|levels| levels + 1)
        }
        _ => None,
    }
}

/// Returns the vectors of a column that has a [`depth`], as lists of lists of f32:
/// `[[...], [...]]`, or `[...]` for a single vector.
pub(super) fn vectors(column: &ArrayRef) -> Result<LargeListArray, ArrowError> {
    let item = |data_type| -> FieldRef { Arc::new(Field::new_list_field(data_type, true)) };
    let vector = item(DataType::LargeList(item(DataType::Float32)));
    let outer = lists(column)?;
    if depth(column.data_type()) == Some(2) {
        let inner: ArrayRef = Arc::new(of_floats(lists(outer.values())?)?);
        let (offsets, nulls) = (outer.offsets().clone(), outer.nulls().cloned());
        return LargeListArray::try_new(vector, offsets, inner, nulls);
    }
    let rows = of_floats(outer)?;
    // An empty list is no vector, rather than a vector of width 0.
    let is_vector = |row| rows.is_valid(row) && rows.value_length(row) > 0;
    let has_vector: Vec<bool> = (0..rows.len()).map(is_vector).collect();
    let offsets = OffsetBuffer::from_lengths(has_vector.iter().map(|has| usize::from(*has)));
    let values = filter(&rows, &BooleanArray::from(has_vector))?;
    LargeListArray::try_new(vector, offsets, values, rows.nulls().cloned())
}

/// Returns `lists` of numbers as lists of f32.
fn of_floats(lists: LargeListArray) -> Result<LargeListArray, ArrowError> {
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
    use arrow_array::types::{Float16Type, Float64Type, Int32Type};
    use arrow_array::{FixedSizeListArray, ListArray};

    use super::*;

    #[test]
    fn one_plain_list_is_one_vector() -> Result<(), Box<dyn std::error::Error>> {
        let column: ArrayRef = Arc::new(ListArray::from_iter_primitive::<Float64Type, _, _>([
            Some(vec![Some(0.1), Some(2.0)]),
            None,
            Some(vec![]),
            Some(vec![Some(1.0), None]),
        ]));
        assert_eq!(depth(column.data_type()), Some(1));
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
        assert_eq!(depth(&DataType::Float32), None);
        assert_eq!(depth(&list(DataType::Utf8)), None);
        assert_eq!(depth(&list(list(list(DataType::Float32)))), None);
        let integers = ListArray::from_iter_primitive::<Int32Type, _, _>([Some([Some(1)])]);
        assert_eq!(depth(integers.data_type()), Some(1));
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
