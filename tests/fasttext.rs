//! fastText heads: the library's predictions, its files in both directions, damaged files, training.

mod damage;
mod languages;
mod pipeline;
mod training;

use std::collections::BTreeMap;
use std::path::PathBuf;

use polysift::config::{HeadConfig, Mode};
use polysift::fasttext::{FastTextModel, TextScratch};
use polysift::head::{AnyHead, FastTextHead};
use serde::Deserialize;

use crate::util::{TestResult, root};

/// What `tests/golden/text_heads.py` wrote.
#[derive(Deserialize)]
struct Golden {
    texts: Vec<String>,
    /// By model, for each text the labels with their probabilities.
    expected: BTreeMap<String, Vec<Vec<(String, f32)>>>,
    samples: Vec<Sample>,
}

#[derive(Deserialize)]
struct Sample {
    label: String,
    text: String,
}

fn file(name: &str) -> PathBuf {
    root().join("tests/golden/fasttext").join(name)
}

fn golden() -> Result<Golden, Box<dyn std::error::Error>> {
    Ok(serde_json::from_slice(&std::fs::read(file("expected.json"))?)?)
}

/// All labels with their probabilities; none if the model knows no word of `text`.
fn predict(model: &FastTextModel, text: &str) -> Vec<(String, f32)> {
    let mut scratch = TextScratch::default();
    let labels = model.labels().into_iter().enumerate();
    labels.filter_map(|(at, label)| Some((label, model.score(text, at, &mut scratch)?.1))).collect()
}

/// The same computation in f32 in the same order, so only `exp` and `log` of two libraries and sums of
/// 8 products in another order differ: some units in the last place.
const TOLERANCE: f32 = 1e-6;

#[test]
fn predictions_are_those_of_the_library() -> TestResult {
    let golden = golden()?;
    assert_eq!(golden.expected.len(), 8);
    for (name, expected) in &golden.expected {
        let (model, digest) = FastTextModel::read(&file(name))?;
        assert_eq!(digest, blake3::hash(&std::fs::read(file(name))?).to_hex().as_str());
        for (text, expected) in golden.texts.iter().zip(expected) {
            let predicted = predict(&model, text);
            assert_eq!(predicted.len(), expected.len(), "{name}: {text:?}");
            let expected: BTreeMap<&String, f32> = expected.iter().map(|(l, p)| (l, *p)).collect();
            for (label, probability) in &predicted {
                let difference = (probability - expected[label]).abs();
                assert!(
                    difference <= TOLERANCE,
                    "{name}: {label} of {text:?} is {probability}, not {}",
                    expected[label]
                );
            }
        }
    }
    Ok(())
}

#[test]
fn a_model_is_written_as_the_library_wrote_it() -> TestResult {
    let folder = tempfile::tempdir()?;
    let names = ["words.bin", "unigrams.bin", "subwords.bin", "sigmoids.bin", "hierarchical.bin"];
    for name in names {
        let (model, digest) = FastTextModel::read(&file(name))?;
        let stamp = model.write(&folder.path().join(name))?;
        assert_eq!(stamp.blake3, digest, "{name}");
    }
    let (quantised, _) = FastTextModel::read(&file("quantised.ftz"))?;
    assert!(quantised.write(&folder.path().join("quantised.ftz")).is_err());
    Ok(())
}

#[test]
fn models_of_other_kinds_are_refused_by_name() -> TestResult {
    let error = FastTextModel::read(&file("vectors.bin")).err().ok_or("was read")?;
    assert_eq!(error.exit_code(), 65);
    assert!(error.to_string().contains("not a classifier"), "{error}");
    Ok(())
}

/// A head of a golden model, which has no card.
fn head(name: &str, config: &HeadConfig) -> polysift::Result<FastTextHead> {
    FastTextHead::load(&file(name), "ft", config, "eng_Latn")
}

#[test]
fn a_head_scores_the_line_that_its_text_becomes() -> TestResult {
    let mut config = HeadConfig::default();
    let head_of = |config: &HeadConfig| head("words.bin", config);
    let one = |head: &FastTextHead, text: &str| head.score(&[Some(text)])[0];
    let library = |text: &str| -> polysift::Result<f32> {
        let (model, _) = FastTextModel::read(&file("words.bin"))?;
        Ok(predict(&model, text)
            .into_iter()
            .find(|(l, _)| l.contains("positive"))
            .map_or(0.0, |p| p.1))
    };
    let text = " All HUMAN\nbeings  click\n";
    let collapsed = one(&head_of(&config)?, text).ok_or("no score")?;
    assert_eq!(collapsed.score.to_bits(), library("all human beings click")?.to_bits());
    config.fasttext.inference = Mode::Published;
    let reference = one(&head_of(&config)?, text).ok_or("no score")?;
    assert_eq!(reference.score.to_bits(), library("All HUMANbeings  click")?.to_bits());
    // The logit is the log-odds of the probability, which is reported 0.00001 too high.
    let odds = 1.0 / (1.0 + (-f64::from(collapsed.logit)).exp()) + 1e-5;
    assert!((odds - f64::from(collapsed.score)).abs() < 1e-6);
    assert_eq!(head_of(&config)?.score(&[None::<&str>]), [None]);
    Ok(())
}

#[test]
fn a_document_is_scored_alike_whatever_its_neighbours() -> TestResult {
    let golden = golden()?;
    let head = head("subwords.bin", &HeadConfig::default())?;
    let all: Vec<Option<&String>> = golden.texts.iter().map(Some).collect();
    let scored = head.score(&all);
    for (text, together) in all.iter().zip(scored) {
        let alone = head.score(&[*text])[0];
        let bits = |score: Option<polysift::head::DocumentScore>| {
            score.map(|s| (s.logit.to_bits(), s.score.to_bits()))
        };
        assert_eq!(bits(alone), bits(together), "{text:?}");
    }
    Ok(())
}

#[test]
fn a_label_that_the_model_lacks_is_an_error_that_names_those_it_has() -> TestResult {
    let mut config = HeadConfig::default();
    config.fasttext.positive = "__label__good".to_owned();
    let error = head("words.bin", &config).err().ok_or("was loaded")?;
    assert_eq!(error.exit_code(), 65);
    let text = error.to_string();
    assert!(text.contains("`__label__good`") && text.contains("__label__negative"), "{text}");
    Ok(())
}

#[test]
fn any_head_is_told_by_its_file() -> TestResult {
    let config = HeadConfig::default();
    let text = AnyHead::load(&file("words.bin"), "ft", &config, "_all")?;
    assert!(text.spec().kind.is_of_texts() && text.as_embedding().is_none());
    assert_eq!(text.spec().layer_sizes, [8, 2]);
    let heads = root().join("tests/golden/heads");
    let mlp = AnyHead::load(&heads.join("quality.safetensors"), "quality", &config, "_all")?;
    assert!(mlp.as_embedding().is_some());
    let kind = polysift::config::HeadKind::FastText;
    let wanted = HeadConfig { kind, ..HeadConfig::default() };
    let error = AnyHead::load(&heads.join("quality.safetensors"), "ft", &wanted, "_all");
    assert!(error.is_err_and(|e| e.exit_code() == 65));
    let missing = AnyHead::load(&heads.join("nowhere.bin"), "ft", &wanted, "_all");
    assert!(missing.is_err_and(|e| e.exit_code() == 66));
    Ok(())
}
