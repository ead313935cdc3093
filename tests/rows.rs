//! Heads without a file: random scores and columns of the input.

use std::collections::{BTreeMap, BTreeSet};

use arrow::array::AsArray;
use arrow::datatypes::{Float32Type, Float64Type, UInt64Type};
use predicates::prelude::PredicateBooleanExt;
use predicates::str::contains;
use serde_json::{Value, json};
use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

use crate::util::{TestResult, Workspace, digests, polysift, read_parquet, text};

/// Ids of the selected documents of a language.
fn kept(
    work: &Workspace,
    run: &str,
    language: &str,
) -> Result<BTreeSet<String>, Box<dyn std::error::Error>> {
    let rows = read_parquet(&work.path(&format!("{run}/export/{language}/a.parquet")))?;
    let ids = rows.column_by_name("id").ok_or("no id")?.as_string::<i32>();
    Ok(ids.iter().flatten().map(str::to_owned).collect())
}

/// The `count` of the documents `ids` of `language` with the least hashes by the head `name`, by another
/// implementation of the hash.
fn least(
    language: &str,
    ids: impl Iterator<Item = usize>,
    name: &str,
    count: usize,
) -> BTreeSet<String> {
    let seed = xxh3_64(&[name.as_bytes(), &42u64.to_le_bytes()].concat());
    let ids = ids.filter(|i| ![7, 8].contains(i)).map(|i| format!("{language}-{i}"));
    let mut ids: Vec<String> = ids.collect();
    ids.sort_by_key(|id| xxh3_64_with_seed(id.as_bytes(), seed));
    ids.into_iter().take(count).collect()
}

/// The workspace's corpus with a column `edu` of `value`.
fn with_column(work: &Workspace, value: impl Fn(usize) -> Value) -> TestResult {
    for (language, documents) in [("fra_Latn", 40), ("deu_Latn", 25)] {
        let rows = (0..documents).map(|i| {
            let text = if i == 7 { Value::Null } else { text(i).into() };
            json!({"id": format!("{language}-{i}"), "text": text, "edu": value(i)})
        });
        work.write_lines(&format!("corpus/{language}/a.jsonl"), rows)?;
    }
    Ok(())
}

fn with_settings(work: &Workspace, settings: &str) -> TestResult {
    let input = "[input]\nfiles = ['corpus/{lang}/*.jsonl']\n[parts]\nrows = 16\n";
    work.write("run.toml", format!("{input}{settings}"))
}

#[test]
fn languages_without_a_head_keep_a_random_share_of_their_documents() -> TestResult {
    let work = Workspace::new()?;
    std::fs::remove_file(work.path("samples/deu_Latn.jsonl"))?;
    with_settings(
        &work,
        "[heads.quality]\ntrain = ['samples/{lang}.jsonl']\n\
         training = { epochs = 6, batch_size = 16, weight_decay = 0.01 }\n\
         [heads.chance]\nkind = 'random'\n\
         [languages._default]\nretention = { quality = 0.5 }\nremoval = { chance = 0.05 }\n\
         [languages._unscored]\nretention = { chance = [0.095, 0.3135] }\n",
    )?;
    work.command("run", "out").assert().success();
    // German has no samples: ceil(0.3135 · 23) of the 23 documents with text, of which ceil(0.095 · 23) would be
    // kept at the smaller rate.
    assert_eq!(kept(&work, "out", "deu_Latn")?, least("deu_Latn", 0..25, "chance", 8));
    let rows = read_parquet(&work.path("out/export/deu_Latn/a.parquet"))?;
    let rates = rows.column_by_name("chance_retention").ok_or("no rates")?;
    let at_smaller = rates.as_primitive::<Float64Type>();
    assert_eq!(at_smaller.iter().flatten().filter(|rate| *rate < 0.1).count(), 3);
    // Of the French half of 38, all but the 1 in 20 with the largest hashes, rounded up.
    let selection = work.json("out/selection/fra_Latn.json")?;
    let [quality, chance] = &selection["thresholds"].as_array().ok_or("no thresholds")?[..] else {
        return Err("not two thresholds".into());
    };
    assert_eq!(quality["threshold"]["head_name"], "quality");
    assert_eq!(quality["outcomes"][0]["kept"]["num_documents"], 19);
    assert_eq!(chance["outcomes"][0]["kept"]["num_documents"], 18);
    let french = kept(&work, "out", "fra_Latn")?;
    assert_eq!(french.len(), 18);

    // What is near to a threshold is so by the heads that say something of a text.
    let sample = ["sample", "out", "--count", "3", "--near", "1", "--out", "near.jsonl"];
    let french = ["--language", "fra_Latn"];
    let told = contains("--language").and(contains("deu_Latn has no head `quality`"));
    polysift().current_dir(work.dir.path()).args(sample).assert().code(2).stderr(told);
    polysift().current_dir(work.dir.path()).args(sample).args(french).assert().success();

    // The same in several shards at once, and another choice by another seed.
    let outputs = || digests(&work.path("out/selection"));
    let first = outputs()?;
    work.command("run", "out").args(["--redo", "embed", "--threads", "3"]).assert().success();
    assert_eq!(outputs()?, first);
    work.command("run", "other").args(["--set", "seed=43"]).assert().success();
    assert_ne!(kept(&work, "other", "deu_Latn")?, kept(&work, "out", "deu_Latn")?);
    polysift().arg("verify").arg(work.path("out")).assert().success();
    Ok(())
}

#[test]
fn a_column_of_the_input_is_a_score() -> TestResult {
    let work = Workspace::new()?;
    // 0 to 4, as a number, its text or a boolean, and null.
    with_column(&work, |i| match i % 6 {
        5 => Value::Null,
        1 => json!(true),
        3 => json!("3"),
        score => json!(score),
    })?;
    with_settings(
        &work,
        "[heads.edu]\nkind = 'column'\nscore = 'edu'\n\
         [languages._default]\nretention = { edu = 0.2 }\n\
         [languages.deu_Latn]\nthreshold = { edu = { at_least = 3 } }\nretention = {}\n",
    )?;
    work.command("run", "out").assert().success();
    let german = (0..25).filter(|i| [3, 4].contains(&(i % 6)) && *i != 7);
    let german: BTreeSet<String> = german.map(|i| format!("deu_Latn-{i}")).collect();
    assert_eq!(kept(&work, "out", "deu_Latn")?, german);
    // Null in 6 of 40, and one document has no text: ceil(0.2 · 33), the 6 of score 4 first.
    let french = kept(&work, "out", "fra_Latn")?;
    assert_eq!(french.len(), 7);
    assert!((0..40).filter(|i| i % 6 == 4).all(|i| french.contains(&format!("fra_Latn-{i}"))));
    let selection = work.json("out/selection/fra_Latn.json")?;
    assert_eq!(selection["thresholds"][0]["num_unscored"], 7);
    let rows = read_parquet(&work.path("out/export/fra_Latn/a.parquet"))?;
    let scores = rows.column_by_name("edu_score").ok_or("no score")?;
    let scores: Vec<f64> = scores.as_primitive::<Float64Type>().iter().flatten().collect();
    assert_eq!(scores.iter().filter(|score| **score > 3.5).count(), 6, "{scores:?}");

    // Labelled texts that have the column tell how good it is.
    let labelled = (0..60).map(|i| {
        let edu = if i % 10 == 9 { Value::Null } else { json!(if i % 3 == 0 { 4 } else { i % 3 }) };
        json!({"text": text(i), "label": if i % 3 == 0 { "positive" } else { "negative" }, "edu": edu})
    });
    work.write_lines("labelled/fra_Latn.jsonl", labelled)?;
    let evaluate = ["evaluate", "-c", "run.toml", "--data", "labelled/{lang}.jsonl", "--json"];
    let output = polysift().current_dir(work.dir.path()).args(evaluate).output()?;
    let report: Value = serde_json::from_slice(&output.stdout)?;
    assert_eq!(report["heads"][0]["unscored"], 6, "{report}");
    assert_eq!(report["measures"][0]["roc_auc"], 1.0);

    // Scores are f32: one that equals a threshold is not above it, whatever its digits.
    let equal = (0..20).map(|i| json!({"text": text(i), "label": i % 2, "edu": 0.1}));
    work.write_lines("labelled/fra_Latn.jsonl", equal)?;
    let output = polysift()
        .current_dir(work.dir.path())
        .args(evaluate)
        .args(["--threshold", "0.1"])
        .output()?;
    let report: Value = serde_json::from_slice(&output.stdout)?;
    let decision = &report["decisions"][0];
    assert_eq!(
        (&decision["rule"], &decision["called_positive"]),
        (&json!("score above 0.1"), &json!(0))
    );
    Ok(())
}

#[test]
fn a_value_that_is_no_number_fails_its_file_with_row_and_count() -> TestResult {
    let work = Workspace::new()?;
    let settings = "[heads.edu]\nkind = 'column'\nscore = 'edu'\n\
                    [languages._default]\nretention = { edu = 0.2 }\n";
    with_settings(&work, settings)?;
    with_column(&work, |i| if i >= 30 { json!("good") } else { json!(i) })?;
    let told = contains(r#"fra_Latn/a.jsonl: row 31: `edu` is "good"; needed is a number"#)
        .and(contains("10 bad row(s)"));
    work.command("run", "out").assert().code(3).stderr(told);
    // The corpus has no such column.
    work.write(
        "run.toml",
        std::fs::read_to_string(work.path("run.toml"))?.replace("'edu'\n[", "'x'\n["),
    )?;
    work.command("run", "other").assert().failure().stderr(contains("column `x`"));
    Ok(())
}

#[test]
fn refining_leaves_the_scores_of_rows_as_they_are() -> TestResult {
    let work = Workspace::new()?;
    with_column(&work, |i| json!(i % 5))?;
    with_settings(
        &work,
        "[heads.quality]\ntrain = ['samples/{lang}.jsonl']\n\
         training = { epochs = 6, batch_size = 16, weight_decay = 0.01 }\n\
         [heads.chance]\nkind = 'random'\n\
         [heads.edu]\nkind = 'column'\nscore = 'edu'\n\
         [languages._default]\nretention = { quality = 0.5 }\nremoval = { chance = 0.1, edu = 0.1 }\n",
    )?;
    let precision = ["--precision", "int8", "--refine"];
    work.command("run", "out").args(precision).assert().success();
    let scores = |folder: &str,
                  head: &str|
     -> Result<BTreeMap<u64, Option<f32>>, Box<dyn std::error::Error>> {
        let mut scores = BTreeMap::new();
        for part in 0..3 {
            let path = format!("out/{folder}/{head}/fra_Latn/a/part-{part:05}.parquet");
            let rows = read_parquet(&work.path(&path))?;
            let numbers = rows.column_by_name("row").ok_or("no row")?;
            let numbers = numbers.as_primitive::<UInt64Type>().values().to_vec();
            let logits = rows.column_by_name("logit").ok_or("no logit")?;
            scores.extend(numbers.into_iter().zip(logits.as_primitive::<Float32Type>()));
        }
        Ok(scores)
    };
    for head in ["chance", "edu"] {
        let scored = scores("scores", head)?;
        assert_eq!(scored.values().flatten().count(), 39);
        assert_eq!(scores("refined", head)?, scored, "{head}");
    }
    assert_ne!(scores("refined", "quality")?, scores("scores", "quality")?);
    Ok(())
}

#[test]
fn a_document_at_a_threshold_is_kept_where_it_says_so() -> TestResult {
    let work = Workspace::new()?;
    with_column(&work, |i| json!(f64::from(i as u32 % 10) / 10.0))?;
    // 0.1 and 0.9 are larger as numbers of 32 bits than they are, 0.7 is smaller.
    for (keep, threshold, digits) in [
        ("above", "0.7", 8..10),
        ("above", "0.9", 10..10),
        ("above", "{ at_least = 0.7 }", 7..10),
        ("above", "{ at_least = 0.9 }", 9..10),
        ("below", "0.7", 0..7),
        ("below", "0.1", 0..1),
        ("below", "{ at_most = 0.7 }", 0..8),
        ("below", "{ at_most = 0.1 }", 0..2),
    ] {
        with_settings(
            &work,
            &format!(
                "[encoder]\nmodel = 'none'\n\
                 [heads.edu]\nkind = 'column'\nscore = 'edu'\nkeep = '{keep}'\n\
                 [languages._default]\nthreshold = {{ edu = {threshold} }}\n"
            ),
        )?;
        let run = format!("{keep} {threshold}");
        work.command("run", &run).assert().success();
        let expected = (0..25).filter(|i| digits.contains(&(i % 10)) && *i != 7);
        let expected: BTreeSet<String> = expected.map(|i| format!("deu_Latn-{i}")).collect();
        assert_eq!(kept(&work, &run, "deu_Latn")?, expected, "{run}");
    }
    let wrong = "[heads.edu]\nkind = 'column'\nscore = 'edu'\n\
                 [languages._default]\nthreshold = { edu = { at_most = 1 } }\n";
    with_settings(&work, wrong)?;
    let refused = work.command("run", "wrong").assert().code(2).get_output().stderr.clone();
    let refused = String::from_utf8(refused)?;
    assert!(refused.contains("languages._default.threshold.edu: ") && refused.contains("at_least"));
    assert!(!work.path("wrong").exists());
    Ok(())
}

#[test]
fn evaluate_breaks_ties_at_the_thresholds_of_a_run_as_the_run_does() -> TestResult {
    let work = Workspace::new()?;
    with_column(&work, |i| json!(i % 3))?;
    for (kind, keep, removes) in [("retention", "above", false), ("removal", "below", true)] {
        let settings = format!(
            "[encoder]\nmodel = 'none'\n\
             [heads.edu]\nkind = 'column'\nscore = 'edu'\nkeep = '{keep}'\n\
             [languages._default]\n{kind} = {{ edu = 0.1 }}\n"
        );
        with_settings(&work, &settings)?;
        work.command("run", kind).assert().success();
        let documents = (0..40).filter(|i| *i != 7).map(|i| {
            let id = format!("fra_Latn-{i}");
            json!({"id": id, "text": text(i), "edu": i % 3, "label": i % 2})
        });
        work.write_lines("labelled/fra_Latn.jsonl", documents)?;
        let output = polysift()
            .current_dir(work.dir.path())
            .args(["evaluate", "--run", kind, "--data", "labelled/{lang}.jsonl", "--json"])
            .output()?;
        let report: Value = serde_json::from_slice(&output.stdout)?;
        let rule = format!("run: {kind} 0.1");
        let decisions = report["decisions"].as_array().ok_or("no decisions")?;
        let found = decisions.iter().find(|decision| decision["rule"] == *rule).ok_or("no rule")?;
        let num_kept = kept(&work, kind, "fra_Latn")?.len();
        // A head that keeps low scores calls what it removes positive.
        let expected = if removes { 39 - num_kept } else { num_kept };
        assert_eq!((expected, &found["called_positive"]), (4, &json!(4)), "{report}");
    }
    Ok(())
}

#[test]
fn a_run_without_an_encoder_selects_what_one_with_an_encoder_does() -> TestResult {
    let work = Workspace::new()?;
    with_column(&work, |i| json!(i % 5))?;
    let heads = "[heads.chance]\nkind = 'random'\n\
                 [heads.edu]\nkind = 'column'\nscore = 'edu'\n\
                 [heads.words]\nkind = 'fasttext'\ntrain = ['samples/{lang}.jsonl']\n\
                 [languages._default]\nretention = { edu = 0.3 }\n\
                 removal = { chance = 0.1, words = 0.2 }\n";
    with_settings(&work, heads)?;
    work.command("run", "with").assert().success();
    let encoder = format!("[encoder]\nmodel = 'none'\n{heads}");
    with_settings(&work, &encoder)?;
    work.command("plan", "none").assert().success().stdout(contains("2 shards"));
    work.command("run", "none").assert().success().stdout(contains("63 with text"));
    for language in ["fra_Latn", "deu_Latn"] {
        assert_eq!(kept(&work, "none", language)?, kept(&work, "with", language)?);
    }
    let columns = |run: &str| -> Result<BTreeSet<String>, Box<dyn std::error::Error>> {
        let rows = read_parquet(&work.path(&format!("{run}/export/fra_Latn/a.parquet")))?;
        Ok(rows.schema().fields().iter().map(|field| field.name().clone()).collect())
    };
    let missing: Vec<String> = columns("with")?.difference(&columns("none")?).cloned().collect();
    assert_eq!(missing, ["embeddings"]);
    polysift().arg("verify").arg(work.path("none")).assert().success();

    // What needs embeddings says so before anything is read.
    let head = "[heads.quality]\ntrain = ['samples/{lang}.jsonl']\n\
                training = { batch_size = 16, epochs = 6 }\n";
    with_settings(&work, &format!("{encoder}{head}"))?;
    let told =
        contains("encoder.model: is `none`, and the head `quality` is trained on embeddings");
    work.command("run", "other").assert().code(2).stderr(told);
    with_settings(&work, head)?;
    work.command("train", "trained").assert().success();
    let head = "[heads.quality]\npath = 'trained/heads/quality/{lang}.safetensors'\n";
    with_settings(&work, &format!("{encoder}{head}"))?;
    let told = contains("encoder.model: is `none`, and the head `quality` scores embeddings");
    work.command("run", "other").assert().code(2).stderr(told.clone());
    work.command("score", "none").args(["--redo", "score"]).assert().code(2).stderr(told);
    Ok(())
}

#[test]
fn a_budget_keeps_the_best_documents_until_they_weigh_as_much() -> TestResult {
    let work = Workspace::new()?;
    with_column(&work, |i| json!(i * 7 % 40))?;
    let best: Vec<usize> = {
        let mut documents: Vec<usize> = (0..40).filter(|i| *i != 7).collect();
        documents.sort_by_key(|i| std::cmp::Reverse(i * 7 % 40));
        documents
    };
    let bytes = |count: usize| best[..count].iter().map(|i| text(*i).len()).sum::<usize>();
    let budget = |bytes: usize| {
        format!(
            "[encoder]\nmodel = 'none'\n[heads.edu]\nkind = 'column'\nscore = 'edu'\n\
             [selection]\nweight = 'bytes'\n\
             [languages._default]\nbudget = {{ edu = {bytes} }}\n\
             [languages.deu_Latn]\nbudget = {{ edu = '2.5M' }}\n"
        )
    };
    // The document with which the budget is reached is the last.
    for (of_budget, count) in [(bytes(9), 9), (bytes(9) + 1, 10), (1, 1)] {
        with_settings(&work, &budget(of_budget))?;
        let run = format!("run-{of_budget}");
        let told = contains("left for this threshold are below the budget; all of them are kept")
            .and(contains("deu_Latn"));
        let table = contains("edu budget  fra_Latn");
        work.command("run", &run).assert().success().stderr(told).stdout(table);
        let expected: BTreeSet<String> =
            best[..count].iter().map(|i| format!("fra_Latn-{i}")).collect();
        assert_eq!(kept(&work, &run, "fra_Latn")?, expected);
        assert_eq!(kept(&work, &run, "deu_Latn")?.len(), 24);
        let selection = work.json(&format!("{run}/selection/fra_Latn.json"))?;
        let outcome = &selection["thresholds"][0]["outcomes"][0];
        assert_eq!(outcome["kept"]["weight"], bytes(count));
        let of_all = bytes(count) as f64 / bytes(39) as f64;
        assert_eq!(outcome["realised_rate"], of_all);
    }
    with_settings(&work, &budget(0))?;
    let told = contains("is not a budget; a number above 0 is needed");
    work.command("run", "other").assert().code(2).stderr(told);
    Ok(())
}
