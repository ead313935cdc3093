//! Puts embeddings, scores and rates beside the rows of the input, as the layout says.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, BooleanArray, Float64Array, RecordBatch, StructArray};
use arrow_schema::{ArrowError, SchemaRef};
use arrow_select::nullif::nullif;

use super::layout::{Column, Plan, Source};
use super::{ExportSpec, RowExtras};
use crate::error::{Error, Result};
use crate::parts::embeddings_array;

/// The exported rows of `input`, with the schema that [`export_schema`](super::export_schema)
/// made from `input`'s. Extras that do not fit the rows, or a `schema` that does not fit the
/// input, are an [`Error::Shape`].
pub fn assemble(
    input: &RecordBatch,
    extras: &RowExtras,
    schema: &SchemaRef,
    spec: &ExportSpec,
) -> Result<RecordBatch> {
    let plan = Plan::new(&input.schema(), spec)
        .map_err(|m| shape(format!("column `{}`: {}", m.column, m.reason)))?;
    let arrays = |columns: &[Column]| -> Result<Vec<ArrayRef>> {
        columns.iter().map(|column| array(input, extras, &column.source, spec)).collect()
    };
    let mut columns = arrays(&plan.top)?;
    if !plan.nested.is_empty() {
        let metadata = StructArray::try_new(plan.metadata(), arrays(&plan.nested)?, None);
        columns.push(Arc::new(metadata.map_err(|e| shape(e.to_string()))?));
    }
    RecordBatch::try_new(Arc::clone(schema), columns).map_err(|e| shape(e.to_string()))
}

/// The values of one exported column.
fn array(
    input: &RecordBatch,
    extras: &RowExtras,
    source: &Source,
    spec: &ExportSpec,
) -> Result<ArrayRef> {
    let num_rows = input.num_rows();
    let checked = |name: &str, len: Option<usize>| match len {
        Some(len) if len == num_rows => Ok(()),
        _ => Err(shape(format!("{num_rows} rows, but {len:?} values of {name}"))),
    };
    match source {
        Source::Input(path) => input_column(input, path).map_err(|e| shape(e.to_string())),
        Source::Embeddings => {
            let RowExtras { chunk_offsets, values, hidden_size, .. } = extras;
            checked("embeddings", chunk_offsets.len().checked_sub(1))?;
            embeddings_array(
                chunk_offsets,
                values,
                *hidden_size,
                spec.embeddings.unwrap_or_default(),
            )
        }
        Source::Score(i) => {
            let scores = extras.scores.get(*i);
            checked(&spec.score_columns[*i], scores.map(Vec::len))?;
            let scores = scores.into_iter().flatten().map(|score| score.map(f64::from));
            Ok(Arc::new(scores.collect::<Float64Array>()))
        }
        Source::Retention(i) => {
            let rates = extras.retention.get(*i);
            checked(&spec.retention_columns[*i], rates.map(Vec::len))?;
            Ok(Arc::new(rates.into_iter().flatten().copied().collect::<Float64Array>()))
        }
    }
}

/// The column at `path`; a value below a null struct is null.
fn input_column(input: &RecordBatch, path: &[usize]) -> Result<ArrayRef, ArrowError> {
    let mut array = Arc::clone(input.column(path[0]));
    for &child in &path[1..] {
        let parent = array.as_struct();
        let values = Arc::clone(parent.column(child));
        array = match parent.nulls().filter(|nulls| nulls.null_count() > 0) {
            Some(nulls) => nullif(&values, &BooleanArray::new(!nulls.inner(), None))?,
            None => values,
        };
    }
    Ok(array)
}

fn shape(reason: String) -> Error {
    Error::shape("assemble", reason)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use arrow_array::types::{Float64Type, Int64Type};
    use arrow_array::{Int64Array, NullArray, StringArray};
    use arrow_buffer::NullBuffer;
    use arrow_schema::{DataType, Field, Fields, Schema};

    use super::*;
    use crate::export::export_schema;

    fn nested_input() -> Result<RecordBatch, ArrowError> {
        let fields: Fields =
            vec![Field::new("n", DataType::Int64, false), Field::new("x", DataType::Null, true)]
                .into();
        let children: Vec<ArrayRef> =
            vec![Arc::new(Int64Array::from(vec![1, 2, 3])), Arc::new(NullArray::new(3))];
        let nulls = NullBuffer::from(vec![true, false, true]);
        let metadata = StructArray::try_new(fields.clone(), children, Some(nulls))?;
        let schema = Schema::new(vec![
            Field::new("text", DataType::Utf8, true),
            Field::new("metadata", DataType::Struct(fields), true),
        ]);
        let text = StringArray::from(vec![Some("a"), None, Some("c")]);
        RecordBatch::try_new(Arc::new(schema), vec![Arc::new(text), Arc::new(metadata)])
    }

    #[test]
    fn a_null_struct_gives_null_children() -> Result<(), Box<dyn std::error::Error>> {
        let input = nested_input()?;
        let spec = ExportSpec::default();
        let schema = export_schema(&input.schema(), &spec, Path::new("x"))?;
        for (start, len, expected) in
            [(0, 3, vec![Some(1), None, Some(3)]), (1, 2, vec![None, Some(3)])]
        {
            let batch = assemble(&input.slice(start, len), &RowExtras::default(), &schema, &spec)?;
            let numbers: Vec<_> = batch.column(1).as_primitive::<Int64Type>().iter().collect();
            assert_eq!(numbers, expected);
            assert_eq!(batch.column(2).data_type(), &DataType::Null);
        }
        Ok(())
    }

    #[test]
    fn scores_are_the_f32_values_and_absent_ones_null() -> Result<(), Box<dyn std::error::Error>> {
        let input = nested_input()?;
        let spec = ExportSpec {
            score_columns: vec!["s".into()],
            retention_columns: vec!["r".into()],
            ..ExportSpec::default()
        };
        let schema = export_schema(&input.schema(), &spec, Path::new("x"))?;
        let extras = RowExtras {
            scores: vec![vec![Some(0.1), None, Some(f32::NAN)]],
            retention: vec![vec![Some(0.1), None, None]],
            ..RowExtras::default()
        };
        let batch = assemble(&input, &extras, &schema, &spec)?;
        let scores = batch.column(3).as_primitive::<Float64Type>();
        assert_eq!(scores.value(0).to_bits(), f64::from(0.1f32).to_bits());
        assert!(scores.is_null(1) && scores.value(2).is_nan());
        let rates = batch.column(4).as_primitive::<Float64Type>();
        assert_eq!(rates.value(0).to_bits(), 0.1f64.to_bits());
        Ok(())
    }

    #[test]
    fn extras_of_another_length_are_refused() -> Result<(), Box<dyn std::error::Error>> {
        let input = nested_input()?;
        let spec = ExportSpec { score_columns: vec!["s".into()], ..ExportSpec::default() };
        let schema = export_schema(&input.schema(), &spec, Path::new("x"))?;
        for scores in [vec![], vec![vec![None; 2]], vec![vec![None; 4]]] {
            let extras = RowExtras { scores, ..RowExtras::default() };
            let result = assemble(&input, &extras, &schema, &spec);
            assert!(matches!(result, Err(Error::Shape { .. })), "{result:?}");
        }
        Ok(())
    }
}
