//! Training: the same bytes for the same samples, clear about what it cannot use, as good as the library.

use std::path::Path;

use polysift::config::{HeadConfig, HeadKind};
use polysift::fasttext::FastTextModel;
use polysift::head::{FastTextHead, Provenance};
use polysift::input::Split;
use polysift::progress::Stop;
use polysift::train::{Samples, TrainingRequest, train_text_head};

use super::golden;
use crate::util::{TestResult, text};

/// Two kinds of texts.
fn samples(count: usize) -> Samples {
    let mut samples = Samples::default();
    for i in 0..count {
        samples.ids.push(format!("s{i}"));
        samples.labels.push(f32::from(u8::from(i.is_multiple_of(3))));
        samples.texts.push(text(i));
    }
    samples
}

fn small_config() -> HeadConfig {
    let mut config = HeadConfig { kind: HeadKind::FastText, ..HeadConfig::default() };
    (config.fasttext.dim, config.fasttext.buckets) = (6, 500);
    (config.fasttext.epochs, config.fasttext.learning_rate) = (10, 0.5);
    config
}

fn train(
    samples: &Samples,
    config: &HeadConfig,
    seed: u64,
    path: &Path,
) -> polysift::Result<FastTextHead> {
    let request = TrainingRequest {
        name: "ft",
        language: "eng_Latn",
        config,
        samples,
        seed,
        provenance: Provenance {
            data_digests: vec!["b".into(), "a".into()],
            ..Provenance::default()
        },
        stop: Stop::of_process(),
    };
    train_text_head(&request, path).map(|(head, _)| head)
}

#[test]
fn the_order_of_the_samples_does_not_change_the_files() -> TestResult {
    let folder = tempfile::tempdir()?;
    let samples = samples(120);
    let mut reversed = samples.clone();
    reversed.ids.reverse();
    reversed.labels.reverse();
    reversed.texts.reverse();
    let config = small_config();
    let path = |name: &str| folder.path().join(format!("{name}.bin"));
    train(&samples, &config, 1, &path("one"))?;
    train(&reversed, &config, 1, &path("two"))?;
    let other = train(&samples, &config, 2, &path("three"))?;
    for extension in ["bin", "json"] {
        let bytes = |name: &str| std::fs::read(path(name).with_extension(extension));
        assert!(bytes("one")? == bytes("two")?, "{extension}");
        assert!(bytes("one")? != bytes("three")?, "{extension}");
    }
    // What was trained is what is read again, card and all.
    let read = FastTextHead::load(&path("three"), "ft", &HeadConfig::default(), "_all")?;
    assert_eq!(read.card, other.card);
    assert_eq!(read.digest, other.digest);
    let texts: Vec<Option<String>> = (0..20).map(|i| Some(text(i))).collect();
    assert_eq!(read.score(&texts), other.score(&texts));
    Ok(())
}

#[test]
fn a_head_learns_to_tell_two_kinds_of_texts_apart() -> TestResult {
    let folder = tempfile::tempdir()?;
    let head = train(&samples(200), &small_config(), 1, &folder.path().join("eng_Latn.bin"))?;
    let training = head.card.training.as_ref().ok_or("no record")?;
    let test = training.test.ok_or("no metrics")?;
    // 20 texts of words that only one class has.
    assert_eq!((test.accuracy, test.roc_auc), (Some(1.0), Some(1.0)));
    let counts = &training.samples["train"];
    assert_eq!(counts.num_samples(), 200 - 2 * 20);
    Ok(())
}

#[test]
fn the_samples_of_the_library_are_told_apart_as_the_library_does() -> TestResult {
    let golden = golden()?;
    let folder = tempfile::tempdir()?;
    let mut samples = Samples::default();
    for (i, sample) in golden.samples.iter().enumerate() {
        samples.ids.push(i.to_string());
        samples.labels.push(f32::from(u8::from(sample.label == "positive")));
        samples.texts.push(sample.text.clone());
        samples.splits.push(Some(Split::Train));
    }
    let mut config = small_config();
    (config.fasttext.epochs, config.fasttext.buckets) = (30, 1000);
    let head = train(&samples, &config, 1, &folder.path().join("ours.bin"))?;
    // All samples, as the library's model, which is right about each of them, has seen all.
    let texts: Vec<Option<&String>> = samples.texts.iter().map(Some).collect();
    let right = |scores: Vec<f32>| {
        scores
            .iter()
            .zip(&samples.labels)
            .filter(|(score, label)| (**score > 0.5) == (**label > 0.5))
            .count()
    };
    let ours = right(head.score(&texts).into_iter().flatten().map(|s| s.score).collect());
    let (library, _) = FastTextModel::read(&super::file("words.bin"))?;
    let positive = |text: &String| {
        let predicted = super::predict(&library, &text.to_lowercase());
        predicted.iter().find(|(l, _)| l == "__label__positive").map_or(0.0, |(_, p)| *p)
    };
    let theirs = right(samples.texts.iter().map(positive).collect());
    assert_eq!(theirs, samples.texts.len());
    assert!(ours * 10 >= theirs * 9, "{ours} of {theirs}");
    Ok(())
}

#[test]
fn what_cannot_be_trained_on_is_said() -> TestResult {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("model.bin");
    let fail = |samples: &Samples, config: &HeadConfig| {
        train(samples, config, 1, &path).err().map(|e| (e.exit_code(), e.to_string()))
    };
    let config = small_config();
    let (code, text) = fail(&samples(9), &config).ok_or("was trained")?;
    assert!(code == 65 && text.contains("at least 10"), "{text}");
    let mut one_class = samples(30);
    one_class.labels.fill(1.0);
    assert!(fail(&one_class, &config).is_some_and(|(code, _)| code == 65));
    let mut wild = config.clone();
    wild.fasttext.learning_rate = 1e30;
    let (code, text) = fail(&samples(60), &wild).ok_or("was trained")?;
    assert!(code == 65 && text.contains("learning_rate"), "{text}");
    assert!(!path.exists());
    Ok(())
}

#[test]
fn a_card_of_another_model_is_refused() -> TestResult {
    let folder = tempfile::tempdir()?;
    let path = |name: &str| folder.path().join(name);
    train(&samples(60), &small_config(), 1, &path("one.bin"))?;
    train(&samples(60), &small_config(), 2, &path("two.bin"))?;
    std::fs::copy(path("one.json"), path("two.json"))?;
    let load = || FastTextHead::load(&path("two.bin"), "ft", &HeadConfig::default(), "_all");
    assert!(load().is_err_and(|e| e.to_string().contains("card of another file")));
    std::fs::write(path("two.json"), "{}")?;
    assert!(load().is_err_and(|e| e.to_string().contains("not the card")));
    Ok(())
}
