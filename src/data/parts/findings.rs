//! Two files of a shard: the findings of its filters (a document that no filter found has no row),
//! and the PII in its texts, with position and kind.

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use arrow_array::builder::StringBuilder;
use arrow_array::{ArrayRef, BooleanArray, StringArray, UInt64Array};
use serde_json::json;

use super::documents::{self, PartReader, documents_of, full_column};
use crate::input::{DOCUMENT_COLUMNS, DocumentBatch};
use polysift_base::error::{Error, Result};
use polysift_base::io::FileStamp;
use polysift_config::FilterAction;

const VERDICT_COLUMNS: [&str; 5] = ["filter", "action", "reason", "detail", "pieces"];

/// Writes the pieces of a text as the file has them.
fn format_pieces(pieces: &[Range<usize>]) -> String {
    let piece = |piece: &Range<usize>| format!("{}-{}", piece.start, piece.end);
    pieces.iter().map(piece).collect::<Vec<_>>().join(" ")
}

/// Parses pieces as [`format_pieces`] writes them; `None` if they are malformed.
fn parse_pieces(pieces: &str) -> Option<Vec<Range<usize>>> {
    let piece = |range: &str| {
        let (start, end) = range.split_once('-')?;
        Some(start.parse().ok()?..end.parse().ok()?)
    };
    pieces.split(' ').filter(|piece| !piece.is_empty()).map(piece).collect()
}

/// Finding of a filter on one document.
#[derive(Debug, Clone, PartialEq)]
pub struct FoundRow {
    /// Name of the filter.
    pub filter: String,
    /// The action on the document. It is [`FilterAction::Cut`] only if there are `pieces`.
    pub action: FilterAction,
    /// Reason of the finding: a word that depends on the kind of filter.
    pub reason: String,
    /// Details of the finding, separated by commas; may be empty.
    pub details: String,
    /// Byte ranges of the text that [`FilterAction::Cut`] keeps; else empty. The file has them as
    /// first byte and end: `0-640 900-1660`.
    pub pieces: Vec<Range<usize>>,
}

impl FoundRow {
    /// Returns the details, or the reason if there are none.
    pub fn why(&self) -> &str {
        if self.details.is_empty() { &self.reason } else { &self.details }
    }
}

/// Findings of the filters in a shard, one row each: ordered as the input, then by filter's name.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct VerdictRows {
    /// Documents of the rows; a document is repeated for every filter that found it.
    pub documents: DocumentBatch,
    /// The finding of each row.
    pub found: Vec<FoundRow>,
}

impl VerdictRows {
    /// Returns the verdicts on `row` of the input.
    pub fn of_row(&self, row: u64) -> &[FoundRow] {
        let rows = self.documents.rows();
        let start = rows.partition_point(|&other| other < row);
        &self.found[start..rows.partition_point(|&other| other <= row)]
    }

    /// Returns all of these verdicts, by row and name of the filter.
    #[must_use]
    pub fn merged(all: &[Self]) -> Self {
        let rows = all.iter().flat_map(|of| of.documents.iter().zip(&of.found));
        let mut all: Vec<_> = rows.collect();
        all.sort_by_key(|&(document, found)| (document.row, &found.filter));
        Self {
            documents: all.iter().map(|(document, _)| *document).collect(),
            found: all.into_iter().map(|(_, found)| found.clone()).collect(),
        }
    }
}

/// Writes the file `path` at compression level `zstd`.
pub fn write_verdicts(path: &Path, rows: &VerdictRows, zstd: i32) -> Result<FileStamp> {
    let mut columns = VERDICT_COLUMNS.map(|_| StringBuilder::new());
    for FoundRow { filter, action, reason, details, pieces } in &rows.found {
        let (action, pieces) = (json!(action), format_pieces(pieces));
        let texts = [filter, action.as_str().unwrap_or_default(), reason, details, &pieces];
        columns.iter_mut().zip(texts).for_each(|(column, text)| column.append_value(text));
    }
    let columns = columns.map(|mut column| Arc::new(column.finish()) as ArrayRef);
    let columns = rows.documents.columns().chain(VERDICT_COLUMNS.into_iter().zip(columns));
    let batch = documents::create_batch("write_verdicts", columns)?;
    let properties = documents::writer_properties(path, zstd, &[])?.build();
    documents::write_batch(path, &batch, properties)
}

/// Reads the file `path`; [`Error::Corrupt`] if its rows do not ascend.
pub fn read_verdicts(path: &Path) -> Result<VerdictRows> {
    let part = PartReader::open(path)?;
    let batch = part.read(&[&DOCUMENT_COLUMNS[..], &VERDICT_COLUMNS].concat())?;
    let documents = documents_of(&batch, path)?;
    if !documents.rows().is_sorted() {
        return Err(Error::corrupt(path, "the rows of its documents do not ascend"));
    }
    let column = |name| full_column::<StringArray>(&batch, name, path);
    let columns = VERDICT_COLUMNS.into_iter().map(column).collect::<Result<Vec<_>>>()?;
    let malformed =
        |name: &'static str, value: &str| Error::decode(path, name, format!("`{value}`"));
    let row = |at: usize| {
        let text = |column: usize| columns[column].value(at);
        let [filter, reason, details] = [0, 2, 3].map(|column| text(column).to_owned());
        let action = serde_json::from_value(text(1).into());
        let action = action.map_err(|_| malformed("action", text(1)))?;
        let pieces = parse_pieces(text(4)).ok_or_else(|| malformed("pieces", text(4)))?;
        Ok(FoundRow { filter, action, reason, details, pieces })
    };
    let found = (0..documents.len()).map(row).collect::<Result<_>>()?;
    Ok(VerdictRows { documents, found })
}

/// PII found in a text. Rows are ordered by position.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct PiiRow {
    /// Row of the document in the input.
    pub row: u64,
    /// First byte of the PII in the original text.
    pub start: u64,
    /// First byte after the PII.
    pub end: u64,
    /// Id of the document.
    pub id: String,
    /// Name of the kind of PII, as in the settings.
    pub kind: &'static str,
    /// Whether the PII is one of the values with which FineWeb replaces real ones.
    pub is_placeholder: bool,
    /// The PII itself; `None` if it must not be recorded.
    pub value: Option<String>,
}

/// Writes the file `path` at compression level `zstd`; `has_values` adds the PII itself.
pub fn write_pii(path: &Path, found: &[PiiRow], has_values: bool, zstd: i32) -> Result<FileStamp> {
    let numbers = |of: fn(&PiiRow) -> u64| -> ArrayRef {
        Arc::new(found.iter().map(of).collect::<UInt64Array>())
    };
    let texts = |of: fn(&PiiRow) -> &str| -> ArrayRef {
        Arc::new(StringArray::from_iter_values(found.iter().map(of)))
    };
    let placeholders: Vec<bool> = found.iter().map(|found| found.is_placeholder).collect();
    let columns = [
        ("row", numbers(|found| found.row)),
        ("id", texts(|found| &found.id)),
        ("kind", texts(|found| found.kind)),
        ("start", numbers(|found| found.start)),
        ("end", numbers(|found| found.end)),
        ("placeholder", Arc::new(BooleanArray::from(placeholders))),
    ];
    let values = || ("value", texts(|found| found.value.as_deref().unwrap_or_default()));
    let values = has_values.then(values);
    let batch = documents::create_batch("write_pii", columns.into_iter().chain(values))?;
    let properties = documents::writer_properties(path, zstd, &["start", "end"])?.build();
    documents::write_batch(path, &batch, properties)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::input::DocumentInfo;

    #[test]
    fn verdicts_come_back_as_they_were_written() -> Result<(), Box<dyn std::error::Error>> {
        let dir = tempfile::tempdir()?;
        let path = dir.path().join("verdicts");
        let document =
            |row, id| DocumentInfo { row, id, language: "und", num_bytes: 3, num_tokens: None };
        let found = |[filter, reason, details]: [&str; 3], action, pieces: &[Range<usize>]| {
            let [filter, reason, details] = [filter, reason, details].map(str::to_owned);
            FoundRow { filter, action, reason, details, pieces: pieces.to_vec() }
        };
        let rows = VerdictRows {
            documents: [document(2, "b"), document(7, "g"), document(7, "g")].into_iter().collect(),
            found: vec![
                found(["consent", "robots", "GPTBot,CCBot"], FilterAction::Remove, &[]),
                found(
                    ["consent", "domain", "example.com"],
                    FilterAction::Cut,
                    &[0..640, 900..1660],
                ),
                found(["ids", "listed", ""], FilterAction::Flag, &[]),
            ],
        };
        write_verdicts(&path, &rows, 1)?;
        assert_eq!(read_verdicts(&path)?, rows);
        let places = [0..0, 0..1, 1..3, 3..3].map(|rows_of| &rows.found[rows_of]);
        assert_eq!([0, 2, 7, 9].map(|row| rows.of_row(row)), places);
        let lacking = VerdictRows { found: Vec::new(), ..rows.clone() };
        assert!(matches!(write_verdicts(&path, &lacking, 1), Err(Error::Shape { .. })));
        write_verdicts(&path, &VerdictRows::default(), 1)?;
        assert_eq!(read_verdicts(&path)?, VerdictRows::default());
        let backwards = [document(7, "g"), document(7, "g"), document(2, "b")];
        let backwards = VerdictRows { documents: backwards.into_iter().collect(), ..rows };
        write_verdicts(&path, &backwards, 1)?;
        assert!(matches!(read_verdicts(&path), Err(Error::Corrupt { .. })));
        Ok(())
    }
}
