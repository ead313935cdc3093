//! Heads of several languages: what they learn from, and whom they serve.

use anyhow::Context;
use arrow::array::AsArray;
use arrow::datatypes::Float32Type;
use polysift::config::HeadConfig;
use polysift::head::{Head, TrainingRecord};
use predicates::str::contains;
use serde_json::json;

use crate::util::{TestResult, Workspace, polysift, read_parquet, text};

const SAMPLES: &str = "samples/{lang}.jsonl";

/// The record of the training of a head in the run `out`.
fn record(work: &Workspace, head: &str, language: &str) -> anyhow::Result<TrainingRecord> {
    let path = work.path(&format!("out/heads/{head}/{language}.safetensors"));
    let head = Head::load(&path, head, &HeadConfig::default())?;
    assert_eq!(head.card.language.as_deref(), Some(language));
    head.card.training.clone().context("no record")
}

/// Own samples, all samples, all but the own ones, and a group, side by side.
#[test]
fn own_all_and_other_languages_are_compared_in_one_table() -> TestResult {
    let work = Workspace::new()?;
    let mut command = work.command("run", "out");
    for (head, languages) in
        [("all", r#""all""#), ("others", r#""others""#), ("group", r#"[["fra_Latn", "deu_Latn"]]"#)]
    {
        command.args(["--train-on", &format!("{head}={SAMPLES}")]);
        command.args(["--set", &format!("heads.{head}.languages={languages}")]);
        command.args(["--set", &format!("heads.{head}.kind=logistic")]);
    }
    command.assert().success().stdout(contains("fra_Latn+deu_Latn"));
    let digests = |head: &str, language: &str| -> anyhow::Result<Vec<String>> {
        let path = work.path(&format!("out/heads/{head}/{language}.safetensors"));
        let head = Head::load(&path, head, &HeadConfig::default())?;
        Ok(head.card.provenance.clone().context("no provenance")?.data_digests)
    };
    assert_eq!(digests("others", "fra_Latn")?, digests("quality", "deu_Latn")?);
    assert_eq!(digests("others", "deu_Latn")?, digests("quality", "fra_Latn")?);
    assert_eq!(digests("all", "_all")?.len(), 2);
    let of_group = |language: &str| {
        std::fs::read(work.path(&format!("out/heads/group/{language}.safetensors")))
    };
    assert_eq!(of_group("fra_Latn")?, of_group("deu_Latn")?);
    polysift().arg("verify").arg(work.path("out")).assert().success();

    for language in ["fra_Latn", "deu_Latn"] {
        let rows =
            (200..230).map(|i| json!({"id": i.to_string(), "text": text(i), "label": i % 3 == 0}));
        work.write_lines(&format!("held/{language}.jsonl"), rows)?;
    }
    let report = polysift()
        .current_dir(work.dir.path())
        .args(["evaluate", "--run", "out", "--data", "held/{lang}.jsonl", "--json", "--quiet"])
        .output()?;
    let report: serde_json::Value = serde_json::from_slice(&report.stdout)?;
    for head in ["quality", "all", "others", "group"] {
        let rows = report["measures"].as_array().into_iter().flatten();
        let languages: Vec<_> = rows
            .filter(|row| row["head"] == head)
            .filter_map(|row| row["language"].as_str())
            .collect();
        assert_eq!(languages, ["deu_Latn", "fra_Latn", "mean"], "{head}");
    }
    Ok(())
}

/// A head of two languages is the one of all their samples with weights by which the languages are
/// equal in each split. A French sample has the weight 1, a German one 2, so that the sums are 60
/// and 24 in the training split (42 each, once equal), 20 and 10, and 10 and 10.
#[test]
fn languages_count_the_same_in_each_split() -> TestResult {
    let work = Workspace::new()?;
    let rows = |language: &str, label: usize, parts: [(usize, &str, f64, f64); 3]| {
        let parts =
            parts.into_iter().flat_map(|(n, split, own, equal)| vec![(split, own, equal); n]);
        let row = |(i, (split, own, equal)): (usize, (&str, f64, f64))| {
            json!({"id": format!("{language}-{i}"), "text": format!("{language} {}", text(100 + i)),
                   "label": i % 3 == label, "split": split, "w": own, "equal": equal})
        };
        parts.enumerate().map(row).collect::<Vec<_>>()
    };
    // What one language calls positive the other does not.
    let fra = rows(
        "fra",
        0,
        [(60, "train", 1.0, 0.7), (20, "validation", 1.0, 0.75), (10, "test", 1.0, 1.0)],
    );
    let deu = rows(
        "deu",
        1,
        [(12, "train", 2.0, 3.5), (5, "validation", 2.0, 3.0), (5, "test", 2.0, 2.0)],
    );
    work.write_lines("uneven/fra_Latn.jsonl", fra.clone().into_iter())?;
    work.write_lines("uneven/deu_Latn.jsonl", deu.clone().into_iter())?;
    work.write_lines("pooled.jsonl", fra.into_iter().chain(deu))?;
    let mut command = work.command("train", "out");
    for (head, files) in
        [("balanced", "uneven/{lang}.jsonl"), ("weighted", "pooled.jsonl"), ("own", "pooled.jsonl")]
    {
        command.args([
            "--train-on",
            &format!("{head}={files}"),
            "--set",
            &format!("heads.{head}.kind=logistic"),
        ]);
    }
    command.args(["--set", "heads.balanced.languages=all", "--set", "heads.weighted.weight=equal"]);
    command.args(["--set", "heads.balanced.weight=w", "--set", "heads.own.weight=w"]);
    command.assert().success();
    let metrics = |head| record(&work, head, "_all").map(|record| (record.validation, record.test));
    assert_eq!(metrics("balanced")?, metrics("weighted")?);
    assert_ne!(metrics("balanced")?, metrics("own")?);
    Ok(())
}

#[test]
fn a_fallback_scores_the_languages_without_a_head() -> TestResult {
    let work = Workspace::new()?;
    std::fs::create_dir(work.path("own"))?;
    std::fs::copy(work.path("samples/fra_Latn.jsonl"), work.path("own/fra_Latn.jsonl"))?;
    work.command("run", "out")
        .args(["--train-on", "own=own/{lang}.jsonl", "--set", "heads.own.fallback=all"])
        .args(["--train-on", &format!("all={SAMPLES}"), "--set", "heads.all.languages=all"])
        .args(["--set", "languages._default.retention={own=[0.1]}"])
        .args(["--set", "heads.own.kind=logistic", "--set", "heads.all.kind=logistic"])
        .assert()
        .success();
    let logits =
        |head: &str, language: &str| -> Result<Vec<Option<f32>>, Box<dyn std::error::Error>> {
            let path = work.path(&format!("out/scores/{head}/{language}/a/part-00000.parquet"));
            let scores = read_parquet(&path)?;
            let column = scores.column_by_name("logit").ok_or("no logit")?;
            Ok(column.as_primitive::<Float32Type>().iter().collect())
        };
    assert_eq!(logits("own", "deu_Latn")?, logits("all", "deu_Latn")?);
    assert_ne!(logits("own", "fra_Latn")?, logits("all", "fra_Latn")?);
    // Each language has a threshold of its own.
    for language in ["fra_Latn", "deu_Latn"] {
        assert!(work.path(&format!("out/export/{language}/a.parquet")).is_file(), "{language}");
    }
    Ok(())
}

#[test]
fn languages_need_files_by_language() -> TestResult {
    let work = Workspace::new()?;
    work.command("run", "out")
        .args(["--train-on", "pooled=samples/*.jsonl", "--set", "heads.pooled.languages=others"])
        .assert()
        .code(2)
        .stderr(contains("heads.pooled.languages: are by language"));
    Ok(())
}
