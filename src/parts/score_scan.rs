//! The scores of a part in blocks, for looking at all scores of a corpus: nothing is decoded that is
//! not asked for, and the language is taken from the footer where it is one for all rows.

use std::path::{Path, PathBuf};

use arrow_array::{BooleanArray, RecordBatch};
use arrow_select::filter::filter_record_batch;
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::ParquetRecordBatchReader;
use parquet::file::statistics::Statistics;
use polysift_kernels::Isa;

use super::columns::{self, PARQUET};
use super::pages::{FloatPage, FloatPages, OpenPart};
use crate::error::{Error, Result};

/// Rows of a block.
pub(crate) const BLOCK_ROWS: usize = 8192;

/// Logits and scores of some consecutive rows.
#[derive(Debug, Clone, Default)]
pub(crate) struct ScoreColumns {
    /// NaN where there is none.
    pub(crate) logits: Vec<f32>,
    /// NaN where there is none.
    pub(crate) scores: Vec<f32>,
    /// Whether a row has both.
    pub(crate) present: Vec<bool>,
}

impl ScoreColumns {
    /// Number of rows.
    pub(crate) fn len(&self) -> usize {
        self.logits.len()
    }

    /// Leaves only the rows at `places`, which ascend.
    pub(crate) fn keep(&mut self, places: &[usize]) {
        for (to, &from) in places.iter().enumerate() {
            self.logits[to] = self.logits[from];
            self.scores[to] = self.scores[from];
            self.present[to] = self.present[from];
        }
        self.logits.truncate(places.len());
        self.scores.truncate(places.len());
        self.present.truncate(places.len());
    }

    fn clear(&mut self) {
        self.logits.clear();
        self.scores.clear();
        self.present.clear();
    }
}

/// A part that is read block by block.
pub(crate) struct ScoreScan {
    part: OpenPart,
    logits: FloatColumn,
    scores: FloatColumn,
}

impl ScoreScan {
    /// Opens the part `path`. A file that is not one is an [`Error::Decode`] or [`Error::Schema`].
    pub(crate) fn open(path: &Path) -> Result<Self> {
        let part = OpenPart::open(path)?;
        let column = |name| Ok::<_, Error>(FloatColumn::new(part.floats(name)?));
        let (logits, scores) = (column("logit")?, column("score")?);
        Ok(Self { part, logits, scores })
    }

    /// Number of rows.
    pub(crate) fn num_rows(&self) -> usize {
        self.part.num_rows()
    }

    /// The language of all rows, where the footer says that it is one.
    pub(crate) fn only_language(&self) -> Option<String> {
        let mut only: Option<&[u8]> = None;
        for group in self.part.footer.row_groups() {
            let column = group.columns().iter().find(|c| c.column_path().string() == "language")?;
            let Some(Statistics::ByteArray(values)) = column.statistics() else { return None };
            if !(values.min_is_exact() && values.max_is_exact()) {
                return None;
            }
            let (least, largest) = (values.min_bytes_opt()?, values.max_bytes_opt()?);
            if least != largest || only.is_some_and(|language| language != least) {
                return None;
            }
            only = Some(least);
        }
        only.and_then(|language| String::from_utf8(language.to_vec()).ok())
    }

    /// The columns `names` (of those that say which document a row is) from `first_row` on, in
    /// batches of [`BLOCK_ROWS`] rows.
    pub(crate) fn documents(&self, names: &[&str], first_row: usize) -> Result<DocumentBatches> {
        let path = &self.part.path;
        let builder = self.part.columns()?;
        let mask = ProjectionMask::columns(builder.parquet_schema(), names.iter().copied());
        let reader = builder
            .with_projection(mask)
            .with_batch_size(BLOCK_ROWS)
            .with_offset(first_row)
            .build();
        let reader = reader.map_err(|e| Error::decode(path, PARQUET, e))?;
        Ok(DocumentBatches { path: path.clone(), reader })
    }

    /// Replaces `block` by the next [`BLOCK_ROWS`] rows, fewer at the end and none after it.
    pub(crate) fn next(&mut self, block: &mut ScoreColumns) -> Result<()> {
        block.clear();
        let rows = self.logits.read(BLOCK_ROWS, &mut block.logits, &mut block.present)?;
        if self.scores.read(BLOCK_ROWS, &mut block.scores, &mut block.present)? == rows {
            return Ok(());
        }
        Err(Error::corrupt(&self.part.path, "logits and scores are not as many"))
    }
}

/// Batches of the columns that say which document a row is.
pub(crate) struct DocumentBatches {
    path: PathBuf,
    reader: ParquetRecordBatchReader,
}

impl DocumentBatches {
    /// The next batch, which must have `len` rows.
    pub(crate) fn next(&mut self, len: usize) -> Result<DocumentBlock> {
        let batch = self.reader.next().transpose();
        let batch = batch.map_err(|e| Error::decode(&self.path, PARQUET, e))?;
        let batch = batch.filter(|batch| batch.num_rows() == len).ok_or_else(|| {
            Error::corrupt(&self.path, "does not have as many documents as scores")
        })?;
        Ok(DocumentBlock { path: self.path.clone(), batch })
    }
}

/// Which documents some consecutive rows are, as far as it was asked for.
pub(crate) struct DocumentBlock {
    path: PathBuf,
    batch: RecordBatch,
}

impl DocumentBlock {
    /// The column `name` of numbers.
    pub(crate) fn numbers(&self, name: &str) -> Result<&[u64]> {
        columns::numbers(&self.batch, name, &self.path)
    }

    /// The token counts; `None` where they were not counted.
    pub(crate) fn token_counts(&self) -> Result<Option<&[u64]>> {
        columns::token_counts(&self.batch, &self.path)
    }

    /// The ids.
    pub(crate) fn ids(&self) -> Result<Vec<&str>> {
        Ok(columns::texts(&self.batch, "id", &self.path)?.iter().flatten().collect())
    }

    /// Leaves only the rows of `language`; returns their places.
    pub(crate) fn keep_language(&mut self, language: &str) -> Result<Vec<usize>> {
        let languages = columns::texts(&self.batch, "language", &self.path)?;
        let mask: Vec<bool> = languages.iter().map(|found| found == Some(language)).collect();
        let places = (0..mask.len()).filter(|&row| mask[row]).collect();
        let kept = filter_record_batch(&self.batch, &BooleanArray::from(mask));
        self.batch = kept.map_err(|e| Error::decode(&self.path, PARQUET, e))?;
        Ok(places)
    }
}

/// A column of floats without lists, nulls allowed.
struct FloatColumn {
    pages: FloatPages,
    /// The page in progress, and the first of its values that was not taken.
    page: Option<(FloatPage, usize)>,
    isa: Isa,
}

impl FloatColumn {
    fn new(pages: FloatPages) -> Self {
        Self { pages, page: None, isa: Isa::detect() }
    }

    /// Appends the next `limit` rows, fewer at the end, to `values`; where a value is null it is NaN, and
    /// `present` becomes false. Returns how many there are now.
    fn read(
        &mut self,
        limit: usize,
        values: &mut Vec<f32>,
        present: &mut Vec<bool>,
    ) -> Result<usize> {
        while values.len() < limit {
            let is_done = self.page.as_ref().is_none_or(|(page, _)| page.definitions.left() == 0);
            if is_done {
                let Some(page) = self.pages.next()? else { break };
                self.page = Some((page, 0));
            }
            let Some((page, taken)) = &mut self.page else { break };
            let start = values.len();
            let run = page.definitions.next_run(limit - start);
            let read = run.and_then(|(level, length)| {
                values.resize(start + length, f32::NAN);
                present.resize(present.len().max(start + length), true);
                if level == self.pages.max_definition() {
                    page.values.read(self.isa, *taken, &mut values[start..])?;
                    *taken += length;
                } else {
                    present[start..start + length].fill(false);
                }
                Some(())
            });
            read.ok_or_else(|| self.pages.damaged("a page ends within its values"))?;
        }
        Ok(values.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parts::{ScoreRows, write_scores};

    /// A part of `len` rows, every third without a score, in the languages of `languages` by turns.
    fn part(path: &Path, len: usize, languages: &[&str]) -> Result<ScoreRows> {
        let numbers: Vec<u64> = (0..len as u64).collect();
        let logits: Vec<Option<f32>> =
            (0..len).map(|i| (i % 3 > 0).then(|| (i as f32 - 5e3).sqrt())).collect();
        let rows = ScoreRows {
            ids: numbers.iter().map(|i| format!("<urn:{i}>")).collect(),
            languages: numbers
                .iter()
                .map(|&i| languages[i as usize % languages.len()].into())
                .collect(),
            num_bytes: numbers.clone(),
            num_tokens: Some(numbers.clone()),
            rows: numbers,
            scores: logits.iter().map(|logit| logit.map(|logit| logit / 2.0)).collect(),
            logits,
        };
        write_scores(path, &rows, 1)?;
        Ok(rows)
    }

    fn bits(values: &[Option<f32>]) -> Vec<Option<u32>> {
        values.iter().map(|value| value.map(f32::to_bits)).collect()
    }

    #[test]
    fn a_scan_sees_every_row_once() -> Result<(), Box<dyn std::error::Error>> {
        let dir = tempfile::tempdir()?;
        let path = dir.path().join("part");
        // More rows than the tail holds, so that pages before it are read too.
        for len in [0, 1, BLOCK_ROWS, 10 * BLOCK_ROWS + 1] {
            let rows = part(&path, len, &["deu_Latn"])?;
            let mut scan = ScoreScan::open(&path)?;
            let mut documents = scan.documents(&["row", "id"], 0)?;
            let (mut logits, mut scores) = (Vec::new(), Vec::new());
            let (mut ids, mut numbers) = (Vec::new(), Vec::new());
            let mut block = ScoreColumns::default();
            while logits.len() < len {
                scan.next(&mut block)?;
                let batch = documents.next(block.len())?;
                let value = |(&value, &present): (&f32, &bool)| present.then_some(value);
                logits.extend(block.logits.iter().zip(&block.present).map(value));
                scores.extend(block.scores.iter().zip(&block.present).map(value));
                ids.extend(batch.ids()?.into_iter().map(String::from));
                numbers.extend_from_slice(batch.numbers("row")?);
            }
            scan.next(&mut block)?;
            assert!(block.logits.is_empty());
            assert_eq!((bits(&logits), bits(&scores)), (bits(&rows.logits), bits(&rows.scores)));
            assert_eq!((ids, numbers), (rows.ids, rows.rows));
        }
        Ok(())
    }

    #[test]
    fn the_rows_of_a_language_can_be_kept() -> Result<(), Box<dyn std::error::Error>> {
        let dir = tempfile::tempdir()?;
        let path = dir.path().join("part");
        let rows = part(&path, 7, &["deu_Latn", "und"])?;
        let mut scan = ScoreScan::open(&path)?;
        let mut block = ScoreColumns::default();
        scan.next(&mut block)?;
        let mut documents = scan.documents(&["language", "num_bytes"], 0)?.next(7)?;
        assert_eq!(scan.documents(&["row"], 3)?.next(4)?.numbers("row")?, [3, 4, 5, 6]);
        assert!(scan.documents(&["row"], 3)?.next(7).is_err());
        let places = documents.keep_language("und")?;
        block.keep(&places);
        assert_eq!(documents.numbers("num_bytes")?, [1, 3, 5]);
        assert_eq!(block.present, [true, false, true]);
        assert_eq!(block.logits[2].to_bits(), rows.logits[5].map_or(0, f32::to_bits));
        Ok(())
    }

    #[test]
    fn the_footer_tells_of_one_language_only() -> Result<(), Box<dyn std::error::Error>> {
        let dir = tempfile::tempdir()?;
        let path = dir.path().join("part");
        for (languages, expected) in
            [(&["deu_Latn"][..], Some("deu_Latn")), (&["deu_Latn", "und"], None)]
        {
            part(&path, 100, languages)?;
            assert_eq!(ScoreScan::open(&path)?.only_language().as_deref(), expected);
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
            assert!(matches!(ScoreScan::open(&path), Err(Error::Decode { .. })), "{len} bytes");
        }
        Ok(())
    }
}
