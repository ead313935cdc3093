//! Score parts: the logits and scores that one head gave to the documents of a shard. A NaN score
//! is stored as NaN; a document without text has neither logit nor score (null).

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow_array::{
    Array, ArrayRef, BooleanArray, Float32Array, RecordBatch, StringArray, UInt64Array,
};
use arrow_select::filter::filter_record_batch;
use parquet::basic::Compression;
use parquet::file::statistics::Statistics;
use parquet::schema::types::ColumnPath;

use super::checked::PARQUET;
use super::documents::{self, PartReader, documents_of, find_column, full_column};
use crate::input::{DOCUMENT_COLUMNS, DocumentBatch};
use polysift_base::error::{Error, Result};
use polysift_base::io::FileStamp;
use polysift_base::metrics::sigmoid;
use polysift_config::HeadOutput;

const SCORE_COLUMNS: [&str; 2] = ["logit", "score"];
const BATCH_ROWS: usize = 16_384;

/// Logit and score of a document by one head.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd)]
pub struct DocumentScore {
    /// Value that selection orders by: the output (sigmoid, raw), the log-odds of the class, the
    /// mean class or the cosine similarity. NaN if an embedding or an output is not finite.
    pub logit: f32,
    /// Exported value: a probability in [0, 1], or the logit itself.
    pub score: f32,
}

impl DocumentScore {
    /// Computes the score of `logit`: [`sigmoid`] of it if `output` is a probability (for a class,
    /// the logit is its log-odds), else the logit itself.
    pub fn new(logit: f32, output: HeadOutput) -> Self {
        let score = if output.is_probability() { sigmoid(logit) } else { logit };
        Self { logit, score }
    }

    /// Returns true if selections and metrics leave the document out.
    pub fn is_nan(self) -> bool {
        self.logit.is_nan() || self.score.is_nan()
    }
}

/// The rows of one score part in the order of the input. All columns have the same length.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ScoreRows {
    /// Documents of the rows.
    pub documents: DocumentBatch,
    /// Scores by the head; `None` without text.
    pub scores: Vec<Option<DocumentScore>>,
}

/// Writes the part `path`; `refined`, if given, marks scores that were computed again in f32.
pub fn write_scores(
    path: &Path,
    rows: &ScoreRows,
    refined: Option<&[bool]>,
    zstd: i32,
) -> Result<FileStamp> {
    let mut properties = documents::writer_properties(path, zstd, &[])?;
    for column in SCORE_COLUMNS.map(ColumnPath::from) {
        // Compression would save a tenth, but finding thresholds would take twice as long.
        properties = properties
            .set_column_dictionary_enabled(column.clone(), false)
            .set_column_compression(column, Compression::UNCOMPRESSED);
    }
    let refined = refined.map(|flags| Arc::new(BooleanArray::from(flags.to_vec())) as ArrayRef);
    let columns = rows.documents.columns().chain(score_columns(&rows.scores));
    let columns = columns.chain(refined.map(|flags| ("refined", flags)));
    let batch = documents::create_batch("write_scores", columns)?;
    documents::write_batch(path, &batch, properties.build())
}

/// Reads the part `path`. Returns [`Error::Decode`] or [`Error::Schema`] for any other file.
pub fn read_scores(path: &Path) -> Result<ScoreRows> {
    let part = PartReader::open(path)?;
    let batch = part.read(&[&DOCUMENT_COLUMNS[..], &SCORE_COLUMNS].concat())?;
    let documents = documents_of(&batch, path)?;
    Ok(ScoreRows { documents, scores: read_pairs(&batch, path)? })
}

/// Returns the names and values of the [`SCORE_COLUMNS`], null without a score.
fn score_columns(
    scores: &[Option<DocumentScore>],
) -> impl Iterator<Item = (&'static str, ArrayRef)> + use<> {
    let values: [fn(DocumentScore) -> f32; 2] = [|found| found.logit, |found| found.score];
    let column = |value| scores.iter().map(|score| score.map(value)).collect::<Float32Array>();
    SCORE_COLUMNS.into_iter().zip(values.map(|value| Arc::new(column(value)) as ArrayRef))
}

/// Returns the scores in `batch`; `None` where logit or score is null.
fn read_pairs(batch: &RecordBatch, path: &Path) -> Result<Vec<Option<DocumentScore>>> {
    let [logits, scores] = find_floats(batch, path)?;
    let pair = |(logit, score): (Option<f32>, Option<f32>)| {
        logit.zip(score).map(|(logit, score)| DocumentScore { logit, score })
    };
    Ok(logits.iter().zip(scores).map(pair).collect())
}

/// Returns the columns of logits and scores in `batch`.
fn find_floats<'a>(batch: &'a RecordBatch, path: &Path) -> Result<[&'a Float32Array; 2]> {
    let [logit, score] = SCORE_COLUMNS;
    Ok([find_column(batch, logit, path)?, find_column(batch, score, path)?])
}

/// Iterator over the rows of a score part in batches.
pub type PartBatches = Box<dyn Iterator<Item = Result<PartBatch>>>;

impl PartReader {
    /// Returns the language of all rows, if the footer shows that there is only one.
    pub fn only_language(&self) -> Option<String> {
        let mut only: Option<&[u8]> = None;
        for group in self.footer.metadata().row_groups() {
            let column = group.columns().iter().find(|c| c.column_path().string() == "language")?;
            let Some(Statistics::ByteArray(values)) = column.statistics() else { return None };
            let is_exact = values.min_is_exact() && values.max_is_exact();
            let (least, largest) = (values.min_bytes_opt()?, values.max_bytes_opt()?);
            if !is_exact || least != largest || only.is_some_and(|known| known != least) {
                return None;
            }
            only = Some(least);
        }
        only.and_then(|language| String::from_utf8(language.to_vec()).ok())
    }

    /// Reads logits, scores and the document columns `names`, in batches of at most 16,384 rows.
    pub fn scores(&self, names: &[&str]) -> Result<PartBatches> {
        let reader = self.batches(&[&SCORE_COLUMNS, names].concat(), 0, BATCH_ROWS)?;
        let path = self.path.clone();
        Ok(Box::new(reader.map(move |batch| {
            let batch = batch.map_err(|e| Error::decode(&path, PARQUET, e))?;
            Ok(PartBatch { path: path.clone(), batch })
        })))
    }

    /// Reads the row numbers and ids of `rows`.
    pub fn identities(&self, rows: Range<usize>) -> Result<PartBatch> {
        let batch = self.batches(&["row", "id"], rows.start, rows.len())?.next();
        let batch = batch.transpose().map_err(|e| self.damaged(e))?;
        let batch = batch.filter(|batch| batch.num_rows() == rows.len());
        let batch = batch.ok_or_else(|| self.damaged("has fewer ids than scores"))?;
        Ok(PartBatch { path: self.path.clone(), batch })
    }
}

/// Consecutive rows of a score part, with the requested columns.
#[derive(Debug, Clone)]
pub struct PartBatch {
    path: PathBuf,
    batch: RecordBatch,
}

impl PartBatch {
    /// Returns the number of rows.
    #[expect(clippy::len_without_is_empty, reason = "a batch has rows")]
    pub fn len(&self) -> usize {
        self.batch.num_rows()
    }

    /// Returns the logits and scores; a missing one has an arbitrary value.
    pub fn values(&self) -> Result<[&[f32]; 2]> {
        Ok(find_floats(&self.batch, &self.path)?.map(|values| &values.values()[..]))
    }

    /// Returns which rows have a logit and a score; `None` means all.
    pub fn present(&self) -> Result<Option<Vec<bool>>> {
        let [logits, scores] = find_floats(&self.batch, &self.path)?;
        let all = logits.null_count() == 0 && scores.null_count() == 0;
        let is_present = |row| logits.is_valid(row) && scores.is_valid(row);
        Ok((!all).then(|| (0..self.len()).map(is_present).collect()))
    }

    /// Returns the integer column `name`; `None` if it has a null, as `num_tokens` of a run that
    /// did not count tokens.
    pub fn numbers(&self, name: &str) -> Result<Option<&[u64]>> {
        let numbers: &UInt64Array = find_column(&self.batch, name, &self.path)?;
        Ok((numbers.null_count() == 0).then(|| &numbers.values()[..]))
    }

    /// Returns the languages.
    pub fn languages(&self) -> Result<&StringArray> {
        full_column(&self.batch, "language", &self.path)
    }

    /// Returns the ids.
    pub fn ids(&self) -> Result<Vec<&str>> {
        let ids: &StringArray = full_column(&self.batch, "id", &self.path)?;
        Ok(ids.iter().flatten().collect())
    }

    /// Returns which rows have the `language` and satisfy `counts`, if given; `None` means all.
    pub fn mask(
        &self,
        language: Option<&str>,
        counts: Option<&dyn Fn(u64) -> bool>,
    ) -> Result<Option<BooleanArray>> {
        if language.is_none() && counts.is_none() {
            return Ok(None);
        }
        let mut mask = vec![true; self.len()];
        if let Some(language) = language {
            let found = mask.iter_mut().zip(self.languages()?);
            found.for_each(|(is, found)| *is &= found == Some(language));
        }
        if let Some(counts) = counts {
            let rows: &UInt64Array = full_column(&self.batch, "row", &self.path)?;
            mask.iter_mut().zip(rows.values()).for_each(|(is, row)| *is &= counts(*row));
        }
        Ok(Some(mask.into()))
    }

    /// Replaces the scores of some rows, by their index in the batch; `None` removes one.
    pub fn replace(
        &mut self,
        rows: impl Iterator<Item = (usize, Option<DocumentScore>)>,
    ) -> Result<()> {
        let mut scores = read_pairs(&self.batch, &self.path)?;
        rows.for_each(|(row, new)| scores[row] = new);
        let (schema, mut columns) = (self.batch.schema(), self.batch.columns().to_vec());
        for (name, column) in score_columns(&scores) {
            if let Some((at, _)) = schema.column_with_name(name) {
                columns[at] = column;
            }
        }
        let replaced = RecordBatch::try_new(schema, columns);
        self.batch = replaced.map_err(|e| Error::decode(&self.path, PARQUET, e))?;
        Ok(())
    }

    /// Keeps only the rows of `mask`, as [`Self::mask`] returns it.
    pub fn keep(&mut self, mask: &BooleanArray) -> Result<()> {
        let kept = filter_record_batch(&self.batch, mask);
        self.batch = kept.map_err(|e| Error::decode(&self.path, PARQUET, e))?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::input::{DocumentBuilder, DocumentInfo};

    fn score() -> impl Strategy<Value = Option<DocumentScore>> {
        let special = prop_oneof![
            Just(f32::NAN),
            Just(f32::INFINITY),
            Just(f32::NEG_INFINITY),
            Just(-0.0f32),
            Just(f32::from_bits(1)),
        ];
        let value = prop_oneof![any::<f32>(), special];
        let score =
            (value.clone(), value).prop_map(|(logit, score)| DocumentScore { logit, score });
        proptest::option::of(score)
    }

    fn bits(scores: &[Option<DocumentScore>]) -> Vec<Option<[u32; 2]>> {
        let bits = |found: DocumentScore| [found.logit, found.score].map(f32::to_bits);
        scores.iter().map(|score| score.map(bits)).collect()
    }

    fn rows_of(columns: &[(u64, Option<DocumentScore>)], languages: &[&str]) -> ScoreRows {
        let mut documents = DocumentBuilder::default();
        for (i, &(num_bytes, _)) in columns.iter().enumerate() {
            documents.push(&DocumentInfo {
                row: i as u64,
                id: &format!("<urn:{num_bytes}>"),
                language: languages[i % languages.len()],
                num_bytes,
                num_tokens: Some(num_bytes / 4),
            });
        }
        ScoreRows {
            documents: documents.finish(),
            scores: columns.iter().map(|&(_, score)| score).collect(),
        }
    }

    /// Writes a part of `len` rows, every third without a score.
    fn part(path: &Path, len: usize, languages: &[&str]) -> Result<ScoreRows> {
        let score = |i| {
            let logit = (i as f32 - 5e3).sqrt();
            (i % 3 > 0).then_some(DocumentScore { logit, score: logit / 2.0 })
        };
        let rows = rows_of(&(0..len).map(|i| (i as u64, score(i))).collect::<Vec<_>>(), languages);
        write_scores(path, &rows, None, 1)?;
        Ok(rows)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]
        #[test]
        fn scores_come_back_bit_for_bit(
            columns in proptest::collection::vec((any::<u64>(), score()), 0..300)
        ) {
            let dir = tempfile::tempdir()?;
            let path = dir.path().join("part");
            let rows = rows_of(&columns, &["deu_Latn", "und"]);
            write_scores(&path, &rows, None, 1)?;
            let read = read_scores(&path)?;
            prop_assert_eq!(bits(&read.scores), bits(&rows.scores));
            prop_assert_eq!(&read.documents, &rows.documents);
        }
    }

    #[test]
    fn token_counts_that_were_not_made_come_back_as_such() -> Result<(), Box<dyn std::error::Error>>
    {
        let dir = tempfile::tempdir()?;
        let path = dir.path().join("part");
        let mut rows = rows_of(&vec![(7, None); BATCH_ROWS + 1], &["und"]);
        let uncounted = |document| DocumentInfo { num_tokens: None, ..document };
        rows.documents = rows.documents.iter().map(uncounted).collect();
        write_scores(&path, &rows, None, 1)?;
        assert_eq!(read_scores(&path)?, rows);
        for batch in PartReader::open(&path)?.scores(&["num_tokens", "num_bytes"])? {
            let batch = batch?;
            assert_eq!(batch.numbers("num_tokens")?, None);
            assert_eq!(batch.numbers("num_bytes")?, Some(&vec![7; batch.len()][..]));
        }
        Ok(())
    }

    #[test]
    fn columns_of_different_lengths_are_refused() -> Result<(), Box<dyn std::error::Error>> {
        let dir = tempfile::tempdir()?;
        let path = dir.path().join("part");
        let rows = rows_of(&[(1, None)], &["und"]);
        assert!(matches!(write_scores(&path, &rows, Some(&[]), 1), Err(Error::Shape { .. })));
        let no_scores = ScoreRows { scores: Vec::new(), ..rows.clone() };
        let no_documents = ScoreRows { documents: DocumentBatch::default(), ..rows };
        for rows in [no_scores, no_documents] {
            assert!(matches!(write_scores(&path, &rows, None, 1), Err(Error::Shape { .. })));
        }
        assert!(!path.exists());
        Ok(())
    }

    #[test]
    fn batches_hold_every_row_once() -> Result<(), Box<dyn std::error::Error>> {
        let dir = tempfile::tempdir()?;
        let path = dir.path().join("part");
        // The last part has more rows than the tail, so that pages before it are read too.
        for len in [0, 1, BATCH_ROWS, 5 * BATCH_ROWS + 1] {
            let rows = part(&path, len, &["deu_Latn"])?;
            let part = PartReader::open(&path)?;
            assert_eq!(part.num_rows(), len);
            let (mut scores, mut ids) = (Vec::new(), Vec::new());
            for batch in part.scores(&[])? {
                let batch = batch?;
                let rows = scores.len()..scores.len() + batch.len();
                let identities = part.identities(rows.clone())?;
                ids.extend(identities.ids()?.into_iter().map(String::from));
                let numbers: Vec<u64> = rows.map(|row| row as u64).collect();
                assert_eq!(identities.numbers("row")?, Some(&numbers[..]));
                let present = batch.present()?.unwrap_or_else(|| vec![true; batch.len()]);
                let [logits, values] = batch.values()?;
                scores.extend((0..batch.len()).map(|at| {
                    let score = DocumentScore { logit: logits[at], score: values[at] };
                    present[at].then_some(score)
                }));
            }
            assert_eq!(bits(&scores), bits(&rows.scores));
            assert!(ids.iter().eq(rows.documents.iter().map(|document| document.id)));
            assert!(part.identities(len..len + 1).is_err());
        }
        Ok(())
    }

    #[test]
    fn the_rows_of_a_language_can_be_kept() -> Result<(), Box<dyn std::error::Error>> {
        let dir = tempfile::tempdir()?;
        let path = dir.path().join("part");
        let rows = part(&path, 7, &["deu_Latn", "und"])?;
        let batch = PartReader::open(&path)?.scores(&["language", "num_bytes"])?.next();
        let mut batch = batch.ok_or("no batch")??;
        assert_eq!(batch.mask(None, None)?, None);
        let mask = batch.mask(Some("und"), None)?.ok_or("no mask")?;
        batch.keep(&mask)?;
        assert_eq!(batch.numbers("num_bytes")?, Some(&[1, 3, 5][..]));
        assert_eq!(batch.present()?, Some(vec![true, false, true]));
        let logit = rows.scores[5].map_or(0.0, |found| found.logit);
        assert_eq!(batch.values()?[0][2].to_bits(), logit.to_bits());
        assert!(batch.numbers("row").is_err(), "was not asked for");
        let new = DocumentScore { logit: 0.5, score: 0.25 };
        batch.replace([(0, None), (1, Some(new))].into_iter())?;
        assert_eq!(batch.present()?, Some(vec![false, true, true]));
        assert_eq!(
            batch.values()?.map(|values| values[1].to_bits()),
            [0.5, 0.25].map(f32::to_bits)
        );
        Ok(())
    }

    #[test]
    fn rows_that_do_not_count_are_left_out() -> Result<(), Box<dyn std::error::Error>> {
        let dir = tempfile::tempdir()?;
        let path = dir.path().join("part");
        part(&path, 7, &["deu_Latn", "und"])?;
        let batch = PartReader::open(&path)?.scores(&["language", "row"])?.next();
        let batch = batch.ok_or("no batch")??;
        for (language, expected) in [(None, [0, 2, 4, 6].as_slice()), (Some("und"), &[])] {
            let mut batch = batch.clone();
            let counts = |row: u64| ![1, 3, 5, 9].contains(&row);
            let mask = batch.mask(language, Some(&counts))?.ok_or("no mask")?;
            batch.keep(&mask)?;
            assert_eq!(batch.numbers("row")?, Some(expected));
        }
        Ok(())
    }

    #[test]
    fn the_footer_names_the_one_language() -> Result<(), Box<dyn std::error::Error>> {
        let dir = tempfile::tempdir()?;
        let path = dir.path().join("part");
        for (languages, expected) in
            [(&["deu_Latn"][..], Some("deu_Latn")), (&["deu_Latn", "und"], None)]
        {
            part(&path, 100, languages)?;
            assert_eq!(PartReader::open(&path)?.only_language().as_deref(), expected);
        }
        Ok(())
    }

    #[test]
    fn a_damaged_part_is_an_error() -> Result<(), Box<dyn std::error::Error>> {
        let dir = tempfile::tempdir()?;
        let path = dir.path().join("part");
        part(&path, 1000, &["und"])?;
        let bytes = std::fs::read(&path)?;
        for len in [0, 3, bytes.len() / 2, bytes.len() - 1] {
            std::fs::write(&path, &bytes[..len])?;
            assert!(matches!(PartReader::open(&path), Err(Error::Decode { .. })), "{len} bytes");
        }
        Ok(())
    }
}
