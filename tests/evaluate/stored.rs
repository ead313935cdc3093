//! The heads of a run on its stored scores.

use serde_json::{Value, json};

use super::command::{evaluated, trained};
use crate::util::{TestResult, Workspace, text};

/// The row of a language.
fn row<'a>(rows: &'a Value, language: &str) -> &'a Value {
    let mut rows = rows.as_array().into_iter().flatten();
    rows.find(|row| row["language"] == language).unwrap_or(&Value::Null)
}

#[test]
fn a_run_compares_its_heads_without_labels_and_without_texts() -> TestResult {
    let work = trained()?;
    // What is not read need not be there.
    std::fs::remove_dir_all(work.path("corpus"))?;
    std::fs::remove_dir_all(work.path("samples"))?;
    let report = evaluated(&work, &["--run", "out"])?;
    let pair = row(&report["agreement"], "fra_Latn");
    assert_eq!((&pair["documents"], &pair["top"]), (&json!(38), &json!(4)));
    assert!(pair["spearman"].as_f64() > Some(0.0), "{pair}");
    assert!(row(&report["agreement"], "deu_Latn")["spearman"].is_number());
    Ok(())
}

#[test]
fn a_head_agrees_with_itself() -> TestResult {
    let work = trained()?;
    work.command("run", "twice")
        .args(["--head", "quality=out/heads/quality/{lang}.safetensors"])
        .args(["--head", "same=out/heads/quality/{lang}.safetensors"])
        .assert()
        .success();
    let report = evaluated(&work, &["--run", "twice"])?;
    let pair = row(&report["agreement"], "fra_Latn");
    assert_eq!((&pair["spearman"], &pair["overlap"]), (&json!(1.0), &json!(1.0)));
    Ok(())
}

#[test]
fn a_sample_is_as_large_as_was_asked_for() -> TestResult {
    let work = trained()?;
    let report = evaluated(&work, &["--run", "out", "--sample", "20", "--top", "0.5"])?;
    let pair = row(&report["agreement"], "fra_Latn");
    assert_eq!((&pair["documents"], &pair["top"]), (&json!(20), &json!(10)));
    let none = evaluated(&work, &["--run", "out", "--sample", "0"])?;
    assert_eq!(row(&none["agreement"], "fra_Latn")["spearman"], Value::Null);
    Ok(())
}

#[test]
fn a_run_that_is_not_scored_is_told_what_to_do() -> TestResult {
    let work = trained()?;
    work.command("embed", "fresh").assert().success();
    let error = evaluated(&work, &["--run", "fresh"]).err().map(|e| e.to_string());
    assert!(error.is_some_and(|error| error.contains("polysift score")));
    Ok(())
}

#[test]
fn the_best_documents_are_those_that_a_head_keeps() -> TestResult {
    let work = Workspace::new()?;
    work.write(
        "run.toml",
        "[input]\nfiles = ['in/{lang}/*.jsonl']\n[encoder]\nmodel = 'none'\n\
         [heads.high]\nkind = 'column'\nscore = 'high'\n\
         [heads.low]\nkind = 'column'\nscore = 'low'\nkeep = 'below'\n\
         [languages._default]\nretention = { high = 0.5 }\n",
    )?;
    let document = |i: usize| json!({"id": i, "text": text(i), "high": i, "low": 20 - i});
    work.write_lines("in/eng_Latn/a.jsonl", (0..20).map(document))?;
    work.command("run", "out").assert().success();
    let labelled = (0..20)
        .map(|i| json!({"id": i, "text": text(i), "high": i, "low": 20 - i, "label": i % 2}));
    work.write_lines("held.jsonl", labelled)?;
    let data = ["--run", "out", "--data", "held.jsonl", "--language", "eng_Latn"];
    for arguments in [&data[..2], &data] {
        let report = evaluated(&work, arguments)?;
        let pair = row(&report["agreement"], "eng_Latn");
        assert_eq!((&pair["top"], &pair["shared"]), (&json!(2), &json!(2)), "{pair}");
        assert_eq!(pair["spearman"], -1.0);
    }
    Ok(())
}
