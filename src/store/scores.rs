//! One score part: the logits and scores that one head gave to the documents of a shard.
//!
//! Row-aligned with the shard and without text, so that selecting reads little. A score that is
//! NaN is stored as NaN; a document without text has neither logit nor score (null).

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use arrow::array::{ArrayRef, Float32Array};
use arrow::datatypes::{DataType, Field, Float32Type};
use parquet::basic::Compression;
use parquet::schema::types::ColumnPath;

use super::atomic::FileStamp;
use super::columns::{self, Documents, OwnedDocuments};
use super::embedding_scan::DocumentColumns;
use crate::error::{Error, Result};

/// Rows of a row group.
const GROUP_ROWS: usize = 1 << 20;
/// Rows decoded at a time.
const READ_ROWS: usize = 8192;

/// The rows of one score part, in the order of the input; all columns have one length.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ScoreRows {
    /// Row of each document in its shard, from 0.
    pub rows: Vec<u64>,
    /// Id of each document.
    pub ids: Vec<String>,
    /// Language code of each document.
    pub languages: Vec<String>,
    /// UTF-8 bytes of each text.
    pub num_bytes: Vec<u64>,
    /// Content tokens of each text.
    pub num_tokens: Vec<u64>,
    /// What the head gave before its activation; `None` without text.
    pub logits: Vec<Option<f32>>,
    /// What the head gave; `None` without text.
    pub scores: Vec<Option<f32>>,
}

/// Writes the part `path` at compression level `zstd`; columns of different lengths are an
/// [`Error::Shape`].
pub fn write_scores(path: &Path, rows: &ScoreRows, zstd: i32) -> Result<FileStamp> {
    let documents = Documents {
        rows: &rows.rows,
        ids: &rows.ids,
        languages: &rows.languages,
        num_bytes: &rows.num_bytes,
        num_tokens: &rows.num_tokens,
    };
    let len = documents.checked_len("write_scores")?;
    if rows.logits.len() != len || rows.scores.len() != len {
        let (logits, scores) = (rows.logits.len(), rows.scores.len());
        let reason = format!("{len} documents, {logits} logits, {scores} scores");
        return Err(Error::shape("write_scores", reason));
    }
    let arrays = |group: &Range<usize>| Ok(documents.arrays(group));
    write_groups(path, len, arrays, (&rows.logits, &rows.scores), zstd)
}

/// As [`write_scores`], for `documents` read from the part `from`.
pub(crate) fn write_scores_of(
    path: &Path,
    (documents, from): (&DocumentColumns, &Path),
    (logits, scores): (&[Option<f32>], &[Option<f32>]),
    zstd: i32,
) -> Result<FileStamp> {
    let len = documents.len();
    if logits.len() != len || scores.len() != len {
        let (logits, scores) = (logits.len(), scores.len());
        let reason = format!("{len} documents, {logits} logits, {scores} scores");
        return Err(Error::shape("write_scores", reason));
    }
    let arrays = documents.arrays(from)?;
    let slices = |group: &Range<usize>| {
        Ok(arrays.iter().map(|array| array.slice(group.start, group.len())).collect())
    };
    write_groups(path, len, slices, (logits, scores), zstd)
}

/// Writes the part `path` of `len` rows, the document columns of a range as `documents` gives them.
fn write_groups(
    path: &Path,
    len: usize,
    documents: impl Fn(&Range<usize>) -> Result<Vec<ArrayRef>>,
    (logits, scores): (&[Option<f32>], &[Option<f32>]),
    zstd: i32,
) -> Result<FileStamp> {
    let schema =
        columns::part_schema(["logit", "score"].map(|n| Field::new(n, DataType::Float32, true)));
    let mut properties = columns::properties(path, zstd)?;
    for name in ["logit", "score"] {
        // Compressed they would be a tenth smaller, and finding thresholds would take twice as long.
        properties = columns::split_floats(properties, ColumnPath::from(name))
            .set_column_compression(ColumnPath::from(name), Compression::UNCOMPRESSED);
    }
    let batches = (0..len).step_by(GROUP_ROWS).map(|start| {
        let group = start..(start + GROUP_ROWS).min(len);
        let floats = |values: &[Option<f32>]| -> ArrayRef {
            Arc::new(Float32Array::from(values[group.clone()].to_vec()))
        };
        let mut arrays = documents(&group)?;
        arrays.extend([floats(logits), floats(scores)]);
        Ok(arrays)
    });
    columns::write_part(path, &schema, properties.build(), batches)
}

/// Reads the part `path`. A file that is not one is an [`Error::Decode`] or [`Error::Schema`].
pub fn read_scores(path: &Path) -> Result<ScoreRows> {
    let mut documents = OwnedDocuments::default();
    let (mut logits, mut scores) = (Vec::new(), Vec::new());
    let names = ["row", "id", "language", "num_bytes", "num_tokens", "logit", "score"];
    columns::for_each_batch(columns::open(path)?, path, &names, READ_ROWS, |batch| {
        documents.append(batch, path)?;
        logits.extend(columns::primitives::<Float32Type>(batch, "logit", path)?);
        scores.extend(columns::primitives::<Float32Type>(batch, "score", path)?);
        Ok(())
    })?;
    Ok(ScoreRows {
        rows: documents.rows,
        ids: documents.ids,
        languages: documents.languages,
        num_bytes: documents.num_bytes,
        num_tokens: documents.num_tokens,
        logits,
        scores,
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn score() -> impl Strategy<Value = Option<f32>> {
        let special = prop_oneof![
            Just(f32::NAN),
            Just(f32::INFINITY),
            Just(f32::NEG_INFINITY),
            Just(-0.0f32),
            Just(f32::from_bits(1)),
        ];
        proptest::option::of(prop_oneof![any::<f32>(), special])
    }

    fn bits(values: &[Option<f32>]) -> Vec<Option<u32>> {
        values.iter().map(|v| v.map(f32::to_bits)).collect()
    }

    fn rows_of(columns: Vec<(u64, Option<f32>, Option<f32>)>) -> ScoreRows {
        let mut rows = ScoreRows::default();
        for (i, (number, logit, score)) in columns.into_iter().enumerate() {
            rows.rows.push(i as u64);
            rows.ids.push(format!("<urn:{number}>"));
            rows.languages.push(["deu_Latn", "und"][i % 2].into());
            rows.num_bytes.push(number);
            rows.num_tokens.push(number / 4);
            rows.logits.push(logit);
            rows.scores.push(score);
        }
        rows
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]
        #[test]
        fn scores_come_back_bit_for_bit(
            columns in proptest::collection::vec((any::<u64>(), score(), score()), 0..300)
        ) {
            let dir = tempfile::tempdir()?;
            let path = dir.path().join("part");
            let rows = rows_of(columns);
            write_scores(&path, &rows, 1)?;
            let read = read_scores(&path)?;
            prop_assert_eq!(bits(&read.logits), bits(&rows.logits));
            prop_assert_eq!(bits(&read.scores), bits(&rows.scores));
            prop_assert_eq!((&read.rows, &read.ids), (&rows.rows, &rows.ids));
            prop_assert_eq!(&read.languages, &rows.languages);
            prop_assert_eq!((read.num_bytes, read.num_tokens), (rows.num_bytes, rows.num_tokens));
        }
    }

    #[test]
    fn columns_of_different_lengths_are_refused() -> Result<(), Box<dyn std::error::Error>> {
        let dir = tempfile::tempdir()?;
        let path = dir.path().join("part");
        let mut rows = rows_of(vec![(1, None, None)]);
        rows.scores.clear();
        assert!(matches!(write_scores(&path, &rows, 1), Err(Error::Shape { .. })));
        rows.rows.clear();
        assert!(matches!(write_scores(&path, &rows, 1), Err(Error::Shape { .. })));
        assert!(!path.exists());
        Ok(())
    }
}
