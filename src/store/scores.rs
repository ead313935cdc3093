//! One score part: the logits and scores that one head gave to the documents of a shard.
//!
//! Row-aligned with the shard and without text, so that selecting reads little. A score that is
//! NaN is stored as NaN; a document without text has neither logit nor score (null).

use std::path::Path;
use std::sync::Arc;

use arrow::array::{ArrayRef, BooleanArray, Float32Array, RecordBatch, StringArray};
use arrow::datatypes::{DataType, Field, Float32Type};
use parquet::schema::types::ColumnPath;

use super::atomic::FileStamp;
use super::columns::{self, Documents, OwnedDocuments};
use crate::error::{Error, Result};

/// Rows of a row group.
const GROUP_ROWS: usize = 1 << 20;
/// Rows decoded at a time, the length of a [`ScoreBlock`].
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

/// Some consecutive rows of a score part; all slices have one length.
#[derive(Debug)]
pub struct ScoreBlock<'a> {
    /// See [`ScoreRows::rows`].
    pub rows: &'a [u64],
    /// See [`ScoreRows::ids`]; only when asked for.
    pub ids: Option<&'a [&'a str]>,
    /// See [`ScoreRows::languages`].
    pub languages: &'a [&'a str],
    /// See [`ScoreRows::num_bytes`].
    pub num_bytes: &'a [u64],
    /// See [`ScoreRows::num_tokens`].
    pub num_tokens: Option<&'a [u64]>,
    /// See [`ScoreRows::logits`].
    pub logits: &'a [Option<f32>],
    /// See [`ScoreRows::scores`].
    pub scores: &'a [Option<f32>],
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
    if rows.logits.len() != len || rows.scores.len() != len {
        let (logits, scores) = (rows.logits.len(), rows.scores.len());
        let reason = format!("{len} documents, {logits} logits, {scores} scores");
        return Err(Error::shape("write_scores", reason));
    }
    if refined.is_some_and(|refined| refined.len() != len) {
        let reason = format!("{len} documents, but not as many that are refined or not");
        return Err(Error::shape("write_scores", reason));
    }
    let floats = ["logit", "score"].map(|name| Field::new(name, DataType::Float32, true));
    let flag = refined.map(|_| Field::new("refined", DataType::Boolean, false));
    let schema = columns::part_schema(floats.into_iter().chain(flag));
    let mut properties = columns::properties(path, zstd)?;
    for name in ["logit", "score"] {
        properties = columns::split_floats(properties, ColumnPath::from(name));
    }
    let batches = (0..len).step_by(GROUP_ROWS).map(|start| {
        let group = start..(start + GROUP_ROWS).min(len);
        let floats = |values: &[Option<f32>]| -> ArrayRef {
            Arc::new(Float32Array::from(values[group.clone()].to_vec()))
        };
        let mut arrays = documents.arrays(&group);
        arrays.extend([floats(&rows.logits), floats(&rows.scores)]);
        let flags = refined.map(|refined| BooleanArray::from(refined[group.clone()].to_vec()));
        arrays.extend(flags.map(|flags| -> ArrayRef { Arc::new(flags) }));
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

/// Calls `visit` with the rows of the part `path`, block by block in their order; ids are decoded
/// only when `want_ids`. Stops at the first error, its own ([`Error::Decode`], [`Error::Schema`])
/// or that of `visit`.
pub fn scan_scores(
    path: &Path,
    want_ids: bool,
    visit: &mut dyn FnMut(&ScoreBlock<'_>) -> Result<()>,
) -> Result<()> {
    let names = ["row", "language", "num_bytes", "num_tokens", "logit", "score", "id"];
    let names = if want_ids { &names[..] } else { &names[..6] };
    columns::for_each_batch(columns::open(path)?, path, names, READ_ROWS, |batch| {
        let ids = want_ids.then(|| columns::texts(batch, "id", path).map(strs)).transpose()?;
        visit(&ScoreBlock {
            rows: columns::numbers(batch, "row", path)?,
            ids: ids.as_deref(),
            languages: &strs(columns::texts(batch, "language", path)?),
            num_bytes: columns::numbers(batch, "num_bytes", path)?,
            num_tokens: columns::token_counts(batch, path)?,
            logits: &floats(batch, "logit", path)?,
            scores: &floats(batch, "score", path)?,
        })
    })
}

fn strs(array: &StringArray) -> Vec<&str> {
    array.iter().flatten().collect()
}

fn floats(batch: &RecordBatch, name: &str, path: &Path) -> Result<Vec<Option<f32>>> {
    Ok(columns::primitives::<Float32Type>(batch, name, path)?.iter().collect())
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
    fn a_scan_sees_every_row_once_and_ids_when_asked() -> Result<(), Box<dyn std::error::Error>> {
        let dir = tempfile::tempdir()?;
        let path = dir.path().join("part");
        let len = 2 * READ_ROWS + 1;
        let rows =
            rows_of((0..len).map(|i| (i as u64, (i % 3 > 0).then_some(i as f32), None)).collect());
        write_scores(&path, &rows, 1)?;
        for want_ids in [false, true] {
            let mut seen = ScoreRows::default();
            scan_scores(&path, want_ids, &mut |block| {
                assert_eq!(block.ids.is_some(), want_ids);
                seen.rows.extend_from_slice(block.rows);
                seen.ids.extend(block.ids.into_iter().flatten().map(ToString::to_string));
                seen.languages.extend(block.languages.iter().map(ToString::to_string));
                seen.num_bytes.extend_from_slice(block.num_bytes);
                seen.num_tokens.get_or_insert_default().extend_from_slice(
                    block.num_tokens.ok_or(Error::shape("test", "not counted"))?,
                );
                seen.logits.extend_from_slice(block.logits);
                seen.scores.extend_from_slice(block.scores);
                Ok(())
            })?;
            if !want_ids {
                seen.ids.clone_from(&rows.ids);
            }
            assert_eq!(seen, rows);
        }
        Ok(())
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
        scan_scores(&path, false, &mut |block| {
            assert_eq!(block.num_tokens, None);
            Ok(())
        })?;
        Ok(())
    }

    #[test]
    fn an_error_of_the_visitor_ends_the_scan() -> Result<(), Box<dyn std::error::Error>> {
        let dir = tempfile::tempdir()?;
        let path = dir.path().join("part");
        write_scores(&path, &rows_of(vec![(1, None, None)]), 1)?;
        let result = scan_scores(&path, false, &mut |_| Err(Error::Stopped));
        assert!(matches!(result, Err(Error::Stopped)));
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
