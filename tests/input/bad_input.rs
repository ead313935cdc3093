//! Bad input: an error that names the file and the place, never a panic.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;

use arrow::array::{ArrayRef, BinaryArray, Int64Array, RecordBatch, StringArray};
use parquet::arrow::ArrowWriter;
use polysift::Error;
use polysift::config::{InputConfig, LanguageSource};
use polysift::input::{DocumentReader, InputFile, discover};

use super::{TestResult, documents, failure, file, golden, gzip, rows, zst};

fn parquet(columns: Vec<(&str, ArrayRef)>) -> Result<Vec<u8>, Box<dyn std::error::Error>> {
    let batch = RecordBatch::try_from_iter(columns)?;
    let mut bytes = Vec::new();
    let mut writer = ArrowWriter::try_new(&mut bytes, batch.schema(), None)?;
    writer.write(&batch)?;
    writer.close()?;
    Ok(bytes)
}

fn config() -> InputConfig {
    InputConfig::default()
}

#[test]
fn each_kind_of_bad_line_has_its_reason() -> TestResult {
    for (line, reason) in [
        (b"{\"text\":\"\xff\"}".as_slice(), "is not UTF-8 at byte 10"),
        (b"{\"text\":\"a\"", "the line ends early"),
        (b"[1]", "is an array, not a JSON object"),
        (b"\"text\"", "is a string, not a JSON object"),
        (b"{\"text\":5}", "`text` is a number, not a string"),
        (b"{\"text\":{\"a\":1}}", "`text` is an object, not a string"),
        (b"{\"text\":\"a\",\"id\":1.5}", "`id` is a number, not a string or an integer"),
        (b"{\"text\":\"a\",\"other\":\"\\ud800\"}", "a surrogate without its pair"),
        (b"{\"text\":\"a\x01\"}", "control character"),
        (b"{\"text\":NaN}", "expected value at byte 9"),
    ] {
        let bytes =
            [b"{\"text\":\"good\"}\n\n", line, b"\n", line, b"\n{\"text\":\"good\"}"].concat();
        let (_directory, input) = file("f.jsonl", &bytes)?;
        let message = failure(&input, &config());
        assert!(message.contains("f.jsonl: row 3: "), "{message}");
        assert!(message.contains(reason), "{message}");
        assert!(message.contains("(2 bad row(s) in this file)"), "{message}");
    }
    Ok(())
}

#[test]
fn bad_lines_and_what_is_no_lines_are_told_with_what_to_do() -> TestResult {
    for (lines, told) in [
        (
            "{\"text\":\"\\ud800\"}",
            "a surrogate without its pair at byte 16; a run with `--max-rejects 1`",
        ),
        ("[{\"text\":\"a\"},{\"text\":\"b\"}]", "`jq -c '.[]'` makes lines of it"),
        ("[\n{\"text\":\"a\"},\n{\"text\":\"b\"}\n]\n", "`jq -c '.[]'` makes lines of it"),
        ("{\n  \"text\": \"a\"\n}\n", "`jq -c .` makes a line of each"),
    ] {
        let (_directory, input) = file("f.json", lines.as_bytes())?;
        let message = failure(&input, &config());
        assert!(message.contains(told), "{message}");
    }
    Ok(())
}

#[test]
fn files_of_other_forms_are_called_so() -> TestResult {
    let text = "{\"text\":\"a\"}\n";
    let marked = "\u{feff}".to_owned() + text;
    let little = |text: &str| text.encode_utf16().flat_map(u16::to_le_bytes).collect::<Vec<u8>>();
    let big = |text: &str| text.encode_utf16().flat_map(u16::to_be_bytes).collect::<Vec<u8>>();
    let wide = |text: &str, bytes: fn(u32) -> [u8; 4]| -> Vec<u8> {
        text.chars().flat_map(|c| bytes(u32::from(c))).collect()
    };
    let wide = [text, &marked].map(|t| [wide(t, u32::to_le_bytes), wide(t, u32::to_be_bytes)]);
    let narrow = [little(text), big(text), little(&marked), big(&marked)];
    for bytes in narrow.into_iter().chain(wide.into_iter().flatten()) {
        for (name, bytes) in [("f.jsonl", bytes.clone()), ("f.jsonl.gz", gzip(&bytes)?)] {
            let (_directory, input) = file(name, &bytes)?;
            let generous = InputConfig { max_rejects: 100, ..config() };
            let message = failure(&input, &generous);
            assert!(message.contains("it is UTF-16 or UTF-32; convert it to UTF-8"), "{message}");
        }
    }
    for (bytes, told) in [
        (gzip(text.as_bytes())?, "compressed by gzip; its name must end with `.gz`"),
        (zstd::encode_all(text.as_bytes(), 1)?, "compressed by zstd"),
    ] {
        let (_directory, input) = file("f.jsonl", &bytes)?;
        let message = failure(&input, &config());
        assert!(message.contains(told), "{message}");
    }
    Ok(())
}

#[test]
fn nothing_may_follow_gzip_but_gzip() -> TestResult {
    let (head, tail) = (gzip(b"{\"text\":\"a\"}\n")?, gzip(b"{\"text\":\"b\"}\n")?);
    let whole = [&head[..], &tail].concat();
    let (_directory, input) = file("f.jsonl.gz", &whole)?;
    assert_eq!(documents(&input, &config())?.len(), 2);
    for after in [&b"x"[..], b"\0", b"\0\0x", b"\x1f", b"\0\x1f\x8b", b"{\"text\":\"c\"}\n"] {
        let (_directory, input) = file("f.jsonl.gz", &[&whole[..], after].concat())?;
        let message = failure(&input, &config());
        assert!(message.contains("f.jsonl.gz: cannot be read as gzip"), "{after:?}: {message}");
    }
    Ok(())
}

#[test]
fn of_duplicate_keys_the_last_counts_in_both_readers() -> TestResult {
    let (_directory, input) =
        file("f.jsonl", b"{\"text\":1,\"n\":1,\"text\":\"a\",\"text\":\"b\"}")?;
    assert_eq!(documents(&input, &config())?[0].text.as_deref(), Some("b"));
    let batch = &rows(&input, &config())?[0].batch;
    assert_eq!(batch.num_columns(), 2);
    assert_eq!(batch.column(0).as_ref(), &StringArray::from(vec!["b"]));
    Ok(())
}

#[test]
fn truncated_streams_are_reported() -> TestResult {
    let lines: Vec<_> = (0..20_000).map(|row| format!("{{\"text\":\"{row}\"}}\n")).collect();
    let lines = lines.concat();
    for (name, bytes) in
        [("f.jsonl.gz", gzip(lines.as_bytes())?), ("f.jsonl.zst", zst(lines.as_bytes())?)]
    {
        let (_directory, input) = file(name, &bytes[..bytes.len() / 2])?;
        let message = failure(&input, &config());
        assert!(message.contains(name) && message.contains("cannot be read as"), "{message}");
        let (_directory, input) = file(name, lines.as_bytes())?;
        let message = failure(&input, &config());
        assert!(message.contains(name) && message.contains("cannot be read as"), "{message}");
    }
    Ok(())
}

#[test]
fn parquet_without_its_footer_cannot_be_read() -> TestResult {
    let whole = std::fs::read(golden("odd.parquet")?.path)?;
    for bytes in
        [&whole[..0], &whole[..3], &whole[..whole.len() - 1], &whole[..whole.len() / 2], b"{}"]
    {
        let (_directory, input) = file("f.parquet", bytes)?;
        let message = failure(&input, &config());
        assert!(message.contains("f.parquet: cannot be read as Parquet; "), "{message}");
    }
    Ok(())
}

#[test]
fn parquet_with_damaged_pages_cannot_be_read() -> TestResult {
    let mut bytes = std::fs::read(golden("odd.parquet")?.path)?;
    // The text column is the first in the file.
    bytes[8..60].fill(0xFF);
    let (_directory, input) = file("f.parquet", &bytes)?;
    for error in [documents(&input, &config()).err(), rows(&input, &config()).err()] {
        assert!(matches!(error, Some(Error::Decode { .. })), "{error:?}");
    }
    Ok(())
}

#[test]
fn parquet_damaged_anywhere_is_no_reason_to_panic() -> TestResult {
    for name in ["odd.parquet", "nested.parquet"] {
        let whole = std::fs::read(golden(name)?.path)?;
        for at in (0..whole.len()).step_by(43) {
            let mut bytes = whole.clone();
            bytes[at] ^= 0x01;
            let (_directory, input) = file("f.parquet", &bytes)?;
            // What cannot be read is an error, not a shorter file.
            let documents = documents(&input, &config());
            assert!(documents.is_err() || documents.is_ok_and(|found| found.len() == 10));
            let _ = rows(&input, &config());
        }
    }
    Ok(())
}

#[test]
fn parquet_without_rows_has_no_documents() -> TestResult {
    let empty: ArrayRef = Arc::new(StringArray::from(Vec::<&str>::new()));
    let (_directory, input) = file("f.parquet", &parquet(vec![("text", empty)])?)?;
    assert!(documents(&input, &config())?.is_empty());
    assert!(rows(&input, &config())?.is_empty());
    assert_eq!(input.num_rows()?, 0);
    Ok(())
}

#[test]
fn columns_of_the_wrong_type_are_named_with_their_type() -> TestResult {
    let numbers: ArrayRef = Arc::new(Int64Array::from(vec![1]));
    let bytes: ArrayRef = Arc::new(BinaryArray::from(vec![b"a".as_slice()]));
    let columns = vec![("number", numbers), ("bytes", bytes)];
    let (_directory, input) = file("f.parquet", &parquet(columns)?)?;
    for (text, reason) in [
        ("number", "column `number`: is Int64, not strings; the file has: number, bytes"),
        ("bytes", "column `bytes`: is Binary, not strings; convert it"),
        ("text", "column `text`: is not in the file, which has: number, bytes"),
    ] {
        let config = InputConfig { text: text.into(), ..config() };
        let error = DocumentReader::open(&input, &config).err().ok_or("no error")?;
        assert!(matches!(error, Error::Schema { .. }));
        assert!(error.to_string().contains(reason), "{error}");
    }
    Ok(())
}

#[test]
fn missing_language_and_embedding_columns_are_errors() -> TestResult {
    let text: ArrayRef = Arc::new(StringArray::from(vec!["a"]));
    let (_directory, input) = file("f.parquet", &parquet(vec![("text", text)])?)?;
    let language = LanguageSource::Column { column: "lang".into(), script_column: None };
    for config in [
        InputConfig { language, ..config() },
        InputConfig { embeddings: Some("text".into()), ..config() },
        InputConfig { embeddings: Some("vectors".into()), ..config() },
    ] {
        let error = documents(&input, &config).err();
        assert!(matches!(error, Some(Error::Schema { .. })), "{error:?}");
    }
    Ok(())
}

#[test]
fn what_is_no_readable_file_is_an_error_of_the_system() -> TestResult {
    let (directory, input) = file("f.jsonl", b"{}")?;
    let elsewhere = |name: &str| InputFile { path: directory.path().join(name), ..input.clone() };
    let mut parquet = golden("odd.parquet")?;
    parquet.path = directory.path().to_owned();
    for broken in [elsewhere(""), elsewhere("missing.jsonl"), parquet] {
        let error = documents(&broken, &config()).err();
        assert!(matches!(error, Some(Error::Io { .. })), "{error:?}");
        let error = rows(&broken, &config()).err();
        assert!(matches!(error, Some(Error::Io { .. })), "{error:?}");
    }
    Ok(())
}

#[test]
fn a_file_without_permission_is_named() -> TestResult {
    let (directory, input) = file("f.jsonl", b"{}")?;
    std::fs::set_permissions(&input.path, std::fs::Permissions::from_mode(0o000))?;
    if std::fs::File::open(&input.path).is_ok() {
        return Ok(()); // a superuser may read everything
    }
    let error = discover(&["*.jsonl".into()], Path::new(directory.path())).err();
    assert!(matches!(error, Some(Error::Io { .. })), "{error:?}");
    assert!(matches!(documents(&input, &config()), Err(Error::Io { .. })));
    Ok(())
}
