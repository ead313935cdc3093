//! Negatives of heads that are drawn from the corpus.

use std::collections::BTreeSet;

use anyhow::Context;
use arrow::array::AsArray;
use arrow::datatypes::Float32Type;
use polysift::config::HeadConfig;
use polysift::head::{Head, LabelCounts};
use predicates::str::contains;
use serde_json::{Value, json};

use crate::util::{TestResult, Workspace, polysift, read_parquet, text};

/// Forty positives of each language, of which three are documents of the corpus in other letters.
fn positives() -> Result<Workspace, Box<dyn std::error::Error>> {
    let work = Workspace::new()?;
    for language in ["fra_Latn", "deu_Latn"] {
        let text = |i: usize| if i < 3 { text(i).to_uppercase() } else { text(1000 + i) };
        let rows = (0..40).map(|i| json!({"id": i.to_string(), "text": text(i), "label": true}));
        work.write_lines(&format!("good/{language}.jsonl"), rows)?;
    }
    Ok(work)
}

fn run(work: &Workspace, out: &str, head: &str) -> assert_cmd::Command {
    let mut command = work.command("run", out);
    command.args(["--set", &format!("heads.own={head}")]);
    command
}

/// The rows of the corpus that are negatives of the head `own` of `language`, as `LANGUAGE/ROW`.
fn rows(work: &Workspace, out: &str, language: &str) -> anyhow::Result<BTreeSet<String>> {
    let list = work.path(&format!("{out}/heads/own/{language}.negatives.jsonl"));
    let row = |line: &str| -> anyhow::Result<String> {
        let place: Value = serde_json::from_str(line)?;
        let file = place["file"].as_str().context("no file")?;
        let folder = file.rsplit('/').nth(1).context("no folder")?;
        Ok(format!("{folder}/{}", place["row"]))
    };
    let list = std::fs::read_to_string(list)?;
    let rows: BTreeSet<String> = list.lines().map(row).collect::<anyhow::Result<_>>()?;
    assert_eq!(rows.len(), list.lines().count(), "a row twice");
    Ok(rows)
}

#[test]
fn a_head_of_positives_draws_distinct_negatives_that_are_no_positives() -> TestResult {
    let work = positives()?;
    let head = "{train=['good/{lang}.jsonl'],kind='logistic',negatives={corpus=18}}";
    run(&work, "out", head).args(["--threads", "1"]).assert().success();
    for language in ["fra_Latn", "deu_Latn"] {
        let path = work.path(&format!("out/heads/own/{language}.safetensors"));
        let head = Head::load(&path, "own", &HeadConfig::default())?;
        let record = head.card.training.as_ref().context("no record")?;
        assert_eq!(record.negatives.map(|drawn| drawn.corpus), Some(18));
        let negatives = record.samples.values().map(|counts| match counts {
            LabelCounts::Classes { negative, .. } => *negative,
            LabelCounts::Grades { .. } => 0,
        });
        assert_eq!(negatives.sum::<usize>(), 18, "{language}");
        let rows = rows(&work, "out", language)?;
        assert_eq!(rows.len(), 18);
        // The first three rows are positives, and two have no text.
        for other in ["0", "1", "2", "7", "8"] {
            assert!(!rows.contains(&format!("{language}/{other}")), "{rows:?}");
        }
        assert!(rows.iter().all(|row| row.starts_with(language)), "{rows:?}");
    }
    polysift().arg("verify").arg(work.path("out")).assert().success();
    let planned = run(&work, "planned", head).arg("--dry-run").assert().success();
    planned.stdout(contains("and 36 documents of the corpus for deu_Latn, fra_Latn"));
    // Several threads draw the same documents, another seed draws others.
    run(&work, "again", head).args(["--threads", "4"]).assert().success();
    run(&work, "seed", head).args(["--seed", "9"]).assert().success();
    let head =
        |out: &str| std::fs::read(work.path(&format!("{out}/heads/own/fra_Latn.safetensors")));
    assert_eq!(head("out")?, head("again")?);
    assert_ne!(rows(&work, "out", "fra_Latn")?, rows(&work, "seed", "fra_Latn")?);
    Ok(())
}

#[test]
fn a_head_of_several_languages_draws_equally_many_of_each() -> TestResult {
    let work = positives()?;
    let head = |languages: &str, count: usize| {
        format!(
            "{{train=['good/{{lang}}.jsonl'],kind='logistic',languages='{languages}',negatives={{corpus={count}}}}}"
        )
    };
    run(&work, "out", &head("all", 21)).assert().success();
    let all = rows(&work, "out", "_all")?;
    let of = |language: &str| all.iter().filter(|row| row.starts_with(language)).count();
    assert_eq!((of("deu_Latn"), of("fra_Latn")), (11, 10));
    run(&work, "others", &head("others", 5)).assert().success();
    assert!(rows(&work, "others", "deu_Latn")?.iter().all(|row| row.starts_with("fra_Latn")));
    // One more than the sum is of the first language; of documents without text, others are drawn.
    run(&work, "three", &head("all", 3)).assert().success();
    let three = rows(&work, "three", "_all")?;
    assert_eq!(three.iter().filter(|row| row.starts_with("deu_Latn")).count(), 2);
    // Of 25 German documents two have no text and three are positives.
    let few = run(&work, "few", &head("all", 500)).assert().success();
    few.stderr(contains("has 20 that are no samples, so at most 20 become negatives"));
    Ok(())
}

/// The documents between two quantiles of the scores that the first head gives in a run of its own.
#[test]
fn a_second_head_takes_its_negatives_by_the_scores_of_the_first() -> TestResult {
    let work = positives()?;
    let head = |negatives: &str| {
        format!("{{train=['good/{{lang}}.jsonl'],kind='logistic',negatives={{{negatives}}}}}")
    };
    run(&work, "first", &head("corpus=8")).assert().success();
    run(&work, "pool", &head("corpus=32")).assert().success();
    run(&work, "second", &head("corpus=8,quantiles=[0.5,0.75]")).assert().success();
    let mut logits: Vec<Option<f32>> = Vec::new();
    for part in 0..3 {
        let scores = read_parquet(
            &work.path(&format!("first/scores/own/fra_Latn/a/part-0000{part}.parquet")),
        )?;
        let column = scores.column_by_name("logit").context("no logit")?;
        logits.extend(column.as_primitive::<Float32Type>().iter());
    }
    let row = |place: &String| -> anyhow::Result<usize> {
        Ok(place.rsplit('/').next().context("no row")?.parse()?)
    };
    let mut pool: Vec<usize> =
        rows(&work, "pool", "fra_Latn")?.iter().map(row).collect::<anyhow::Result<_>>()?;
    assert_eq!((pool.len(), logits.len()), (32, 40));
    pool.sort_by(|a, b| logits[*a].partial_cmp(&logits[*b]).unwrap_or(std::cmp::Ordering::Equal));
    let expected: BTreeSet<String> =
        pool[16..24].iter().map(|row| format!("fra_Latn/{row}")).collect();
    assert_eq!(rows(&work, "second", "fra_Latn")?, expected);
    Ok(())
}

#[test]
fn negatives_need_a_corpus() -> TestResult {
    let work = positives()?;
    work.write(
        "heads.toml",
        "[heads.own]\ntrain = ['good/{lang}.jsonl']\nnegatives = { corpus = 9 }\n",
    )?;
    let mut train = polysift();
    train.current_dir(work.dir.path()).args(["train", "-c", "heads.toml", "--run", "out"]);
    train.assert().code(2).stderr(contains("heads.own.negatives: come from the corpus"));
    Ok(())
}
