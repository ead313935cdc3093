//! Filter verdicts: which documents of a shard were found, by which filter and why. Documents that
//! no filter found have no row.

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use arrow_array::{ArrayRef, StringArray};

use super::documents::{self, PartReader, documents_of, full_column};
use crate::input::{DOCUMENT_COLUMNS, DocumentBatch, DocumentBuilder};
use polysift_base::error::{Error, Result};
use polysift_base::io::FileStamp;

const VERDICT_COLUMNS: [&str; 5] = ["filter", "action", "reason", "detail", "pieces"];

/// What a filter does to a document that it found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VerdictAction {
    /// The document is flagged.
    Flag,
    /// Only pieces of the text are exported.
    Cut,
    /// The document is not exported.
    Remove,
}

impl VerdictAction {
    const ALL: [Self; 3] = [Self::Flag, Self::Cut, Self::Remove];

    fn name(self) -> &'static str {
        match self {
            Self::Flag => "flag",
            Self::Cut => "cut",
            Self::Remove => "remove",
        }
    }
}

/// Writes the pieces of a text as the file has them.
fn written(pieces: &[Range<usize>]) -> String {
    let piece = |piece: &Range<usize>| format!("{}-{}", piece.start, piece.end);
    pieces.iter().map(piece).collect::<Vec<_>>().join(" ")
}

/// Parses [`written`] pieces; `None` if they are malformed.
fn parsed(pieces: &str) -> Option<Vec<Range<usize>>> {
    let piece = |range: &str| {
        let (start, end) = range.split_once('-')?;
        Some(start.parse().ok()?..end.parse().ok()?)
    };
    pieces.split(' ').filter(|piece| !piece.is_empty()).map(piece).collect()
}

/// Findings of the filters in a shard: one row per document and filter, in the order of the input
/// and then of the filters' names. All columns have the same length.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct VerdictRows {
    /// Documents of the rows; a document is repeated for every filter that found it.
    pub documents: DocumentBatch,
    /// Name of the filter.
    pub filters: Vec<String>,
    /// Action on the document.
    pub actions: Vec<VerdictAction>,
    /// Reason of the finding: a word that depends on the kind of filter.
    pub reasons: Vec<String>,
    /// Details of the finding, separated by commas; may be empty.
    pub details: Vec<String>,
    /// Byte ranges of the text that [`VerdictAction::Cut`] keeps; else empty. The file has them as
    /// first byte and end: `0-640 900-1660`.
    pub pieces: Vec<Vec<Range<usize>>>,
}

impl VerdictRows {
    /// Returns the indices of the verdicts on `row` of the input.
    pub fn of_row(&self, row: u64) -> Range<usize> {
        let rows = self.documents.rows();
        rows.partition_point(|&other| other < row)..rows.partition_point(|&other| other <= row)
    }

    /// Returns the verdicts of both, by row and name of the filter.
    #[must_use]
    pub fn merge(self, other: &Self) -> Self {
        if self.filters.is_empty() {
            return other.clone();
        }
        let key = |rows: &Self, at: usize| (rows.documents.rows()[at], rows.filters[at].clone());
        let sources = [&self, other];
        let all = (0..2).flat_map(|of| (0..sources[of].filters.len()).map(move |at| (of, at)));
        let mut all: Vec<(usize, usize)> = all.collect();
        all.sort_by_cached_key(|&(of, at)| key(sources[of], at));
        let (mut merged, mut documents) = (Self::default(), DocumentBuilder::default());
        for (of, at) in all {
            let rows = sources[of];
            documents.push(&rows.documents.get(at));
            merged.filters.push(rows.filters[at].clone());
            merged.actions.push(rows.actions[at]);
            merged.reasons.push(rows.reasons[at].clone());
            merged.details.push(rows.details[at].clone());
            merged.pieces.push(rows.pieces[at].clone());
        }
        merged.documents = documents.finish();
        merged
    }

    /// Returns the details of the verdict `at`, or the reason if there are none.
    pub fn why(&self, at: usize) -> &str {
        if self.details[at].is_empty() { &self.reasons[at] } else { &self.details[at] }
    }
}

/// Writes the file `path` at compression level `zstd`.
pub fn write_verdicts(path: &Path, rows: &VerdictRows, zstd: i32) -> Result<FileStamp> {
    let VerdictRows { filters, actions, reasons, details, pieces, .. } = rows;
    let actions = actions.iter().map(|action| action.name().to_owned()).collect();
    let pieces = pieces.iter().map(|pieces| written(pieces)).collect();
    let columns = [filters, &actions, reasons, details, &pieces]
        .map(|values| Arc::new(StringArray::from_iter_values(values)) as ArrayRef);
    let columns = rows.documents.columns().chain(VERDICT_COLUMNS.into_iter().zip(columns));
    let batch = documents::batch_of("write_verdicts", columns)?;
    let properties = documents::properties(path, zstd, &[])?.build();
    documents::write_batch(path, &batch, properties)
}

/// Reads the file `path`.
pub fn read_verdicts(path: &Path) -> Result<VerdictRows> {
    let part = PartReader::open(path)?;
    let batch = part.read(&[&DOCUMENT_COLUMNS[..], &VERDICT_COLUMNS].concat())?;
    let texts = |name: &str| -> Result<Vec<String>> {
        let column: &StringArray = full_column(&batch, name, path)?;
        Ok(column.iter().flatten().map(ToOwned::to_owned).collect())
    };
    let [filters, actions, reasons, details, pieces] = VERDICT_COLUMNS.map(texts);
    let malformed =
        |name: &'static str, value: &str| Error::decode(path, name, format!("`{value}`"));
    let action = |name: &String| {
        let known = VerdictAction::ALL.into_iter().find(|action| action.name() == name);
        known.ok_or_else(|| malformed("action", name))
    };
    let pieces_of = |text: &String| parsed(text).ok_or_else(|| malformed("pieces", text));
    Ok(VerdictRows {
        documents: documents_of(&batch, path)?,
        filters: filters?,
        actions: actions?.iter().map(action).collect::<Result<_>>()?,
        reasons: reasons?,
        details: details?,
        pieces: pieces?.iter().map(pieces_of).collect::<Result<_>>()?,
    })
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
        let own = |texts: [&str; 3]| texts.map(str::to_owned).to_vec();
        let rows = VerdictRows {
            documents: [document(2, "b"), document(7, "g"), document(7, "g")].into_iter().collect(),
            filters: own(["consent", "consent", "ids"]),
            actions: vec![VerdictAction::Remove, VerdictAction::Cut, VerdictAction::Flag],
            reasons: own(["robots", "domain", "listed"]),
            details: own(["GPTBot,CCBot", "example.com", ""]),
            pieces: vec![vec![], vec![0..640, 900..1660], vec![]],
        };
        write_verdicts(&path, &rows, 1)?;
        assert_eq!(read_verdicts(&path)?, rows);
        assert_eq!([0, 2, 7, 9].map(|row| rows.of_row(row)), [0..0, 0..1, 1..3, 3..3]);
        let lacking = VerdictRows { details: Vec::new(), ..rows };
        assert!(matches!(write_verdicts(&path, &lacking, 1), Err(Error::Shape { .. })));
        write_verdicts(&path, &VerdictRows::default(), 1)?;
        assert_eq!(read_verdicts(&path)?, VerdictRows::default());
        Ok(())
    }
}
