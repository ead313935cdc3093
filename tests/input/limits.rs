//! Documents beyond `input.max_document_bytes`: rejects with their row, in both formats and readers.

use std::io::Read;
use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, DictionaryArray, RecordBatch, StringArray};
use arrow::datatypes::Int32Type;
use parquet::arrow::ArrowWriter;
use parquet::file::properties::WriterProperties;
use polysift::config::InputConfig;
use polysift::input::DocumentReader;

use super::{TestResult, chain, documents, failure, file, gzip, rest, rows, zst};

/// A line of `bytes` bytes without its end.
fn line(bytes: usize) -> String {
    let frame = r#"{"text":""}"#.len();
    format!(r#"{{"text":"{}"}}"#, "x".repeat(bytes - frame))
}

fn config(max_document_bytes: u64, max_rejects: u64) -> InputConfig {
    InputConfig { max_document_bytes, max_rejects, ..InputConfig::default() }
}

#[test]
fn lines_up_to_the_limit_are_documents_and_longer_ones_are_set_aside() -> TestResult {
    let (just, over) = (line(100), line(101));
    for end in ["\n", "\r\n"] {
        // The last line has no end.
        let lines =
            ["\u{feff}".to_owned() + &just, over.clone(), "{}".into(), line(5000), just.clone()];
        let bytes = lines.join(end).into_bytes();
        for (name, bytes) in [
            ("f.jsonl", bytes.clone()),
            ("f.jsonl.gz", gzip(&bytes)?),
            ("f.jsonl.zst", zst(&bytes)?),
        ] {
            let (_directory, input) = file(name, &bytes)?;
            let mut reader = DocumentReader::open(&input, &config(100, 2))?;
            let found = rest(&mut reader, 10)?;
            assert_eq!(found.iter().map(|d| d.row).collect::<Vec<_>>(), [0, 2, 4], "{name}");
            let rejects: Vec<_> =
                reader.rejects().iter().map(|r| (r.row, r.reason.clone())).collect();
            let reason =
                |bytes| format!("has {bytes} bytes, more than `input.max_document_bytes` = 100");
            assert_eq!(rejects[0], (1, reason(101)), "{name}");
            assert_eq!(rejects[1].0, 3, "{name}");
            let with_end = 5000 + end.len() - 1;
            assert_eq!(rejects[1].1, reason(with_end), "{name}");
            assert!(
                reader.rejects()[1].raw.len() < 2000
                    && reader.rejects()[1].raw.starts_with(b"{\"text")
            );
            assert_eq!(rows(&input, &config(100, 2))?[0].rows, [0, 2, 4], "{name}");
            let message = failure(&input, &config(100, 1));
            assert!(message.contains("row 2: has 101 bytes"), "{message}");
            assert!(
                message.contains("`--max-rejects 2`") && message.contains("(2 bad"),
                "{message}"
            );
        }
    }
    Ok(())
}

#[test]
fn a_last_line_that_is_too_long_is_set_aside() -> TestResult {
    for bytes in 101..120 {
        let (_directory, input) = file("f.jsonl", (line(100) + "\n" + &line(bytes)).as_bytes())?;
        let mut reader = DocumentReader::open(&input, &config(100, 1))?;
        assert_eq!(rest(&mut reader, 10)?.len(), 1);
        assert_eq!(reader.rejects().iter().map(|r| r.row).collect::<Vec<_>>(), [1], "{bytes}");
    }
    Ok(())
}

#[test]
fn a_small_file_of_one_huge_line_is_skipped_by_default() -> TestResult {
    let huge = std::io::repeat(b'a').take(300 << 20);
    let bytes =
        zstd::encode_all(b"{\"text\":\"a\"}\n".chain(huge).chain(&b"\n{\"text\":\"b\"}\n"[..]), 1)?;
    assert!(bytes.len() < 100_000);
    let (_directory, input) = file("f.jsonl.zst", &bytes)?;
    let mut reader =
        DocumentReader::open(&input, &InputConfig { max_rejects: 1, ..InputConfig::default() })?;
    let found = rest(&mut reader, 10)?;
    assert_eq!(found.iter().map(|d| d.row).collect::<Vec<_>>(), [0, 2]);
    assert!(reader.rejects()[0].reason.starts_with(&format!("has {} bytes", 300 << 20)));
    Ok(())
}

/// A Parquet file with texts of these lengths, three rows a row group.
fn parquet(lengths: &[usize], dictionary: bool) -> Result<Vec<u8>, Box<dyn std::error::Error>> {
    let texts: Vec<String> = lengths.iter().map(|&length| "x".repeat(length)).collect();
    let ids: StringArray = (0..lengths.len()).map(|row| Some(format!("id{row}"))).collect();
    let texts: ArrayRef = if dictionary {
        Arc::new(texts.iter().map(String::as_str).collect::<DictionaryArray<Int32Type>>())
    } else {
        Arc::new(StringArray::from(texts))
    };
    let batch = RecordBatch::try_from_iter([("text", texts), ("id", Arc::new(ids) as ArrayRef)])?;
    let properties = WriterProperties::builder().set_max_row_group_row_count(Some(3)).build();
    let mut bytes = Vec::new();
    let mut writer = ArrowWriter::try_new(&mut bytes, batch.schema(), Some(properties))?;
    writer.write(&batch)?;
    writer.close()?;
    Ok(bytes)
}

#[test]
fn texts_in_parquet_that_are_too_long_are_set_aside_by_both_readers() -> TestResult {
    let lengths = [101, 100, 5, 200, 300, 400, 7, 101];
    for dictionary in [false, true] {
        let (_directory, input) = file("f.parquet", &parquet(&lengths, dictionary)?)?;
        let config = config(100, 5);
        assert_eq!(
            documents(&input, &config)?.iter().map(|d| d.row).collect::<Vec<_>>(),
            [1, 2, 6]
        );
        let mut reader = DocumentReader::open(&input, &config)?;
        let (mut in_columns, mut ids) = (Vec::new(), Vec::new());
        while let Some(batch) = reader.next_batch(2)? {
            in_columns.extend_from_slice(batch.rows());
            ids.extend(batch.iter().map(|document| document.id.to_owned()));
        }
        assert_eq!(
            (in_columns, ids),
            (vec![1, 2, 6], ["id1", "id2", "id6"].map(str::to_owned).to_vec())
        );
        let rejects: Vec<_> = reader.rejects().iter().map(|r| r.row).collect();
        assert_eq!(rejects, [0, 3, 4, 5, 7]);
        let reason = "`text` has 101 bytes, more than `input.max_document_bytes` = 100";
        assert_eq!(reader.rejects()[0].reason, reason);
        let batches = rows(&input, &config)?;
        let all: Vec<u64> = batches.iter().flat_map(|batch| batch.rows.clone()).collect();
        assert_eq!(all, [1, 2, 6]);
        let ids =
            batches.iter().flat_map(|b| b.batch.column(1).as_string::<i32>().iter().flatten());
        assert_eq!(ids.collect::<Vec<_>>(), ["id1", "id2", "id6"]);
    }
    Ok(())
}

#[test]
fn repeated_long_texts_in_a_dictionary_make_short_batches() -> TestResult {
    let (_directory, input) = file("f.parquet", &parquet(&[7 << 20; 3], true)?)?;
    let mut reader = DocumentReader::open(&input, &config(100 << 20, 0))?;
    let first = reader.next_batch(3)?.ok_or("no rows")?;
    assert_eq!(first.len(), 2); // of 16 MiB, although the file holds the text once
    assert_eq!(rest(&mut reader, 3)?.len(), 1);
    Ok(())
}

#[test]
fn one_text_too_many_fails_the_parquet_file_whatever_was_read_before() -> TestResult {
    let (_directory, input) = file("f.parquet", &parquet(&[5, 101, 7, 200, 9, 300], false)?)?;
    let message = documents(&input, &config(100, 2)).err().map(|e| chain(&e)).unwrap_or_default();
    assert!(message.contains("row 2: `text` has 101 bytes"), "{message}");
    assert!(message.contains("`--max-rejects 3`") && message.contains("(3 bad"), "{message}");
    // Those that a reader set aside before count, and are not set aside again.
    for (rejected, fails) in [(0, false), (1, true)] {
        let mut reader = DocumentReader::open(&input, &config(100, 2))?;
        reader.resume(3, rejected);
        let read = rest(&mut reader, 10);
        assert_eq!(read.is_err(), fails, "{read:?}");
        if !fails {
            assert_eq!(reader.rejects().iter().map(|r| r.row).collect::<Vec<_>>(), [3, 5]);
        }
    }
    Ok(())
}
