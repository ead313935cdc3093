//! Labelled texts in every spelling.

use std::sync::Arc;

use arrow::array::{ArrayRef, BooleanArray, Int64Array, RecordBatch, StringArray};
use parquet::arrow::ArrowWriter;
use polysift::Result;
use polysift::config::{InputConfig, LabelKind, LanguageSource};
use polysift::input::{InputFile, LabelledText, SampleColumns, SkippedRows, read_samples};

use super::{TestResult, chain, file, golden};

fn of_label(label: &str) -> SampleColumns<'_> {
    SampleColumns { labels: vec![label], ..SampleColumns::default() }
}

fn read(bytes: &[u8]) -> Result<(Vec<LabelledText>, SkippedRows)> {
    let (_directory, input) = file("f.jsonl", bytes)?;
    read_samples(&[input], &InputConfig::default(), &of_label("label"))
}

#[test]
fn samples_come_in_order_and_blank_texts_are_counted() -> TestResult {
    let (samples, skipped) = read(
        br#"{"label":"positive","text":"a"}
{"label":"negative","text":"b","id":"x"}
{"label":"oops","text":" "}
{"label":1,"text":"c"}
{"label":0.0,"text":"d"}
{"label":true,"text":"e"}
{"label":"non-toxic","text":null}"#,
    )?;
    let samples: Vec<_> =
        samples.iter().map(|s| (s.id.as_str(), s.text.as_str(), s.label)).collect();
    assert_eq!(
        samples,
        [
            ("f/0", "a", 1.0),
            ("x", "b", 0.0),
            ("f/3", "c", 1.0),
            ("f/4", "d", 0.0),
            ("f/5", "e", 1.0)
        ]
    );
    assert_eq!(skipped.without_text, 2);
    Ok(())
}

#[test]
fn samples_need_no_language_and_no_embeddings() -> TestResult {
    let language = LanguageSource::Column { column: "language".into(), script_column: None };
    let embeddings = Some("embeddings".into());
    let config = InputConfig { language, embeddings, ..InputConfig::default() };
    let (_directory, input) = file("f.jsonl", b"{\"label\":0,\"text\":\"a\"}")?;
    let language = |input: &InputFile| -> Result<String> {
        let samples = read_samples(std::slice::from_ref(input), &config, &of_label("label"))?.0;
        Ok(samples.into_iter().map(|sample| sample.language).collect())
    };
    assert_eq!(language(&input)?, "und");
    // The language in the name of a file is known, whatever tells that of the corpus.
    let named = InputFile { language: Some("swe_Latn".into()), ..input };
    assert_eq!(language(&named)?, "swe_Latn");
    Ok(())
}

#[test]
fn the_source_and_the_language_of_a_row_are_taken_where_there_are_any() -> TestResult {
    let lines = b"{\"label\":1,\"text\":\"a\",\"source\":\"ewt\",\"lang\":\"eng_Latn\"}
{\"label\":0,\"text\":\"b\",\"source\":7,\"lang\":null}
{\"label\":0,\"text\":\"c\"}";
    let (_directory, input) = file("f.jsonl", lines)?;
    let found = |source, language| -> Result<Vec<(Option<String>, String)>> {
        let columns = SampleColumns { source, language, ..of_label("label") };
        let config = InputConfig { language: fixed(), ..InputConfig::default() };
        let samples = read_samples(std::slice::from_ref(&input), &config, &columns)?.0;
        Ok(samples.into_iter().map(|sample| (sample.source, sample.language)).collect())
    };
    let expected = |rows: [(Option<&str>, &str); 3]| {
        rows.map(|(source, language)| (source.map(str::to_owned), language.to_owned()))
    };
    let named = expected([(Some("ewt"), "eng_Latn"), (Some("7"), "und"), (None, "und")]);
    assert_eq!(found(Some("source"), Some("lang"))?, named);
    let unnamed = expected([(None, "deu_Latn"), (None, "deu_Latn"), (None, "deu_Latn")]);
    assert_eq!(found(None, None)?, unnamed);
    assert_eq!(found(Some("origin"), None)?, unnamed);
    Ok(())
}

fn fixed() -> LanguageSource {
    LanguageSource::Fixed("deu_Latn".into())
}

#[test]
fn the_source_is_taken_from_parquet() -> TestResult {
    let columns = SampleColumns { source: Some("n"), ..of_label("flag") };
    let batch = RecordBatch::try_from_iter([
        ("text", Arc::new(StringArray::from(vec!["a", "b"])) as ArrayRef),
        ("flag", Arc::new(BooleanArray::from(vec![true, false])) as _),
        ("n", Arc::new(Int64Array::from(vec![Some(3), None])) as _),
    ])?;
    let mut bytes = Vec::new();
    let mut writer = ArrowWriter::try_new(&mut bytes, batch.schema(), None)?;
    writer.write(&batch)?;
    writer.close()?;
    let (_directory, input) = file("f.parquet", &bytes)?;
    let samples = read_samples(&[input], &InputConfig::default(), &columns)?.0;
    let sources: Vec<_> = samples.iter().map(|sample| sample.source.as_deref()).collect();
    assert_eq!(sources, [Some("3"), None]);
    Ok(())
}

#[test]
fn other_labels_are_counted_over_the_file() {
    let lines = b"{\"label\":\"positive\",\"text\":\"a\"}\n{\"label\":\"maybe\",\"text\":\"a\"}\n\n{\"label\":2,\"text\":\"a\"}";
    let message = read(lines).err().map_or_else(|| "no error".into(), |e| chain(&e));
    assert!(message.contains("row 2: `label` is \"maybe\""), "{message}");
    assert!(message.contains("(2 bad"), "{message}");
    let message = read(b"{\"text\":\"a\"}").err().map_or_else(|| "no error".into(), |e| chain(&e));
    assert!(message.contains("column `label`"), "{message}");
}

#[test]
fn booleans_of_parquet_are_labels() -> TestResult {
    let (samples, skipped) = read_samples(
        &[golden("codec_gzip.parquet")?],
        &InputConfig::default(),
        &of_label("label"),
    )?;
    let labels: Vec<_> = samples.iter().map(|s| (s.id.as_str(), s.label)).collect();
    assert_eq!((skipped.without_text, skipped.without_label), (3, 0));
    assert_eq!(labels[..2], [("codec_gzip/0", 1.0), ("codec_gzip/4", 1.0)]);
    assert_eq!(labels[2], ("codec_gzip/5", 0.0));
    Ok(())
}

#[test]
fn grades_are_the_mean_of_the_annotators_that_gave_one() -> TestResult {
    let lines = br#"{"a":3,"b":4,"text":"both","w":2}
{"a":null,"b":"2.5","text":"one","w":null}
{"a":null,"b":null,"text":"none","w":1}
{"a":-7,"b":null,"text":"negative","w":0}"#;
    let (_directory, input) = file("f.jsonl", lines)?;
    let columns = SampleColumns {
        labels: vec!["a", "b"],
        kind: LabelKind::Grades,
        weight: Some("w"),
        ..SampleColumns::default()
    };
    let (samples, skipped) = read_samples(&[input], &InputConfig::default(), &columns)?;
    let read: Vec<_> = samples.iter().map(|s| (s.text.as_str(), s.label, s.weight)).collect();
    assert_eq!(read, [("both", 3.5, 2.0), ("one", 2.5, 1.0), ("negative", -7.0, 0.0)]);
    assert_eq!((skipped.without_text, skipped.without_label), (0, 1));
    for (line, wrong) in [
        ("{\"a\":\"good\",\"b\":1,\"w\":1,\"text\":\"x\"}", "`a` is \"good\"; needed is a number"),
        ("{\"a\":\"inf\",\"b\":1,\"w\":1,\"text\":\"x\"}", "`a` is \"inf\""),
        (
            "{\"a\":1,\"b\":1,\"w\":-1,\"text\":\"x\"}",
            "`w` is \"-1\"; needed is a number that is not below 0",
        ),
    ] {
        let (_directory, input) = file("f.jsonl", line.as_bytes())?;
        let error = read_samples(&[input], &InputConfig::default(), &columns);
        let message = error.err().map_or_else(|| "no error".into(), |e| chain(&e));
        assert!(message.contains(wrong), "{message}");
    }
    Ok(())
}
