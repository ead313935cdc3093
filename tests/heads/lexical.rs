//! Lexical heads: trained, scored and damaged.

use std::collections::BTreeMap;

use anyhow::Context;
use arrow::array::AsArray;
use arrow::datatypes::Float32Type;
use polysift::config::{HeadConfig, HeadKind, HeadOutput};
use polysift::head::{AnyHead, Head, LabelCounts, LexicalHead};
use predicates::str::contains;
use serde_json::{Value, json};

use crate::util::{TestResult, Workspace, digests, polysift, read_parquet, text};

const LEXICAL: &str = "[input]\nfiles = ['corpus/{lang}/*.jsonl']\n\
    [parts]\nrows = 16\n\
    [heads.own]\nkind = 'lexical'\ntrain = ['samples/{lang}.jsonl']\n\
    [heads.all]\nkind = 'lexical'\ntrain = ['samples/{lang}.jsonl']\nlanguages = 'all'\n\
    [heads.grades]\nkind = 'lexical'\ntrain = ['grades/{lang}.jsonl']\ntraining = { loss = 'squared-error' }\n\
    [languages._default]\nretention = { own = [0.1, 0.33] }\n";

/// A workspace with lexical heads alone, on classes and on grades.
fn workspace() -> Result<Workspace, Box<dyn std::error::Error>> {
    let work = Workspace::new()?;
    work.write("run.toml", LEXICAL)?;
    for language in ["fra_Latn", "deu_Latn"] {
        let rows = (100..160).map(|i| {
            let grade = if i % 3 == 0 { 40.0 } else { 10.0 } + f64::from(i % 5) / 100.0;
            json!({"id": i.to_string(), "text": text(i as usize), "label": grade})
        });
        work.write_lines(&format!("grades/{language}.jsonl"), rows)?;
    }
    Ok(work)
}

fn load(work: &Workspace, file: &str) -> polysift::Result<LexicalHead> {
    LexicalHead::load(&work.path(file), "own", &HeadConfig::default())
}

/// The scores of the first part of the French shard by id.
fn scores(
    work: &Workspace,
    head: &str,
) -> Result<BTreeMap<String, f32>, Box<dyn std::error::Error>> {
    let path = work.path(&format!("out/scores/{head}/fra_Latn/a/part-00000.parquet"));
    let rows = read_parquet(&path)?;
    let ids = rows.column_by_name("id").context("no id")?.as_string::<i32>();
    let scores = rows.column_by_name("score").context("no score")?.as_primitive::<Float32Type>();
    let scored = ids.iter().zip(scores).filter_map(|(id, score)| Some((id?.to_owned(), score?)));
    Ok(scored.collect())
}

#[test]
fn lexical_heads_score_and_select_without_an_encoder() -> TestResult {
    let work = workspace()?;
    let run = |more: &[&str]| {
        let mut command = work.command("run", "out");
        command.args(["--set", "encoder.model=none"]).args(more).assert().success();
    };
    run(&[]);
    let head = load(&work, "out/heads/own/fra_Latn.safetensors")?;
    assert_eq!((head.spec().kind, head.spec().output), (HeadKind::Lexical, HeadOutput::Sigmoid));
    let test = head.card().training.clone().context("no record")?.test.context("no metrics")?;
    assert_eq!(test.roc_auc, Some(1.0), "words of two classes have nothing in common");
    let found = scores(&work, "own")?;
    // The first 16 rows, of which two have no text.
    assert_eq!(found.len(), 14);
    for (id, score) in &found {
        let number: usize = id.trim_start_matches("fra_Latn-").parse()?;
        assert_eq!(score.to_bits(), head.score(&text(number))?.score.to_bits(), "{id}");
        assert_eq!(*score > 0.5, number.is_multiple_of(3), "{id}: {score}");
    }
    // Grades come back on their own scale.
    for (id, grade) in scores(&work, "grades")? {
        let number: usize = id.trim_start_matches("fra_Latn-").parse()?;
        let expected = if number.is_multiple_of(3) { 40.0 } else { 10.0 };
        assert!((grade - expected).abs() < 15.0, "{id}: {grade}");
    }
    let all = load(&work, "out/heads/all/_all.safetensors")?;
    let samples = &all.card().training.clone().context("no record")?.samples;
    let counted: usize = samples.values().map(LabelCounts::num_samples).sum();
    assert_eq!(counted, 120, "one head learns from both languages");
    let exported = read_parquet(&work.path("out/export/fra_Latn/a.parquet"))?;
    assert_eq!(exported.num_rows(), 13); // 33% of 38
    polysift().arg("verify").arg(work.path("out")).assert().success();
    let file = work.path("out/heads/own/fra_Latn.safetensors");
    polysift().arg("inspect").arg(&file).assert().success().stdout(contains("lexical"));

    let before = (digests(&work.path("out/heads"))?, digests(&work.path("out/scores"))?);
    run(&["--redo", "train", "--threads", "1"]);
    assert_eq!(before, (digests(&work.path("out/heads"))?, digests(&work.path("out/scores"))?));

    let report = polysift()
        .current_dir(work.dir.path())
        .args(["evaluate", "--run", "out", "--data", "samples/{lang}.jsonl", "--json", "--quiet"])
        .output()?;
    let report: Value = serde_json::from_slice(&report.stdout)?;
    assert!(report.to_string().contains("\"own\""), "{report}");
    Ok(())
}

/// Beside an encoder, whose tokenizer it takes; from its file in another run.
#[test]
fn a_lexical_head_takes_the_tokenizer_of_the_encoder_and_serves_other_runs() -> TestResult {
    let work = workspace()?;
    let bundled =
        work.command("train", "bundled").args(["--set", "encoder.model=none"]).output()?;
    assert!(bundled.status.success());
    let model = crate::util::root().join("tests/golden/encoder/head16-prefixed");
    let model = format!("encoder.model='{}'", model.display());
    work.command("train", "out").args(["--set", &model]).assert().success();
    let head = load(&work, "out/heads/own/fra_Latn.safetensors")?;
    let of_bundled = load(&work, "bundled/heads/own/fra_Latn.safetensors")?;
    assert_ne!(head.digest(), of_bundled.digest());
    let recipe = head.card().provenance.clone().and_then(|p| p.recipe).context("no recipe")?;
    let other = of_bundled.card().provenance.clone().and_then(|p| p.recipe).context("no recipe")?;
    assert_ne!(recipe.model_digest, other.model_digest);
    let settings = "[input]\nfiles = ['corpus/{lang}/*.jsonl']\n\
        [encoder]\nmodel = 'none'\n\
        [heads.own]\npath = 'out/heads/own/{lang}.safetensors'\nkeep = 'below'\n\
        [languages._default]\nretention = { own = 0.5 }\n";
    work.write("run.toml", settings)?;
    work.command("run", "second").assert().success();
    let path = work.path("second/scores/own/fra_Latn/a/part-00000.parquet");
    let scores = read_parquet(&path)?;
    let scores = scores.column_by_name("score").context("no score")?.as_primitive::<Float32Type>();
    assert_eq!(scores.value(1).to_bits(), head.score(&text(1))?.score.to_bits());
    Ok(())
}

#[test]
fn damaged_files_and_settings_of_other_heads_are_refused() -> TestResult {
    let work = workspace()?;
    work.command("train", "out").args(["--set", "encoder.model=none"]).assert().success();
    let file = "out/heads/own/fra_Latn.safetensors";
    let whole = std::fs::read(work.path(file))?;
    let refused = |bytes: &[u8]| -> anyhow::Result<String> {
        let path = work.path("damaged.safetensors");
        std::fs::write(&path, bytes)?;
        let config = HeadConfig { kind: HeadKind::Lexical, ..HeadConfig::default() };
        match AnyHead::load(&path, "own", &config, "_all") {
            Ok(_) => anyhow::bail!("is taken"),
            Err(error) => Ok(error.to_string()),
        }
    };
    for length in [0, 7, 8, 100, whole.len() / 2, whole.len() - 1] {
        refused(&whole[..length])?;
    }
    // The compressed tokenizer is the last tensor: bytes have the smallest alignment.
    let mut bytes = whole.clone();
    let last = bytes.len() - 40;
    bytes[last..].fill(0xff);
    assert!(refused(&bytes)?.contains("tokenizer"));
    let mut bytes = whole.clone();
    let header = 8 + u64::from_le_bytes(whole[..8].try_into()?) as usize;
    bytes[header..header + 4].copy_from_slice(&f32::NAN.to_le_bytes());
    assert!(refused(&bytes)?.contains("finite"));
    let mlp = crate::util::root().join("tests/golden/heads/quality.safetensors");
    assert!(refused(&std::fs::read(mlp)?)?.contains("lexical"));

    let as_embedding = Head::load(&work.path(file), "own", &HeadConfig::default());
    assert!(as_embedding.is_err_and(|e| e.to_string().contains("scores texts")));
    for setting in ["hidden=[4]", "chunk=max", "training.epochs=3", "training.loss=ordinal"] {
        work.command("train", "other")
            .args(["--set", &format!("heads.own.{setting}")])
            .assert()
            .failure()
            .stderr(contains("heads.own"));
    }
    Ok(())
}
