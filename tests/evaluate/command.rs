//! The command on labelled texts.

use std::error::Error;

use arrow::array::AsArray;
use arrow::datatypes::Float32Type;
use candle_core::{Device, Tensor};
use predicates::prelude::PredicateBooleanExt;
use predicates::str::contains;
use serde_json::{Value, json};

use crate::util::{TestResult, Workspace, digests, polysift, read_parquet, root, text};

/// A workspace with trained heads in `out`, an MLP `quality` and a cosine head `likeness`, and unseen
/// labelled texts of two sources in `held/{lang}.jsonl`.
pub(super) fn trained() -> Result<Workspace, Box<dyn Error>> {
    let work = Workspace::new()?;
    for language in ["fra_Latn", "deu_Latn"] {
        let rows = (200..260).map(|i| {
            let label = if i % 3 == 0 { "positive" } else { "negative" };
            let source = ["mill", "mine"][i % 2];
            json!({"id": format!("h{i}"), "text": text(i), "label": label, "source": source})
        });
        work.write_lines(&format!("held/{language}.jsonl"), rows)?;
    }
    work.command("run", "out")
        .args(["--set", "heads.likeness.kind=cosine", "--set", "heads.likeness.references=16"])
        .args(["--train-on", "likeness=samples/{lang}.jsonl"])
        .assert()
        .success();
    Ok(work)
}

/// What `polysift evaluate ... --json` prints.
pub(super) fn evaluated(work: &Workspace, arguments: &[&str]) -> Result<Value, Box<dyn Error>> {
    let output = polysift()
        .current_dir(work.dir.path())
        .arg("evaluate")
        .args(arguments)
        .args(["--json", "--quiet"])
        .output()?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into_owned().into());
    }
    Ok(serde_json::from_slice(&output.stdout)?)
}

const QUALITY: &str = "out/heads/quality/{lang}.safetensors";
const HELD: [&str; 2] = ["--data", "held/{lang}.jsonl"];

#[test]
fn heads_are_measured_by_language_source_and_length() -> TestResult {
    let work = trained()?;
    let report = evaluated(
        &work,
        &[&[QUALITY, "out/heads/likeness/{lang}.safetensors"][..], &HELD].concat(),
    )?;
    assert_eq!((&report["texts"], &report["skipped"]), (&json!(120), &json!(0)));
    let quality = &report["heads"]["quality"];
    for (measures, texts) in [(&quality["languages"]["fra_Latn"], 60), (&quality["pooled"], 120)] {
        assert_eq!(
            (&measures["scored"], &measures["positive"]),
            (&json!(texts), &json!(texts / 3))
        );
        assert!(measures["roc_auc"].as_f64() > Some(0.9), "{measures}");
        let at_half = &measures["decisions"][0];
        assert_eq!(at_half["rule"], "score above 0.5");
        let kept = &measures["decisions"][1];
        assert_eq!(
            (&kept["rule"], &kept["called_positive"]),
            (&json!("retention 0.1"), &json!(texts / 10))
        );
        for groups in [&measures["sources"], &measures["lengths"]] {
            let groups: Vec<&Value> = match groups {
                Value::Object(groups) => groups.values().collect(),
                groups => groups.as_array().into_iter().flatten().collect(),
            };
            let scored: u64 = groups.iter().filter_map(|group| group["scored"].as_u64()).sum();
            assert_eq!(scored, texts, "{groups:?}");
        }
        let bins = measures["calibration"]["bins"].as_array().ok_or("no bins")?;
        assert_eq!(bins.len(), 10);
        assert_eq!(bins.iter().filter_map(|bin| bin["documents"].as_u64()).sum::<u64>(), texts);
    }
    assert_eq!(quality["mean"]["languages"], 2);
    assert_eq!(quality["languages"]["fra_Latn"]["trained_on_this_data"], false);
    let pair = &report["agreement"]["languages"]["fra_Latn"][0];
    assert_eq!((&pair["a"], &pair["b"]), (&json!("likeness"), &json!("quality")));
    assert_eq!((&pair["documents"], &pair["top"]), (&json!(60), &json!(6)));
    assert!(pair["spearman"].as_f64() > Some(0.5), "{pair}");
    Ok(())
}

#[test]
fn a_cosine_head_has_no_calibration_and_the_report_says_so() -> TestResult {
    let work = trained()?;
    let head = "out/heads/likeness/{lang}.safetensors";
    let report = evaluated(&work, &[head, HELD[0], HELD[1]])?;
    let likeness = &report["heads"]["likeness"];
    assert_eq!(likeness["gives_probabilities"], false);
    assert_eq!(likeness["languages"]["deu_Latn"]["calibration"], Value::Null);
    assert_eq!(likeness["pooled"]["decisions"][0]["rule"], "retention 0.1");
    polysift()
        .current_dir(work.dir.path())
        .args(["evaluate", head, HELD[0], HELD[1]])
        .assert()
        .success()
        .stdout(contains("`likeness` are not probabilities").and(contains("retention 0.1")));
    Ok(())
}

#[test]
fn a_fasttext_head_is_measured_beside_the_others_and_alone_needs_no_encoder() -> TestResult {
    let work = trained()?;
    work.command("train", "words")
        .args(["--train-on", "words=samples/{lang}.jsonl", "--set", "heads.words.kind=fasttext"])
        .args(["--set", "input.files=[]"])
        .args(["--set", "heads.words.fasttext={dim=8, buckets=1000, epochs=20}"])
        .assert()
        .success();
    let words = "words/heads/words/{lang}.bin";
    let report = evaluated(&work, &[QUALITY, words, HELD[0], HELD[1]])?;
    let measures = &report["heads"]["words"]["languages"]["fra_Latn"];
    assert_eq!((&measures["scored"], &measures["spec"]["kind"]), (&json!(60), &json!("fasttext")));
    assert!(measures["roc_auc"].as_f64() > Some(0.9), "{measures}");
    assert!(measures["calibration"]["brier"].is_number());
    let pair = &report["agreement"]["languages"]["fra_Latn"][0];
    assert_eq!((&pair["b"], &pair["documents"]), (&json!("words"), &json!(60)));
    assert!(pair["spearman"].as_f64() > Some(0.5), "{pair}");
    let alone =
        evaluated(&work, &[words, HELD[0], HELD[1], "--model", "no/such-model", "--offline"])?;
    assert_eq!(
        (&alone["encoder"], &alone["heads"]["words"]),
        (&Value::Null, &report["heads"]["words"])
    );
    Ok(())
}

/// The outputs lie around the largest number that f32 has.
#[test]
fn scores_that_are_not_finite_are_counted_and_left_out() -> TestResult {
    let work = trained()?;
    let weight = Tensor::full(3e38f32, (1, 192), &Device::Cpu)?;
    let bias = Tensor::full(2e38f32, 1, &Device::Cpu)?;
    let tensors = [("0.weight".to_owned(), weight), ("0.bias".to_owned(), bias)];
    candle_core::safetensors::save(&tensors.into(), work.path("wild.safetensors"))?;
    let arguments = ["wild.safetensors", "--set", "heads.wild.activation=raw", HELD[0], HELD[1]];
    let report = evaluated(&work, &arguments)?;
    let pooled = &report["heads"]["wild"]["pooled"];
    let (scored, nan) = (pooled["scored"].as_u64(), pooled["nan"].as_u64());
    assert!(scored > Some(0) && nan > Some(0), "{pooled}");
    assert_eq!(scored.zip(nan).map(|(scored, nan)| scored + nan), Some(120));
    assert_eq!((&pooled["unscored"], &pooled["calibration"]), (&json!(0), &Value::Null));
    Ok(())
}

/// The scores that a run on the same texts stores are the oracle of the way from text to score, and
/// counting all pairs that of the measures.
#[test]
fn the_figures_are_those_of_the_scores_that_a_run_stores() -> TestResult {
    let work = trained()?;
    work.command("run", "again")
        .arg("held/fra_Latn.jsonl")
        .args(["--language", "fra_Latn", "--head", &format!("quality={QUALITY}")])
        .assert()
        .success();
    let found = digests(&work.path("again/scores/quality"))?;
    let (mut logits, mut scores) = (Vec::new(), Vec::new());
    for part in found.keys() {
        let rows = read_parquet(&work.path("again/scores/quality").join(part))?;
        for (name, values) in [("logit", &mut logits), ("score", &mut scores)] {
            let column = rows.column_by_name(name).ok_or("no column")?;
            values.extend(column.as_primitive::<Float32Type>().values());
        }
    }
    assert_eq!(logits.len(), 60);
    let labels: Vec<bool> = (200..260).map(|i| i % 3 == 0).collect();
    let (mut won, mut pairs) = (0.0, 0.0);
    for (i, _) in labels.iter().enumerate().filter(|(_, label)| **label) {
        for (j, _) in labels.iter().enumerate().filter(|(_, label)| !**label) {
            pairs += 1.0;
            won += if logits[i] > logits[j] {
                1.0
            } else if logits[i] < logits[j] {
                0.0
            } else {
                0.5
            };
        }
    }
    let report = evaluated(&work, &[QUALITY, "--data", "held/{lang}.jsonl"])?;
    let measures = &report["heads"]["quality"]["languages"]["fra_Latn"];
    assert_eq!(measures["roc_auc"].as_f64(), Some(won / pairs));
    let mean = scores.iter().copied().map(f64::from).sum::<f64>() / 60.0;
    assert_eq!(measures["mean_score"].as_f64(), Some(mean));
    let above = scores.iter().filter(|&&score: &&f32| score > 0.5).count();
    assert_eq!(measures["decisions"][0]["called_positive"], above);
    Ok(())
}

#[test]
fn a_run_brings_its_heads_its_thresholds_and_its_encoder() -> TestResult {
    let work = trained()?;
    let report = evaluated(&work, &["--run", "out", HELD[0], HELD[1]])?;
    assert_eq!(report["heads"].as_object().map(serde_json::Map::len), Some(2));
    let decisions = report["heads"]["quality"]["languages"]["fra_Latn"]["decisions"]
        .as_array()
        .ok_or("no decisions")?;
    let rules: Vec<&str> = decisions.iter().filter_map(|d| d["rule"].as_str()).collect();
    assert_eq!(rules, ["score above 0.5", "run: retention 0.1", "run: retention 0.33"]);
    let stored = work.json("out/selection/fra_Latn.json")?;
    let threshold = &stored["thresholds"][0]["outcomes"][0]["threshold_score"];
    assert_eq!(decisions[1]["threshold"], *threshold);
    assert_eq!(
        report["encoder"]["precision"],
        work.json("out/frozen/embed.json")?["encoder"]["precision"]
    );
    Ok(())
}

#[test]
fn neither_files_nor_rows_have_an_order_that_matters() -> TestResult {
    let work = trained()?;
    let rows: Vec<Value> = (200..260)
        .map(
            |i| json!({"id": format!("h{i}"), "text": text(i), "label": i % 3 == 0, "source": "s"}),
        )
        .collect();
    work.write_lines("one/fra_Latn/a.jsonl", rows.iter().cloned())?;
    work.write_lines("two/fra_Latn/a.jsonl", rows.iter().skip(20).rev().cloned())?;
    work.write_lines("two/fra_Latn/b.jsonl", rows.iter().take(20).cloned())?;
    let head = "likeness=out/heads/likeness/{lang}.safetensors";
    let report = |folder: &str| {
        evaluated(&work, &[QUALITY, head, "--data", &format!("{folder}/{{lang}}/*.jsonl")])
    };
    let (mut one, mut two) = (report("one")?, report("two")?);
    for report in [&mut one, &mut two] {
        report["data"] = Value::Null;
        // A sum in another order: compared below.
        round(report);
    }
    assert_eq!(one, two);
    Ok(())
}

/// Rounds every number to nine decimals.
fn round(value: &mut Value) {
    match value {
        Value::Array(values) => values.iter_mut().for_each(round),
        Value::Object(values) => values.values_mut().for_each(round),
        Value::Number(number) if number.is_f64() => {
            let rounded = number.as_f64().map(|n| (n * 1e9).round() / 1e9);
            *value = json!(rounded);
        }
        _ => {}
    }
}

#[test]
fn one_class_has_no_separation_in_json_and_a_dash_in_the_table() -> TestResult {
    let work = trained()?;
    let rows = (0..12).map(|i| json!({"text": text(i), "label": 1}));
    work.write_lines("one/fra_Latn.jsonl", rows)?;
    let arguments = [QUALITY, "--data", "one/{lang}.jsonl"];
    let measures = &evaluated(&work, &arguments)?["heads"]["quality"]["languages"]["fra_Latn"];
    assert_eq!((&measures["roc_auc"], &measures["roc_auc_interval"]), (&Value::Null, &Value::Null));
    assert_eq!(measures["average_precision"], 1.0);
    assert_eq!(measures["sources"], json!({}));
    let output =
        polysift().current_dir(work.dir.path()).arg("evaluate").args(arguments).output()?;
    let table = String::from_utf8(output.stdout)?;
    let row = table.lines().find(|line| line.starts_with("quality")).ok_or("no row")?;
    let cells: Vec<&str> = row.split_whitespace().collect();
    assert_eq!(cells[1..9], ["fra_Latn", "12", "12", "0", "-", "-", "-", "1.0000"]);
    Ok(())
}

#[test]
fn figures_of_texts_that_a_head_was_trained_on_are_marked() -> TestResult {
    let work = trained()?;
    let arguments = [QUALITY, "--data", "samples/{lang}.jsonl"];
    let report = evaluated(&work, &arguments)?;
    assert_eq!(report["heads"]["quality"]["languages"]["deu_Latn"]["trained_on_this_data"], true);
    polysift()
        .current_dir(work.dir.path())
        .arg("evaluate")
        .args(arguments)
        .assert()
        .success()
        .stdout(contains("was trained on texts of these files (deu_Latn, fra_Latn)"));
    Ok(())
}

#[test]
fn a_language_without_a_head_is_named_and_the_others_are_measured() -> TestResult {
    let work = trained()?;
    work.write_lines(
        "mixed/all.jsonl",
        (200..230).map(|i| {
            let language = ["fra_Latn", "swe_Latn"][i % 2];
            json!({"text": text(i), "label": i % 3 == 0, "lang": language})
        }),
    )?;
    let arguments = [QUALITY, "--data", "mixed/all.jsonl", "--language-column", "lang"];
    let report = evaluated(&work, &arguments)?;
    let quality = &report["heads"]["quality"];
    assert_eq!(quality["without_head"], json!(["swe_Latn"]));
    assert_eq!(quality["pooled"]["scored"], 15);
    let fixed = [QUALITY, "--data", "mixed/all.jsonl", "--language", "deu_Latn"];
    assert_eq!(evaluated(&work, &fixed)?["heads"]["quality"]["pooled"]["scored"], 30);
    polysift()
        .current_dir(work.dir.path())
        .args(["evaluate", QUALITY, "--data", "mixed/all.jsonl"])
        .assert()
        .code(66)
        .stderr(contains("und"));
    Ok(())
}

#[test]
fn thresholds_and_rates_can_be_given_to_one_head_or_to_all() -> TestResult {
    let work = trained()?;
    let report = evaluated(
        &work,
        &[
            &[QUALITY, "out/heads/likeness/{lang}.safetensors"][..],
            &[
                "--threshold",
                "likeness=0.25",
                "--retention",
                "0.2,0.3",
                "--removal",
                "quality=0.05",
            ],
            &["--out", "reports/heads.json"],
            &HELD,
        ]
        .concat(),
    )?;
    assert_eq!(report, work.json("reports/heads.json")?);
    let rules = |head: &str| -> Vec<String> {
        let decisions = report["heads"][head]["pooled"]["decisions"].as_array();
        let rules = decisions.into_iter().flatten().filter_map(|d| d["rule"].as_str());
        rules.map(ToOwned::to_owned).collect()
    };
    assert_eq!(rules("likeness"), ["score above 0.25", "retention 0.2", "retention 0.3"]);
    assert_eq!(
        rules("quality"),
        ["score above 0.5", "retention 0.2", "retention 0.3", "removal 0.05"]
    );
    Ok(())
}

#[test]
fn what_cannot_be_evaluated_is_refused_with_its_reason() -> TestResult {
    let work = trained()?;
    work.write(
        "bad/fra_Latn.jsonl",
        "{\"text\":\"a\",\"label\":1}\n{\"text\":\"b\",\"label\":7}\n",
    )?;
    work.write("blank/fra_Latn.jsonl", "{\"text\":\" \",\"label\":1}\n")?;
    work.write("rejects/fra_Latn.jsonl", "{\"text\":\"a\",\"label\":1}\n{\"text\":\n")?;
    let wide = root().join("tests/golden/heads/quality.safetensors").display().to_string();
    let other = root().join("tests/golden/encoder/head32-bf16").display().to_string();
    let two = "tox=out/heads/quality/{lang}.safetensors";
    for (arguments, code, message) in [
        (&[QUALITY][..], 2, "--data"),
        (&HELD[..], 2, "no head is named"),
        (&["-c", "run.toml", HELD[0], HELD[1]], 2, "name the run"),
        (&[QUALITY, "--run", "out"], 2, "labelled texts are needed"),
        (
            &[QUALITY, "again/quality.safetensors", HELD[0], HELD[1]],
            2,
            "two heads are called `quality`",
        ),
        (&["nowhere.safetensors", HELD[0], HELD[1]], 66, "nowhere.safetensors"),
        (&[QUALITY, "--data", "nothing/{lang}.jsonl"], 66, "nothing/"),
        (&[QUALITY, "--data", "blank/{lang}.jsonl"], 66, "no labelled text"),
        (&[QUALITY, "--data", "bad/{lang}.jsonl"], 65, "row 2: `label` is \"7\""),
        (&[QUALITY, "--data", "rejects/{lang}.jsonl"], 65, "rejects/fra_Latn.jsonl"),
        (&[QUALITY, HELD[0], HELD[1], "--label-column", "class"], 65, "column `class`"),
        (&[QUALITY, HELD[0], HELD[1], "--source-column", "origin"], 2, "no text has a `origin`"),
        (&[QUALITY, HELD[0], HELD[1], "--threshold", "tox=0.5"], 2, "the heads are quality"),
        (&[QUALITY, HELD[0], HELD[1], "--threshold", "high"], 2, "`high` is not a number"),
        (&[QUALITY, HELD[0], HELD[1], "--retention", "1.5"], 2, "not a rate"),
        (&[two, HELD[0], HELD[1], "--bins", "0"], 2, "--bins"),
        (&[&wide, HELD[0], HELD[1]], 65, "scores embeddings of 768"),
        (
            &[QUALITY, HELD[0], HELD[1], "--model", &other, "--set", "encoder.max_tokens=128"],
            65,
            "was trained on embeddings of",
        ),
    ] {
        polysift()
            .current_dir(work.dir.path())
            .arg("evaluate")
            .args(arguments)
            .assert()
            .code(code)
            .stderr(contains(message));
    }
    Ok(())
}
