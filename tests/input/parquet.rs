//! Parquet: what pyarrow wrote, and whatever the `parquet` crate writes.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, Int64Array, ListArray, NullArray, RecordBatch, StringArray,
    StructArray,
};
use arrow::buffer::OffsetBuffer;
use arrow::compute::{cast, concat_batches};
use arrow::datatypes::{DataType, Date32Type, Field, Fields, Float64Type, TimeUnit};
use arrow::json::WriterBuilder;
use arrow::json::writer::LineDelimited;
use parquet::arrow::ArrowWriter;
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use polysift::config::{InputConfig, LanguageSource};
use polysift::input::{DocumentReader, InputFile, RowReader};
use proptest::prelude::*;
use serde_json::Value;

use super::{TestResult, chain, documents, failure, file, golden, rest, rows};

/// Files that pyarrow wrote, with what it reads from them.
const GOLDEN: [&str; 6] =
    ["odd", "nested", "codec_none", "codec_gzip", "codec_lz4", "codec_brotli"];

type Failure = Box<dyn std::error::Error>;

/// All rows of a file in one batch; their numbers are checked.
fn whole(input: &InputFile) -> Result<RecordBatch, Failure> {
    let batches = rows(input, &InputConfig::default())?;
    let numbers: Vec<u64> = batches.iter().flat_map(|batch| batch.rows.clone()).collect();
    assert_eq!(numbers, (0..numbers.len() as u64).collect::<Vec<_>>());
    let schema = batches.first().ok_or("no batch")?.batch.schema();
    Ok(concat_batches(&schema, batches.iter().map(|batch| &batch.batch))?)
}

/// Rows as JSON in the convention of `tests/golden/input.py`.
fn json(batch: &RecordBatch) -> Result<Vec<Value>, Failure> {
    let plain = |column: &ArrayRef| match column.data_type() {
        DataType::Timestamp(..) => cast(column, &DataType::Int64),
        DataType::Date32 => cast(column, &DataType::Int32),
        _ => Ok(column.clone()),
    };
    let columns = batch.columns().iter().map(plain).collect::<Result<Vec<_>, _>>()?;
    let schema = batch.schema();
    let names = schema.fields().iter().map(|field| field.name().clone());
    let batch = RecordBatch::try_from_iter(names.zip(columns))?;
    let mut bytes = Vec::new();
    let mut writer =
        WriterBuilder::new().with_explicit_nulls(true).build::<_, LineDelimited>(&mut bytes);
    writer.write(&batch)?;
    writer.finish()?;
    let lines = bytes.split(|&b| b == b'\n').filter(|line| !line.is_empty());
    Ok(lines.map(serde_json::from_slice).collect::<Result<_, _>>()?)
}

/// What pyarrow reads.
fn expected(name: &str) -> Result<Vec<Value>, Failure> {
    let path = golden(&format!("{name}.json"))?.path;
    let golden: Value = serde_json::from_slice(&std::fs::read(path)?)?;
    Ok(golden["rows"].as_array().ok_or("no rows")?.clone())
}

#[test]
fn golden_rows_have_the_values_pyarrow_reads() -> TestResult {
    for name in GOLDEN {
        let found = json(&whole(&golden(&format!("{name}.parquet"))?)?)?;
        let expected = expected(name)?;
        assert_eq!(found.len(), expected.len(), "{name}");
        for (found, expected) in found.iter().zip(&expected) {
            assert_eq!(found, expected, "{name}");
        }
    }
    Ok(())
}

/// The types that `odd` of `tests/golden/input.py` has written.
fn odd_types() -> Vec<(&'static str, DataType)> {
    let field = |name: &str, kind| Field::new(name, kind, true);
    let list = |name, kind| DataType::List(Arc::new(Field::new(name, kind, true)));
    let entry = Fields::from(vec![
        Field::new("key", DataType::Utf8, false),
        Field::new("value", DataType::Int32, true),
    ]);
    let pair = Fields::from(vec![field("k", DataType::Int64), field("v", DataType::Utf8)]);
    vec![
        ("text", DataType::LargeUtf8),
        ("id", DataType::UInt64),
        ("view", DataType::Utf8View),
        ("dictionary", DataType::Dictionary(DataType::Int32.into(), DataType::Utf8.into())),
        ("zoned", DataType::Timestamp(TimeUnit::Microsecond, Some("Europe/Zurich".into()))),
        ("naive", DataType::Timestamp(TimeUnit::Nanosecond, None)),
        ("date", DataType::Date32),
        ("decimal", DataType::Decimal128(12, 2)),
        ("binary", DataType::Binary),
        ("half", DataType::Float16),
        ("single", DataType::Float32),
        ("boolean", DataType::Boolean),
        ("small", DataType::Int8),
        ("nothing", DataType::Null),
        ("lists", list("element", DataType::Utf8)),
        ("structs", list("element", DataType::Struct(pair))),
        (
            "map",
            DataType::Map(Arc::new(Field::new("key_value", DataType::Struct(entry), false)), false),
        ),
        ("fixed", DataType::FixedSizeList(Arc::new(field("element", DataType::Float32)), 2)),
        ("embeddings", list("element", list("element", DataType::Float64))),
    ]
}

#[test]
fn golden_types_are_unchanged() -> TestResult {
    let schema = RowReader::open(&golden("odd.parquet")?, &InputConfig::default())?.schema;
    let found: Vec<_> =
        schema.fields().iter().map(|f| (f.name().as_str(), f.data_type().clone())).collect();
    for (found, expected) in found.iter().zip(odd_types()) {
        assert_eq!(*found, expected);
    }
    assert_eq!(found.len(), odd_types().len());
    Ok(())
}

#[test]
fn golden_documents_have_the_texts_pyarrow_reads() -> TestResult {
    for name in GOLDEN {
        let input = golden(&format!("{name}.parquet"))?;
        let found = documents(&input, &InputConfig::default())?;
        let expected = expected(name)?;
        assert_eq!(found.len(), expected.len());
        for (row, (document, expected)) in found.iter().zip(&expected).enumerate() {
            let text = expected["text"].as_str();
            assert_eq!(document.row, row as u64);
            assert_eq!(document.num_bytes, text.map_or(0, str::len) as u64);
            assert_eq!(document.text.as_deref(), text.filter(|text| !text.trim().is_empty()));
            let id = match &expected["id"] {
                Value::Null => format!("{name}/{row}"),
                Value::String(id) => id.clone(),
                other => other.to_string(),
            };
            assert_eq!(document.id, id);
        }
    }
    Ok(())
}

#[test]
fn golden_languages_and_embeddings_are_found_in_metadata() -> TestResult {
    let config = InputConfig {
        language: LanguageSource::Column {
            column: "language".into(),
            script_column: Some("metadata.language_script".into()),
        },
        embeddings: Some("embeddings".into()),
        ..InputConfig::default()
    };
    let found = documents(&golden("nested.parquet")?, &config)?;
    let languages: Vec<_> = found.iter().map(|d| d.language.as_str()).collect();
    assert_eq!(languages[..6], ["deu_Latn", "fra_Latn", "deu_Latn", "fra_Latn", "und", "und"]);
    assert_eq!(found[3].embeddings, Some(vec![vec![1.5, 1.0]]));
    assert_eq!(found[4].embeddings, None);

    let config = InputConfig { embeddings: Some("embeddings".into()), ..InputConfig::default() };
    let found = documents(&golden("odd.parquet")?, &config)?;
    assert_eq!(found[2].embeddings, Some(vec![vec![1.0, 1.0, 0.25]; 2]));
    assert_eq!((&found[0].embeddings, &found[3].embeddings), (&Some(vec![]), &None));
    Ok(())
}

#[test]
fn a_text_column_without_a_type_has_rows_without_text() -> TestResult {
    let columns: [(&str, ArrayRef); 2] =
        [("text", Arc::new(NullArray::new(3))), ("id", Arc::new(NullArray::new(3)))];
    let batch = RecordBatch::try_from_iter_with_nullable(columns.map(|(n, c)| (n, c, true)))?;
    let (_directory, input) = file("f.parquet", &write(&batch, 2)?)?;
    let found = documents(&input, &InputConfig::default())?;
    assert_eq!(found.iter().map(|d| d.id.as_str()).collect::<Vec<_>>(), ["f/0", "f/1", "f/2"]);
    assert!(found.iter().all(|d| d.text.is_none() && d.num_bytes == 0));
    assert_eq!(whole(&input)?.column(0).data_type(), &DataType::Null);
    Ok(())
}

#[test]
fn an_encrypted_file_is_called_so() -> TestResult {
    for name in ["encrypted.parquet", "encrypted_column.parquet"] {
        let (input, config) = (golden(name)?, InputConfig::default());
        let errors = [documents(&input, &config).err(), rows(&input, &config).err()];
        for message in errors.map(|error| error.map(|e| e.to_string()).unwrap_or_default()) {
            assert!(message.contains("damaged or encrypted"), "{message}");
        }
    }
    Ok(())
}

#[test]
fn a_footer_that_is_not_utf8_is_an_error_that_says_so() -> TestResult {
    let message = failure(&golden("latin1_metadata.parquet")?, &InputConfig::default());
    assert!(message.contains("cannot be read as Parquet") && message.contains("utf"), "{message}");
    Ok(())
}

#[test]
fn a_column_that_cannot_be_decoded_is_named() -> TestResult {
    let column = |text: &str| Arc::new(StringArray::from(vec![text; 3])) as ArrayRef;
    let batch = RecordBatch::try_from_iter([("text", column("fine")), ("extra", column("oddly"))])?;
    let mut bytes = Vec::new();
    let properties = WriterProperties::builder()
        .set_dictionary_enabled(false)
        .set_statistics_enabled(EnabledStatistics::None);
    let mut writer = ArrowWriter::try_new(&mut bytes, batch.schema(), Some(properties.build()))?;
    writer.write(&batch)?;
    writer.close()?;
    let at = bytes.windows(5).position(|part| part == b"oddly").ok_or("no text")?;
    bytes[at] = 0xff;
    let (_directory, input) = file("f.parquet", &bytes)?;
    let config = InputConfig::default();
    assert_eq!(documents(&input, &config)?.len(), 3, "the column is not read");
    let message = rows(&input, &config).err().map(|error| chain(&error)).unwrap_or_default();
    assert!(message.contains("column `extra`: ") && message.contains("utf-8"), "{message}");
    Ok(())
}

#[test]
fn a_text_inside_a_list_is_refused_with_what_to_do() -> TestResult {
    let list = ListArray::from_iter_primitive::<Float64Type, _, _>([Some(vec![Some(1.0)])]);
    let field = Field::new("body", DataType::Utf8, true);
    let bodies = StructArray::from(vec![(
        Arc::new(field),
        Arc::new(StringArray::from(vec!["a"])) as ArrayRef,
    )]);
    let item = Arc::new(Field::new_list_field(bodies.data_type().clone(), true));
    let turns = ListArray::new(item, OffsetBuffer::from_lengths([1]), Arc::new(bodies), None);
    let batch = RecordBatch::try_from_iter::<_, &str>([
        ("text", Arc::new(list) as ArrayRef),
        ("turns", Arc::new(turns)),
    ])?;
    let (_directory, input) = file("f.parquet", &write(&batch, 2)?)?;
    for (text, told) in [
        ("text", "not strings; a row has one value of it, not a list"),
        ("turns.body", "is not in the file, which has: text, turns[].body"),
        ("body", "is not in the file, which has: text, turns[].body"),
    ] {
        let config = InputConfig { text: text.into(), ..InputConfig::default() };
        let message = documents(&input, &config).err().map(|e| e.to_string()).unwrap_or_default();
        assert!(message.contains(told), "{text}: {message}");
    }
    Ok(())
}

fn write(batch: &RecordBatch, group_rows: usize) -> Result<Vec<u8>, Failure> {
    let properties = WriterProperties::builder()
        .set_max_row_group_row_count(Some(group_rows))
        .set_data_page_row_count_limit(3)
        .set_write_batch_size(2)
        .build();
    let mut bytes = Vec::new();
    let mut writer = ArrowWriter::try_new(&mut bytes, batch.schema(), Some(properties))?;
    writer.write(batch)?;
    writer.close()?;
    Ok(bytes)
}

#[test]
fn ragged_embeddings_are_counted_over_the_file() -> TestResult {
    let vectors =
        [Some(vec![1.0, 2.0]), None, Some(vec![1.0]), Some(vec![0.0, 0.0]), Some(vec![3.0])];
    let vectors = vectors.map(|row| row.map(|row| row.into_iter().map(Some).collect::<Vec<_>>()));
    let batch = RecordBatch::try_from_iter::<_, &str>([
        ("text", Arc::new(StringArray::from(vec!["a"; 5])) as ArrayRef),
        ("e", Arc::new(ListArray::from_iter_primitive::<Float64Type, _, _>(vectors))),
        (
            "days",
            Arc::new(ListArray::from_iter_primitive::<Date32Type, _, _>(
                [const { Some([Some(1)]) }; 5],
            )),
        ),
    ])?;
    let (_directory, input) = file("f.parquet", &write(&batch, 2)?)?;
    let config = InputConfig { embeddings: Some("e".into()), ..InputConfig::default() };
    let message = documents(&input, &config).err().map(|e| e.to_string()).unwrap_or_default();
    assert!(message.contains("row 3: an embedding has 1 values"), "{message}");
    assert!(message.contains("(2 bad"), "{message}");
    assert_eq!(failure(&input, &InputConfig::default()), "no error");
    // A list of dates is not to be joined: numbers are needed.
    let days = InputConfig { embeddings: Some("days".into()), ..config };
    let message = documents(&input, &days).err().map(|e| e.to_string()).unwrap_or_default();
    assert!(message.contains("not lists of numbers, or lists of these; the file has"), "{message}");
    Ok(())
}

fn random_batch() -> impl Strategy<Value = RecordBatch> {
    let row = (any::<Option<String>>(), any::<Option<i64>>(), any::<Option<Vec<Option<f64>>>>());
    proptest::collection::vec(row, 1..60).prop_filter_map("columns fit", |rows| {
        let text: StringArray = rows.iter().map(|row| row.0.clone()).collect();
        let id: Int64Array = rows.iter().map(|row| row.1).collect();
        let list =
            ListArray::from_iter_primitive::<Float64Type, _, _>(rows.into_iter().map(|row| row.2));
        let columns: [(&str, ArrayRef); 3] =
            [("text", Arc::new(text)), ("id", Arc::new(id)), ("list", Arc::new(list))];
        RecordBatch::try_from_iter_with_nullable(columns.map(|(name, column)| (name, column, true)))
            .ok()
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn a_random_file_reads_back_equal(
        batch in random_batch(), group_rows in 1usize..20, skip in 0u64..70, max_rows in 1usize..30
    ) {
        let failed = |e: Failure| TestCaseError::fail(e.to_string());
        let (_directory, input) = file("f.parquet", &write(&batch, group_rows).map_err(failed)?)
            .map_err(|e| failed(e.into()))?;
        prop_assert_eq!(&whole(&input).map_err(failed)?, &batch);

        let config = InputConfig::default();
        let all = documents(&input, &config).map_err(|e| failed(e.into()))?;
        prop_assert_eq!(all.len(), batch.num_rows());
        let (texts, ids) = (batch.column(0).as_string::<i32>(), batch.column(1));
        for (row, document) in all.iter().enumerate() {
            let text = texts.is_valid(row).then(|| texts.value(row));
            prop_assert_eq!(document.num_bytes, text.map_or(0, str::len) as u64);
            let text = text.filter(|text| !text.trim().is_empty());
            prop_assert_eq!(document.text.as_deref(), text);
            let id = cast(&ids.slice(row, 1), &DataType::Utf8)?;
            let fallback = format!("f/{row}");
            let id = id.as_any().downcast_ref::<StringArray>().filter(|id| id.is_valid(0));
            prop_assert_eq!(&document.id, id.map_or(fallback.as_str(), |id| id.value(0)));
        }

        let mut reader = DocumentReader::open(&input, &config)?;
        reader.resume(skip, 0);
        let rest = rest(&mut reader, max_rows)?;
        prop_assert_eq!(&rest[..], &all[all.len().min(skip as usize)..]);
    }
}
