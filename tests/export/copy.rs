//! Row groups that are copied: the same rows as when they are decoded, and the bytes of the input.

use std::fs::File;
use std::path::Path;

use arrow::array::{Array, AsArray, Float64Array, RecordBatch};
use arrow::datatypes::DataType;
use parquet::arrow::ArrowWriter;
use parquet::basic::{Compression, ZstdLevel};
use parquet::file::properties::WriterProperties;
use polysift::export::{
    ExportSpec, ExportWriter, InputGroups, RowExtras, WriterOptions, assemble, assemble_new,
    export_schema,
};
use polysift::input::InputFile;
use proptest::prelude::*;

use super::{TestResult, documents, metadata, options, random, read, spec};

/// Writes `rows` to `path` as another program might, in row groups of `group_rows`.
fn write_input(path: &Path, rows: &RecordBatch, group_rows: usize) -> TestResult {
    let properties = WriterProperties::builder()
        .set_max_row_group_row_count(Some(group_rows))
        .set_compression(Compression::ZSTD(ZstdLevel::try_new(1)?))
        .build();
    let mut writer = ArrowWriter::try_new(File::create(path)?, rows.schema(), Some(properties))?;
    writer.write(rows)?;
    writer.close()?;
    Ok(())
}

/// All of a file.
fn whole(path: &Path) -> polysift::Result<InputFile> {
    InputFile::at(path, "input".to_owned(), None)
}

/// The new columns of the rows `start..end`.
fn extras(start: usize, end: usize) -> RowExtras {
    RowExtras {
        scores: vec![(start..end).map(|row| (row % 3 > 0).then_some(row as f32)).collect()],
        ..RowExtras::default()
    }
}

/// A file of some row groups of an input, copied or decoded.
struct Export {
    input: RecordBatch,
    rows: RecordBatch,
    num_copied: usize,
}

/// Exports the file `input`, copying every row group that `wanted` names and that can be copied.
fn export(
    input: &Path,
    output: &Path,
    wanted: &[bool],
    options: &WriterOptions,
) -> Result<Export, Box<dyn std::error::Error>> {
    let spec = ExportSpec { score_columns: vec!["new".into()], ..spec() };
    let rows = read(input)?;
    let schema = export_schema(&rows.schema(), &spec, input)?;
    let groups = InputGroups::open(&whole(input)?, &rows.schema(), &spec, options)?;
    let mut writer = ExportWriter::create(output, schema.clone(), options)?;
    let (mut num_copied, mut next) = (0, 0);
    let decode = |writer: &mut ExportWriter, start: usize, end: usize| -> TestResult {
        let some = rows.slice(start, end - start);
        Ok(writer.write(&assemble(&some, &extras(start, end), &schema, &spec)?)?)
    };
    for (index, range) in groups.iter().flat_map(InputGroups::copyable) {
        let (start, end) = (range.start as usize, range.end as usize);
        let Some(groups) = groups.as_ref().filter(|_| wanted[index % wanted.len()]) else {
            continue;
        };
        decode(&mut writer, next, start)?;
        let mut copied = writer.begin_copy()?;
        for from in (start..end).step_by(7) {
            let to = end.min(from + 7);
            let new = assemble_new(to - from, &extras(from, to), &rows.schema(), &spec)?;
            writer.write_new(&mut copied, &new, to - from, groups)?;
        }
        writer.finish_copy(copied, groups, index)?;
        (num_copied, next) = (num_copied + 1, end);
    }
    decode(&mut writer, next, rows.num_rows())?;
    let files = writer.finish()?;
    assert_eq!(files.iter().map(|file| file.rows).sum::<u64>(), rows.num_rows() as u64);
    Ok(Export { input: rows, rows: read(&files[0].path)?, num_copied })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(64) })]
    #[test]
    fn odd_schemas_come_back_from_copied_row_groups(
        types in proptest::collection::vec(random::data_type(), 1..5),
        num_rows in 1usize..120,
        seed: u64,
        group_rows in 1usize..60,
        wanted in proptest::collection::vec(any::<bool>(), 1..5),
    ) {
        check_copies(&types, (num_rows, seed, group_rows), &wanted)
            .map_err(|e| TestCaseError::fail(e.to_string()))?;
    }
}

fn check_copies(
    types: &[DataType],
    (num_rows, seed, group_rows): (usize, u64, usize),
    wanted: &[bool],
) -> TestResult {
    let dir = tempfile::tempdir()?;
    let input = dir.path().join("input.parquet");
    write_input(&input, &random::batch(types, num_rows, seed)?, group_rows)?;
    let Export { input, rows, .. } = export(&input, &dir.path().join("out"), wanted, &options())?;
    let expected = assemble(
        &input,
        &extras(0, num_rows),
        &export_schema(
            &input.schema(),
            &ExportSpec { score_columns: vec!["new".into()], ..spec() },
            Path::new("input"),
        )?,
        &ExportSpec { score_columns: vec!["new".into()], ..spec() },
    )?;
    for (i, field) in expected.schema().fields().iter().enumerate() {
        assert_eq!(rows.schema().field(i), field.as_ref());
        assert_eq!(rows.column(i), expected.column(i), "{field:?}");
    }
    Ok(())
}

#[test]
fn a_copied_column_has_the_bytes_of_the_input_and_new_ones_their_values() -> TestResult {
    let dir = tempfile::tempdir()?;
    let (input, output) = (dir.path().join("input.parquet"), dir.path().join("out"));
    write_input(&input, &documents(500)?, 200)?;
    let found = export(&input, &output, &[true, false], &options())?;
    assert_eq!(found.num_copied, 2);
    let output = output.with_extension("parquet");
    let (from, to) = (metadata(&input)?, metadata(&output)?);
    let rows = |group: usize| to.row_group(group).num_rows();
    assert_eq!([rows(0), rows(1), rows(2)], [200, 200, 100]);
    let (from_bytes, to_bytes) = (std::fs::read(&input)?, std::fs::read(&output)?);
    for group in [0, 2] {
        for column in 0..from.row_group(group).num_columns() {
            let bytes = |footer: &parquet::file::metadata::ParquetMetaData, all: &[u8]| {
                let (start, length) = footer.row_group(group).column(column).byte_range();
                all[start as usize..(start + length) as usize].to_vec()
            };
            assert!(bytes(&from, &from_bytes) == bytes(&to, &to_bytes), "{group}, {column}");
        }
    }
    let new = found.rows.column_by_name("new").ok_or("no new column")?;
    let expected: Float64Array =
        (0..500).map(|row| (row % 3 > 0).then_some(f64::from(row))).collect();
    assert_eq!(new.as_primitive(), &expected);
    assert_eq!(new.null_count(), 167);
    Ok(())
}

#[test]
fn what_the_settings_forbid_is_not_copied() -> TestResult {
    let dir = tempfile::tempdir()?;
    let (input, output) = (dir.path().join("input.parquet"), dir.path().join("out"));
    write_input(&input, &documents(500)?, 200)?;
    for options in [
        WriterOptions { max_file_bytes: Some(1_000_000_000), ..options() },
        WriterOptions { row_group_bytes: 1000, ..options() },
    ] {
        assert_eq!(export(&input, &output, &[true], &options)?.num_copied, 0);
    }
    let spec = ExportSpec { layout: polysift::config::Layout::Nested, ..spec() };
    let schema = read(&input)?.schema();
    assert!(InputGroups::open(&whole(&input)?, &schema, &spec, &options())?.is_none());
    Ok(())
}

#[test]
fn of_a_range_only_the_row_groups_inside_are_copied() -> TestResult {
    let dir = tempfile::tempdir()?;
    let input = dir.path().join("input.parquet");
    write_input(&input, &documents(500)?, 100)?;
    let schema = read(&input)?.schema();
    let of_rows = InputFile { rows: Some(100..300), ..whole(&input)? };
    let groups = InputGroups::open(&of_rows, &schema, &spec(), &options())?.ok_or("none")?;
    assert_eq!(groups.copyable().collect::<Vec<_>>(), [(1, 100..200), (2, 200..300)]);
    Ok(())
}

#[test]
fn a_row_group_needs_all_its_new_values() -> TestResult {
    let dir = tempfile::tempdir()?;
    let (input, output) = (dir.path().join("input.parquet"), dir.path().join("out"));
    write_input(&input, &documents(20)?, 20)?;
    let spec = ExportSpec { score_columns: vec!["new".into()], ..spec() };
    let schema = read(&input)?.schema();
    let groups = InputGroups::open(&whole(&input)?, &schema, &spec, &options())?;
    let groups = groups.ok_or("not copyable")?;
    let mut writer =
        ExportWriter::create(&output, export_schema(&schema, &spec, &input)?, &options())?;
    let mut copied = writer.begin_copy()?;
    let new = assemble_new(19, &extras(0, 19), &schema, &spec)?;
    writer.write_new(&mut copied, &new, 19, &groups)?;
    assert!(writer.finish_copy(copied, &groups, 0).is_err());
    Ok(())
}
