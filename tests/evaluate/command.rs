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
    let work = Workspace::with_bundled_encoder()?;
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

/// The rows of a table of `report` on all texts, or on those of a group, with this head and language.
fn rows_of<'a>(report: &'a Value, table: &str, head: &str, language: &str) -> Vec<&'a Value> {
    let rows = report[table].as_array().into_iter().flatten();
    rows.filter(|row| row["head"] == head && row["language"] == language).collect()
}

/// The measures on all texts.
fn measures<'a>(report: &'a Value, head: &str, language: &str) -> &'a Value {
    rows_of(report, "measures", head, language).first().copied().unwrap_or(&Value::Null)
}

#[test]
fn heads_are_measured_by_language_and_source() -> TestResult {
    let work = trained()?;
    let report = evaluated(
        &work,
        &[&[QUALITY, "out/heads/likeness/{lang}.safetensors"][..], &HELD].concat(),
    )?;
    assert_eq!(
        (&report["texts"], &report["skipped"]),
        (&json!(120), &json!({"without_text": 0, "without_label": 0, "malformed": 0}))
    );
    for (language, texts) in [("fra_Latn", 60), ("deu_Latn", 60)] {
        let all = rows_of(&report, "measures", "quality", language);
        let measures = all[0];
        assert_eq!(
            (&measures["texts"], &measures["scored"], &measures["positive"]),
            (&json!("all"), &json!(texts), &json!(texts / 3))
        );
        assert!(measures["roc_auc"].as_f64() > Some(0.9), "{measures}");
        let decisions = rows_of(&report, "decisions", "quality", language);
        assert_eq!(decisions[0]["rule"], "score above 0.5");
        assert_eq!(
            (&decisions[1]["rule"], &decisions[1]["called_positive"]),
            (&json!("retention 0.1"), &json!(texts / 10))
        );
        let sources = all.iter().filter(|row| row["texts"].to_string().contains("source: "));
        assert_eq!(sources.filter_map(|row| row["scored"].as_u64()).sum::<u64>(), texts);
    }
    let mean = measures(&report, "quality", "mean");
    let languages = ["fra_Latn", "deu_Latn"].map(|l| measures(&report, "quality", l));
    let sum: f64 = languages.iter().filter_map(|row| row["roc_auc"].as_f64()).sum();
    assert_eq!(mean["roc_auc"].as_f64(), Some(sum / 2.0));
    assert_eq!(rows_of(&report, "heads", "quality", "fra_Latn")[0]["trained_on_this_data"], false);
    let pairs = report["agreement"].as_array().ok_or("no pairs")?;
    let pair = pairs.iter().find(|pair| pair["language"] == "fra_Latn").ok_or("no pair")?;
    assert_eq!((&pair["a"], &pair["b"]), (&json!("likeness"), &json!("quality")));
    assert_eq!((&pair["documents"], &pair["top"]), (&json!(60), &json!(6)));
    assert!(pair["spearman"].as_f64() > Some(0.5), "{pair}");
    Ok(())
}

#[test]
fn a_cosine_head_has_no_log_loss_and_the_report_says_so() -> TestResult {
    let work = trained()?;
    let head = "out/heads/likeness/{lang}.safetensors";
    let report = evaluated(&work, &[head, HELD[0], HELD[1]])?;
    assert_eq!(measures(&report, "likeness", "deu_Latn")["log_loss"], Value::Null);
    assert_eq!(rows_of(&report, "decisions", "likeness", "deu_Latn")[0]["rule"], "retention 0.1");
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
    let found = measures(&report, "words", "fra_Latn");
    let kind = &rows_of(&report, "heads", "words", "fra_Latn")[0]["spec"]["kind"];
    assert_eq!((&found["scored"], kind), (&json!(60), &json!("fasttext")));
    assert!(found["roc_auc"].as_f64() > Some(0.9), "{found}");
    assert!(found["log_loss"].is_number());
    let pairs = report["agreement"].as_array().ok_or("no pairs")?;
    let pair = pairs.iter().find(|pair| pair["language"] == "fra_Latn").ok_or("no pair")?;
    assert_eq!((&pair["b"], &pair["documents"]), (&json!("words"), &json!(60)));
    assert!(pair["spearman"].as_f64() > Some(0.5), "{pair}");
    let alone =
        evaluated(&work, &[words, HELD[0], HELD[1], "--model", "no/such-model", "--offline"])?;
    assert_eq!(alone["encoder"], Value::Null);
    for table in ["heads", "measures", "decisions"] {
        for language in ["fra_Latn", "mean"] {
            assert_eq!(
                rows_of(&alone, table, "words", language),
                rows_of(&report, table, "words", language)
            );
        }
    }
    Ok(())
}

/// The outputs lie around the largest number that f32 has.
#[test]
fn scores_that_are_not_finite_are_counted_and_left_out() -> TestResult {
    let work = trained()?;
    // A value that is above and below zero on these texts; above 0.034 the sum is infinite.
    let weight: Vec<f32> = (0..384).map(|i| if i == 246 { 3e38 } else { 0.0 }).collect();
    let weight = Tensor::from_vec(weight, (1, 384), &Device::Cpu)?;
    let bias = Tensor::full(3.3e38f32, 1, &Device::Cpu)?;
    let tensors = [("0.weight".to_owned(), weight), ("0.bias".to_owned(), bias)];
    candle_core::safetensors::save(&tensors.into(), work.path("wild.safetensors"))?;
    let arguments = ["wild.safetensors", "--set", "heads.wild.output=raw", HELD[0], HELD[1]];
    let report = evaluated(&work, &arguments)?;
    let scored = measures(&report, "wild", "mean")["scored"].as_u64();
    let heads = report["heads"].as_array().ok_or("no heads")?;
    let nan: u64 = heads.iter().filter_map(|head| head["nan"].as_u64()).sum();
    assert!(scored > Some(0) && nan > 0, "{heads:?}");
    assert_eq!(scored.map(|scored| scored + nan), Some(120));
    assert!(heads.iter().all(|head| head["unscored"] == 0));
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
    let measures = measures(&report, "quality", "fra_Latn");
    assert_eq!(measures["roc_auc"].as_f64(), Some(won / pairs));
    let above = scores.iter().filter(|&&score: &&f32| score > 0.5).count();
    let decisions = rows_of(&report, "decisions", "quality", "fra_Latn");
    assert_eq!(decisions[0]["called_positive"], above);
    Ok(())
}

#[test]
fn a_run_brings_its_heads_its_thresholds_and_its_encoder() -> TestResult {
    let work = trained()?;
    let report = evaluated(&work, &["--run", "out", HELD[0], HELD[1]])?;
    assert_eq!(report["heads"].as_array().map(Vec::len), Some(4));
    let mut decisions = rows_of(&report, "decisions", "quality", "fra_Latn");
    decisions.retain(|decision| decision["texts"] == "all");
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
    let report = evaluated(&work, &arguments)?;
    let all = rows_of(&report, "measures", "quality", "fra_Latn");
    assert_eq!((&all[0]["roc_auc"], &all[0]["roc_auc_low"]), (&Value::Null, &Value::Null));
    assert_eq!(all[0]["average_precision"], 1.0);
    assert!(all.iter().all(|row| !row["texts"].to_string().contains("source")));
    let output =
        polysift().current_dir(work.dir.path()).arg("evaluate").args(arguments).output()?;
    let table = String::from_utf8(output.stdout)?;
    let row = table.lines().find(|line| line.starts_with("quality")).ok_or("no row")?;
    let cells: Vec<&str> = row.split_whitespace().collect();
    assert_eq!(cells[1..5], ["fra_Latn", "all", "12", "12"]);
    assert_eq!(cells[5..9], ["-", "-", "-", "1.0000"]);
    Ok(())
}

#[test]
fn figures_of_texts_that_a_head_was_trained_on_are_marked() -> TestResult {
    let work = trained()?;
    let arguments = [QUALITY, "--data", "samples/{lang}.jsonl"];
    let report = evaluated(&work, &arguments)?;
    assert_eq!(rows_of(&report, "heads", "quality", "deu_Latn")[0]["trained_on_this_data"], true);
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
    assert_eq!(report["notes"], json!(["there is no `quality` for swe_Latn"]));
    assert_eq!(measures(&report, "quality", "fra_Latn")["scored"], 15);
    let fixed = [QUALITY, "--data", "mixed/all.jsonl", "--language", "deu_Latn"];
    assert_eq!(measures(&evaluated(&work, &fixed)?, "quality", "deu_Latn")["scored"], 30);
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
    let file = work.path("held/fra_Latn.jsonl").display().to_string();
    let mut replacing = work.command("evaluate", "out");
    replacing.args(HELD).args(["--out", &file]).assert().code(2).stderr(contains("--out"));
    let rules = |head: &str| -> Vec<String> {
        let decisions = rows_of(&report, "decisions", head, "fra_Latn").into_iter();
        let rules = decisions.filter(|d| d["texts"] == "all").filter_map(|d| d["rule"].as_str());
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
        "{\"text\":\"a\",\"label\":1}\n{\"text\":\"b\",\"label\":\"good\"}\n",
    )?;
    work.write("blank/fra_Latn.jsonl", "{\"text\":\" \",\"label\":1}\n")?;
    work.write("rejects/fra_Latn.jsonl", "{\"text\":\"a\",\"label\":1}\n{\"text\":\n")?;
    let wide = root().join("tests/golden/heads/quality.safetensors").display().to_string();
    let other = root().join("tests/golden/encoder/head32-bf16").display().to_string();
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
        (&[QUALITY, "--data", "bad/{lang}.jsonl"], 65, "row 2: `label` is \"good\""),
        (&[QUALITY, "--data", "rejects/{lang}.jsonl"], 65, "rejects/fra_Latn.jsonl"),
        (&[QUALITY, HELD[0], HELD[1], "--label-column", "class"], 65, "column `class`"),
        (&[QUALITY, HELD[0], HELD[1], "--source-column", "origin"], 2, "no text has a `origin`"),
        (&[QUALITY, HELD[0], HELD[1], "--threshold", "tox=0.5"], 2, "the heads are quality"),
        (&["--run", "out", "--head", "tox", HELD[0], HELD[1]], 2, "there is no head `tox`"),
        (&[QUALITY, HELD[0], HELD[1], "--head", "quality"], 2, "not for head files"),
        (&[QUALITY, HELD[0], HELD[1], "--weight-column", "w"], 2, "sampled from a run"),
        (&[QUALITY, HELD[0], HELD[1], "--cut", "nan"], 2, "`NaN` is not a number"),
        (&[QUALITY, HELD[0], HELD[1], "--threshold", "high"], 2, "`high` is not a number"),
        (&[QUALITY, HELD[0], HELD[1], "--retention", "1.5"], 2, "not a rate"),
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

/// Grades in several columns from training to the tables: trained, judged above each cut, with what heads of
/// classes say about them beside it.
#[test]
fn grades_are_trained_on_and_evaluated() -> TestResult {
    let work = Workspace::with_bundled_encoder()?;
    let rows = |range: std::ops::Range<usize>| {
        range.map(|i| {
            let grade = if i % 3 == 0 { 4 - i % 2 } else { i % 2 };
            json!({"id": format!("g{i}"), "text": text(i), "ann": grade, "ben": (i % 5 > 0).then_some(grade)})
        })
    };
    work.write_lines("graded/fra_Latn.jsonl", rows(0..150))?;
    work.write_lines("unseen/fra_Latn.jsonl", rows(200..260))?;
    let files =
        ["--train-on", "edu=graded/fra_Latn.jsonl", "--train-on", "ridge=graded/{lang}.jsonl"];
    let settings = [
        r#"heads.edu.label=["ann", "ben"]"#,
        r#"heads.edu.training={loss="ordinal", epochs=20, weight_decay=0.01}"#,
        r#"heads.ridge.kind="ridge""#,
        r#"heads.ridge.label="ann""#,
    ];
    let settings = settings.iter().flat_map(|setting| ["--set", setting]);
    let mut command = work.command("run", "graded_run");
    command.args(files).args(settings).assert().success().stdout(contains("test mean error"));
    let data = ["--data", "unseen/{lang}.jsonl", "--label-column", "ann", "--label-column", "ben"];
    let report = evaluated(&work, &[&["--run", "graded_run"][..], &data].concat())?;
    for head in ["edu", "ridge"] {
        let grades = rows_of(&report, "grades", head, "fra_Latn")[0];
        assert!(grades["spearman"].as_f64() > Some(0.6), "{grades}");
        assert!(grades["mean_absolute_error"].as_f64() < Some(1.0), "{grades}");
        assert_eq!(grades["calibration"].as_array().map(Vec::len), Some(10));
        let cuts: Vec<f64> = rows_of(&report, "measures", head, "fra_Latn")
            .iter()
            .filter_map(|row| row["cut"].as_f64())
            .collect();
        assert_eq!(cuts, [0.5, 1.5, 2.5, 3.5]);
        let decisions = rows_of(&report, "decisions", head, "fra_Latn");
        let at = |cut: f64| decisions.iter().find(move |row| row["cut"] == cut).copied();
        let decision = at(2.5).ok_or("no decision")?;
        assert_eq!(decision["rule"], "score above 2.5");
        assert!(decision["f1"].as_f64() > Some(0.8), "{decision}");
        assert!(decision["precision_low"].as_f64() < decision["precision"].as_f64());
    }
    // A head of classes puts them in order, and does not give grades.
    let quality = rows_of(&report, "grades", "quality", "fra_Latn")[0];
    assert!(quality["spearman"].as_f64() > Some(0.5), "{quality}");
    assert_eq!(quality["mean_absolute_error"], Value::Null);
    let one = evaluated(&work, &[&["--run", "graded_run", "--cut", "2"][..], &data].concat())?;
    assert_eq!(rows_of(&one, "measures", "edu", "fra_Latn").len(), 1);
    Ok(())
}

/// Every cut has texts on both sides, also where the lowest and the highest grade are halves.
#[test]
fn default_cuts_lie_between_the_grades() -> TestResult {
    let work = Workspace::new()?;
    work.write(
        "edu.toml",
        "[encoder]\nmodel = 'none'\n[heads.edu]\nkind = 'column'\nscore = 's'\n",
    )?;
    for (grades, expected) in [
        ([0.5, 1.5, 3.5], &[0.5, 1.5, 2.5][..]),
        ([0.7, 2.0, 2.6], &[1.5, 2.5]),
        ([0.0, 2.0, 3.0], &[0.5, 1.5, 2.5]),
        ([-1.5, 0.25, 0.4], &[-1.5, -0.5]),
    ] {
        let row = |(i, grade): (usize, f64)| json!({"text": text(i), "label": grade, "s": grade});
        work.write_lines("graded.jsonl", grades.into_iter().enumerate().map(row))?;
        let data = ["-c", "edu.toml", "--data", "graded.jsonl", "--language", "fra_Latn"];
        let report = evaluated(&work, &data)?;
        let rows = rows_of(&report, "measures", "edu", "fra_Latn");
        let cuts: Vec<f64> = rows.iter().filter_map(|row| row["cut"].as_f64()).collect();
        assert_eq!(cuts, expected, "{grades:?}");
    }
    Ok(())
}
