//! Reads the values of one column by row.

use arrow_array::StringViewArray;
use arrow_array::cast::AsArray;

use super::columns::{ColumnKind, ColumnReader, ColumnRequest, Rejects, string};
use super::labelled::score_value;
use super::{BATCH_ROWS, InputFile, documents};
use polysift_base::error::{Error, Result};
use polysift_config::InputConfig;

/// Reads the texts or scalars of a column of a file in ascending order of rows.
pub struct ColumnValues<'a> {
    file: &'a InputFile,
    name: &'a str,
    kind: ColumnKind,
    reader: Box<dyn ColumnReader>,
    rows: Vec<u64>,
    values: StringViewArray,
}

impl<'a> ColumnValues<'a> {
    /// Opens `file` and finds the column `name` by the rules of [`super::DocumentReader::open`].
    pub fn open(
        file: &'a InputFile,
        config: &InputConfig,
        name: &'a str,
        kind: ColumnKind,
    ) -> Result<Self> {
        let columns = vec![ColumnRequest::new(name, kind, true)];
        let reader = documents::open(file, columns, config.max_document_bytes, Rejects::counted())?;
        let (rows, values) = (Vec::new(), StringViewArray::from(Vec::<&str>::new()));
        Ok(Self { file, name, kind, reader, rows, values })
    }

    /// Returns the value in `row`, or `None` for null. Rows must ascend from call to call. Returns
    /// [`Error::Row`] if the value is not of the kind, [`Error::Corrupt`] if there is no such row.
    pub fn value(&mut self, row: u64) -> Result<Option<&str>> {
        while self.rows.last().is_none_or(|&last| last < row) {
            let batch = self.reader.next_batch(BATCH_ROWS)?;
            let batch = batch.ok_or_else(|| self.lost(row))?;
            let values = batch.columns.first().and_then(|column| column.as_string_view_opt());
            self.values = values.cloned().ok_or_else(|| self.lost(row))?;
            self.rows = batch.rows;
        }
        let at = self.rows.binary_search(&row).map_err(|_| self.lost(row))?;
        Ok(string(&self.values, at))
    }

    fn lost(&self, row: u64) -> Error {
        let (path, rejects) = (self.file.path.clone(), self.reader.rejects());
        match rejects.kept.first() {
            None => return Error::corrupt(&path, format!("row {row} is gone")),
            Some(first) if first.row == row => return rejects.error(&path),
            // Earlier ones may be rows that `input.max_rejects` let pass; nobody asks for those.
            Some(_) => {}
        }
        let reason = format!("`{}` holds something else than {}", self.name, self.kind.expected());
        Error::Row { path, row: row + 1, reason, count: 1 }
    }
}

/// Reads the numbers of a column of a file in ascending order of rows.
pub struct NumberColumn<'a> {
    column: ColumnValues<'a>,
    rejects: Rejects,
}

impl<'a> NumberColumn<'a> {
    /// Opens `file` and finds the column `name`, like [`ColumnValues::open`].
    pub fn open(file: &'a InputFile, config: &InputConfig, name: &'a str) -> Result<Self> {
        let column = ColumnValues::open(file, config, name, ColumnKind::Scalar)?;
        Ok(Self { column, rejects: Rejects::refused() })
    }

    /// Returns the value in `row` (ascending from call to call); a boolean counts as 1 or 0. `None`
    /// is null, or a value that is not a number, which [`NumberColumn::finish`] reports.
    pub fn value(&mut self, row: u64) -> Result<Option<f32>> {
        let name = self.column.name;
        let Some(text) = self.column.value(row)? else { return Ok(None) };
        let number = score_value(name, text);
        Ok(number.map_err(|reason| self.rejects.add(row, reason, &[])).ok())
    }

    /// Returns [`Error::Row`] if a value was not a number.
    pub fn finish(self) -> Result<()> {
        self.rejects.finish(&self.column.file.path)
    }
}
