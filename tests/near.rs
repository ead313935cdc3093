//! Near duplicates: the same as numpy finds, on any number of processes, and what becomes of them.

use std::collections::BTreeMap;

use arrow::array::AsArray;
use predicates::str::contains;
use serde_json::{Value, json};

use crate::util::{NEAR_SETTINGS, TestResult, Workspace, digests, polysift, read_parquet, root};

/// Near duplicates that numpy finds, and which document each is near to.
fn expected() -> Result<BTreeMap<String, (String, f64)>, Box<dyn std::error::Error>> {
    let lines = std::fs::read_to_string(root().join("tests/golden/near/expected.jsonl"))?;
    let mut expected = BTreeMap::new();
    for line in lines.lines() {
        let row: Value = serde_json::from_str(line)?;
        let text = |key: &str| row[key].as_str().unwrap_or_default().to_owned();
        let similarity = row["similarity"].as_f64().unwrap_or_default();
        expected.insert(text("id"), (text("of"), similarity));
    }
    Ok(expected)
}

/// Ids and details of the verdicts below a folder of the run.
fn verdicts(
    work: &Workspace,
    run: &str,
) -> Result<BTreeMap<String, String>, Box<dyn std::error::Error>> {
    let mut found = BTreeMap::new();
    for path in digests(&work.path(run))?.keys() {
        if !path.starts_with("duplicates/verdicts/") {
            continue;
        }
        let rows = read_parquet(&work.path(run).join(path))?;
        let column =
            |name: &str| rows.column_by_name(name).map(|column| column.as_string::<i32>().clone());
        let (ids, of) = (column("id").ok_or("no id")?, column("detail").ok_or("no detail")?);
        found.extend(
            ids.iter()
                .flatten()
                .zip(of.iter().flatten())
                .map(|(id, of)| (id.to_owned(), of.to_owned())),
        );
    }
    Ok(found)
}

#[test]
fn near_duplicates_are_those_that_numpy_finds() -> TestResult {
    let work = Workspace::with_near_duplicates()?;
    work.command("run", "out").assert().success();
    let expected = expected()?;
    let of = |(id, (of, _)): (&String, &(String, f64))| (id.clone(), of.clone());
    assert_eq!(verdicts(&work, "out")?, expected.iter().map(of).collect());

    // The report has the least similar ones of each language, and the counts of all.
    let report = work.json("out/duplicates/report.json")?;
    assert_eq!(report["total"]["found"]["documents"], expected.len());
    for language in ["deu_Latn", "fra_Latn"] {
        let mut similarities: Vec<f64> = expected
            .iter()
            .filter(|(id, _)| id.starts_with(language))
            .map(|(_, (_, similarity))| *similarity)
            .collect();
        similarities.sort_by(f64::total_cmp);
        let examples = report["languages"][language]["examples"].as_array().ok_or("no examples")?;
        assert_eq!(examples.len(), 20);
        for (example, similarity) in examples.iter().zip(similarities) {
            let id = example["id"].as_str().unwrap_or_default();
            let (of, own) = &expected[id];
            assert_eq!(example["of"], json!(of));
            // Sums of 24 products of numbers up to 1, each rounded to f32, of rounded vectors.
            let found = example["similarity"].as_f64().unwrap_or_default();
            assert!(
                (found - own).abs() < 32.0 * f64::from(f32::EPSILON),
                "{id}: {found}, not {own}"
            );
            assert!((own - similarity).abs() < 32.0 * f64::from(f32::EPSILON), "{id}");
        }
    }
    // They are exported under the name of the filter, and nothing else is.
    let mut removed = 0;
    for path in digests(&work.path("out/removed/near"))?.keys() {
        removed += read_parquet(&work.path("out/removed/near").join(path))?.num_rows();
    }
    assert_eq!(removed, expected.len());
    polysift().arg("verify").arg(work.path("out")).assert().success();
    polysift().arg("report").arg(work.path("out")).assert().success();
    Ok(())
}

#[test]
fn near_duplicates_in_files_of_two_languages_are_those_that_numpy_finds() -> TestResult {
    let work = Workspace::with_near_duplicates()?;
    let mut rows = Vec::new();
    for language in ["deu_Latn", "fra_Latn"] {
        let lines = std::fs::read_to_string(work.path(&format!("near/{language}.jsonl")))?;
        for (i, line) in lines.lines().enumerate() {
            let mut row: Value = serde_json::from_str(line)?;
            row["lang"] = language.into();
            rows.push((i, row));
        }
    }
    rows.sort_by_key(|(i, _)| *i); // the languages by turns, each in its order
    work.write_lines("mixed/all.jsonl", rows.into_iter().map(|(_, row)| row))?;
    let expected: BTreeMap<String, String> =
        expected()?.into_iter().map(|(id, (of, _))| (id, of)).collect();
    for (run, settings) in [("one", "near.similarity=0.94"), ("clusters", "near.clusters=5")] {
        let mut command = work.command("run", run);
        command.args(["mixed", "--set", "input.language={column='lang'}"]);
        command.args(["--set", &format!("filters.{settings}")]).assert().success();
        let found = verdicts(&work, run)?;
        // In clusters, a few near duplicates are not in the cluster of the better document.
        assert!(found.len() > expected.len() - 9, "{} of {}", found.len(), expected.len());
        assert!(run == "clusters" || found == expected);
        polysift().arg("verify").arg(work.path(run)).assert().success();
    }
    Ok(())
}

#[test]
fn clusters_memory_and_processes_change_nothing_where_duplicates_are_close() -> TestResult {
    let work = Workspace::with_near_duplicates()?;
    // Groups at a similarity of 0.99, which k-means keeps together.
    let close = ["--set", "filters.near.similarity=0.985"];
    work.command("run", "whole").args(close).assert().success();
    let whole = verdicts(&work, "whole")?;
    assert!(whole.len() > 50, "{}", whole.len());
    // 240 documents of 24 values are 23 KB: a million bytes are one group, so the clusters are too.
    work.command("run", "clusters")
        .args(close)
        .args(["--set", "filters.near.clusters=5"])
        .assert()
        .success();
    assert_eq!(verdicts(&work, "clusters")?, whole);
    assert!(work.json("clusters/duplicates/languages/deu_Latn.json")?["clusters"] == 5);

    // Three tasks, in an order in which the last ones find units of the others undone.
    work.command("embed", "tasks").args(close).assert().success();
    for stage in ["score", "filter"] {
        work.command(stage, "tasks").args(close).assert().success();
    }
    for task in ["2", "1", "0"] {
        work.command("deduplicate", "tasks")
            .args(close)
            .args(["--task", task, "--num-tasks", "3"])
            .assert()
            .success();
    }
    for stage in ["threshold", "export"] {
        work.command(stage, "tasks").args(close).assert().success();
    }
    let outputs = |run: &str| -> Result<BTreeMap<String, String>, Box<dyn std::error::Error>> {
        let mut files = digests(&work.path(run))?;
        files.retain(|path, _| path.starts_with("duplicates") || path.starts_with("export"));
        Ok(files)
    };
    assert_eq!(outputs("tasks")?, outputs("whole")?);
    Ok(())
}

#[test]
fn a_flagged_duplicate_stays_and_names_the_better_document() -> TestResult {
    let work = Workspace::with_near_duplicates()?;
    work.command("run", "out").args(["--set", "filters.near.action=flag"]).assert().success();
    let expected = expected()?;
    let mut flagged = 0;
    for path in digests(&work.path("out/export"))?.keys() {
        let rows = read_parquet(&work.path("out/export").join(path))?;
        let column =
            |name: &str| rows.column_by_name(name).map(|column| column.as_string::<i32>().clone());
        let (ids, of) = (column("id").ok_or("no id")?, column("near").ok_or("no near")?);
        for (id, of) in ids.iter().zip(of.iter()) {
            let near = id.and_then(|id| expected.get(id));
            assert_eq!(of, near.map(|(of, _)| of.as_str()));
            flagged += usize::from(of.is_some());
        }
    }
    // Documents without a grade are not selected.
    assert!(flagged > expected.len() / 2 && flagged <= expected.len(), "{flagged}");
    Ok(())
}

#[test]
fn settings_that_cannot_work_are_refused() -> TestResult {
    let work = Workspace::with_near_duplicates()?;
    for (setting, reason) in [
        ("filters.near={kind='embeddings'}", "filters.near.similarity: is missing"),
        ("filters.near.similarity=0", "is no similarity; above 0 to 1 is allowed"),
        ("filters.near.similarity=1.5", "is no similarity"),
        ("filters.near.head=other", "names the head `other`, which is not defined"),
        ("filters.near.action=cut", "is for decontamination and repetition"),
        ("filters.again={kind='embeddings', similarity=0.9}", "a run has at most one"),
        (
            "heads.second={kind='column', score='grade'}",
            "filters.near.head: is missing; the run has 2 heads",
        ),
    ] {
        let output = work.command("run", "out").args(["--set", setting]).output()?;
        let message = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(
            (output.status.code(), message.contains(reason)),
            (Some(2), true),
            "{setting}: {message}"
        );
    }
    let output = work.command("run", "out").args(["--set", "filters.near.memory_mb=0"]).output()?;
    assert_eq!(output.status.code(), Some(2));
    Ok(())
}

/// Equal embeddings whose product with themselves is less than 1 in f32.
#[test]
fn equal_documents_and_languages_without_embeddings_are_no_special_cases() -> TestResult {
    let work = Workspace::with_near_duplicates()?;
    let vector: Vec<f64> = (0..384).map(|i| (f64::from(i) * 0.7).sin()).collect();
    let row = |(at, grade): (usize, f64)| json!({"id": format!("d{at}"), "text": "Text.", "grade": grade, "vectors": [vector]});
    let grades = [-0.0, 0.0, -0.0, 0.0];
    work.write_lines("near/deu_Latn.jsonl", grades.into_iter().enumerate().map(row))?;
    let blank =
        |at: usize| json!({"id": format!("f{at}"), "text": " ", "grade": 1, "vectors": null});
    work.write_lines("near/fra_Latn.jsonl", (0..3).map(blank))?;
    let more = ["--set", "filters.near.similarity=1", "--set", "filters.near.clusters=4"];
    work.command("run", "out").args(more).assert().success();
    let first = |at: usize| (format!("d{at}"), "d0".to_owned());
    assert_eq!(verdicts(&work, "out")?, (1..4).map(first).collect());
    let report = work.json("out/duplicates/report.json")?;
    assert_eq!(report["languages"]["deu_Latn"]["details"]["1.00"]["documents"], 3);
    assert_eq!(report["languages"]["fra_Latn"]["seen"]["documents"], 0);
    Ok(())
}

#[test]
fn embeddings_of_two_widths_are_refused() -> TestResult {
    let work = Workspace::with_near_duplicates()?;
    for (file, width) in [("deu_Latn", 4), ("deu_Latn_2", 3)] {
        let row = |at: usize| json!({"id": format!("{file}{at}"), "text": "Text.", "grade": at, "vectors": [vec![0.5; width]]});
        work.write_lines(&format!("widths/{file}.jsonl"), (0..3).map(row))?;
    }
    let input = ["widths/*.jsonl", "--language", "deu_Latn", "--threads", "1"];
    let run = work.command("run", "out").args(input).assert();
    run.code(65).stderr(contains("embeddings have 3 values, in another file 4"));
    Ok(())
}

#[test]
fn a_run_that_refuses_settings_stays_as_it_was() -> TestResult {
    let work = Workspace::with_near_duplicates()?;
    let (plain, near) = NEAR_SETTINGS.split_once("[filters.near]").ok_or("no filter")?;
    assert!(near.contains("embeddings"));
    work.write("run.toml", plain)?;
    work.command("run", "out").assert().success();
    let before = digests(&work.path("out"))?;

    // Other thresholds, and a filter that the run went on without.
    let threshold = ["--retention", "quality=0.5"];
    work.command("run", "out").args(threshold).assert().code(78);
    work.write("run.toml", NEAR_SETTINGS)?;
    for command in ["run", "deduplicate"] {
        let refused = work.command(command, "out").assert().code(78);
        refused.stderr(predicates::str::contains("threshold was done without deduplicate"));
    }
    assert_eq!(digests(&work.path("out"))?, before);

    // Both are possible with `--redo`, and so is the way back.
    work.command("run", "out").args(["--redo", "deduplicate"]).assert().success();
    assert!(!verdicts(&work, "out")?.is_empty());
    work.write("run.toml", plain)?;
    work.command("run", "out").assert().code(78);
    work.command("run", "out").args(["--redo", "deduplicate"]).assert().success();
    polysift().arg("verify").arg(work.path("out")).assert().success();
    assert_eq!(digests(&work.path("out"))?, before);
    Ok(())
}
