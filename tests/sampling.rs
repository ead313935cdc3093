//! `polysift sample`: how documents are chosen, what is written beside them, and the way back.

use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use std::path::Path;

use polysift::config::{Rate, RunConfig};
use polysift::corpus::Context;
use polysift::encoder::HubSettings;
use polysift::progress::{Silent, Stop};
use polysift::run::{RunDir, Worker};
use polysift::views::sampling::{LanguageSample, SampleRequest, sample};
use predicates::prelude::PredicateBooleanExt;
use predicates::str::contains;
use serde_json::{Value, json};

use crate::util::{TestResult, Workspace, digests, polysift, text};

/// Documents with text of `Workspace` in French.
const FRENCH: usize = 38;

/// `polysift sample out ARGUMENTS` in the workspace.
fn sampled(work: &Workspace, arguments: &[&str]) -> assert_cmd::Command {
    let mut command = polysift();
    command.current_dir(work.dir.path()).args(["sample", "out"]).args(arguments);
    command
}

fn rows(path: &Path) -> Result<Vec<Value>, Box<dyn Error>> {
    let text = std::fs::read_to_string(path)?;
    Ok(text.lines().map(serde_json::from_str).collect::<Result<_, _>>()?)
}

/// A sample drawn in this process, which takes less time.
fn drawn(
    work: &Workspace,
    request: &SampleRequest,
) -> Result<(LanguageSample, Vec<Value>), Box<dyn Error>> {
    let root = work.path("out");
    let config = std::fs::read_to_string(root.join("config.toml"))?;
    let config = RunConfig::from_toml(&config, "config.toml")?;
    let (run, stop) = (RunDir::open(&root)?, Stop::default());
    let (hub, worker) = (HubSettings::from_env(|_| None), Worker::observer(&run));
    let out = work.path("drawn.jsonl");
    let request = SampleRequest { out: out.to_string_lossy().into(), ..request.clone() };
    let context = Context::observing(&config, &run, &hub, &stop, &Silent, &worker);
    let mut samples = sample(context, &request)?;
    let drawn = rows(&out)?;
    std::fs::remove_file(&out)?;
    Ok((samples.remove(0), drawn))
}

fn request(near: Option<Rate>) -> SampleRequest {
    SampleRequest {
        count: 6,
        language: vec!["fra_Latn".into()],
        near,
        head: None,
        rate: Vec::new(),
        exclude: Vec::new(),
        seed: Some(0),
        frame: 1000,
        out: String::new(),
    }
}

fn number(row: &Value, key: &str) -> f64 {
    row[key].as_f64().unwrap_or(f64::NAN)
}

fn id(row: &Value) -> String {
    row["id"].as_str().unwrap_or_default().to_owned()
}

/// The number of a document, which stands behind its language in the id.
fn place(row: &Value) -> usize {
    id(row).rsplit('-').next().and_then(|i| i.parse().ok()).unwrap_or(usize::MAX)
}

#[test]
fn as_many_of_each_language_are_drawn_and_the_same_for_the_same_seed() -> TestResult {
    let work = Workspace::new()?;
    work.command("run", "out").assert().success();
    let before = digests(&work.path("out"))?;
    let draw = |out: &str, more: &[&str]| {
        let out = format!("{out}/{{lang}}.jsonl");
        sampled(&work, &["--count", "10", "--out", &out]).args(more).assert().success();
    };
    draw("one", &[]);
    draw("again", &["--threads", "1"]);
    draw("other", &["--seed", "7"]);
    assert_eq!(digests(&work.path("one"))?, digests(&work.path("again"))?);
    assert_ne!(digests(&work.path("one"))?, digests(&work.path("other"))?);
    assert_eq!(digests(&work.path("out"))?, before, "the run is only read");
    for (language, documents) in [("fra_Latn", FRENCH as f64), ("deu_Latn", 23.0)] {
        let rows = rows(&work.path(&format!("one/{language}.jsonl")))?;
        assert_eq!(rows.iter().map(id).collect::<BTreeSet<_>>().len(), 10);
        for row in rows {
            assert_eq!(row["id"], format!("{language}-{}", place(&row)));
            assert_eq!(row["text"], text(place(&row)));
            assert_eq!((&row["label"], &row["language"]), (&Value::Null, &json!(language)));
            assert_eq!(row["row"], json!(place(&row)));
            assert!((number(&row, "weight") - documents / 10.0).abs() < 1e-12);
            assert!((number(&row, "inclusion_probability") - 10.0 / documents).abs() < 1e-12);
            assert!(row["scores"]["quality"].is_f64());
        }
    }
    Ok(())
}

/// Of 300 seeds, each document is drawn as often as the probability beside it says, and the weights
/// estimate totals that are known; also where the frame is a sample. The bounds are 4.5 standard
/// deviations.
#[test]
fn documents_are_drawn_with_the_probability_that_is_written() -> TestResult {
    const SEEDS: u64 = 300;
    let work = Workspace::new()?;
    work.command("run", "out").assert().success();
    let known = |i: &usize| *i != 7 && *i != 8;
    let total: usize = (0..40).filter(known).sum();
    for frame in [1000, 20] {
        let near = Some("0.4".parse()?);
        let mut counts: BTreeMap<String, (f64, u64)> = BTreeMap::new();
        let mut estimates: [Vec<f64>; 2] = Default::default();
        for seed in 0..SEEDS {
            let request = SampleRequest { seed: Some(seed), frame, ..request(near) };
            let (sample, rows) = drawn(&work, &request)?;
            assert_eq!((sample.rows, sample.documents, sample.copies), (6, FRENCH as u64, 0));
            let sum = |value: &dyn Fn(&Value) -> f64| -> f64 {
                rows.iter().map(|row| number(row, "weight") * value(row)).sum()
            };
            estimates[0].push(sum(&|_| 1.0));
            estimates[1].push(sum(&|row| place(row) as f64));
            for row in &rows {
                let entry = counts.entry(id(row)).or_default();
                *entry = (number(row, "inclusion_probability"), entry.1 + 1);
            }
        }
        for (estimates, total) in estimates.iter().zip([FRENCH as f64, total as f64]) {
            let n = SEEDS as f64;
            let mean = estimates.iter().sum::<f64>() / n;
            let variance = estimates.iter().map(|e| (e - mean).powi(2)).sum::<f64>() / (n - 1.0);
            let error = (mean - total).abs() / (variance / n).sqrt().max(1e-9);
            assert!(error < 4.5, "{frame}: {mean} for {total}, {error} errors");
        }
        // Only there the probabilities are the same for all seeds.
        if frame == 1000 {
            for (id, (probability, count)) in counts {
                let n = SEEDS as f64;
                let deviation = (n * probability * (1.0 - probability)).sqrt().max(1.0);
                let error = (count as f64 - n * probability).abs() / deviation;
                assert!(error < 4.5, "{id}: {count} of {SEEDS} with {probability}");
            }
        }
    }
    Ok(())
}

/// Sizes by hand from the scores of all documents: what is written is `count` times the share of
/// the size.
#[test]
fn documents_near_a_threshold_get_as_much_as_their_place_says() -> TestResult {
    let work = Workspace::new()?;
    work.command("run", "out")
        .args(["--train-on", "likeness=samples/{lang}.jsonl"])
        .args(["--set", "heads.likeness.kind=cosine", "--set", "heads.likeness.references=16"])
        .assert()
        .success();
    sampled(&work, &["--out", "s.jsonl", "--near", "1"])
        .assert()
        .code(2)
        .stderr(contains("`near` looks at one head, of likeness, quality"));
    let (_, all) = drawn(&work, &SampleRequest { count: FRENCH, ..request(None) })?;
    assert_eq!(all.len(), FRENCH);
    for head in ["quality", "likeness"] {
        let scores: Vec<f64> = all.iter().map(|row| number(&row["scores"], head)).collect();
        // The share of the documents before each, and half of those beside it.
        let size = |score: &f64| {
            let before = scores.iter().filter(|other| *other > score).count() as f64;
            let beside =
                scores.iter().filter(|other| other.total_cmp(score).is_eq()).count() as f64;
            let place = (before + beside / 2.0) / scores.len() as f64;
            (-(place - 0.25).abs() / 0.125).exp()
        };
        let sizes: Vec<f64> = scores.iter().map(size).collect();
        let sum: f64 = sizes.iter().sum();
        // So few that none is certain.
        let request = SampleRequest {
            head: Some(head.to_owned()),
            rate: vec!["0.25".parse()?],
            count: 1,
            ..request(Some("1".parse()?))
        };
        for seed in 0..10 {
            let (_, rows) = drawn(&work, &SampleRequest { seed: Some(seed), ..request.clone() })?;
            let at = all.iter().position(|row| row["id"] == rows[0]["id"]).ok_or("no such id")?;
            let (found, expected) = (number(&rows[0], "inclusion_probability"), sizes[at] / sum);
            assert!((found - expected).abs() < 1e-9, "{head}: {found} {expected}");
        }
    }
    Ok(())
}

#[test]
fn no_text_is_drawn_twice_in_a_round_or_over_rounds() -> TestResult {
    let work = Workspace::new()?;
    let row = |i: usize| json!({"id": format!("d-{i}"), "text": text(i % 30)});
    work.write_lines("corpus/fra_Latn/a.jsonl", (0..60).map(row))?;
    work.command("run", "out").assert().success();
    let french = ["--language", "fra_Latn", "--json"];
    let output = sampled(&work, &["--count", "60", "--out", "all.jsonl"]).args(french).output()?;
    let report: Value = serde_json::from_slice(&output.stdout)?;
    assert_eq!((&report[0]["drawn"], &report[0]["rows"]), (&json!(60), &json!(30)));
    assert_eq!(report[0]["copies"], 30);
    for row in rows(&work.path("all.jsonl"))? {
        assert_eq!((&row["copies"], &row["weight"]), (&json!(2), &json!(2.0)));
        assert!(place(&row) < 30, "the first of the corpus stands for both");
    }
    let mut texts = BTreeSet::new();
    for round in 0..4 {
        let out = format!("round{round}.jsonl");
        let mut command = sampled(&work, &["--count", "20", "--out", &out]);
        if round > 0 {
            command.args(["--exclude", "round*.jsonl"]);
        }
        command.args(french).assert().success();
        for row in rows(&work.path(&out))? {
            assert!(texts.insert(row["text"].to_string()), "{row}");
        }
    }
    assert_eq!(texts.len(), 30, "all texts are drawn in the end");
    Ok(())
}

#[test]
fn what_is_missing_is_named() -> TestResult {
    let work = Workspace::new()?;
    let sampled =
        |arguments: &[&str]| sampled(&work, &["--out", "s/{lang}.jsonl"]).args(arguments).assert();
    sampled(&[]).code(66).stderr(contains("not a run directory"));
    work.command("plan", "out").assert().success();
    sampled(&[]).code(66).stderr(contains("polysift embed"));
    work.command("embed", "out").assert().success();
    sampled(&["--near", "1"]).code(66).stderr(contains("polysift score"));
    sampled(&["--count", "5"]).success();
    assert_eq!(rows(&work.path("s/deu_Latn.jsonl"))?[0]["scores"], json!({}));
    sampled(&[]).code(2).stderr(contains("exists, maybe with annotations"));
    std::fs::remove_dir_all(work.path("s"))?;
    work.command("run", "out").assert().success();
    for (arguments, told) in [
        (vec!["--language", "ita_Latn"], "no documents of `ita_Latn`"),
        (vec!["--near", "1", "--head", "likeness"], "no head `likeness`"),
        (vec!["--near", "1.5"], "is not a rate"),
    ] {
        sampled(&arguments).code(2).stderr(contains(told));
    }
    work.command("threshold", "out")
        .args(["--set", "languages._default={}", "--redo", "threshold"])
        .assert()
        .success();
    sampled(&["--near", "1"]).code(2).stderr(contains("--rate"));
    assert!(!work.path("s").exists());
    Ok(())
}

#[test]
fn a_run_that_cannot_be_sampled_yet_is_told_what_to_do() -> TestResult {
    let work = Workspace::new()?;
    work.add_filters()?;
    work.command("embed", "out").assert().success();
    let drawn = || sampled(&work, &["--out", "s.jsonl", "--count", "5"]);
    drawn().assert().code(66).stderr(contains("not filtered yet").and(contains("polysift filter")));
    work.command("filter", "out").assert().success();
    drawn().assert().success();

    // The rows have a key `row` of their own.
    let settings = std::fs::read_to_string(work.path("run.toml"))?;
    work.write("run.toml", settings.replace("[input]", "[input]\nid = 'row'"))?;
    let numbered = (0..9).map(|i| json!({"row": format!("d{i}"), "text": text(i)}));
    work.write_lines("corpus/fra_Latn/a.jsonl", numbered.clone())?;
    work.write_lines("corpus/deu_Latn/a.jsonl", numbered)?;
    work.command("embed", "rows").assert().success();
    polysift()
        .current_dir(work.dir.path())
        .args(["sample", "rows", "--out", "r.jsonl"])
        .assert()
        .code(2)
        .stderr(contains("input.id").and(contains("is `row`")));
    Ok(())
}

/// Annotated rows are samples as they are; those that nobody labelled are left out.
#[test]
fn heads_are_trained_on_the_annotated_file() -> TestResult {
    let work = Workspace::new()?;
    work.command("run", "out").assert().success();
    let mixture = ["--count", "30", "--near", "0.5"];
    sampled(&work, &["--out", "round/{lang}.jsonl", "--language", "fra_Latn"])
        .args(mixture)
        .assert()
        .success();
    let path = work.path("round/fra_Latn.jsonl");
    let mut annotated = rows(&path)?;
    for row in annotated.iter_mut().skip(2) {
        row["label"] = if place(row).is_multiple_of(3) { "positive" } else { "negative" }.into();
    }
    work.write_lines("round/fra_Latn.jsonl", annotated.into_iter())?;
    work.write(
        "next.toml",
        "[input]\nfiles = ['corpus/{lang}/*.jsonl']\n\
        [heads.quality]\nkind = 'logistic'\ntrain = ['round/{lang}.jsonl']\nweight = 'weight'\n",
    )?;
    polysift()
        .current_dir(work.dir.path())
        .args(["train", "-c", "next.toml", "--run", "next"])
        .assert()
        .success()
        .stderr(contains("without_label=2"));
    polysift()
        .current_dir(work.dir.path())
        .args(["inspect", "next/heads/quality/fra_Latn.safetensors"])
        .assert()
        .success()
        .stdout(contains("positive"));
    Ok(())
}
