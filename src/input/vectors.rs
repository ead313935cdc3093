//! Embeddings that the input already has.
//!
//! Owns which column types can hold them and the rule that all vectors of a file are equally
//! wide. Values become f32 (from f64 by rounding to nearest); none is checked to be finite.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::Float32Type;
use arrow_array::{Array, ArrayRef, LargeListArray};
use arrow_cast::cast;
use arrow_schema::{ArrowError, DataType, Field};

/// Vectors of a row, `[num_chunks, D]`.
pub(super) type RowVectors = Vec<Vec<f32>>;

/// Width of the vectors of a file, set by the first.
#[derive(Debug, Default)]
pub(super) struct Width(Option<usize>);

impl Width {
    /// Refuses vectors that are empty or not as wide as those before.
    pub(super) fn check(&mut self, vectors: &[Vec<f32>]) -> Result<(), String> {
        for vector in vectors {
            if vector.is_empty() {
                return Err("an embedding is empty".to_owned());
            }
            let width = *self.0.get_or_insert(vector.len());
            if vector.len() != width {
                let found = vector.len();
                return Err(format!("an embedding has {found} values, those before have {width}"));
            }
        }
        Ok(())
    }
}

/// Number of list levels (1: one vector, 2: a list of vectors), or `None` for another type.
fn depth(data_type: &DataType) -> Option<usize> {
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

/// Whether a column of that type can hold embeddings.
pub(super) fn is_embeddings(data_type: &DataType) -> bool {
    depth(data_type).is_some()
}

/// The vectors of a column, row by row.
pub(super) struct Vectors {
    rows: LargeListArray,
    nested: bool,
}

impl Vectors {
    /// Of a column for which [`is_embeddings`] holds.
    pub(super) fn new(column: &ArrayRef) -> Result<Self, ArrowError> {
        let nested = depth(column.data_type()) == Some(2);
        let list = |item| DataType::LargeList(Arc::new(Field::new_list_field(item, true)));
        let vector = list(DataType::Float32);
        let rows = cast(column, &if nested { list(vector) } else { vector })?;
        Ok(Self { rows: rows.as_list::<i64>().clone(), nested })
    }

    /// Vectors of a row, `None` for null; `[[...], [...]]`, or `[...]` as a single one.
    pub(super) fn get(&self, row: usize) -> Result<Option<RowVectors>, String> {
        if self.rows.is_null(row) {
            return Ok(None);
        }
        let value = self.rows.value(row);
        if !self.nested {
            // Without a value there is no vector, rather than one of no width.
            let vectors = if value.is_empty() { Vec::new() } else { vec![vector(&value)?] };
            return Ok(Some(vectors));
        }
        let chunks = value.as_list::<i64>();
        let vectors = (0..chunks.len()).map(|chunk| {
            if chunks.is_null(chunk) {
                return Err("an embedding is null".to_owned());
            }
            vector(&chunks.value(chunk))
        });
        vectors.collect::<Result<_, _>>().map(Some)
    }
}

fn vector(values: &ArrayRef) -> Result<Vec<f32>, String> {
    if values.null_count() > 0 {
        return Err("an embedding holds a null".to_owned());
    }
    Ok(values.as_primitive::<Float32Type>().values().to_vec())
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
        assert!(is_embeddings(column.data_type()));
        let vectors = Vectors::new(&column)?;
        assert_eq!(vectors.get(0)?, Some(vec![vec![0.1, 2.0]]));
        assert_eq!(vectors.get(1)?, None);
        assert_eq!(vectors.get(2)?, Some(vec![]));
        assert!(vectors.get(3).is_err());
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
        let vectors = Vectors::new(&column)?;
        assert_eq!(vectors.get(0)?, Some(vec![vec![0.5, -2.0]]));
        assert_eq!(vectors.get(1)?, None);
        Ok(())
    }

    #[test]
    fn scalars_and_deeper_lists_do_not_serve() {
        let list = |item| DataType::List(Arc::new(Field::new_list_field(item, true)));
        assert!(!is_embeddings(&DataType::Float32));
        assert!(!is_embeddings(&list(DataType::Utf8)));
        assert!(!is_embeddings(&list(list(list(DataType::Float32)))));
        let integers = ListArray::from_iter_primitive::<Int32Type, _, _>([Some([Some(1)])]);
        assert!(is_embeddings(integers.data_type()));
    }

    #[test]
    fn widths_agree_within_a_file() {
        let mut width = Width::default();
        assert!(width.check(&[]).is_ok());
        assert!(width.check(&[vec![]]).is_err());
        assert!(width.check(&[vec![1.0, 2.0], vec![3.0, 4.0]]).is_ok());
        assert!(width.check(&[vec![1.0]]).is_err_and(|e| e.contains("1 values")));
    }
}
