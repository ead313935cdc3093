//! Heads of other layers than linear ones with ReLU, of several outputs, and of whole models, scored as
//! PyTorch and transformers do. The golden files are written by `tests/golden/heads_import.py`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use arrow::array::Float32Array;
use polysift::Error;
use polysift::config::{
    Activation, Chunks, DeviceChoice, EncoderConfig, EncoderPrecision, HeadConfig, Pooling,
};
use polysift::encoder::load;
use polysift::head::{DocumentScore, Head, ImportRequest};
use polysift::progress::Stop;
use predicates::prelude::PredicateBooleanExt;
use predicates::str::contains;
use serde::Deserialize;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::{import, offline};
use crate::util::{TestResult, Workspace, polysift, read_parquet, root};

/// Files of heads, and what has to be said of them.
const LAYERED: [(&str, Option<Activation>, &str); 4] = [
    ("tanh.pt", Some(Activation::Tanh), "12-8-1 tanh"),
    ("gelu.pth", Some(Activation::Gelu), "12-8-6 gelu norm"),
    ("norms.pt", None, "12-8-2 norm"),
    ("edu-llama-balanced.ckpt", None, "12-10-1"),
];

/// Models, and what their heads take.
const MODELS: [(&str, Pooling, &str); 6] = [
    ("bert", Pooling::Cls, "24-24-1 tanh"),
    ("xlm-roberta", Pooling::Cls, "24-24-5 tanh"),
    ("gte", Pooling::Cls, "24-24-3 tanh"),
    ("new", Pooling::Cls, "24-24-3 tanh"),
    ("modernbert-cls", Pooling::Cls, "24-24-1 gelu norm"),
    ("modernbert-mean", Pooling::Mean, "24-24-6 gelu norm"),
];

/// What PyTorch gives, by output.
#[derive(Deserialize)]
struct Expected {
    #[serde(default)]
    embeddings: Vec<f32>,
    #[serde(default)]
    texts: Vec<String>,
    scores: BTreeMap<String, Vec<f32>>,
}

fn golden(name: &str) -> PathBuf {
    root().join("tests/golden/heads_published").join(name)
}

fn read<T: serde::de::DeserializeOwned>(path: &Path) -> Result<T> {
    Ok(serde_json::from_slice(&std::fs::read(path)?)?)
}

fn request(output: Option<&str>, activation: Option<Activation>) -> ImportRequest {
    ImportRequest { output: output.map(Into::into), activation, ..ImportRequest::default() }
}

fn assert_near(
    scores: &[Option<DocumentScore>],
    expected: &[f32],
    tolerance: f32,
    what: &str,
) -> Result<()> {
    assert_eq!(scores.len(), expected.len(), "{what}");
    for (score, expected) in scores.iter().zip(expected) {
        let score = score.context("no score")?.score;
        assert!((score - expected).abs() < tolerance, "{what}: {score} {expected}");
    }
    Ok(())
}

/// Tolerance 1e-6 as for all heads, four times that for mean classes, which are sums of six probabilities
/// times at most 5.
#[test]
fn heads_of_any_layers_score_as_in_pytorch() -> Result<()> {
    let dir = TempDir::new()?;
    let all: BTreeMap<String, Expected> = read(&golden("layered.json"))?;
    for (name, activation, layers) in LAYERED {
        let Expected { embeddings, scores, .. } = &all[name];
        for (output, expected) in scores {
            let head = import(&golden(name), &request(Some(output), activation))?;
            assert_eq!(head.card.spec.layers_in_words(), layers);
            let offsets: Vec<usize> = (0..=expected.len()).collect();
            let tolerance = if output == "expected" { 4e-6 } else { 1e-6 };
            let what = format!("{name} {output}");
            let scored = head.score(embeddings, &offsets)?;
            assert_near(&scored, expected, tolerance, &what)?;
            // Read back from its own file.
            let own = dir.path().join("own.safetensors");
            std::fs::write(&own, head.to_bytes()?)?;
            let read = Head::load(&own, "x", &HeadConfig::default())?;
            assert_eq!((&read.card, &read.digest), (&head.card, &head.digest));
            assert_eq!(read.score(embeddings, &offsets)?, scored, "{what}");
        }
    }
    Ok(())
}

#[test]
fn a_checkpoint_of_lightning_is_taken_raw_and_any_other_file_is_not() -> Result<()> {
    let imported = |name: &str, activation| -> Result<String> {
        Ok(import(&golden(name), &request(None, activation))?.card.spec.output.to_string())
    };
    assert_eq!(imported("edu-llama-balanced.ckpt", None)?, "raw");
    assert_eq!(imported("tanh.pt", Some(Activation::Tanh))?, "sigmoid");
    let head = Head::load(&golden("edu-llama-balanced.ckpt"), "edu", &HeadConfig::default())?;
    assert_eq!(head.card.spec.output.to_string(), "raw");
    Ok(())
}

/// Both sides are in f32. An embedding is 1e-5 of its norm off (see `encoder`), which is about 7 here; the
/// maps behind it stretch that by their norms, about 3.4 and 1.7.
const TOLERANCE: f32 = 4e-4;

#[test]
fn models_for_classification_are_encoder_and_head_at_once() -> Result<()> {
    for (name, pooling, layers) in MODELS {
        let Expected { texts, scores, .. } = read(&golden(name).join("expected.json"))?;
        let config = EncoderConfig {
            model: golden(name).display().to_string(),
            max_tokens: 130,
            device: DeviceChoice::Cpu,
            precision: EncoderPrecision::F32,
            ..EncoderConfig::default()
        };
        let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
        let model = load(&config, &offline())?;
        assert_eq!(model.recipe.pooling, pooling, "{name}");
        let stop = Stop::default();
        let embedded = model.embed_texts(&texts, Chunks::First, &config, &stop, &mut |_, _| {})?;
        for (output, expected) in scores {
            let head = import(&golden(name), &request(Some(&output), None))?;
            assert_eq!(head.card.spec.layers_in_words(), layers, "{name}");
            let source = head.card.source.clone().context("no source")?.assumed_encoder;
            assert!(source.ends_with(&format!(", {pooling:?} pooling").to_lowercase()), "{source}");
            let provenance = head.card.provenance.clone().context("no provenance")?;
            assert_eq!(provenance.encoder_digest, model.recipe.model_digest);
            let scored = head.score(&embedded.values, &embedded.chunk_offsets)?;
            assert_near(&scored, &expected, TOLERANCE, &format!("{name} {output}"))?;
        }
    }
    Ok(())
}

#[test]
fn labels_name_outputs_and_one_of_several_has_to_be_chosen() -> Result<()> {
    let of = |name: &str, output: Option<&str>| import(&golden(name), &request(output, None));
    let spec = |name, output| Ok::<_, Error>(of(name, output)?.card.spec.output.to_string());
    assert_eq!(spec("xlm-roberta", Some("sigmoid:ne"))?, "sigmoid:3");
    assert_eq!(spec("gte", Some("class:LABEL_2"))?, "class:2");
    assert_eq!(spec("bert", None)?, "raw");
    assert_eq!(of("xlm-roberta", Some("sigmoid:0"))?.card.labels, ["MT", "LY", "SP", "ne", "ob"]);
    for (name, output, told) in [
        ("xlm-roberta", None, "has the labels MT, LY, SP, ne, ob; give sigmoid:LABEL"),
        ("xlm-roberta", Some("sigmoid:XX"), "`sigmoid:XX` is not one of"),
        ("xlm-roberta", Some("mean:ne"), "`mean:3` is not one of"),
    ] {
        let error = of(name, output).err().context("imported")?;
        assert!(
            matches!(error, Error::Config { .. }) && error.to_string().contains(told),
            "{error}"
        );
    }
    for (name, output, told) in
        [("gte", "class:3", "does not fit 3 output(s)"), ("bert", "expected", "does not fit 1")]
    {
        let error = of(name, Some(output)).err().context("imported")?;
        assert!(
            matches!(error, Error::Model { .. }) && error.to_string().contains(told),
            "{error}"
        );
    }
    Ok(())
}

/// A copy of a model whose configuration is changed.
fn changed(name: &str, change: impl FnOnce(&mut Value)) -> Result<TempDir> {
    let dir = TempDir::new()?;
    for entry in std::fs::read_dir(golden(name))? {
        let entry = entry?;
        std::fs::copy(entry.path(), dir.path().join(entry.file_name()))?;
    }
    let path = dir.path().join("config.json");
    let mut config = read(&path)?;
    change(&mut config);
    std::fs::write(path, config.to_string())?;
    Ok(dir)
}

#[test]
fn models_that_hold_no_such_head_are_refused() -> Result<()> {
    let class = |class: &'static str| move |c: &mut Value| c["architectures"] = json!([class]);
    for (dir, told) in [
        (
            changed("bert", class("BertForTokenClassification"))?,
            "names no `*ForSequenceClassification`",
        ),
        (
            changed("bert", |c| c["architectures"] = Value::Null)?,
            "names no `*ForSequenceClassification`",
        ),
        (changed("bert", |c| c["id2label"] = json!({"zero": "a"}))?, "config.json"),
        (
            changed("modernbert-cls", |c| c["classifier_pooling"] = json!("max"))?,
            "supported: cls, mean",
        ),
        (
            changed("modernbert-cls", |c| c["classifier_activation"] = json!("silu"))?,
            "classifier_activation",
        ),
    ] {
        let error = import(dir.path(), &request(None, None)).err().context("imported")?;
        assert!(
            matches!(error, Error::Model { .. }) && error.to_string().contains(told),
            "{error}"
        );
    }
    let dir = changed("bert", class("BertForSequenceClassification"))?;
    std::fs::copy(
        root().join("tests/golden/encoder/bert/model.safetensors"),
        dir.path().join("model.safetensors"),
    )?;
    let error = import(dir.path(), &request(None, None)).err().context("imported")?;
    assert!(error.to_string().contains("holds an encoder, but no head beside it"), "{error}");
    Ok(())
}

#[test]
fn a_damaged_model_is_an_error_and_never_a_panic() -> Result<()> {
    let dir = changed("modernbert-cls", |_| {})?;
    for name in ["config.json", "model.safetensors"] {
        let path = dir.path().join(name);
        let bytes = std::fs::read(&path)?;
        for at in (0..bytes.len()).step_by(bytes.len().div_ceil(700)) {
            std::fs::write(&path, &bytes[..at])?;
            let error = import(dir.path(), &request(None, None)).err();
            let cut = error.with_context(|| format!("{name} of {at} bytes was accepted"))?;
            assert!(cut.to_string().contains(&dir.path().display().to_string()), "{cut}");
            let mut damaged = bytes.clone();
            damaged[at] ^= 0x10;
            std::fs::write(&path, damaged)?;
            let _ = import(dir.path(), &request(None, None));
        }
        std::fs::write(&path, bytes)?;
    }
    import(dir.path(), &request(None, None))?;
    Ok(())
}

#[test]
fn a_card_of_other_layers_than_the_file_holds_is_refused() -> Result<()> {
    let dir = TempDir::new()?;
    let path = dir.path().join("x.safetensors");
    let head = import(&golden("gelu.pth"), &request(Some("class:1"), Some(Activation::Gelu)))?;
    let bytes = head.to_bytes()?;
    let said = r#"\"activation\":\"gelu\",\"norm_eps\":0.00001"#.as_bytes();
    let at =
        bytes.windows(said.len()).position(|part| part == said).context("says other things")?;
    for (wrong, told) in [
        (r#"\"activation\":\"silu\",\"norm_eps\":0.00001"#, "card cannot be read"),
        (r#"\"activation\":\"gelu\",\"norm_eps\":-0.0001"#, "card says"),
        (r#"\"activation\":\"gelu\",\"norm_eps\":1e99999"#, "card cannot be read"),
    ] {
        let mut changed = bytes.clone();
        changed[at..at + said.len()].copy_from_slice(wrong.as_bytes());
        std::fs::write(&path, changed)?;
        let error = Head::load(&path, "x", &HeadConfig::default()).err().context("accepted")?;
        assert!(error.to_string().contains(told), "{error}");
    }
    Ok(())
}

#[test]
fn a_model_is_imported_embedded_with_and_scored_with() -> TestResult {
    let work = Workspace::new()?;
    for (name, pooling, output) in
        [("gte", "cls", "class:2"), ("modernbert-mean", "mean", "expected")]
    {
        let Expected { texts, scores, .. } = read(&golden(name).join("expected.json"))?;
        let lines = texts.iter().map(|text| json!({"text": text}).to_string());
        work.write("texts.jsonl", lines.collect::<Vec<_>>().join("\n"))?;
        let model = golden(name).display().to_string();
        let run = |args: &[&str]| {
            let mut command = polysift();
            command.current_dir(work.dir.path()).args(args);
            command.assert()
        };
        run(&["head", "import", &model, "--output", output, "--out", "x.safetensors"])
            .success()
            .stdout(contains("24-24-").and(contains(output)));
        let embed =
            ["embed", "texts.jsonl", "--language", "eng_Latn", "--run", name, "--model", &model];
        let how = ["--max-tokens", "130", "--precision", "f32", "--device", "cpu"];
        run(&[&embed[..], &how, &["--head", "x=x.safetensors"]].concat()).success();
        let part = work.path(&format!("{name}/scores/x/texts/part-00000.parquet"));
        let rows = read_parquet(&part)?;
        let column = rows.column_by_name("score").ok_or("no scores")?;
        let scored = column.as_any().downcast_ref::<Float32Array>().ok_or("other scores")?.values();
        assert_eq!(scored.len(), texts.len());
        for (score, expected) in scored.iter().zip(&scores[output]) {
            assert!((score - expected).abs() < TOLERANCE, "{name}: {score} {expected}");
        }
        run(&["inspect", "x.safetensors"]).success().stdout(contains(format!("{pooling} pooling")));
        // Another encoder than the one beside the head is refused.
        let bert = golden("bert").display().to_string();
        let other_run = format!("other-{name}");
        let other = ["embed", "texts.jsonl", "--language", "eng_Latn", "--run", &other_run];
        let how = ["--model", &bert, "--max-tokens", "130", "--head", "x=x.safetensors"];
        let other = [&other[..], &how].concat();
        run(&other).code(65).stderr(contains("was trained on embeddings of the encoder"));
    }
    Ok(())
}
