//! Rows of a Parquet file as records, of the wanted columns only.
//!
//! Owns the choice of columns; batches leave as columns or as rows. Rows whose text is too long are
//! set aside, here and by the reader of all columns.

use arrow::array::RecordBatch;
use arrow::error::ArrowError;
use parquet::arrow::ProjectionMask;

use super::column::{Column, Strings, is_id, is_label, is_string};
use super::lines::too_long;
use super::parquet_file::{Batches, ParquetFile, guarded};
use super::record::{Fields, Record, Wanted};
use super::rejects::{Reject, Rejects};
use super::vectors::{Vectors, Width, is_embeddings};
use super::{DocumentBlock, InputFile};
use crate::config::InputConfig;
use crate::error::{Error, Result};

/// The records of a file.
pub(super) struct ParquetRecords {
    file: ParquetFile,
    wanted: Wanted,
    columns: Columns,
    width: Width,
    /// Started when the first record is asked for.
    batches: Option<Batches>,
    batch: Decoded,
    /// Rows of `batch` that were handed out or set aside.
    taken: usize,
    max_text_bytes: u64,
    rejects: Rejects,
}

/// The wanted columns of one file.
struct Columns {
    text: Column,
    id: Option<Column>,
    language: Option<Column>,
    script: Option<Column>,
    embeddings: Option<Column>,
    label: Option<Column>,
    source: Option<Column>,
    split: Option<Column>,
}

impl Columns {
    fn find(file: &ParquetFile, wanted: &Wanted) -> Result<Self> {
        let fields = file.footer.schema().fields();
        let require = |name: &str, expected, serves| {
            Column::require(&file.path, fields, name, expected, serves)
        };
        let string = |name: &String| require(name, "strings", is_string);
        let (language, script) = match &wanted.language {
            None => (None, None),
            Some((language, script)) => (Some(language), script.as_ref()),
        };
        let id = Column::find(fields, &wanted.id)
            .map(|_| require(&wanted.id, "strings or integers", is_id));
        let embeddings = wanted.embeddings.as_ref();
        let embeddings =
            embeddings.map(|name| require(name, "lists of lists of numbers", is_embeddings));
        let label = wanted.label.as_ref();
        let scalars = |name: &String| require(name, "strings, booleans or numbers", is_label);
        let present = |name: &&String| Column::find(fields, name).is_some();
        let source = wanted.source.as_ref().filter(present);
        let split = wanted.split.as_ref().filter(present);
        Ok(Self {
            text: string(&wanted.text)?,
            id: id.transpose()?,
            language: language.map(string).transpose()?,
            script: script.map(string).transpose()?,
            embeddings: embeddings.transpose()?,
            label: label.map(scalars).transpose()?,
            source: source.map(scalars).transpose()?,
            split: split.map(string).transpose()?,
        })
    }

    fn all(&self) -> impl Iterator<Item = &Column> {
        let Self { text, id, language, script, embeddings, label, source, split } = self;
        let optional = [id, language, script, embeddings, label, source, split];
        std::iter::once(text).chain(optional.into_iter().flatten())
    }
}

impl ParquetRecords {
    pub(super) fn open(file: &InputFile, config: &InputConfig, wanted: Wanted) -> Result<Self> {
        let file = ParquetFile::open(file)?;
        let columns = Columns::find(&file, &wanted)?;
        let batch = Decoded { first_row: file.first_row(), ..Decoded::default() };
        Ok(Self {
            file,
            wanted,
            columns,
            width: Width::default(),
            batches: None,
            batch,
            taken: 0,
            max_text_bytes: config.max_document_bytes,
            rejects: Rejects::new(config.max_rejects),
        })
    }

    pub(super) fn rejects(&self) -> &[Reject] {
        self.rejects.kept()
    }

    pub(super) fn num_rows(&self) -> u64 {
        self.file.num_rows()
    }

    /// Starts again at `row`, or at the first row that is read if that comes later, where `rejected`
    /// rows were set aside before.
    pub(super) fn seek(&mut self, row: u64, rejected: u64) {
        self.batches = None;
        self.rejects.resume(rejected);
        self.batch = Decoded { first_row: row.max(self.file.first_row()), ..Decoded::default() };
        self.taken = 0;
    }

    pub(super) fn next_record(&mut self) -> Result<Option<Record>> {
        if !self.advance()? {
            return Ok(None);
        }
        let row = self.batch.first_row + self.taken as u64;
        match self.next_fields() {
            Ok(fields) => Ok(Some(self.wanted.record(row, fields))),
            Err(reason) => Err(self.count_the_rest(row, reason)),
        }
    }

    /// The next rows of the batch, at most `max_rows`.
    pub(super) fn next_block(&mut self, max_rows: usize) -> Result<Option<DocumentBlock>> {
        if !self.advance()? {
            return Ok(None);
        }
        let end = self.batch.num_rows.min(self.taken.saturating_add(max_rows));
        let too_long =
            (self.taken..end).find(|&i| self.batch.excess(i, self.max_text_bytes).is_some());
        let at = self.taken..too_long.unwrap_or(end);
        let rows = at.clone().map(|i| self.batch.first_row + i as u64).collect();
        let mut embeddings = Vec::new();
        if self.batch.vectors.is_some() {
            for i in at.clone() {
                self.taken = i + 1;
                match self.batch.embeddings(i, &mut self.width) {
                    Ok(vectors) => embeddings.push(vectors),
                    Err(reason) => {
                        return Err(self.count_the_rest(self.batch.first_row + i as u64, reason));
                    }
                }
            }
        }
        self.taken = at.end;
        let Decoded { first_row, text, id, language, script, .. } = &self.batch;
        Ok(text.as_ref().map(|text| DocumentBlock {
            rows,
            ids: self.wanted.ids(id.as_ref(), *first_row, &at),
            languages: self.wanted.languages(language.as_ref(), script.as_ref(), &at),
            texts: text.slice(at.start, at.len()),
            embeddings,
        }))
    }

    /// Goes on to the next row that can be used; false at the end.
    fn advance(&mut self) -> Result<bool> {
        let mut more = self.set_aside()?;
        if !self.rejects.exceeded() {
            return Ok(more);
        }
        while more {
            self.taken += 1;
            more = self.set_aside()?;
        }
        Err(self.rejects.error(&self.file.path))
    }

    /// Sets the next rows aside if their texts are too long; false at the end.
    fn set_aside(&mut self) -> Result<bool> {
        while self.fill()? {
            let Some(bytes) = self.batch.excess(self.taken, self.max_text_bytes) else {
                return Ok(true);
            };
            let row = self.batch.first_row + self.taken as u64;
            let reason = format!("`{}` {}", self.wanted.text, too_long(bytes, self.max_text_bytes));
            self.rejects.add(row, reason, &[]);
            self.taken += 1;
        }
        Ok(false)
    }

    /// Decodes the next batch if all of this one was handed out; false at the end.
    fn fill(&mut self) -> Result<bool> {
        while self.taken == self.batch.num_rows {
            let first_row = self.batch.first_row + self.batch.num_rows as u64;
            let batches = match &mut self.batches {
                Some(batches) => batches,
                none => {
                    let mask = mask(&self.file, self.columns.all());
                    none.insert(self.file.batches(mask, first_row)?)
                }
            };
            let Some(batch) = batches.next()? else { return Ok(false) };
            let decode = || Decoded::new(&self.columns, first_row, &batch);
            self.batch = guarded(&self.file.path, decode)?;
            self.taken = 0;
        }
        Ok(true)
    }

    /// The wanted values of the next row of the batch; only embeddings can make it unusable.
    fn next_fields(&mut self) -> Result<Fields, String> {
        let at = self.taken;
        self.taken += 1;
        let batch = &self.batch;
        let value = |strings: &Option<Strings>| {
            strings.as_ref().and_then(|strings| strings.get(at)).map(ToOwned::to_owned)
        };
        Ok(Fields {
            embeddings: batch.embeddings(at, &mut self.width)?,
            text: value(&batch.text),
            id: value(&batch.id),
            language: value(&batch.language),
            script: value(&batch.script),
            label: value(&batch.label),
            source: value(&batch.source),
            split: value(&batch.split),
        })
    }

    /// Counts the bad rows to the end of a file that has failed.
    fn count_the_rest(&mut self, row: u64, reason: String) -> Error {
        let mut count = 1;
        loop {
            match self.fill() {
                Ok(true) => count += u64::from(self.next_fields().is_err()),
                Ok(false) => {
                    let path = self.file.path.clone();
                    return Error::Row { path, row: row + 1, reason, count };
                }
                Err(error) => return error,
            }
        }
    }
}

/// The wanted columns of a batch.
#[derive(Default)]
struct Decoded {
    /// Row of the file that the batch begins with.
    first_row: u64,
    num_rows: usize,
    /// There unless there are no rows.
    text: Option<Strings>,
    id: Option<Strings>,
    language: Option<Strings>,
    script: Option<Strings>,
    label: Option<Strings>,
    source: Option<Strings>,
    split: Option<Strings>,
    vectors: Option<Vectors>,
}

impl Decoded {
    fn new(columns: &Columns, first_row: u64, batch: &RecordBatch) -> Result<Self, ArrowError> {
        let strings = |column: &Column| Strings::new(&column.of(batch)?);
        let optional = |column: &Option<Column>| column.as_ref().map(strings).transpose();
        Ok(Self {
            first_row,
            num_rows: batch.num_rows(),
            text: Some(strings(&columns.text)?),
            id: optional(&columns.id)?,
            language: optional(&columns.language)?,
            script: optional(&columns.script)?,
            label: optional(&columns.label)?,
            source: optional(&columns.source)?,
            split: optional(&columns.split)?,
            vectors: match &columns.embeddings {
                Some(column) => Some(Vectors::new(&column.of(batch)?)?),
                None => None,
            },
        })
    }

    /// Bytes of the text of row `at` if they are more than `most`.
    fn excess(&self, at: usize, most: u64) -> Option<u64> {
        let bytes = self.text.as_ref()?.get(at)?.len() as u64;
        (bytes > most).then_some(bytes)
    }

    /// Vectors of row `at`, all of the same width.
    fn embeddings(&self, at: usize, width: &mut Width) -> Result<Option<Vec<Vec<f32>>>, String> {
        let embeddings = match &self.vectors {
            Some(vectors) => vectors.get(at)?,
            None => None,
        };
        width.check(embeddings.as_deref().unwrap_or_default())?;
        Ok(embeddings)
    }
}

/// The leaves below `columns`.
pub(super) fn mask<'c>(
    file: &ParquetFile,
    columns: impl Iterator<Item = &'c Column>,
) -> ProjectionMask {
    let schema = file.footer.parquet_schema();
    let mut leaves = Vec::new();
    for column in columns {
        let below = (0..schema.num_columns())
            .filter(|&leaf| schema.column(leaf).path().parts().starts_with(&column.path));
        leaves.extend(below);
    }
    ProjectionMask::leaves(schema, leaves)
}
