//! JSON lines: which lines are documents, and what stands in the columns.

use std::fmt::Write;

use arrow::array::AsArray;
use arrow::datatypes::{DataType, Int64Type};
use polysift::config::{InputConfig, LanguageSource};
use polysift::input::DocumentReader;

use super::{Document, TestResult, documents, failure, file, gzip, rest, rows, zst};

const LINES: &[u8] = b"{\"text\":\"a\",\"id\":\"x\"}\n\
    \n\
    {\"id\":7,\"text\":null}\r\n\
    {\"text\":\"  \\n\"}\n\
    {\"n\":1.5,\"text\":\"\xc3\xbc\\u0000\",\"id\":null}";

fn document(row: u64, id: &str, text: Option<&str>, num_bytes: u64) -> Document {
    Document {
        row,
        id: id.into(),
        language: "und".into(),
        text: text.map(Into::into),
        num_bytes,
        embeddings: None,
    }
}

fn expected() -> Vec<Document> {
    vec![
        document(0, "x", Some("a"), 1),
        document(2, "7", None, 0),
        document(3, "f/3", None, 3),
        document(4, "f/4", Some("ü\0"), 3),
    ]
}

#[test]
fn every_object_is_a_document_with_its_line_number() -> TestResult {
    let (_directory, input) = file("f.jsonl", LINES)?;
    assert_eq!(documents(&input, &InputConfig::default())?, expected());
    let batches = rows(&input, &InputConfig::default())?;
    assert_eq!(batches.len(), 1);
    assert_eq!(batches[0].rows, [0, 2, 3, 4]);
    let batch = &batches[0].batch;
    let schema = batch.schema();
    let columns: Vec<_> =
        schema.fields().iter().map(|f| (f.name().as_str(), f.data_type())).collect();
    let found = [("text", &DataType::Utf8), ("id", &DataType::Utf8), ("n", &DataType::Float64)];
    assert_eq!(columns, found);
    let ids: Vec<_> = batch.column(1).as_string::<i32>().iter().collect();
    assert_eq!(ids, [Some("x"), Some("7"), None, None]);
    Ok(())
}

#[test]
fn compression_and_byte_order_marks_change_nothing() -> TestResult {
    let marked = [b"\xEF\xBB\xBF".as_slice(), LINES].concat();
    let (head, tail) = LINES.split_at(30);
    for (name, bytes) in [
        ("f.ndjson", marked),
        ("f.json.gz", gzip(LINES)?),
        ("f.jsonl.gzip", [gzip(head)?, gzip(tail)?].concat()),
        ("f.jsonl.zst", zst(LINES)?),
        ("f.jsonl.zstd", [zst(head)?, zst(tail)?].concat()),
    ] {
        let (_directory, input) = file(name, &bytes)?;
        assert_eq!(documents(&input, &InputConfig::default())?, expected(), "{name}");
        assert_eq!(rows(&input, &InputConfig::default())?.len(), 1, "{name}");
    }
    Ok(())
}

#[test]
fn a_file_without_lines_has_no_documents() -> TestResult {
    for (name, bytes) in
        [("f.jsonl", b"".to_vec()), ("f.jsonl", b"\n \n".to_vec()), ("f.jsonl.zst", zst(b"")?)]
    {
        let (_directory, input) = file(name, &bytes)?;
        assert!(documents(&input, &InputConfig::default())?.is_empty());
        assert!(rows(&input, &InputConfig::default())?.is_empty());
    }
    Ok(())
}

#[test]
fn a_document_of_ten_megabytes_is_read() -> TestResult {
    let text = "ä".repeat(5 << 20);
    let (_directory, input) =
        file("f.jsonl", format!("{{\"text\":\"{text}\"}}\n").repeat(3).as_bytes())?;
    let found = documents(&input, &InputConfig::default())?;
    assert_eq!(found.len(), 3);
    assert_eq!(found[2].num_bytes, 10 << 20);
    assert_eq!(
        rows(&input, &InputConfig::default())?.iter().map(|b| b.rows.len()).sum::<usize>(),
        3
    );
    Ok(())
}

#[test]
fn bad_lines_within_the_limit_are_set_aside() -> TestResult {
    let lines = b"{\"text\":\"a\"}\n{oops\n{\"text\":5}\n{\"text\":\"b\"}\n";
    let (_directory, input) = file("f.jsonl", lines)?;
    let config = InputConfig { max_rejects: 2, ..InputConfig::default() };
    let mut reader = DocumentReader::open(&input, &config)?;
    // Skipped lines are checked all the same.
    reader.resume(3, 0);
    let found = rest(&mut reader, 10)?;
    assert_eq!(found.iter().map(|d| d.row).collect::<Vec<_>>(), [3]);
    let rejects = reader.rejects();
    assert_eq!(rejects.iter().map(|r| r.row).collect::<Vec<_>>(), [1, 2]);
    assert_eq!(rejects[0].raw, b"{oops");
    assert_eq!(rejects[1].reason, "`text` is a number, not a string");
    assert_eq!(rows(&input, &config)?[0].rows, [0, 3]);

    let config = InputConfig { max_rejects: 1, ..InputConfig::default() };
    let message = failure(&input, &config);
    for part in ["row 2: is not JSON: no key in quotes at byte 2;", "with `--max-rejects 2` sets"] {
        assert!(message.contains(part), "{message}");
    }
    Ok(())
}

#[test]
fn columns_are_found_in_structs() -> TestResult {
    let lines = br#"{"doc":{"body":"a"},"metadata":{"id":3,"lang":"deu","script":"Latn"}}
{"doc":{"body":"b"},"metadata":{"lang":null,"script":"Latn"}}
{"doc":{"body":"c"},"metadata":{"lang":"fra"}}
{"doc":{"body":"d"},"metadata":{"lang":"","script":"Latn"}}
{"doc":{"body":"e"},"metadata":{"lang":"ita_Latn","script":"Latn"}}
{"doc":{"body":"f"},"metadata":{"lang":"ita","script":""}}"#;
    let (_directory, input) = file("f.jsonl", lines)?;
    let config = InputConfig {
        text: "doc.body".into(),
        language: LanguageSource::Column {
            column: "metadata.lang".into(),
            script_column: Some("script".into()),
        },
        ..InputConfig::default()
    };
    let found = documents(&input, &config)?;
    let found: Vec<_> = found.iter().map(|d| (d.id.as_str(), d.language.as_str())).collect();
    let languages = ["deu_Latn", "und", "fra", "und", "ita_Latn", "ita"];
    let ids = ["3", "f/1", "f/2", "f/3", "f/4", "f/5"];
    assert_eq!(found, ids.into_iter().zip(languages).collect::<Vec<_>>());
    Ok(())
}

#[test]
fn embeddings_are_read_and_must_be_equally_wide() -> TestResult {
    let lines = br#"{"text":"a","e":[[1,2.5],[0.1,1e-3]]}
{"text":"b","e":[3,4]}
{"text":"c","e":null}"#;
    let config = InputConfig { embeddings: Some("e".into()), ..InputConfig::default() };
    let (_directory, input) = file("f.jsonl", lines)?;
    let found: Vec<_> = documents(&input, &config)?.into_iter().map(|d| d.embeddings).collect();
    assert_eq!(
        found,
        [Some(vec![vec![1.0, 2.5], vec![0.1, 0.001]]), Some(vec![vec![3.0, 4.0]]), None]
    );

    let (_directory, input) =
        file("f.jsonl", &[lines.as_slice(), b"\n{\"text\":\"d\",\"e\":[[1]]}"].concat())?;
    let message = failure(&input, &config);
    assert!(message.contains("row 4") && message.contains("1 values"), "{message}");
    Ok(())
}

#[test]
fn a_column_that_no_line_has_is_missed() -> TestResult {
    let (_directory, input) = file("f.jsonl", &b"{\"body\":\"a\",\"id\":1}\n".repeat(3))?;
    let message = failure(&input, &InputConfig::default());
    assert!(message.contains("column `text`: is in no line; the first has: body, id"), "{message}");

    let late = [b"{\"body\":1}\n".repeat(1000), b"{\"text\":\"a\"}\n".to_vec()].concat();
    let (_directory, input) = file("f.jsonl", &late)?;
    assert!(failure(&input, &InputConfig::default()).contains("`text`"));
    let (_directory, input) = file("f.jsonl", &late[b"{\"body\":1}\n".len()..])?;
    assert_eq!(documents(&input, &InputConfig::default())?.len(), 1000);
    Ok(())
}

#[test]
fn types_come_from_all_lines_whatever_the_batch() -> TestResult {
    let mut lines = String::new();
    for row in 0..3000 {
        writeln!(lines, "{{\"text\":\"t{row}\",\"n\":{row}}}")?;
    }
    let (_directory, input) = file("f.jsonl", lines.as_bytes())?;
    let batches = rows(&input, &InputConfig::default())?;
    assert_eq!(batches.iter().map(|b| b.rows.len()).collect::<Vec<_>>(), [1024, 1024, 952]);
    assert_eq!(batches[2].batch.column(1).as_primitive::<Int64Type>().value(951), 2999);

    lines += "{\"text\":\"last\",\"n\":\"many\",\"late\":[{\"a\":true}]}\n";
    let (_directory, input) = file("f.jsonl", lines.as_bytes())?;
    let batches = rows(&input, &InputConfig::default())?;
    assert_eq!(batches[0].batch.column(1).as_string::<i32>().value(9), "9");
    assert_eq!(batches[0].batch.column(2).null_count(), 1024);
    Ok(())
}
