//! Selections estimated from labelled texts that were drawn from the documents of a run; what the run exports is the
//! oracle of what it selects.

use std::collections::BTreeMap;
use std::error::Error;

use arrow::array::AsArray;
use arrow::datatypes::Float64Type;
use predicates::str::contains;
use serde_json::{Value, json};

use super::command::evaluated;
use crate::util::{TestResult, Workspace, polysift, read_parquet, text};

/// A run that removes by one head and retains by another.
fn selected() -> Result<Workspace, Box<dyn Error>> {
    let work = Workspace::new()?;
    work.write_toxicity_samples()?;
    work.command("run", "out")
        .args(["--train-on", "toxicity=toxic/{lang}.jsonl", "--removal", "toxicity=0.2"])
        .assert()
        .success();
    Ok(work)
}

/// Draws `count` documents of each language into `drawn/{lang}.jsonl`, and labels every third document positive, but
/// those that the head is wrong about.
fn draw(work: &Workspace, count: &str, near: &[&str]) -> Result<Vec<Value>, Box<dyn Error>> {
    let head = if near.is_empty() { &[][..] } else { &["--head", "quality"] };
    polysift()
        .current_dir(work.dir.path())
        .args(["sample", "out", "--out", "drawn/{lang}.jsonl", "--count", count])
        .args(near.iter().chain(head))
        .assert()
        .success();
    let path = "drawn/fra_Latn.jsonl";
    let text = std::fs::read_to_string(work.path(path))?;
    let mut rows: Vec<Value> = text.lines().map(serde_json::from_str).collect::<Result<_, _>>()?;
    for row in &mut rows {
        let place = row["row"].as_u64().unwrap_or_default();
        row["label"] = json!((place % 3 == 0) != (place % 7 == 0));
    }
    work.write_lines(path, rows.iter().cloned())?;
    Ok(rows)
}

/// The smallest rate that exports each document of `out` in French.
fn exported(work: &Workspace) -> Result<BTreeMap<String, f64>, Box<dyn Error>> {
    let rows = read_parquet(&work.path("out/export/fra_Latn/a.parquet"))?;
    let column = |name: &str| rows.column_by_name(name).ok_or("no such column").cloned();
    let (ids, rates) = (column("id")?, column("quality_retention")?);
    let (ids, rates) =
        (ids.as_string::<i32>().clone(), rates.as_primitive::<Float64Type>().clone());
    Ok(ids.iter().flatten().map(str::to_owned).zip(rates.values().iter().copied()).collect())
}

/// The estimates of `head` by rule, in a report of one language.
fn selections(report: &Value, head: &str) -> BTreeMap<String, Value> {
    let rows = report["selections"].as_array().into_iter().flatten();
    let rows = rows.filter(|row| row["head"] == head);
    rows.map(|row| (row["rule"].as_str().unwrap_or_default().to_owned(), row.clone())).collect()
}

const DRAWN: [&str; 4] = ["--run", "out", "--data", "drawn/fra_Latn.jsonl"];

fn evaluate_drawn(work: &Workspace, more: &[&str]) -> Result<Value, Box<dyn Error>> {
    evaluated(work, &[&DRAWN[..], &["--language", "fra_Latn"], more].concat())
}

#[test]
fn shares_are_those_of_what_is_exported_by_weight() -> TestResult {
    let work = selected()?;
    let exported = exported(&work)?;
    for (count, near) in [("1000", &[][..]), ("20", &["--near", "0.5"])] {
        let mut rows = draw(&work, count, near)?;
        if count == "20" {
            // As if some texts had been drawn two or three times.
            for (row, copies) in rows.iter_mut().zip((1..=3).cycle()) {
                let weight = row["weight"].as_f64().ok_or("no weight")? * f64::from(copies);
                (row["copies"], row["weight"]) = (json!(copies), json!(weight));
                row["inclusion_probability"] = json!(1.0 / weight);
            }
            work.write_lines("drawn/fra_Latn.jsonl", rows.iter().cloned())?;
        }
        let report = evaluate_drawn(&work, &[])?;
        let found = selections(&report, "quality");
        for rate in [0.1, 0.33] {
            let is_selected = |row: &Value| {
                row["id"].as_str().and_then(|id| exported.get(id)).is_some_and(|r| *r <= rate)
            };
            let sum = |takes: &dyn Fn(&Value) -> bool| -> f64 {
                rows.iter().filter(|row| takes(row)).filter_map(|row| row["weight"].as_f64()).sum()
            };
            let both = sum(&|row| is_selected(row) && row["label"] == true);
            let row = &found[&format!("run: selection at {rate}")];
            let close = |key: &str, expected: f64| {
                let found = row[key].as_f64().unwrap_or(f64::NAN);
                assert!((found - expected).abs() < 1e-9, "{key}: {found} {expected}");
            };
            close("precision", both / sum(&is_selected));
            close("recall", both / sum(&|row| row["label"] == true));
            assert_eq!(row["selected"], rows.iter().filter(|row| is_selected(row)).count());
            let width = |share: &str| {
                let end = |end: &str| row[format!("{share}_{end}")].as_f64().unwrap_or(f64::NAN);
                (end("low") <= row[share].as_f64().unwrap_or_default(), end("high") - end("low"))
            };
            for share in ["precision", "recall"] {
                let (is_below, width) = width(share);
                // All documents say exactly what there is.
                assert!(is_below && (width > 0.01) == (count == "20"), "{share}: {row}");
            }
        }
        assert_eq!(found.len(), 2 + 6);
        std::fs::remove_dir_all(work.path("drawn"))?;
    }
    Ok(())
}

/// Of a run whose documents are all drawn and labelled the shares are those of its documents, and exact, also where
/// many have one text.
#[test]
fn documents_with_one_text_count_once_each() -> TestResult {
    let work = Workspace::new()?;
    work.write(
        "run.toml",
        "[input]\nfiles = ['in/{lang}/*.jsonl']\n[encoder]\nmodel = 'none'\n\
         [heads.a]\nkind = 'column'\nscore = 's'\n\
         [languages._default]\nretention = { a = [0.5, 1.0] }\n",
    )?;
    // 7 times the text 0, three times the text 1 and once each of 10 more, the best first.
    let texts: Vec<usize> = [0; 7].into_iter().chain([1; 3]).chain(2..12).collect();
    let rows = texts.iter().enumerate();
    let row =
        |(i, t): (usize, &usize)| json!({"id": i, "text": text(*t), "s": 1.0 - i as f64 / 20.0});
    work.write_lines("in/eng_Latn/a.jsonl", rows.map(row))?;
    work.command("run", "out").assert().success();
    polysift()
        .current_dir(work.dir.path())
        .args(["sample", "out", "--out", "drawn.jsonl", "--count", "20"])
        .assert()
        .success();
    let drawn = std::fs::read_to_string(work.path("drawn.jsonl"))?;
    let mut rows: Vec<Value> = drawn.lines().map(serde_json::from_str).collect::<Result<_, _>>()?;
    assert_eq!(rows.len(), 12);
    for row in &mut rows {
        let is_positive = [text(0), text(5)].iter().any(|positive| row["text"] == **positive);
        (row["label"], row["s"]) = (json!(is_positive), row["scores"]["a"].clone());
        assert_eq!(row["weight"], json!(row["copies"].as_f64()), "{row}");
    }
    work.write_lines("drawn.jsonl", rows.into_iter())?;
    let arguments = ["--run", "out", "--data", "drawn.jsonl", "--language", "eng_Latn"];
    let found = selections(&evaluated(&work, &arguments)?, "a");
    // Of the best ten the 7; of all twenty these and one more.
    for (rule, precision, recall) in [("0.5", 0.7, 7.0 / 8.0), ("1", 0.4, 1.0)] {
        let row = &found[&format!("run: selection at {rule}")];
        for (share, expected) in [("precision", precision), ("recall", recall)] {
            for key in [share.to_owned(), format!("{share}_low"), format!("{share}_high")] {
                let found = row[&key].as_f64().unwrap_or(f64::NAN);
                assert!((found - expected).abs() < 1e-9, "{rule} {key}: {found} {expected}");
            }
        }
    }
    Ok(())
}

/// Rates are those of the documents of the run, not of the texts that were drawn from them.
#[test]
fn other_rates_are_those_of_the_documents() -> TestResult {
    let work = selected()?;
    draw(&work, "1000", &[])?;
    let report = evaluate_drawn(&work, &["--rates", "0.5,0.1"])?;
    for head in ["quality", "toxicity"] {
        let found = selections(&report, head);
        assert_eq!(
            (&found["rate 0.5"]["selected"], &found["rate 0.1"]["selected"]),
            (&json!(19), &json!(4))
        );
        assert!(found["rate 0.5"]["threshold"].as_f64() < found["rate 0.1"]["threshold"].as_f64());
        assert!(found["rate 0.5"]["recall"].as_f64() >= found["rate 0.1"]["recall"].as_f64());
    }
    // ⌈0.2 · 38⌉ are removed.
    assert_eq!(selections(&report, "toxicity")["run: removal 0.2"]["selected"], 8);
    std::fs::remove_dir_all(work.path("drawn"))?;
    // Half of the documents, of which more lie near the cut, and still a tenth of all lies before it.
    draw(&work, "19", &["--near", "1"])?;
    let near = evaluate_drawn(&work, &["--rates", "0.1"])?;
    let (near, all) = (selections(&near, "quality"), selections(&report, "quality"));
    assert_eq!(near["rate 0.1"]["threshold"], all["rate 0.1"]["threshold"]);
    Ok(())
}

#[test]
fn what_was_not_drawn_or_not_selected_is_not_estimated() -> TestResult {
    let work = selected()?;
    let rows = draw(&work, "10", &[])?;
    let write = |change: &dyn Fn(usize, &mut Value)| {
        let rows = rows.iter().cloned().enumerate().map(|(i, mut row)| {
            change(i, &mut row);
            row
        });
        work.write_lines("drawn/fra_Latn.jsonl", rows)
    };
    let evaluate = || {
        let mut command = polysift();
        command.current_dir(work.dir.path()).arg("evaluate").args(DRAWN);
        command.args(["--language", "fra_Latn"]);
        command
    };
    write(&|_, row| row["inclusion_probability"] = Value::Null)?;
    assert_eq!(evaluate_drawn(&work, &[])?["selections"], json!([]));
    let weighted = evaluate_drawn(&work, &["--weight-column", "weight"])?;
    assert_eq!(selections(&weighted, "quality").len(), 2 + 6);
    write(&|i, row| row["inclusion_probability"] = if i == 0 { Value::Null } else { json!(0.5) })?;
    evaluate().assert().code(2).stderr(contains("1 of 10 texts have no inclusion probability"));
    write(&|i, row| row["inclusion_probability"] = json!(i + 1))?;
    evaluate().assert().code(65).stderr(contains("`inclusion_probability` is \"2\""));
    write(&|_, row| row["copies"] = json!(0))?;
    evaluate().assert().code(65).stderr(contains("`copies` is \"0\""));
    write(&|_, _| ())?;
    evaluate().assert().success().stdout(contains("Selections, estimated"));
    let part = evaluate_drawn(&work, &["quality=out/heads/quality/fra_Latn.safetensors"])?;
    let told = part["notes"].to_string();
    assert!(part["selections"] == json!([]) && told.contains("all heads of the run"), "{told}");
    std::fs::remove_dir_all(work.path("out/state/threshold"))?;
    let unselected = evaluate_drawn(&work, &[])?;
    assert!(unselected["notes"].to_string().contains("polysift threshold"));
    Ok(())
}

/// A null or NaN score is never kept, so a positive with one is a miss of the run and of every rate.
#[test]
fn positives_without_a_score_are_misses() -> TestResult {
    let work = Workspace::new()?;
    work.write(
        "run.toml",
        "[input]\nfiles = ['in/{lang}/*.jsonl']\n[encoder]\nmodel = 'none'\n\
         [heads.a]\nkind = 'column'\nscore = 's'\n\
         [languages._default]\nretention = { a = 0.5 }\n",
    )?;
    let row = |i: usize| {
        let score = match i {
            9 => json!("NaN"),
            6..9 => Value::Null,
            _ => json!(1.0 - i as f64 / 20.0),
        };
        let is_positive = [0, 1, 4, 6, 7, 9].contains(&i);
        json!({"id": format!("d{i}"), "text": text(i), "s": score, "weight": 1,
               "label": is_positive})
    };
    work.write_lines("in/eng_Latn/a.jsonl", (0..10).map(row))?;
    work.command("run", "out").assert().success();
    // The argument is a run, as with --run.
    let arguments = ["out", "--head", "a", "--data", "in/{lang}/a.jsonl", "--rates", "0.5"];
    let report = evaluated(&work, &[&arguments[..], &["--weight-column", "weight"]].concat())?;
    let found = selections(&report, "a");
    // Half of the six with a score, two of the six positives among them.
    for rule in ["run: selection at 0.5", "rate 0.5"] {
        let row = &found[rule];
        assert_eq!(row["selected"], 3, "{row}");
        for (share, expected) in [("precision", 2.0 / 3.0), ("recall", 2.0 / 6.0)] {
            let found = row[share].as_f64().unwrap_or(f64::NAN);
            assert!((found - expected).abs() < 1e-9, "{rule} {share}: {found} {expected}");
        }
    }
    // Three positives and three others have a score.
    let measures = &report["measures"][0];
    assert_eq!((&measures["scored"], &measures["positive"]), (&json!(6), &json!(3)));
    Ok(())
}
