//! The embed stage around the encoder: what is counted, what is reported, what is traced.

use std::process::{Command, Stdio};
use std::time::Duration;

use arrow::array::{Array, AsArray};
use arrow::datatypes::UInt64Type;
use predicates::prelude::PredicateBooleanExt;
use predicates::str::contains;
use serde_json::{Value, json};

use crate::util::{TestResult, Workspace, digests, read_parquet, text};

/// The column `num_tokens` of the first French part.
fn token_counts(
    work: &Workspace,
    run: &str,
) -> Result<Vec<Option<u64>>, Box<dyn std::error::Error>> {
    let part =
        read_parquet(&work.path(&format!("{run}/embeddings/fra_Latn/a/part-00000.parquet")))?;
    let column = part.column_by_name("num_tokens").ok_or("no num_tokens")?;
    Ok(column.as_primitive::<UInt64Type>().iter().collect())
}

#[test]
fn whole_documents_are_counted_only_where_the_counts_are_used() -> TestResult {
    let work = Workspace::new()?;
    for (run, flags, counted) in [
        ("first", &[][..], false),
        ("all", &["--chunks", "all"], true),
        ("weighted", &["--weight", "tokens"], true),
    ] {
        work.command("embed", run).args(flags).assert().success();
        let counts = token_counts(&work, run)?;
        assert_eq!(counts.len(), 16);
        assert!(counts.iter().all(|count| count.is_some() == counted), "{run}: {counts:?}");
        assert_eq!(work.json(&format!("{run}/frozen/embed.json"))?["counts_tokens"], counted);
    }
    assert_eq!(token_counts(&work, "all")?, token_counts(&work, "weighted")?);
    Ok(())
}

#[test]
fn rates_cannot_count_tokens_that_were_not_counted() -> TestResult {
    let work = Workspace::new()?;
    for stage in ["embed", "train", "score"] {
        work.command(stage, "out").assert().success();
    }
    let scores = read_parquet(&work.path("out/scores/quality/fra_Latn/a/part-00000.parquet"))?;
    let column = scores.column_by_name("num_tokens").ok_or("no num_tokens")?;
    assert_eq!(column.null_count(), scores.num_rows());
    work.command("threshold", "out")
        .args(["--weight", "tokens"])
        .assert()
        .code(2)
        .stderr(contains("selection.weight").and(contains("--redo embed")));
    work.command("run", "out")
        .args(["--weight", "tokens"])
        .assert()
        .code(78)
        .stderr(contains("embed.counts_tokens: was false, now true"));
    work.command("run", "out").args(["--weight", "tokens", "--redo", "embed"]).assert().success();
    Ok(())
}

#[test]
fn counts_that_are_there_do_not_stop_a_run_that_needs_none() -> TestResult {
    let work = Workspace::new()?;
    work.command("embed", "out").args(["--weight", "tokens"]).assert().success();
    // As if the run had been killed after its first part.
    std::fs::remove_file(work.path("out/state/embed/done/fra_Latn/a.json"))?;
    std::fs::remove_dir_all(work.path("out/state/embed/parts/fra_Latn"))?;
    std::fs::remove_file(work.path("out/state/embed/finished.jsonl.zst"))?;
    work.command("run", "out").assert().success();
    assert!(token_counts(&work, "out")?.iter().all(Option::is_some));
    work.command("run", "out").args(["--redo", "embed"]).assert().success();
    assert!(token_counts(&work, "out")?.iter().all(Option::is_none));
    Ok(())
}

#[test]
fn many_small_files_hold_the_embeddings_of_one_large_file() -> TestResult {
    let work = Workspace::new()?;
    let row = |i: usize| json!({"id": i, "text": text(i), "n": i});
    work.write_lines("one/fra_Latn/all.jsonl", (0..60).map(row))?;
    for i in 0..60 {
        work.write_lines(&format!("many/fra_Latn/{i:02}.jsonl"), (i..=i).map(row))?;
    }
    for run in ["one", "many"] {
        let out = format!("out-{run}");
        work.command("embed", &out).arg(format!("{run}/{{lang}}/*.jsonl")).assert().success();
    }
    let mut one = Vec::new();
    for part in 0..4 {
        let path = format!("out-one/embeddings/fra_Latn/all/part-{part:05}.parquet");
        let rows = read_parquet(&work.path(&path))?;
        let column = rows.column_by_name("embeddings").ok_or("no embeddings")?;
        one.extend((0..rows.num_rows()).map(|i| column.slice(i, 1)));
    }
    assert_eq!(one.len(), 60);
    for (i, expected) in one.iter().enumerate() {
        let path = format!("out-many/embeddings/fra_Latn/{i:02}/part-00000.parquet");
        let rows = read_parquet(&work.path(&path))?;
        assert_eq!(rows.column_by_name("embeddings"), Some(expected), "file {i}");
    }
    Ok(())
}

#[test]
fn the_summary_tells_time_memory_and_what_was_busy() -> TestResult {
    let work = Workspace::new()?;
    let output = work.command("run", "out").output()?;
    let summary = String::from_utf8(output.stdout)?;
    let embed = summary.lines().rfind(|line| line.starts_with("embed ")).ok_or("no line")?;
    for activity in ["reading", "tokenizing", "encoding", "writing"] {
        assert!(embed.contains(activity), "{embed}");
    }
    assert!(summary.contains("peak MB"), "{summary}");
    Ok(())
}

#[test]
fn a_trace_holds_the_spans_of_all_threads_and_changes_no_result() -> TestResult {
    let work = Workspace::new()?;
    let long = "knowledge of rivers and empires ".repeat(300);
    let row = json!({"id": 0, "text": long});
    work.write_lines("corpus/fra_Latn/long.jsonl", std::iter::once(row))?;
    work.command("run", "plain").assert().success();
    work.command("run", "traced").args(["--trace-out", "trace.json"]).assert().success();
    assert_eq!(digests(&work.path("plain"))?, digests(&work.path("traced"))?);
    let trace = work.json("trace.json")?;
    let events = trace.as_array().ok_or("no array")?;
    for name in ["read", "tokenize", "encode", "write", "finish part"] {
        let mut spans = events.iter().filter(|event| event["name"] == name);
        let sound = |event: &Value| {
            event["ph"] == "X" && event["dur"].as_f64() > Some(0.0) && event["tid"].is_u64()
        };
        assert!(spans.next().is_some_and(sound) && spans.all(sound), "{name}");
    }
    let tokens = events.iter().filter(|event| event["name"] == "encode");
    assert!(tokens.filter_map(|event| event["args"]["tokens"].as_u64()).sum::<u64>() > 1000);
    work.command("run", "no-folder")
        .args(["--trace-out", "none/trace.json"])
        .assert()
        .code(74)
        .stderr(contains("none/trace.json"));
    Ok(())
}

#[test]
fn a_killed_run_leaves_a_trace_of_whole_lines() -> TestResult {
    let work = Workspace::with_bundled_encoder()?;
    let long = "knowledge of rivers and empires ".repeat(300);
    work.write_lines(
        "corpus/fra_Latn/long.jsonl",
        (0..4000).map(|i| json!({"id": i, "text": long})),
    )?;
    let mut child = Command::new(env!("CARGO_BIN_EXE_polysift"))
        .current_dir(work.dir.path())
        .args(["embed", "-c", "run.toml", "--run", "out", "--device", "cpu", "--quiet"])
        .args(["--trace-out", "trace.json", "--batch-tokens", "2048"])
        .stdout(Stdio::null())
        .spawn()?;
    let trace = loop {
        let trace = std::fs::read_to_string(work.path("trace.json")).unwrap_or_default();
        if trace.matches("\"encode\"").count() > 2 || child.try_wait()?.is_some() {
            break trace;
        }
        std::thread::sleep(Duration::from_millis(20));
    };
    child.kill()?;
    child.wait()?;
    assert!(trace.lines().count() > 4, "{trace}");
    let trace = std::fs::read_to_string(work.path("trace.json"))?;
    // As lenient readers do: the bracket that was not written is put there.
    let events: Vec<Value> =
        serde_json::from_str(&format!("{}]", trace.trim_end().trim_end_matches(',')))?;
    assert!(events.iter().any(|event| event["name"] == "encode"));
    Ok(())
}
