//! Labelled texts in every spelling.

use polysift::Result;
use polysift::config::{InputConfig, LanguageSource};
use polysift::input::{LabelledTexts, read_labelled};

use super::{TestResult, chain, file, golden};

fn read(bytes: &[u8]) -> Result<LabelledTexts> {
    let (_directory, input) = file("f.jsonl", bytes)?;
    read_labelled(&[input], &InputConfig::default(), "label")
}

#[test]
fn samples_come_in_order_and_blank_texts_are_counted() -> TestResult {
    let found = read(
        br#"{"label":"positive","text":"a"}
{"label":"negative","text":"b","id":"x"}
{"label":"oops","text":" "}
{"label":1,"text":"c"}
{"label":0.0,"text":"d"}
{"label":true,"text":"e"}
{"label":"non-toxic","text":null}"#,
    )?;
    let samples: Vec<_> =
        found.samples.iter().map(|s| (s.id.as_str(), s.text.as_str(), s.label)).collect();
    assert_eq!(
        samples,
        [
            ("f/0", "a", true),
            ("x", "b", false),
            ("f/3", "c", true),
            ("f/4", "d", false),
            ("f/5", "e", true)
        ]
    );
    assert_eq!(found.skipped, 2);
    Ok(())
}

#[test]
fn samples_need_no_language_and_no_embeddings() -> TestResult {
    let language = LanguageSource::Column { column: "language".into(), script_column: None };
    let embeddings = Some("embeddings".into());
    let config = InputConfig { language, embeddings, ..InputConfig::default() };
    let (_directory, input) = file("f.jsonl", b"{\"label\":0,\"text\":\"a\"}")?;
    assert_eq!(read_labelled(&[input], &config, "label")?.samples.len(), 1);
    Ok(())
}

#[test]
fn other_labels_are_counted_over_the_file() {
    let lines = b"{\"label\":\"positive\",\"text\":\"a\"}\n{\"label\":\"maybe\",\"text\":\"a\"}\n\n{\"text\":\"a\"}";
    let message = read(lines).err().map_or_else(|| "no error".into(), |e| chain(&e));
    assert!(message.contains("row 2: `label` is \"maybe\""), "{message}");
    assert!(message.contains("(2 such"), "{message}");
    let message = read(b"{\"text\":\"a\"}").err().map_or_else(|| "no error".into(), |e| chain(&e));
    assert!(message.contains("column `label`"), "{message}");
}

#[test]
fn booleans_of_parquet_are_labels() -> TestResult {
    let found = read_labelled(&[golden("codec_gzip.parquet")?], &InputConfig::default(), "label")?;
    let labels: Vec<_> = found.samples.iter().map(|s| (s.id.as_str(), s.label)).collect();
    assert_eq!(found.skipped, 3);
    assert_eq!(labels[..2], [("codec_gzip/0", true), ("codec_gzip/4", true)]);
    assert_eq!(labels[2], ("codec_gzip/5", false));
    Ok(())
}
