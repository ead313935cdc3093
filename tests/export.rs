//! The export as a whole: assembled, written, read back, killed, out of space.

#[path = "export/faults.rs"]
mod faults;
#[path = "export/golden.rs"]
mod golden;
#[path = "export/pages.rs"]
mod pages;
#[path = "export/places.rs"]
mod places;
#[path = "export/random.rs"]
mod random;

use std::error::Error as StdError;
use std::path::Path;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, DictionaryArray, RecordBatch, StringArray};
use arrow::compute::{cast, concat, concat_batches};
use arrow::datatypes::{DataType, Float32Type, Int32Type, Schema};
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use parquet::arrow::parquet_to_arrow_schema;
use parquet::basic::Encoding;
use parquet::file::metadata::ParquetMetaData;
use polysift::config::{EmbeddingDtype, Layout};
use polysift::export::{ExportColumns, ExportSpec, ExportWriter, ExportedFile, WriterOptions};
use polysift::input::{RowBatch, dense, open_rows};
use polysift::io::stamp;
use polysift::parts::{embeddings_array, round_to};
use proptest::prelude::*;

type TestResult = Result<(), Box<dyn StdError>>;

fn options() -> WriterOptions {
    WriterOptions {
        zstd: 1,
        row_group_bytes: 100_000_000,
        max_file_bytes: None,
        metadata: vec![("polysift".into(), "{\"run\":1}".into())],
    }
}

fn spec() -> ExportSpec {
    ExportSpec { text: "text".into(), id: "id".into(), ..ExportSpec::default() }
}

fn names(dir: &Path) -> Result<Vec<String>, Box<dyn StdError>> {
    let mut names = std::fs::read_dir(dir)?
        .map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()))
        .collect::<Result<Vec<_>, std::io::Error>>()?;
    names.sort();
    Ok(names)
}

fn metadata(path: &Path) -> Result<ParquetMetaData, Box<dyn StdError>> {
    let builder = ParquetRecordBatchReaderBuilder::try_new(std::fs::File::open(path)?)?;
    Ok(builder.metadata().as_ref().clone())
}

/// All rows of a file in one batch.
fn read(path: &Path) -> Result<RecordBatch, Box<dyn StdError>> {
    let builder = ParquetRecordBatchReaderBuilder::try_new(std::fs::File::open(path)?)?;
    let schema = Arc::clone(builder.schema());
    let batches = builder.build()?.collect::<Result<Vec<_>, _>>()?;
    Ok(concat_batches(&schema, &batches)?)
}

/// Writes the rows of `batch` in batches that end at `cuts`.
fn write(
    base: &Path,
    batch: &RecordBatch,
    cuts: &[usize],
    options: &WriterOptions,
) -> Result<Vec<ExportedFile>, Box<dyn StdError>> {
    write_as(base, &batch.schema(), batch, cuts, options)
}

/// As [`write`]; the files declare the types of `schema`.
fn write_as(
    base: &Path,
    schema: &Schema,
    batch: &RecordBatch,
    cuts: &[usize],
    options: &WriterOptions,
) -> Result<Vec<ExportedFile>, Box<dyn StdError>> {
    let mut writer = ExportWriter::create(base, schema, options)?;
    let mut start = 0;
    for end in cuts.iter().copied().chain([batch.num_rows()]) {
        writer.write(&batch.slice(start, end - start))?;
        start = end;
    }
    Ok(writer.finish()?)
}

/// `batch` as input files are read: with the values of dictionaries.
fn dense_rows(batch: &RecordBatch) -> Result<RecordBatch, Box<dyn StdError>> {
    let schema = dense(&batch.schema());
    let columns = batch.columns().iter().zip(schema.fields());
    let columns = columns.map(|(column, field)| cast(column, field.data_type()));
    Ok(RecordBatch::try_new(Arc::clone(&schema), columns.collect::<Result<_, _>>()?)?)
}

/// `num_rows` documents; the texts hardly compress, long ones are as likely as short ones.
fn documents(num_rows: usize) -> Result<RecordBatch, Box<dyn StdError>> {
    let ids = (0..num_rows).map(|i| i.to_string());
    let texts = (0..num_rows).map(|i| random::ascii(i as u64, i * i % 97 * 16));
    let words = (0..num_rows).map(|i| ["deu", "fra", "zho"][i * i % 7 % 3]);
    let words: DictionaryArray<Int32Type> = words.collect();
    Ok(RecordBatch::try_from_iter([
        ("text", Arc::new(StringArray::from_iter_values(texts)) as ArrayRef),
        ("id", Arc::new(StringArray::from_iter_values(ids))),
        ("language", Arc::new(words)),
    ])?)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(64) })]
    #[test]
    fn odd_schemas_come_back_whatever_the_batches(
        types in proptest::collection::vec(random::data_type(), 1..5),
        num_rows in 0usize..120,
        seed: u64,
        cuts in proptest::collection::vec(0usize..120, 0..5),
        row_group_bytes in 1u64..5000,
        max_file_bytes in proptest::option::of(64u64..8192),
    ) {
        check_round_trip(&types, num_rows, seed, cuts, row_group_bytes, max_file_bytes)
            .map_err(|e| TestCaseError::fail(e.to_string()))?;
    }
}

fn check_round_trip(
    types: &[DataType],
    num_rows: usize,
    seed: u64,
    mut cuts: Vec<usize>,
    row_group_bytes: u64,
    max_file_bytes: Option<u64>,
) -> TestResult {
    let dir = tempfile::tempdir()?;
    let input = random::batch(types, num_rows, seed)?;
    let spec = spec();
    let columns = ExportColumns::new(&input.schema(), &spec, Path::new("input"))?;
    let rows = columns.assemble(&dense_rows(&input)?, &[], None)?;
    cuts.retain(|&cut| cut <= num_rows);
    cuts.sort_unstable();
    let options = WriterOptions { row_group_bytes, max_file_bytes, ..options() };
    let schema = &columns.schema;
    let whole = write_as(&dir.path().join("whole"), schema, &rows, &[], &options)?;
    let cut = write_as(&dir.path().join("cut"), schema, &rows, &cuts, &options)?;
    assert!(whole.iter().map(|f| (f.rows, &f.stamp)).eq(cut.iter().map(|f| (f.rows, &f.stamp))));
    let read = whole.iter().map(|file| read(&file.path)).collect::<Result<Vec<_>, _>>()?;
    assert!(whole.iter().zip(&read).all(|(file, batch)| file.rows == batch.num_rows() as u64));
    for (i, field) in rows.schema().fields().iter().enumerate() {
        assert_eq!(read[0].schema().field(i), columns.schema.field(i));
        let parts: Vec<&dyn Array> = read.iter().map(|batch| batch.column(i).as_ref()).collect();
        let column = cast(&concat(&parts)?, field.data_type())?;
        assert_eq!(&column, rows.column(i), "{field:?}");
    }
    let mut start = 0;
    for file in &whole {
        let (_, mut reader) = open_rows(&file.path)?;
        assert_eq!(reader.schema.fields(), schema.fields());
        while let Some(RowBatch { batch, .. }) = reader.next_batch()? {
            let expected = rows.slice(start, batch.num_rows());
            assert_eq!(batch.columns(), expected.columns());
            start += batch.num_rows();
        }
    }
    assert_eq!(start, num_rows);
    Ok(())
}

#[test]
fn long_columns_give_the_same_rows_and_bytes_whatever_the_batches() -> TestResult {
    let dir = tempfile::tempdir()?;
    let input = documents(9000)?;
    let spec = ExportSpec { embeddings: Some(EmbeddingDtype::F32), ..spec() };
    let columns = ExportColumns::new(&input.schema(), &spec, Path::new("input"))?;
    let chunk_offsets: Vec<usize> = (0..=9000).map(|i| i - i / 10).collect();
    let values = (0..8100 * 64u32).map(|i| f32::from_bits(i.wrapping_mul(0x9E37_79B9)));
    let values: Vec<f32> = values.collect();
    let new = embeddings_array(&chunk_offsets, &values, 64, EmbeddingDtype::F32)?;
    let rows = columns.assemble(&dense_rows(&input)?, &[new], None)?;
    let options =
        WriterOptions { row_group_bytes: 2_500_000, max_file_bytes: Some(6_000_000), ..options() };
    let whole = write(&dir.path().join("a"), &rows, &[], &options)?;
    let cuts: Vec<usize> = (1..30).map(|i| i * i * 10).collect();
    let cut = write(&dir.path().join("b"), &rows, &cuts, &options)?;
    assert!(whole.iter().map(|f| &f.stamp).eq(cut.iter().map(|f| &f.stamp)));
    let read = whole.iter().map(|file| read(&file.path)).collect::<Result<Vec<_>, _>>()?;
    assert_eq!(concat_batches(&read[0].schema(), &read)?.columns(), rows.columns());
    let num_groups = (whole.iter())
        .map(|file| metadata(&file.path).map(|metadata| metadata.num_row_groups()))
        .sum::<Result<usize, _>>()?;
    assert!(whole.len() > 1 && num_groups > whole.len(), "{} {num_groups}", whole.len());
    Ok(())
}

#[test]
fn splitting_by_size_loses_no_row_and_stays_near_the_size() -> TestResult {
    let dir = tempfile::tempdir()?;
    let rows = documents(5000)?;
    let max = 300_000;
    let options = WriterOptions { max_file_bytes: Some(max), ..options() };
    let files = write(&dir.path().join("000_00000"), &rows, &[100], &options)?;
    assert!(files.len() > 2, "{files:?}");
    let mut ids = Vec::new();
    for (i, file) in files.iter().enumerate() {
        let name = format!("000_00000-{i:05}.parquet");
        assert_eq!(file.path, dir.path().join(&name));
        assert_eq!(file.stamp, stamp(&file.path)?);
        // A piece is 1/16 of the size uncompressed; footer and page headers come on top.
        assert!(file.stamp.bytes < max + max / 4, "{} bytes", file.stamp.bytes);
        assert!(
            i + 1 == files.len() || file.stamp.bytes > max * 3 / 4,
            "{} bytes",
            file.stamp.bytes
        );
        let batch = read(&file.path)?;
        ids.extend(batch["id"].as_string::<i32>().iter().flatten().map(String::from));
    }
    assert!(ids.iter().enumerate().all(|(i, id)| *id == i.to_string()) && ids.len() == 5000);
    assert_eq!(names(dir.path())?.len(), files.len());
    Ok(())
}

#[test]
fn no_rows_make_a_valid_file() -> TestResult {
    let dir = tempfile::tempdir()?;
    let rows = documents(0)?;
    for (max_file_bytes, name) in [(None, "x.parquet"), (Some(1), "x-00000.parquet")] {
        let options = WriterOptions { max_file_bytes, ..options() };
        let files = write(&dir.path().join("x"), &rows, &[], &options)?;
        assert_eq!(files.len(), 1);
        assert_eq!((files[0].path.as_path(), files[0].rows), (&*dir.path().join(name), 0));
        assert_eq!(read(&files[0].path)?.schema().fields(), rows.schema().fields());
    }
    Ok(())
}

#[test]
fn no_file_has_its_name_before_the_end() -> TestResult {
    let dir = tempfile::tempdir()?;
    let rows = documents(3000)?;
    let options = WriterOptions { max_file_bytes: Some(50_000), ..options() };
    for finish in [false, true] {
        let mut writer = ExportWriter::create(&dir.path().join("x"), &rows.schema(), &options)?;
        writer.write(&rows)?;
        assert!(names(dir.path())?.len() > 2);
        assert!(names(dir.path())?.iter().all(|name| name.starts_with('.')));
        if finish {
            assert!(writer.finish()?.len() > 2);
        } else {
            drop(writer);
            assert!(names(dir.path())?.is_empty());
        }
    }
    assert!(!names(dir.path())?.iter().any(|name| name.starts_with('.')));
    Ok(())
}

#[test]
fn a_batch_of_other_columns_is_refused() -> TestResult {
    let dir = tempfile::tempdir()?;
    let mut writer = ExportWriter::create(&dir.path().join("x"), &Schema::empty(), &options())?;
    writer.write(&documents(1)?)?;
    let error = writer.finish().err().ok_or("taken")?;
    assert!(error.to_string().contains("write failed"), "{error}");
    assert!(names(dir.path())?.is_empty());
    Ok(())
}

#[test]
fn embeddings_are_exported_bit_for_bit_in_both_layouts() -> TestResult {
    let dir = tempfile::tempdir()?;
    let input = documents(3)?;
    // 1 chunk, none, 2 chunks; a NaN, a subnormal and values that only f32 holds.
    let values = vec![0.1, f32::NAN, -0.0, f32::from_bits(1), 1e-5, 1.0 / 3.0];
    for layout in [Layout::Flat, Layout::Nested] {
        for dtype in [EmbeddingDtype::F32, EmbeddingDtype::F16, EmbeddingDtype::Bf16InF32] {
            let spec = ExportSpec { layout, embeddings: Some(dtype), ..spec() };
            let new = embeddings_array(&[0, 1, 1, 3], &values, 2, dtype)?;
            let columns = ExportColumns::new(&input.schema(), &spec, Path::new("input"))?;
            let rows = columns.assemble(&dense_rows(&input)?, &[new], None)?;
            let file = write(&dir.path().join("x"), &rows, &[], &options())?.remove(0);
            let read = read(&file.path)?;
            let column = match layout {
                Layout::Flat => &read["embeddings"],
                Layout::Nested => {
                    read["metadata"].as_struct().column_by_name("embeddings").ok_or("none")?
                }
            };
            let lists = column.as_list::<i32>();
            assert_eq!([0, 1, 2].map(|i| lists.is_null(i)), [false, true, false]);
            let chunks = lists.values().as_list::<i32>();
            assert_eq!(chunks.value_offsets(), [0, 2, 4, 6]);
            let stored = cast(chunks.values(), &DataType::Float32)?;
            let stored = stored.as_primitive::<Float32Type>().values().iter().map(|v| v.to_bits());
            let mut expected = values.clone();
            round_to(&mut expected, dtype);
            assert!(stored.eq(expected.iter().map(|v| v.to_bits())));
            let metadata = metadata(&file.path)?;
            let mut leaves = metadata.row_group(0).columns().iter();
            let leaf = leaves.find(|c| c.column_path().string().contains("embeddings"));
            let leaf = leaf.ok_or("none")?;
            let encoding = match dtype {
                EmbeddingDtype::F16 => Encoding::PLAIN,
                EmbeddingDtype::F32 | EmbeddingDtype::Bf16InF32 => Encoding::BYTE_STREAM_SPLIT,
            };
            assert!(leaf.encodings().any(|e| e == encoding));
            assert!(leaf.dictionary_page_offset().is_none());
        }
    }
    Ok(())
}

#[test]
fn the_callers_metadata_and_the_page_index_are_in_the_file() -> TestResult {
    let dir = tempfile::tempdir()?;
    let rows = documents(10)?;
    let note = std::collections::HashMap::from([("pandas".to_owned(), "{}".to_owned())]);
    let schema = Schema::new_with_metadata(rows.schema().fields().clone(), note);
    let rows = RecordBatch::try_new(Arc::new(schema), rows.columns().to_vec())?;
    let file = write(&dir.path().join("x"), &rows, &[], &options())?.remove(0);
    let metadata = metadata(&file.path)?;
    let pairs = metadata.file_metadata().key_value_metadata().ok_or("no pairs")?;
    let ours = pairs.iter().find(|pair| pair.key == "polysift").ok_or("not ours")?;
    assert_eq!(ours.value.as_deref(), Some("{\"run\":1}"));
    // pyarrow takes a schema's metadata from that of arrow alone, which holds what the input had.
    let arrow = pairs.iter().filter(|pair| pair.key == "ARROW:schema").cloned().collect();
    let schema = parquet_to_arrow_schema(metadata.file_metadata().schema_descr(), Some(&arrow))?;
    assert_eq!(schema.metadata()["pandas"], "{}");
    assert!(!schema.metadata().contains_key("polysift"));
    let columns = metadata.row_group(0).columns();
    assert!(columns.iter().all(|c| c.column_index_offset().is_some()));
    assert!(columns.iter().all(|c| c.offset_index_offset().is_some()));
    Ok(())
}
