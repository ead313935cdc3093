//! The data pages of exported files. One without values ends a column chunk for Arrow C++, which then gives fewer rows.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, BinaryArray, RecordBatch, StringArray, StructArray};
use arrow::array::{DictionaryArray, FixedSizeBinaryArray, ListArray};
use arrow::buffer::OffsetBuffer;
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field, Int32Type};
use parquet::column::page::Page;
use parquet::file::reader::{FileReader, SerializedFileReader};
use polysift::export::WriterOptions;

use super::{TestResult, options, random, read, write};

const MIB: usize = 1 << 20;

/// The number of data pages of the file `path`; an error where one has no values.
pub(crate) fn data_pages(path: &Path) -> Result<usize, Box<dyn std::error::Error>> {
    let reader = SerializedFileReader::new(File::open(path)?)?;
    let mut found = 0;
    for group in 0..reader.num_row_groups() {
        let group_reader = reader.get_row_group(group)?;
        for column in 0..group_reader.num_columns() {
            for (at, page) in group_reader.get_column_page_reader(column)?.enumerate() {
                let page = page?;
                if !matches!(page, Page::DictionaryPage { .. }) {
                    found += 1;
                    if page.num_values() == 0 {
                        return Err(format!("group {group}, column {column}, page {at}").into());
                    }
                }
            }
        }
    }
    Ok(found)
}

/// Writes `rows` to files that are read back, and whose pages are looked at.
fn check(rows: &RecordBatch, options: &WriterOptions) -> TestResult {
    let dir = tempfile::tempdir()?;
    let files = write(&dir.path().join("x"), rows, &[], options)?;
    let mut start = 0;
    for file in files {
        data_pages(&file.path)?;
        let found = read(&file.path)?;
        let expected = rows.slice(start, found.num_rows());
        for (found, expected) in found.columns().iter().zip(expected.columns()) {
            assert!(
                cast(expected, found.data_type())?.as_ref() == found.as_ref(),
                "{:?}",
                found.data_type()
            );
        }
        start += found.num_rows();
    }
    assert_eq!(start, rows.num_rows());
    Ok(())
}

/// Columns of all types whose values have a length of their own, with these texts in them.
fn columns(texts: &[Option<String>]) -> Result<RecordBatch, Box<dyn std::error::Error>> {
    let strings: ArrayRef = Arc::new(texts.iter().map(Option::as_deref).collect::<StringArray>());
    let bytes: BinaryArray = texts.iter().map(|t| t.as_ref().map(String::as_bytes)).collect();
    let words: DictionaryArray<Int32Type> = texts.iter().map(Option::as_deref).collect();
    let field = Arc::new(Field::new("url", DataType::Utf8, true));
    let metadata = StructArray::try_new(vec![field].into(), vec![Arc::clone(&strings)], None)?;
    let field = Arc::new(Field::new("element", DataType::Utf8, true));
    let offsets = OffsetBuffer::from_lengths(texts.iter().map(|_| 1));
    let lists = ListArray::try_new(field, offsets, Arc::clone(&strings), None)?;
    Ok(RecordBatch::try_from_iter_with_nullable([
        ("bytes", Arc::new(bytes) as ArrayRef, true),
        ("large", cast(&strings, &DataType::LargeUtf8)?, true),
        ("view", cast(&strings, &DataType::Utf8View)?, true),
        ("dictionary", Arc::new(words), true),
        ("struct", Arc::new(metadata), true),
        ("list", Arc::new(lists), true),
        ("text", strings, true),
    ])?)
}

/// A text of `bytes` that none of another `at` begins with.
fn text(noise: &str, at: usize, bytes: usize) -> String {
    let mut text = format!("{at:08}{}", noise.repeat(bytes / noise.len() + 1));
    text.truncate(bytes);
    text
}

#[test]
fn no_page_is_empty_around_the_sizes_at_which_pages_and_dictionaries_end() -> TestResult {
    let noise = random::ascii(1, 1 << 12);
    for (at, size) in [MIB / 4, MIB - 4, MIB, MIB + 1].into_iter().enumerate() {
        let lengths = [None, Some(size), Some(9), None, Some(MIB - 9), Some(99)];
        let first = at % 2;
        let texts = lengths[first..].iter().enumerate();
        let texts: Vec<_> = texts.map(|(i, n)| n.map(|n| text(&noise, i, n))).collect();
        // Each size in other types; every second one with row groups that end after 4 MiB.
        let rows = columns(&texts)?.project(&[2 * at % 7, (2 * at + 1) % 7])?;
        let row_group_bytes = if first == 0 { 100_000_000 } else { 1 };
        check(&rows, &WriterOptions { row_group_bytes, ..options() })
            .map_err(|error| format!("{size} bytes, from row {first}: {error}"))?;
    }
    Ok(())
}

#[test]
fn no_page_is_empty_where_pages_end_after_their_most_rows() -> TestResult {
    // 50 bytes and 2 of the level: a chunk of 1 MiB has 20,165 rows, and a page ends after 20,000.
    let rows = columns(&vec![Some("x".repeat(50)); 21_000])?.project(&[4, 5, 6])?;
    check(&rows, &options())?;
    let flags = FixedSizeBinaryArray::try_from_iter((0..21_000).map(|_| [7; 52]))?;
    check(&RecordBatch::try_from_iter([("flags", Arc::new(flags) as ArrayRef)])?, &options())
}

#[test]
fn no_page_is_empty_where_a_row_group_begins_with_the_value_that_ends_a_page() -> TestResult {
    // A chunk of 1 MiB ends before every second text, a row group after five.
    let texts: Vec<_> = (0..7).map(|at| Some(text("ab", at, 1_000_000))).collect();
    let rows = columns(&texts)?.project(&[6])?;
    check(&rows, &WriterOptions { row_group_bytes: 1, ..options() })
}

#[test]
fn no_page_is_empty_where_a_dictionary_of_short_values_is_full() -> TestResult {
    // Words of 24 bytes of which 43,691 fill a dictionary, in columns of which some end a page there.
    let column = |seed: u64| {
        let word = |at: u64| format!("{:024}", (at ^ seed).wrapping_mul(0x9E37_79B9_7F4A_7C15));
        Arc::new(StringArray::from_iter_values((0..46_000).map(word))) as ArrayRef
    };
    let names = ["a", "b", "c", "d", "e", "f"];
    let columns = names.iter().zip(1..).map(|(name, seed)| (*name, column(seed << 40)));
    check(&RecordBatch::try_from_iter(columns)?, &options())
}

#[test]
fn pages_end_by_content() -> TestResult {
    // A text more at the front changes the pages before the first common end, and no other.
    let texts: Vec<_> = (0..400).map(|at| Some(random::ascii(at, 9_000))).collect();
    let dir = tempfile::tempdir()?;
    let mut pages = Vec::new();
    for skipped in [0, 1] {
        let rows = columns(&texts[skipped..])?.project(&[6])?;
        let file = write(&dir.path().join("x"), &rows, &[], &options())?.remove(0);
        let reader = SerializedFileReader::new(File::open(&file.path)?)?;
        let of_file = reader.get_row_group(0)?.get_column_page_reader(0)?;
        let of_file = of_file.map(|page| page.map(|page| page.buffer().to_vec()));
        pages.push(of_file.collect::<Result<Vec<_>, _>>()?);
    }
    let common = pages[1].iter().filter(|page| pages[0].contains(page)).count();
    assert!(pages[1].len() >= 5 && common + 3 >= pages[1].len(), "{common} of {}", pages[1].len());
    Ok(())
}
