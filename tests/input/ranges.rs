//! Files that are read in ranges of whole row groups.

use std::ops::Range;
use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array, RecordBatch, StringArray};
use arrow::compute::concat_batches;
use parquet::arrow::ArrowWriter;
use parquet::file::properties::WriterProperties;
use polysift::config::InputConfig;
use polysift::input::{DocumentReader, InputFile, RowGroup};

use super::{TestResult, documents, file, rest, rows};

/// A file of `num_rows` rows without ids, in row groups of `group_rows`.
fn parquet(num_rows: i64, group_rows: usize) -> Result<Vec<u8>, Box<dyn std::error::Error>> {
    let texts = (0..num_rows).map(|row| format!("document {row} {}", "word ".repeat(20)));
    let batch = RecordBatch::try_from_iter([
        ("text", Arc::new(StringArray::from_iter_values(texts)) as ArrayRef),
        ("n", Arc::new(Int64Array::from_iter_values(0..num_rows))),
    ])?;
    let properties =
        WriterProperties::builder().set_max_row_group_row_count(Some(group_rows)).build();
    let mut bytes = Vec::new();
    let mut writer = ArrowWriter::try_new(&mut bytes, batch.schema(), Some(properties))?;
    writer.write(&batch)?;
    writer.close()?;
    Ok(bytes)
}

fn range(input: &InputFile, rows: Range<u64>) -> InputFile {
    InputFile { rows: Some(rows), ..input.clone() }
}

#[test]
fn the_ranges_of_a_file_hold_its_rows_under_their_own_numbers() -> TestResult {
    let (_directory, input) = file("f.parquet", &parquet(100, 30)?)?;
    let config = InputConfig::default();
    let whole = documents(&input, &config)?;
    assert_eq!((whole.len(), whole[95].row, whole[95].id.as_str()), (100, 95, "f/95"));
    let all_rows = rows(&input, &config)?;
    let batches = |rows: &[polysift::input::RowBatch]| {
        concat_batches(&rows[0].batch.schema(), rows.iter().map(|block| &block.batch))
    };
    let all_columns = batches(&all_rows)?;
    for rows_of in [0..30, 30..90, 90..100, 0..100, 60..60] {
        let part = range(&input, rows_of.clone());
        let at = rows_of.start as usize..rows_of.end as usize;
        assert_eq!(documents(&part, &config)?, whole[at.clone()]);
        let found = rows(&part, &config)?;
        let numbers: Vec<u64> = found.iter().flat_map(|block| block.rows.clone()).collect();
        assert_eq!(numbers, rows_of.clone().collect::<Vec<_>>());
        if !found.is_empty() {
            assert_eq!(batches(&found)?, all_columns.slice(at.start, at.len()));
        }
        assert_eq!(part.num_rows()?, rows_of.end - rows_of.start);
    }
    Ok(())
}

#[test]
fn a_reader_of_a_range_goes_on_where_it_is_told_and_never_before_it() -> TestResult {
    let (_directory, input) = file("f.parquet", &parquet(100, 30)?)?;
    let (config, part) = (InputConfig::default(), range(&input, 30..90));
    for (skip, first) in [(0, 30), (30, 30), (45, 45), (60, 60), (89, 89)] {
        let mut reader = DocumentReader::open(&part, &config)?;
        reader.resume(skip, 0);
        let found = rest(&mut reader, 1000)?;
        assert_eq!((found[0].row, found.last().map(|last| last.row)), (first, Some(89)));
    }
    for after in [90, 95, 1000] {
        let mut reader = DocumentReader::open(&part, &config)?;
        reader.resume(after, 0);
        assert!(reader.next_batch(1000)?.is_none());
    }
    Ok(())
}

#[test]
fn rows_that_are_not_whole_row_groups_are_refused() -> TestResult {
    let (_directory, input) = file("f.parquet", &parquet(100, 30)?)?;
    for rows in [0..31, 10..30, 90..101, 120..150, 31..31] {
        let error = DocumentReader::open(&range(&input, rows.clone()), &InputConfig::default());
        let error = error.err().ok_or("accepted")?;
        assert_eq!(error.exit_code(), 65, "{rows:?}");
        assert!(error.to_string().contains("whole row groups"), "{error}");
    }
    let (_directory, lines) = file("f.jsonl", b"{\"text\": \"a\"}\n")?;
    let error = DocumentReader::open(&range(&lines, 0..1), &InputConfig::default());
    assert!(error.err().ok_or("accepted")?.to_string().contains("no row groups"));
    Ok(())
}

#[test]
fn only_the_row_groups_of_the_range_are_read() -> TestResult {
    let mut bytes = parquet(90, 30)?;
    let (_directory, input) = file("f.parquet", &bytes)?;
    let groups = input.row_groups()?.unwrap_or_default();
    // What lies between the first page and the second row group is made unreadable.
    bytes[4..4 + groups[0].bytes as usize].fill(0xff);
    let (_directory, damaged) = file("f.parquet", &bytes)?;
    assert!(documents(&damaged, &InputConfig::default()).is_err());
    let rest = documents(&range(&damaged, 30..90), &InputConfig::default())?;
    assert_eq!(rest, documents(&input, &InputConfig::default())?[30..]);
    Ok(())
}

#[test]
fn row_groups_are_those_of_the_footer() -> TestResult {
    let bytes = parquet(100, 30)?;
    let (_directory, input) = file("f.parquet", &bytes)?;
    let groups = input.row_groups()?.ok_or("no row groups")?;
    assert_eq!(input.num_rows()?, 100);
    let rows: Vec<u64> = groups.iter().map(|group| group.rows).collect();
    assert_eq!(rows, [30, 30, 30, 10]);
    let stored: u64 = groups.iter().map(|group: &RowGroup| group.bytes).sum();
    assert!(stored > 0 && stored < bytes.len() as u64);

    let (_directory, lines) = file("f.jsonl", b"{\"text\": \"a\"}\n")?;
    assert_eq!(lines.row_groups()?, None);
    let (_directory, damaged) = file("f.parquet", &bytes[..bytes.len() - 9])?;
    assert_eq!(damaged.row_groups()?, None);
    Ok(())
}
