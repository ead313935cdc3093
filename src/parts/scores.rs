//! One score part: the logits and scores that one head gave to the documents of a shard.
//!
//! Row-aligned with the shard and without text, so that selecting reads little. A score that is
//! NaN is stored as NaN; a document without text has neither logit nor score (null).

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use arrow_array::types::Float32Type;
use arrow_array::{ArrayRef, BooleanArray, Float32Array};
use arrow_schema::{DataType, Field};
use parquet::basic::Compression;
use parquet::schema::types::ColumnPath;

use super::columns::{self, Documents, OwnedDocuments};
use super::embedding_scan::DocumentColumns;
use crate::error::{Error, Result};
use crate::io::FileStamp;

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
    /// Content tokens of each text; `None` where they were not counted.
    pub num_tokens: Option<Vec<u64>>,
    /// What the head gave before its activation; `None` without text.
    pub logits: Vec<Option<f32>>,
    /// What the head gave; `None` without text.
    pub scores: Vec<Option<f32>>,
}

/// Writes the part `path` at compression level `zstd`; columns of different lengths are an
/// [`Error::Shape`].
pub fn write_scores(path: &Path, rows: &ScoreRows, zstd: i32) -> Result<FileStamp> {
    write_part(path, rows, None, zstd)
}

/// Writes the part `path` like [`write_scores`], with a column `refined` that says which scores were
/// computed again in f32.
pub fn write_refined_scores(
    path: &Path,
    rows: &ScoreRows,
    refined: &[bool],
    zstd: i32,
) -> Result<FileStamp> {
    write_part(path, rows, Some(refined), zstd)
}

fn write_part(
    path: &Path,
    rows: &ScoreRows,
    refined: Option<&[bool]>,
    zstd: i32,
) -> Result<FileStamp> {
    let documents = Documents {
        rows: &rows.rows,
        ids: &rows.ids,
        languages: &rows.languages,
        num_bytes: &rows.num_bytes,
        num_tokens: rows.num_tokens.as_deref(),
    };
    let len = documents.checked_len("write_scores")?;
    let arrays = |group: &Range<usize>| Ok(documents.arrays(group));
    let given = Given { logits: &rows.logits, scores: &rows.scores, refined };
    write_groups(path, len, arrays, &given, zstd)
}

/// As [`write_scores`], for `documents` read from the part `from`.
pub(crate) fn write_scores_of(
    path: &Path,
    (documents, from): (&DocumentColumns, &Path),
    (logits, scores): (&[Option<f32>], &[Option<f32>]),
    zstd: i32,
) -> Result<FileStamp> {
    let arrays = documents.arrays(from)?;
    let slices = |group: &Range<usize>| {
        Ok(arrays.iter().map(|array| array.slice(group.start, group.len())).collect())
    };
    let given = Given { logits, scores, refined: None };
    write_groups(path, documents.len(), slices, &given, zstd)
}

/// What the documents of a part were given.
struct Given<'a> {
    logits: &'a [Option<f32>],
    scores: &'a [Option<f32>],
    refined: Option<&'a [bool]>,
}

impl Given<'_> {
    /// Fields of [`Given::arrays`].
    fn fields(&self) -> impl Iterator<Item = Field> {
        let floats = ["logit", "score"].map(|name| Field::new(name, DataType::Float32, true));
        let flag = self.refined.map(|_| Field::new("refined", DataType::Boolean, false));
        floats.into_iter().chain(flag)
    }

    /// The rows of `range` as columns.
    fn arrays(&self, range: &Range<usize>) -> impl Iterator<Item = ArrayRef> {
        let floats = |values: &[Option<f32>]| -> ArrayRef {
            Arc::new(Float32Array::from(values[range.clone()].to_vec()))
        };
        let flags = self.refined.map(|refined| -> ArrayRef {
            Arc::new(BooleanArray::from(refined[range.clone()].to_vec()))
        });
        [floats(self.logits), floats(self.scores)].into_iter().chain(flags)
    }

    /// [`Error::Shape`] unless there are `len` values of each.
    fn check(&self, len: usize) -> Result<()> {
        let lens = [self.logits.len(), self.scores.len(), self.refined.map_or(len, <[bool]>::len)];
        if lens.iter().all(|&given| given == len) {
            return Ok(());
        }
        let reason = format!("{len} documents, but {lens:?} logits, scores, refined");
        Err(Error::shape("write_scores", reason))
    }
}

/// Writes the part `path` of `len` rows, the document columns of a range as `documents` gives them.
fn write_groups(
    path: &Path,
    len: usize,
    documents: impl Fn(&Range<usize>) -> Result<Vec<ArrayRef>>,
    given: &Given<'_>,
    zstd: i32,
) -> Result<FileStamp> {
    given.check(len)?;
    let schema = columns::part_schema(given.fields());
    let mut properties = columns::properties(path, zstd)?;
    for name in ["logit", "score"] {
        // Compressed they would be a tenth smaller, and finding thresholds would take twice as long.
        properties = columns::split_floats(properties, ColumnPath::from(name))
            .set_column_compression(ColumnPath::from(name), Compression::UNCOMPRESSED);
    }
    let batches = (0..len).step_by(GROUP_ROWS).map(|start| {
        let group = start..(start + GROUP_ROWS).min(len);
        let mut arrays = documents(&group)?;
        arrays.extend(given.arrays(&group));
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
        let num_tokens = Some(columns.iter().map(|(number, ..)| number / 4).collect());
        let mut rows = ScoreRows { num_tokens, ..ScoreRows::default() };
        for (i, (number, logit, score)) in columns.into_iter().enumerate() {
            rows.rows.push(i as u64);
            rows.ids.push(format!("<urn:{number}>"));
            rows.languages.push(["deu_Latn", "und"][i % 2].into());
            rows.num_bytes.push(number);
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
    fn token_counts_that_were_not_made_come_back_as_such() -> Result<(), Box<dyn std::error::Error>>
    {
        let dir = tempfile::tempdir()?;
        let path = dir.path().join("part");
        let mut rows = rows_of((0..=READ_ROWS as u64).map(|i| (i, None, None)).collect());
        rows.num_tokens = None;
        write_scores(&path, &rows, 1)?;
        assert_eq!(read_scores(&path)?.num_tokens, None);
        Ok(())
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
