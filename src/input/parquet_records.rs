//! Rows of a Parquet file as records, of the wanted columns only.
//!
//! Owns the choice of columns and the conversion of batches to rows.

use std::vec;

use arrow::array::RecordBatch;
use arrow::error::ArrowError;
use parquet::arrow::ProjectionMask;

use super::InputFile;
use super::column::{Column, Strings, is_id, is_label, is_string};
use super::parquet_file::{Batches, ParquetFile, guarded};
use super::record::{Fields, Record, Wanted};
use super::vectors::{Vectors, Width, is_embeddings};
use crate::error::{Error, Result};

/// The records of a file.
pub(super) struct ParquetRecords {
    file: ParquetFile,
    wanted: Wanted,
    columns: Columns,
    width: Width,
    /// Started when the first record is asked for.
    batches: Option<Batches>,
    next_row: u64,
    pending: vec::IntoIter<Result<Record, (u64, String)>>,
}

/// The wanted columns of one file.
struct Columns {
    text: Column,
    id: Option<Column>,
    language: Option<Column>,
    script: Option<Column>,
    embeddings: Option<Column>,
    label: Option<Column>,
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
        let label = label.map(|name| require(name, "strings, booleans or numbers", is_label));
        Ok(Self {
            text: string(&wanted.text)?,
            id: id.transpose()?,
            language: language.map(string).transpose()?,
            script: script.map(string).transpose()?,
            embeddings: embeddings.transpose()?,
            label: label.transpose()?,
        })
    }

    fn all(&self) -> impl Iterator<Item = &Column> {
        let optional = [&self.id, &self.language, &self.script, &self.embeddings, &self.label];
        std::iter::once(&self.text).chain(optional.into_iter().flatten())
    }
}

impl ParquetRecords {
    pub(super) fn open(file: &InputFile, wanted: Wanted) -> Result<Self> {
        let file = ParquetFile::open(file)?;
        let columns = Columns::find(&file, &wanted)?;
        Ok(Self {
            file,
            wanted,
            columns,
            width: Width::default(),
            batches: None,
            next_row: 0,
            pending: Vec::new().into_iter(),
        })
    }

    pub(super) fn num_rows(&self) -> u64 {
        self.file.num_rows()
    }

    /// Starts again at `row`.
    pub(super) fn seek(&mut self, row: u64) {
        self.batches = None;
        self.pending = Vec::new().into_iter();
        self.next_row = row;
    }

    pub(super) fn next_record(&mut self) -> Result<Option<Record>> {
        loop {
            match self.pending.next() {
                Some(Ok(record)) => return Ok(Some(record)),
                Some(Err((row, reason))) => return Err(self.count_the_rest(row, reason)),
                None if self.read_batch()? => {}
                None => return Ok(None),
            }
        }
    }

    /// Decodes the next batch; false at the end.
    fn read_batch(&mut self) -> Result<bool> {
        let batches = match &mut self.batches {
            Some(batches) => batches,
            none => {
                let mask = mask(&self.file, self.columns.all());
                none.insert(self.file.batches(mask, self.next_row)?)
            }
        };
        let Some(batch) = batches.next()? else { return Ok(false) };
        let path = self.file.path.clone();
        let rows = guarded(&path, || self.fields(&batch))?;
        let first = self.next_row;
        self.next_row += rows.len() as u64;
        let records = (first..).zip(rows).map(|(row, fields)| match fields {
            Ok(fields) => Ok(self.wanted.record(row, fields)),
            Err(reason) => Err((row, reason)),
        });
        self.pending = records.collect::<Vec<_>>().into_iter();
        Ok(true)
    }

    /// The wanted values, row by row; only embeddings can make a row unusable.
    fn fields(&mut self, batch: &RecordBatch) -> Result<Vec<Result<Fields, String>>, ArrowError> {
        let strings = |column: &Column| Strings::new(&column.of(batch)?);
        let optional = |column: &Option<Column>| column.as_ref().map(strings).transpose();
        let text = strings(&self.columns.text)?;
        let id = optional(&self.columns.id)?;
        let language = optional(&self.columns.language)?;
        let script = optional(&self.columns.script)?;
        let label = optional(&self.columns.label)?;
        let vectors = match &self.columns.embeddings {
            Some(column) => Some(Vectors::new(&column.of(batch)?)?),
            None => None,
        };
        Ok((0..batch.num_rows())
            .map(|row| {
                let value = |strings: &Option<Strings>| {
                    strings.as_ref().and_then(|strings| strings.get(row)).map(ToOwned::to_owned)
                };
                let embeddings = match &vectors {
                    Some(vectors) => vectors.get(row)?,
                    None => None,
                };
                self.width.check(embeddings.as_deref().unwrap_or_default())?;
                Ok(Fields {
                    text: text.get(row).map(ToOwned::to_owned),
                    id: value(&id),
                    language: value(&language),
                    script: value(&script),
                    embeddings,
                    label: value(&label),
                })
            })
            .collect())
    }

    /// Counts the bad rows to the end of a file that has failed.
    fn count_the_rest(&mut self, row: u64, reason: String) -> Error {
        let mut count = 1;
        loop {
            count += self.pending.by_ref().filter(Result::is_err).count() as u64;
            match self.read_batch() {
                Ok(true) => {}
                Ok(false) => {
                    let path = self.file.path.clone();
                    return Error::Row { path, row: row + 1, reason, count };
                }
                Err(error) => return error,
            }
        }
    }
}

/// The leaves below `columns`.
fn mask<'c>(file: &ParquetFile, columns: impl Iterator<Item = &'c Column>) -> ProjectionMask {
    let schema = file.footer.parquet_schema();
    let mut leaves = Vec::new();
    for column in columns {
        let below = (0..schema.num_columns())
            .filter(|&leaf| schema.column(leaf).path().parts().starts_with(&column.path));
        leaves.extend(below);
    }
    ProjectionMask::leaves(schema, leaves)
}
