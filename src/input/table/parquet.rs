//! Tables in Parquet: the wanted columns, batch by batch.

use arrow::array::{Array, ArrayRef, AsArray, LargeListArray};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field};
use arrow::error::ArrowError;

use super::{Cell, InputFile, ParquetFile, Rows, Values};
use crate::error::Result;
use crate::input::column::{Column, Strings, is_label};
use crate::input::parquet_file::{Batches, guarded};
use crate::input::parquet_records::mask;

/// What a column may hold, for messages.
const EXPECTED: &str = "strings, numbers, booleans or a list of them";

/// The rows of a file.
pub(super) struct Batched {
    file: ParquetFile,
    columns: Vec<Option<Column>>,
    batches: Batches,
    /// Decoded columns of the current batch, and where it begins and ends.
    batch: Vec<Option<Decoded>>,
    next_row: u64,
    end: u64,
    first_row: u64,
}

/// A column of a batch.
enum Decoded {
    Texts(Strings),
    Lists(LargeListArray),
}

impl Batched {
    pub(super) fn open(file: &InputFile, required: &[&str], optional: &[&str]) -> Result<Self> {
        let file = ParquetFile::open(file)?;
        let fields = file.footer.schema().fields();
        let require = |name: &&str| Column::require(&file.path, fields, name, EXPECTED, serves);
        let mut columns = Vec::new();
        for name in required {
            columns.push(Some(require(name)?));
        }
        for name in optional {
            let found = Column::find(fields, name);
            columns.push(found.map(|_| require(name)).transpose()?);
        }
        let row = file.first_row();
        let batches = file.batches(mask(&file, columns.iter().flatten()), row)?;
        let batch = Vec::new();
        Ok(Self { file, columns, batches, batch, next_row: row, end: row, first_row: row })
    }

    /// Decodes the next batch that has rows; false at the end.
    fn fill(&mut self) -> Result<bool> {
        while self.next_row == self.end {
            let Some(batch) = self.batches.next()? else { return Ok(false) };
            self.batch = guarded(&self.file.path, || {
                let decode = |column: &Option<Column>| {
                    column.as_ref().map(|column| decoded(&column.of(&batch)?)).transpose()
                };
                self.columns.iter().map(decode).collect::<Result<_, ArrowError>>()
            })?;
            self.first_row = self.end;
            self.end += batch.num_rows() as u64;
        }
        Ok(true)
    }
}

impl Rows for Batched {
    fn next(&mut self) -> Result<Option<(u64, Values)>> {
        if !self.fill()? {
            return Ok(None);
        }
        let row = self.next_row;
        self.next_row += 1;
        let at = (row - self.first_row) as usize;
        let values = guarded(&self.file.path, || {
            let value = |column: &Option<Decoded>| {
                column.as_ref().map_or(Ok(None), |column| cell(column, at))
            };
            self.batch.iter().map(value).collect::<Result<Vec<_>, ArrowError>>()
        })?;
        Ok(Some((row, Ok(values))))
    }
}

/// Whether a column of that type can be read as text or as a list of texts.
fn serves(data_type: &DataType) -> bool {
    match data_type {
        DataType::List(item) | DataType::LargeList(item) | DataType::FixedSizeList(item, _) => {
            is_label(item.data_type())
        }
        other => is_label(other),
    }
}

fn decoded(column: &ArrayRef) -> Result<Decoded, ArrowError> {
    if is_label(column.data_type()) {
        return Strings::new(column).map(Decoded::Texts);
    }
    let item = Field::new_list_field(DataType::LargeUtf8, true);
    let lists = cast(column, &DataType::LargeList(item.into()))?;
    Ok(Decoded::Lists(lists.as_list::<i64>().clone()))
}

fn cell(column: &Decoded, at: usize) -> Result<Option<Cell>, ArrowError> {
    Ok(match column {
        Decoded::Texts(texts) => texts.get(at).map(|text| Cell::Text(text.to_owned())),
        Decoded::Lists(lists) if lists.is_null(at) => None,
        Decoded::Lists(lists) => {
            let items = lists.value(at);
            let texts = Strings::new(&items)?;
            let item = |i| texts.get(i).map(ToOwned::to_owned);
            Some(Cell::List((0..items.len()).map(item).collect()))
        }
    })
}
