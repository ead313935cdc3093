//! A run in int8 that scores the documents near its thresholds again in f32, beside a run in f32.

use std::collections::BTreeMap;
use std::path::Path;

use arrow::array::AsArray;
use arrow::datatypes::{Float32Type, Float64Type};
use predicates::prelude::PredicateBooleanExt;
use predicates::str::contains;
use serde_json::json;

use crate::util::{TestResult, Workspace, digests, polysift, read_parquet, text};

/// Stops the program at its n-th write boundary (see `io::atomic`).
const KILL_AT: &str = "POLYSIFT_KILL_AT";

/// A workspace with more documents than a sample holds, and two kinds of thresholds.
fn workspace() -> Result<Workspace, Box<dyn std::error::Error>> {
    let work = Workspace::new()?;
    let words = ["river", "buy", "cell", "cheap", "empire", "click", "idiot", "moon"];
    let rows = (0..240).map(|i| {
        let more: Vec<&str> = (0..i % 6).map(|j| words[(i / 6 + j * 3) % words.len()]).collect();
        json!({"id": format!("more-{i}"), "text": format!("{} {}", text(i), more.join(" "))})
    });
    work.write_lines("corpus/fra_Latn/b.jsonl", rows)?;
    std::fs::remove_dir_all(work.path("corpus/deu_Latn"))?;
    Ok(work)
}

const THRESHOLDS: [&str; 4] =
    ["--train-on", "toxicity=toxic/{lang}.jsonl", "--removal", "toxicity=0.05"];

/// Selected ids with the rates that keep them.
fn selected(export: &Path) -> Result<BTreeMap<String, f64>, Box<dyn std::error::Error>> {
    let mut selected = BTreeMap::new();
    for file in ["a", "b"] {
        let rows = read_parquet(&export.join(format!("fra_Latn/{file}.parquet")))?;
        let ids = rows.column_by_name("id").ok_or("no id")?.as_string::<i32>();
        let rates = rows.column_by_name("quality_retention").ok_or("no column")?;
        let rates = rates.as_primitive::<Float64Type>();
        selected.extend(ids.iter().flatten().map(str::to_owned).zip(rates.iter().flatten()));
    }
    Ok(selected)
}

#[test]
fn a_refined_run_in_int8_selects_what_f32_selects() -> TestResult {
    let work = workspace()?;
    work.write_toxicity_samples()?;
    work.command("run", "f32").args(THRESHOLDS).args(["--precision", "f32"]).assert().success();
    work.command("run", "int8")
        .args(THRESHOLDS)
        .args(["--precision", "int8", "--refine"])
        .assert()
        .success()
        .stdout(contains("refined in f32:").and(contains("largest difference")));
    assert_eq!(selected(&work.path("int8/export"))?, selected(&work.path("f32/export"))?);
    // The heads are those of f32, and so are the scores that were computed again.
    for folder in ["heads", "selection"] {
        assert!(work.path("int8").join(folder).is_dir());
    }
    assert_eq!(digests(&work.path("int8/heads"))?, digests(&work.path("f32/heads"))?);
    let mut refined = 0;
    for part in ["a/part-00000", "b/part-00003"] {
        let path = |run: &str| work.path(&format!("{run}/quality/fra_Latn/{part}.parquet"));
        let (ours, exact) =
            (read_parquet(&path("int8/refined"))?, read_parquet(&path("f32/scores"))?);
        let flags = ours.column_by_name("refined").ok_or("no column")?.as_boolean().clone();
        let [ours, exact] = [ours, exact].map(|rows| rows.column_by_name("logit").cloned());
        let (ours, exact) = (ours.ok_or("no logit")?, exact.ok_or("no logit")?);
        let logits =
            ours.as_primitive::<Float32Type>().iter().zip(exact.as_primitive::<Float32Type>());
        for (row, (ours, exact)) in logits.enumerate().filter(|(row, _)| flags.value(*row)) {
            assert_eq!(ours.map(f32::to_bits), exact.map(f32::to_bits), "row {row} of {part}");
            refined += 1;
        }
    }
    assert!(refined > 0);
    polysift().arg("verify").arg(work.path("int8")).assert().success();
    polysift().arg("status").arg(work.path("int8")).assert().success().stdout(contains("margin"));

    // Texts alone are scored as near a threshold, so that the verdicts are those of the run.
    let kept = selected(&work.path("int8/export"))?;
    for file in ["a", "b"] {
        let lines = std::fs::read(work.path(&format!("corpus/fra_Latn/{file}.jsonl")))?;
        let mut annotate = polysift();
        annotate.current_dir(work.dir.path()).args(["annotate", "--run", "int8"]);
        let output = annotate.args(["--language", "fra_Latn"]).write_stdin(lines).output()?;
        for line in String::from_utf8(output.stdout)?.lines() {
            let document: serde_json::Value = serde_json::from_str(line)?;
            let is_kept = document["id"].as_str().is_some_and(|id| kept.contains_key(id));
            assert_eq!(document["annotation"]["verdict"] == "kept", is_kept, "{document}");
        }
    }
    Ok(())
}

#[test]
fn a_run_in_f32_has_nothing_to_refine_and_says_so() -> TestResult {
    let work = Workspace::new()?;
    work.command("run", "plain").args(["--precision", "f32"]).assert().success();
    work.command("run", "refined")
        .args(["--precision", "f32", "--refine"])
        .assert()
        .success()
        .stdout(contains("nothing to refine"));
    for folder in ["scores", "selection"] {
        let [plain, refined] = ["plain", "refined"].map(|run| work.path(run).join(folder));
        assert_eq!(digests(&plain)?, digests(&refined)?, "{folder}");
    }
    assert!(!work.path("refined/refined").exists());
    Ok(())
}

#[test]
fn thresholds_wait_for_the_refinement_and_are_those_it_was_made_for() -> TestResult {
    let work = Workspace::new()?;
    for stage in ["embed", "train", "score"] {
        work.command(stage, "out").args(["--precision", "int8", "--refine"]).assert().success();
    }
    let threshold = |more: &[&str]| {
        let mut command = work.command("threshold", "out");
        command.args(["--precision", "int8", "--refine"]).args(more);
        command.assert()
    };
    threshold(&[]).code(66).stderr(contains("polysift refine"));
    let refine = || work.command("refine", "out").args(["--precision", "int8"]).assert();
    refine().success();
    let other = ["--retention", "quality=0.5"];
    let hint = "give `--redo refine` to `polysift run` or `polysift refine`";
    threshold(&other).code(78).stderr(contains(hint));
    threshold(&[]).success();
    std::fs::remove_file(work.path("out/state/refine/done/quality/fra_Latn/a.json"))?;
    let again = threshold(&["--redo", "threshold"]);
    again.code(66).stderr(contains("quality/fra_Latn/a is not refined yet; run `polysift refine`"));
    refine().success();
    threshold(&["--redo", "threshold"]).success();
    work.command("refine", "out")
        .args(["--precision", "int8", "--redo", "refine"])
        .args(other)
        .assert()
        .success();
    threshold(&other).success();
    Ok(())
}

#[test]
fn refining_without_an_encoder_or_by_published_thresholds_is_refused() -> TestResult {
    let work = Workspace::new()?;
    for wrong in [["--mode", "published"], ["--set", "input.embeddings=vectors"]] {
        work.command("run", "out")
            .arg("--refine")
            .args(wrong)
            .assert()
            .code(2)
            .stderr(contains("selection.refine"));
    }
    assert!(!work.path("out").exists());
    Ok(())
}

#[test]
fn a_kill_at_any_write_boundary_of_the_refinement_changes_nothing_in_the_end() -> TestResult {
    let work = workspace()?;
    std::fs::remove_file(work.path("corpus/fra_Latn/a.jsonl"))?;
    let refine = |run: &str| {
        let mut command = work.command("refine", run);
        command.args(["--precision", "int8"]);
        command
    };
    for stage in ["embed", "train", "score"] {
        work.command(stage, "base").args(["--precision", "int8", "--refine"]).assert().success();
    }
    let copy = |to: &str| -> TestResult {
        let mut copy = std::process::Command::new("cp");
        let copied = copy.arg("-r").args([work.path("base"), work.path(to)]).status()?;
        if copied.success() { Ok(()) } else { Err("cp failed".into()) }
    };
    copy("undisturbed")?;
    refine("undisturbed").assert().success();
    let expected = digests(&work.path("undisturbed"))?;
    // The test tries every second boundary.
    for boundary in (1..).step_by(2) {
        copy("killed")?;
        let killed = refine("killed").env(KILL_AT, boundary.to_string()).output()?;
        if killed.status.success() {
            assert!(boundary > 40, "only {boundary} boundaries were found");
            break;
        }
        assert_eq!(killed.status.code(), None, "{}", String::from_utf8_lossy(&killed.stderr));
        refine("killed").assert().success();
        assert_eq!(digests(&work.path("killed"))?, expected, "killed at boundary {boundary}");
        std::fs::remove_dir_all(work.path("killed"))?;
    }
    Ok(())
}
