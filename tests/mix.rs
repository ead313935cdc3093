//! `polysift mix`: what is drawn of each source, where it goes, and what a kill or another machine
//! changes: nothing.

use std::collections::BTreeMap;
use std::error::Error;
use std::path::Path;
use std::process::Stdio;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use arrow::array::{Array, ArrayRef, AsArray, Int64Array, RecordBatch, StringArray};
use arrow::datatypes::{DataType, Float64Type, Int32Type};
use assert_cmd::Command;
use parquet::arrow::ArrowWriter;
use polysift::encoder::HubSettings;
use polysift::mix::{MixConfig, MixReport, MixRequest, mix};
use polysift::progress::{Progress, Stop};
use polysift::run::{RunDir, Worker};
use predicates::prelude::PredicateBooleanExt;
use predicates::str::contains;
use serde_json::{Value, json};

use crate::util::{TestResult, Workspace, digests, polysift, read_parquet, root, text};

/// `polysift mix -c mix.toml --out OUT`, in the workspace.
fn command(work: &Workspace, out: &str) -> Command {
    let mut command = polysift();
    command.current_dir(work.dir.path()).args(["mix", "-c", "mix.toml", "--out", out]);
    command
}

/// A row of the output: source, copy, id.
type Row = (String, i32, String);

/// The rows of each file of `out`.
fn rows(out: &Path) -> Result<Vec<Vec<Row>>, Box<dyn Error>> {
    let report: MixReport = serde_json::from_slice(&std::fs::read(out.join("mix.json"))?)?;
    let mut files = Vec::new();
    for file in &report.files {
        let batch = read_parquet(&out.join(&file.name))?;
        assert_eq!(batch.num_rows() as u64, file.rows);
        let texts = |name: &str| Some(batch.column_by_name(name)?.as_string_opt::<i32>()?.clone());
        let (ids, sources) = (texts("id").ok_or("no ids")?, texts("source").ok_or("no sources")?);
        let copies = batch.column_by_name("copy").and_then(|c| c.as_primitive_opt::<Int32Type>());
        let copies = copies.ok_or("no copies")?;
        let row = |i| (sources.value(i).to_owned(), copies.value(i), ids.value(i).to_owned());
        files.push((0..batch.num_rows()).map(row).collect());
    }
    Ok(files)
}

/// How often each id is there.
fn copies(out: &Path) -> Result<BTreeMap<String, u64>, Box<dyn Error>> {
    let mut copies = BTreeMap::new();
    for (_, _, id) in rows(out)?.into_iter().flatten() {
        *copies.entry(id).or_default() += 1;
    }
    Ok(copies)
}

/// Lines of `documents` with these ids, of `tokens` each.
fn lines(documents: std::ops::Range<u64>, tokens: u64) -> impl Iterator<Item = Value> {
    documents.map(move |i| json!({"id": format!("doc-{i}"), "text": "x", "n": tokens}))
}

#[test]
fn golden_mix_draws_and_orders_what_python_does() -> TestResult {
    let work = Workspace::new()?;
    let golden = root().join("tests/golden/mix");
    let sample = root().join("tests/sample/corpus");
    let settings = std::fs::read_to_string(golden.join("mix.toml"))?;
    work.write("mix.toml", settings.replace("SAMPLE", &sample.to_string_lossy()))?;
    work.write("weights.json", std::fs::read(golden.join("weights.json"))?)?;
    command(&work, "out").assert().success();
    let expected: Value = serde_json::from_slice(&std::fs::read(golden.join("expected.json"))?)?;
    let report = work.json("out/mix.json")?;
    for (source, expected) in report["sources"]
        .as_array()
        .ok_or("no sources")?
        .iter()
        .zip(expected["sources"].as_array().ok_or("none")?)
    {
        assert_eq!((&source["name"], &source["budget"]), (&expected["name"], &expected["budget"]));
        for (language, counts) in source["languages"].as_object().ok_or("no languages")? {
            let expected = &expected["languages"][language];
            let of = |key: &str| expected[key].as_u64().unwrap_or(0);
            assert_eq!(counts["documents"], of("documents"), "{language}");
            assert_eq!(counts["drawn_documents"], of("drawn"), "{language}");
            assert_eq!(counts["rows"], of("rows"), "{language}");
            assert_eq!(counts["tokens"], of("tokens"), "{language}");
        }
    }
    let rows: Vec<Vec<String>> = rows(&work.path("out"))?
        .into_iter()
        .map(|file| {
            file.into_iter().map(|(source, copy, id)| format!("{source} {copy} {id}")).collect()
        })
        .collect();
    assert_eq!(json!(rows), expected["files"]);
    // Every column of the sample is there with its type, and a row is that of its document.
    let (out, input) = (
        read_parquet(&work.path("out/part-00000.parquet"))?,
        read_parquet(&sample.join("fra_Latn/000_00000.parquet"))?,
    );
    for field in input.schema().fields() {
        assert_eq!(out.schema().field_with_name(field.name())?.data_type(), field.data_type());
    }
    let find = |batch: &RecordBatch, id: &str| {
        let ids = batch.column_by_name("id")?.as_string_opt::<i32>()?.clone();
        (0..ids.len()).find(|&at| ids.value(at) == id)
    };
    let id = "frecore.fra_Latn/FreCORE-dev-108#0";
    if let (Some(a), Some(b)) = (find(&out, id), find(&input, id)) {
        for (at, field) in input.schema().fields().iter().enumerate() {
            let column = out.column_by_name(field.name()).ok_or("no column")?;
            assert_eq!(&column.slice(a, 1), &input.column(at).slice(b, 1), "{}", field.name());
        }
    }
    Ok(())
}

/// The ids and the copies are those of tests/golden/mix.py, which has xxhash for Python.
#[test]
fn epochs_are_met_to_the_document() -> TestResult {
    let work = Workspace::new()?;
    work.write_lines("a.jsonl", lines(0..1000, 3))?;
    work.write("mix.toml", "count = 'column:n'\n[[source]]\nfiles = ['a.jsonl']\nepochs = 2.37\n")?;
    command(&work, "out").assert().success().stdout(contains("7110 tokens in 2370 rows"));
    let copies = copies(&work.path("out"))?;
    assert_eq!(copies.values().sum::<u64>(), 2370);
    let first: Vec<u64> = (0..5).map(|i| copies[&format!("doc-{i}")]).collect();
    assert_eq!(first, [2, 3, 2, 2, 2]);
    Ok(())
}

/// Billions of tokens of Apertus' Table 16 (arXiv 2509.14233), and their sums.
#[test]
fn budgets_of_published_stages_add_up() -> TestResult {
    // A published stage (55.80, 15.87 and 6.88 billion) in units of ten tokens, with documents of 7
    // tokens: passed by less than one.
    let work = Workspace::new()?;
    let mut settings = "count = 'column:n'\n".to_owned();
    for (name, tokens) in [("stage", 5580u64), ("long", 1587), ("books", 688)] {
        work.write_lines(&format!("{name}.jsonl"), lines(0..1000, 7))?;
        let source = ["[[source]]\nname = '", name, "'\nfiles = ['", name, ".jsonl']\ntokens = "];
        settings.extend(source);
        settings.extend([tokens.to_string().as_str(), "\n"]);
    }
    work.write("mix.toml", settings)?;
    command(&work, "out").assert().success();
    let report = work.json("out/mix.json")?;
    let tokens: Vec<u64> = (0..3).filter_map(|i| report["sources"][i]["tokens"].as_u64()).collect();
    assert_eq!(tokens, [5586, 1589, 693]);
    Ok(())
}

#[test]
fn shares_are_of_the_whole_and_replay_is_one() -> TestResult {
    let work = Workspace::new()?;
    work.write_lines("best.jsonl", lines(0..300, 10))?;
    work.write_lines("web.jsonl", lines(1000..3000, 10))?;
    work.write(
        "mix.toml",
        "count = 'column:n'\ntokens = '10k'\n[[source]]\nname = 'best'\nfiles = ['best.jsonl']\nshare = 0.95\n\
         [[source]]\nname = 'replay'\nfiles = ['web.jsonl']\nshare = 0.05\n",
    )?;
    command(&work, "out").assert().success();
    let report = work.json("out/mix.json")?;
    let of = |place: usize, key: &str| report["sources"][place][key].clone();
    assert_eq!((of(0, "tokens"), of(1, "tokens")), (json!(9500), json!(500)));
    // 9,500 of 3,000 tokens.
    assert!((of(0, "epochs").as_f64().unwrap_or(0.0) - 9500.0 / 3000.0).abs() < 1e-12);
    let copies = copies(&work.path("out"))?;
    let best = (0..300).map(|i| copies[&format!("doc-{i}")]);
    assert!(best.clone().all(|copies| copies == 3 || copies == 4));
    assert_eq!(best.filter(|&copies| copies == 4).count(), 50);
    Ok(())
}

/// The weights are those of FineWeb-2's card, the totals counted by hand.
#[test]
fn clusters_are_rehydrated_and_lengths_are_limited() -> TestResult {
    let work = Workspace::new()?;
    let sizes = [json!(1), json!(2), json!(4), json!(99), json!(100), json!(1000), Value::Null];
    let documents = sizes.iter().enumerate().map(|(i, size)| {
        json!({"id": format!("d{i}"), "text": "x".repeat(10 * (i + 1)), "minhash_cluster_size": size})
    });
    work.write_lines("a.jsonl", documents)?;
    let by_card = "copies = { by = 'minhash_cluster_size', weights = 'card' }";
    let settings = |more: &str| {
        format!("count = 'bytes'\n[[source]]\nfiles = ['a.jsonl']\nepochs = 1\n{more}\n")
    };
    let drawn = |out: &str| -> Result<Vec<u64>, Box<dyn Error>> {
        let copies = copies(&work.path(out))?;
        Ok((0..7).map(|i| copies.get(&format!("d{i}")).copied().unwrap_or(0)).collect())
    };
    work.write("mix.toml", settings(by_card))?;
    command(&work, "card").assert().success();
    assert_eq!(drawn("card")?, [1, 2, 3, 5, 8, 1, 1]);
    let report = work.json("card/mix.json")?;
    assert_eq!(report["sources"][0]["languages"]["und"]["without_copies"], 1);
    // 10 + 2·20 + 3·30 + 5·40 + 8·50 + 60 + 70.
    assert_eq!(report["sources"][0]["languages"]["und"]["epoch_tokens"], 870);

    work.write("w.json", "{\"1\": 4, \"100\": 0}")?;
    work.write("mix.toml", settings(&by_card.replace("card", "w.json")))?;
    command(&work, "file").assert().success();
    assert_eq!(drawn("file")?, [4, 4, 4, 4, 1, 1, 1]);

    // A bucket holds least ≤ n < next.
    work.write("mix.toml", settings("min_tokens = 20\nmax_tokens = 40"))?;
    command(&work, "bucket").assert().success();
    assert_eq!(drawn("bucket")?, [0, 1, 1, 0, 0, 0, 0]);
    Ok(())
}

#[test]
fn a_mixture_of_mixtures_keeps_the_sources_of_all() -> TestResult {
    let work = Workspace::new()?;
    work.write_lines("m0.jsonl", (0..9).map(|i| json!({"id": format!("d{i}"), "text": "x"})))?;
    for (input, out) in [("m0.jsonl", "m1"), ("m1/*.parquet", "m2"), ("m2/*.parquet", "m3")] {
        let source = format!("[[source]]\nname = '{out}'\nfiles = ['{input}']\nepochs = 1\n");
        work.write("mix.toml", format!("count = 'bytes'\n{source}"))?;
        command(&work, out).assert().success();
    }
    let batch = read_parquet(&work.path("m3/part-00000.parquet"))?;
    for (column, name) in [("source", "m3"), ("input_input_source", "m2"), ("input_source", "m1")] {
        let column = batch.column_by_name(column).ok_or(column)?;
        let names = column.as_string_opt::<i32>().ok_or("no texts")?;
        assert!((0..9).all(|row| names.value(row) == name), "{column:?}");
    }
    Ok(())
}

/// A corpus in two languages and in two formats, with settings that draw some of it.
/// Few long texts hold nearly all bytes.
#[test]
fn files_have_the_wanted_size_when_only_long_documents_are_drawn() -> TestResult {
    let work = Workspace::new()?;
    let document = |i: usize| {
        let text = "x".repeat(if i < 200 { 10 } else { 2000 });
        json!({"id": format!("doc-{i}"), "text": text})
    };
    work.write_lines("a.jsonl", (0..220).map(document))?;
    let settings = "count = 'bytes'\noutput_bytes = 10_000\n\
                    [[source]]\nfiles = ['a.jsonl']\nepochs = 1\nmin_tokens = 1000\n";
    work.write("mix.toml", settings)?;
    command(&work, "out").assert().success();
    let files = rows(&work.path("out"))?;
    assert_eq!((files.len(), files.iter().map(Vec::len).sum::<usize>()), (4, 20));
    // There are never more files than rows.
    work.write("mix.toml", settings.replace("10_000", "1"))?;
    command(&work, "many").assert().success();
    let files = rows(&work.path("many"))?;
    assert_eq!((files.len(), files.iter().map(Vec::len).sum::<usize>()), (20, 20));
    Ok(())
}

fn small_mix() -> Result<Workspace, Box<dyn Error>> {
    let work = Workspace::new()?;
    let ids: Vec<String> = (0..60).map(|i| format!("p{i}")).collect();
    let texts: Vec<String> = (0..60).map(text).collect();
    let batch = RecordBatch::try_from_iter([
        ("id", Arc::new(StringArray::from(ids)) as ArrayRef),
        ("text", Arc::new(StringArray::from(texts))),
        ("n", Arc::new(Int64Array::from_iter_values(0..60))),
    ])?;
    let mut bytes = Vec::new();
    let mut writer = ArrowWriter::try_new(&mut bytes, batch.schema(), None)?;
    writer.write(&batch)?;
    writer.close()?;
    work.write("table.parquet", bytes)?;
    work.write(
        "mix.toml",
        "count = 'bytes'\ntokens = '5k'\noutput_bytes = 2000\n\
         [[source]]\nname = 'web'\nfiles = ['corpus/{lang}/*.jsonl']\nshare = 0.6\ntemperature = 0.5\n\
         [[source]]\nname = 'table'\nfiles = ['table.parquet']\nshare = 0.4\n",
    )?;
    Ok(work)
}

#[test]
fn threads_and_the_order_of_files_change_nothing() -> TestResult {
    let work = small_mix()?;
    command(&work, "one").args(["--threads", "1"]).assert().success();
    command(&work, "two").args(["--threads", "2"]).assert().success();
    let expected = digests(&work.path("one"))?;
    assert_eq!(expected, digests(&work.path("two"))?);
    assert!(expected.contains_key("part-00002.parquet"), "{expected:?}");
    let settings = std::fs::read_to_string(work.path("mix.toml"))?;
    let listed = "files = ['corpus/{lang}/a.jsonl', 'corpus/fra_Latn', 'corpus/{lang}/*']";
    work.write("mix.toml", settings.replace("files = ['corpus/{lang}/*.jsonl']", listed))?;
    command(&work, "listed").assert().success();
    assert_eq!(expected, digests(&work.path("listed"))?);
    // Again, and after an output was lost.
    command(&work, "two").assert().success();
    assert_eq!(expected, digests(&work.path("two"))?);
    std::fs::remove_file(work.path("two/part-00001.parquet"))?;
    command(&work, "two").assert().success();
    assert_eq!(expected, digests(&work.path("two"))?);
    Ok(())
}

#[test]
fn a_kill_at_any_write_boundary_changes_nothing_in_the_end() -> TestResult {
    let work = small_mix()?;
    command(&work, "undisturbed").assert().success();
    let expected = digests(&work.path("undisturbed"))?;
    for boundary in 1.. {
        let killed =
            command(&work, "killed").env("POLYSIFT_KILL_AT", boundary.to_string()).output()?;
        if killed.status.success() {
            assert!(boundary > 40, "only {boundary} boundaries were found");
            break;
        }
        assert_eq!(killed.status.code(), None, "{}", String::from_utf8_lossy(&killed.stderr));
        command(&work, "killed").assert().success();
        assert_eq!(digests(&work.path("killed"))?, expected, "killed at boundary {boundary}");
        std::fs::remove_dir_all(work.path("killed"))?;
    }
    Ok(())
}

#[test]
fn the_order_of_sources_changes_nothing_even_between_a_kill_and_the_resume() -> TestResult {
    let work = small_mix()?;
    let settings = std::fs::read_to_string(work.path("mix.toml"))?;
    let blocks: Vec<&str> = settings.split("[[source]]\n").collect();
    let swapped = [blocks[0], blocks[2], blocks[1]].join("[[source]]\n");
    // Reports have the order of the settings.
    let parts = |out: &str| -> Result<_, Box<dyn Error>> {
        let mut files = digests(&work.path(out))?;
        files.retain(|name, _| name.starts_with("part-"));
        Ok(files)
    };
    command(&work, "one").assert().success();
    work.write("mix.toml", &swapped)?;
    command(&work, "two").assert().success();
    let expected = parts("one")?;
    assert!(expected.len() > 2 && expected == parts("two")?);
    let mut num_killed = 0;
    for boundary in (4..40).step_by(4) {
        work.write("mix.toml", &settings)?;
        let killed =
            command(&work, "killed").env("POLYSIFT_KILL_AT", boundary.to_string()).output()?;
        num_killed += usize::from(killed.status.code().is_none());
        work.write("mix.toml", &swapped)?;
        command(&work, "killed").assert().success();
        assert_eq!(parts("killed")?, expected, "killed at boundary {boundary}");
        std::fs::remove_dir_all(work.path("killed"))?;
    }
    assert!(num_killed > 6, "only {num_killed} were killed");
    Ok(())
}

#[test]
fn processes_share_the_work_and_are_killed_and_nothing_changes() -> TestResult {
    let work = small_mix()?;
    command(&work, "undisturbed").assert().success();
    let expected = digests(&work.path("undisturbed"))?;
    let spawn = |kill_at: Option<usize>| {
        let mut child = std::process::Command::new(env!("CARGO_BIN_EXE_polysift"));
        child.current_dir(work.dir.path()).args(["mix", "-c", "mix.toml", "--out", "shared"]);
        child.args(["--threads", "1"]).envs(kill_at.map(|at| ("POLYSIFT_KILL_AT", at.to_string())));
        child.stdout(Stdio::null()).stderr(Stdio::piped()).spawn()
    };
    let mut num_killed = 0;
    for round in 0..12 {
        let killed = [spawn(Some(2 + 3 * round))?, spawn(Some(3 + 4 * round))?];
        let ending = [spawn(None)?, spawn(None)?];
        for child in killed {
            num_killed += usize::from(child.wait_with_output()?.status.code().is_none());
        }
        for child in ending {
            let output = child.wait_with_output()?;
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        }
        // One that is alone tidies up after the killed ones.
        command(&work, "shared").assert().success();
        assert_eq!(digests(&work.path("shared"))?, expected, "round {round}");
        std::fs::remove_dir_all(work.path("shared"))?;
    }
    assert!(num_killed > 6, "only {num_killed} were killed");
    Ok(())
}

/// Lets another process do all of the work before the shuffle begins, and then looks for files of a
/// shuffle.
struct Late<'a> {
    work: &'a Workspace,
    phases: Mutex<Vec<(String, bool)>>,
}

impl Progress for Late<'_> {
    fn begin(&self, stage: &str, _total: Option<u64>, _unit: &'static str) {
        if stage == "scatter" {
            command(self.work, "out").assert().success();
        }
        let has_files = self.work.path("out/_state/shuffle").exists();
        if let Ok(mut phases) = self.phases.lock() {
            phases.push((stage.to_owned(), has_files));
        }
    }

    fn advance(&self, _units: u64, _tokens: u64) {}

    fn end(&self) {}
}

#[test]
fn nothing_is_shuffled_again_once_another_process_has_written_all() -> TestResult {
    let work = small_mix()?;
    let settings = std::fs::read_to_string(work.path("mix.toml"))?;
    let progress = Late { work: &work, phases: Mutex::new(Vec::new()) };
    mix(&MixRequest {
        config: &MixConfig::from_toml(&settings, "mix.toml")?,
        base: work.dir.path(),
        out: &work.path("out"),
        hub: &HubSettings::from_env(|_| None),
        stop: &Stop::default(),
        progress: &progress,
        redo: false,
        dry_run: false,
    })?;
    let phases = progress.phases.into_inner()?;
    let expected = ["count", "scatter", "gather"].map(|phase| (phase.to_owned(), false));
    assert_eq!(phases, expected);
    Ok(())
}

#[test]
fn a_mixture_that_another_process_works_on_is_not_removed() -> TestResult {
    let work = small_mix()?;
    command(&work, "out").assert().success();
    let (run, stop) = (RunDir::create(&work.path("out/_state"))?, Stop::default());
    let worker = Worker::join(&run, &stop)?;
    command(&work, "out").assert().success();
    command(&work, "out").arg("--redo").assert().code(75).stderr(contains("another process"));
    drop(worker);
    command(&work, "out").arg("--redo").assert().success();
    Ok(())
}

#[test]
fn other_settings_are_refused_until_they_are_asked_for() -> TestResult {
    let work = small_mix()?;
    command(&work, "out").assert().success();
    let settings = std::fs::read_to_string(work.path("mix.toml"))?;
    work.write("mix.toml", format!("seed = 7\n{}", settings.replace("5k", "2k")))?;
    command(&work, "out").assert().code(78).stderr(contains("mix.settings.seed: was 42, now 7"));
    command(&work, "other").assert().success();
    command(&work, "out").arg("--dry-run").assert().success();
    command(&work, "out").arg("--redo").assert().success();
    // A mixture is its parts, not the file about them.
    let mut inspect = crate::util::polysift();
    inspect.arg("inspect").arg(work.path("out")).assert().success().stdout(contains("part-00000"));
    assert_eq!(digests(&work.path("out"))?, digests(&work.path("other"))?);
    // Files of which nobody knows where they come from.
    std::fs::remove_dir_all(work.path("out/_state"))?;
    command(&work, "out").arg("--redo").assert().code(2).stderr(contains("name another folder"));
    Ok(())
}

/// Counts the documents whose tokens are counted.
#[derive(Default)]
struct Counted {
    phase: Mutex<String>,
    documents: AtomicU64,
}

impl Progress for Counted {
    fn begin(&self, stage: &str, _total: Option<u64>, _unit: &'static str) {
        if let Ok(mut phase) = self.phase.lock() {
            stage.clone_into(&mut phase);
        }
    }

    fn advance(&self, units: u64, _tokens: u64) {
        if self.phase.lock().is_ok_and(|phase| *phase == "count") {
            self.documents.fetch_add(units, Ordering::Relaxed);
        }
    }

    fn end(&self) {}
}

#[test]
fn what_was_counted_is_not_counted_again() -> TestResult {
    let work = Workspace::new()?;
    let counted = |settings: &str| -> Result<u64, Box<dyn Error>> {
        let tokenizer = root().join("models/polysift-mini/tokenizer.json");
        let tokenizer = tokenizer.display();
        let text = format!(
            "tokenizer = '{tokenizer}'\n[[source]]\nfiles = ['corpus/{{lang}}/*.jsonl']\n{settings}"
        );
        let progress = Counted::default();
        mix(&MixRequest {
            config: &MixConfig::from_toml(&text, "mix.toml")?,
            base: work.dir.path(),
            out: &work.path("out"),
            hub: &HubSettings::from_env(|_| None),
            stop: &Stop::default(),
            progress: &progress,
            redo: true,
            dry_run: false,
        })?;
        Ok(progress.documents.into_inner())
    };
    // 40 and 25 documents, of which one each has no text.
    assert_eq!(counted("epochs = 1")?, 63);
    assert_eq!(counted("epochs = 0.5\nmin_tokens = 3")?, 0);
    let more = std::fs::read_to_string(work.path("corpus/deu_Latn/a.jsonl"))?
        .replace("deu_Latn-1", "new-");
    work.write("corpus/deu_Latn/a.jsonl", more)?;
    assert_eq!(counted("epochs = 2")?, 24);
    Ok(())
}

#[test]
fn tokens_are_those_of_the_tokenizer_without_special_ones() -> TestResult {
    let work = Workspace::new()?;
    std::fs::remove_dir_all(work.path("corpus/deu_Latn"))?;
    let model = root().join("models/polysift-mini");
    let mut total = 0;
    let tokenized = polysift()
        .current_dir(work.dir.path())
        .args(["tokenize", "corpus/fra_Latn/a.jsonl"])
        .output()?;
    for line in String::from_utf8(tokenized.stdout)?.lines() {
        let chunk: Value = serde_json::from_str(line)?;
        total += chunk["input_ids"].as_array().map_or(0, Vec::len) - 2;
    }
    for name in [model.clone(), model.join("tokenizer.json")] {
        let name = name.display();
        work.write(
            "mix.toml",
            format!("tokenizer = '{name}'\n[[source]]\nfiles = ['corpus/fra_Latn']\nepochs = 1\n"),
        )?;
        command(&work, "out").assert().success();
        assert_eq!(work.json("out/mix.json")?["tokens"], total);
    }
    Ok(())
}

#[test]
fn columns_are_those_in_common_or_all() -> TestResult {
    let work = Workspace::new()?;
    work.write_lines(
        "a.jsonl",
        [json!({"id": "a", "text": "x", "n": 1, "odd": 1, "source": "s"})].into_iter(),
    )?;
    work.write_lines(
        "b.jsonl",
        [json!({"id": "b", "text": "y", "n": 0.5, "odd": "o", "source": "t", "url": "u"})]
            .into_iter(),
    )?;
    let settings = "count = 'bytes'\n[[source]]\nfiles = ['*.jsonl']\nepochs = 1\n";
    work.write("mix.toml", settings)?;
    command(&work, "common").assert().success().stdout(contains("in one type: odd, url"));
    let batch = read_parquet(&work.path("common/part-00000.parquet"))?;
    let names = |batch: &RecordBatch| -> Vec<String> {
        batch.schema().fields().iter().map(|field| field.name().clone()).collect()
    };
    assert_eq!(names(&batch), ["id", "text", "n", "input_source", "source", "copy"]);
    assert_eq!(batch.schema().field_with_name("n")?.data_type(), &DataType::Float64);

    // A file without rows, and a column without values, take no column and no type away.
    work.write("empty.jsonl", "")?;
    work.write_lines(
        "null.jsonl",
        [json!({"id": "c", "text": "z", "n": null, "source": "s"})].into_iter(),
    )?;
    command(&work, "nulls").assert().success().stdout(contains("in one type: odd, url"));
    let batch = read_parquet(&work.path("nulls/part-00000.parquet"))?;
    assert_eq!(names(&batch), ["id", "text", "n", "input_source", "source", "copy"]);
    assert_eq!(batch.column_by_name("n").map(Array::null_count), Some(1));
    // A mixture is an input like any other; its description is not a file of documents.
    let again = ["run", "nulls", "--run", "again", "--model", "none"];
    polysift().current_dir(work.dir.path()).args(again).assert().success();
    for name in ["empty.jsonl", "null.jsonl"] {
        std::fs::remove_file(work.path(name))?;
    }

    work.write("mix.toml", format!("columns = 'union'\n{settings}"))?;
    command(&work, "union").assert().code(65).stderr(contains("b.jsonl: column `odd`"));
    work.write_lines("b.jsonl", [json!({"id": "b", "text": "y", "url": "u"})].into_iter())?;
    command(&work, "union").assert().success();
    let batch = read_parquet(&work.path("union/part-00000.parquet"))?;
    assert_eq!(names(&batch), ["id", "text", "n", "odd", "input_source", "url", "source", "copy"]);
    assert_eq!(batch.column_by_name("url").map(Array::null_count), Some(1));

    // A hash beside fractions would lose bits.
    let hash = json!({"id": "a", "text": "x", "n": (1_u64 << 53) + 1});
    work.write_lines("a.jsonl", [hash].into_iter())?;
    work.write_lines("b.jsonl", [json!({"id": "b", "text": "y", "n": 0.5})].into_iter())?;
    work.write("mix.toml", settings)?;
    let inexact = contains("a.jsonl").and(contains("`n` holds 9007199254740993"));
    command(&work, "inexact").assert().code(65).stderr(inexact);

    // Values that a whole file lacks inside a column take no type away either.
    let meta = |id: &str, meta: &Value| json!({"id": id, "text": "x", "meta": meta});
    let unknown = meta("a", &json!({"tags": [], "score": null}));
    let known = meta("b", &json!({"tags": ["t", "u"], "score": 0.5}));
    work.write_lines("a.jsonl", [unknown].into_iter())?;
    work.write_lines("b.jsonl", [known].into_iter())?;
    command(&work, "inside").assert().success().stdout(contains("in one type").not());
    let batch = read_parquet(&work.path("inside/part-00000.parquet"))?;
    let column = batch.column_by_name("meta").ok_or("no column")?.as_struct();
    let tags = column.column_by_name("tags").ok_or("no tags")?.as_list::<i32>();
    assert_eq!(tags.values().as_string::<i32>().iter().flatten().collect::<Vec<_>>(), ["t", "u"]);
    assert_eq!((tags.len(), tags.null_count()), (2, 0));
    let score = column.column_by_name("score").ok_or("no score")?;
    let scores: Vec<f64> = score.as_primitive::<Float64Type>().iter().flatten().collect();
    assert_eq!(scores, [0.5]);
    Ok(())
}

#[test]
fn bad_settings_and_inputs_are_named() -> TestResult {
    let work = Workspace::new()?;
    work.write_lines("a.jsonl", lines(0..10, 1))?;
    work.write_lines("none.jsonl", lines(0..10, 0))?;
    work.write_lines(
        "bad.jsonl",
        lines(0..3, 1).chain([json!({"id": "x", "text": "x", "n": -1})]),
    )?;
    work.write_lines(
        "heavy.jsonl",
        [json!({"id": "x", "text": "x", "n": u32::MAX, "c": 10_000})].into_iter(),
    )?;
    work.write("broken.parquet", "PAR1, but no more")?;
    work.write("w.json", "[1]")?;
    let column = "count = 'column:n'";
    for (settings, code, message) in [
        ("count = 'bytes'", 2, "source"),
        ("count = 'words'\n[[source]]\nfiles = ['a.jsonl']\nepochs = 1", 2, "column:NAME"),
        ("[[source]]\nfiles = ['a.jsonl']\nepochs = 1", 2, "tokenizer"),
        ("tokenizer = 'no such'\n[[source]]\nfiles = ['a.jsonl']\nepochs = 1", 2, "no such"),
        (
            "tokenizer = 'no/tokenizer.json'\n[[source]]\nfiles = ['a.jsonl']\nepochs = 1",
            66,
            "no/tok",
        ),
        ("COUNT\n[[source]]\nfiles = ['a.jsonl']", 2, "one of `share`, `tokens` and `epochs`"),
        ("COUNT\n[[source]]\nfiles = ['a.jsonl']\nepochs = 1\nepoch = 2", 2, "epoch"),
        ("COUNT\n[[source]]\nfiles = ['a.jsonl']\nepochs = 0", 2, "epochs"),
        ("COUNT\n[[source]]\nfiles = ['a.jsonl']\nepochs = -1.5", 2, "epochs"),
        ("COUNT\n[[source]]\nfiles = ['a.jsonl']\nepochs = nan", 2, "epochs"),
        ("COUNT\n[[source]]\nfiles = ['a.jsonl']\nepochs = 4.1", 2, "the source `source-1`"),
        (
            "COUNT\nmax_epochs = 2\n[[source]]\nname = 'few'\nfiles = ['a.jsonl']\ntokens = 21",
            2,
            "`few`",
        ),
        ("count = 'column:m'\n[[source]]\nfiles = ['corpus']\nepochs = 1", 65, "`m`"),
        ("COUNT\ntokens = 9\n[[source]]\nfiles = ['a.jsonl']\nepochs = 1", 2, "no `share`"),
        ("COUNT\n[[source]]\nfiles = ['a.jsonl']\nshare = 1", 2, "tokens"),
        (
            "COUNT\ntokens = 9\n[[source]]\nfiles = ['a.jsonl']\nshare = 0.5\n\
             [[source]]\nfiles = ['a.jsonl']\nshare = 0.4",
            2,
            "adds up to 0.9, not to 1",
        ),
        ("COUNT\n[[source]]\nfiles = ['nowhere/*.jsonl']\nepochs = 1", 66, "nowhere"),
        ("COUNT\n[[source]]\nfiles = ['none.jsonl']\nepochs = 1", 65, "`source-1` has no tokens"),
        ("COUNT\n[[source]]\nfiles = ['a.jsonl']\nmin_tokens = 2\ntokens = 1", 65, "has no tokens"),
        ("COUNT\n[[source]]\nfiles = ['bad.jsonl']\nepochs = 1", 65, "bad.jsonl: row 4: `n` is -1"),
        ("COUNT\n[[source]]\nfiles = ['broken.parquet']\nepochs = 1", 65, "broken.parquet"),
        ("COUNT\n[[source]]\nfiles = ['a.jsonl']\nepochs = 1\ncopies = 'gone'", 65, "`gone`"),
        ("COUNT\n[[source]]\nfiles = ['bad.jsonl']\nepochs = 1\ncopies = 'id'", 65, "row"),
        ("COUNT\n[[source]]\nfiles = ['a.jsonl']\nepochs = 1\ncopies = 'id'", 65, "(10 bad row(s)"),
        (
            "COUNT\n[[source]]\nfiles = ['a.jsonl']\nepochs = 1\ncopies = { by = 'n', weights = 'w.json' }",
            65,
            "w.json",
        ),
        (
            "COUNT\n[[source]]\nfiles = ['a.jsonl']\nepochs = 1\ncopies = { by = 'n', weights = 'v.json' }",
            66,
            "v.json",
        ),
        (
            "COUNT\n[[source]]\nfiles = ['a.jsonl']\nepochs = 1\nweight = { column = 'n', values = { 1 = 10001 } }",
            2,
            "asks for 10001 copies; 10000 are allowed",
        ),
        (
            "COUNT\n[[source]]\nfiles = ['a.jsonl']\nepochs = 1\nweight = { column = 'n', values = { 2 = 1 } }",
            65,
            "row 1: `n` is 1",
        ),
        (
            "COUNT\noutput_bytes = 1\n[[source]]\nfiles = ['heavy.jsonl']\nepochs = 1\ncopies = 'n'",
            65,
            "copies",
        ),
    ] {
        work.write("mix.toml", settings.replace("COUNT", column))?;
        let output = command(&work, "out").output()?;
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{settings}\n{stderr}");
        assert!(stderr.contains(message) && !stderr.contains("panicked"), "{settings}\n{stderr}");
    }
    std::fs::remove_file(work.path("mix.toml"))?;
    command(&work, "out").assert().code(66).stderr(contains("mix.toml"));
    Ok(())
}

/// What is kept between two runs is not trusted.
#[test]
fn damage_of_what_is_kept_is_an_error() -> TestResult {
    let work = small_mix()?;
    command(&work, "out").assert().success();
    let counts = work.path("out/_state/counts");
    let kept = std::fs::read_dir(&counts)?.next().ok_or("no counts")??.path();
    for damaged in [kept, work.path("out/_state/plan.json"), work.path("out/mix.json")] {
        let whole = std::fs::read(&damaged)?;
        for content in [&b"{}"[..], &whole[..whole.len() / 2], b""] {
            std::fs::write(&damaged, content)?;
            let output = command(&work, "out").output()?;
            let stderr = String::from_utf8_lossy(&output.stderr);
            let code = output.status.code();
            assert!(matches!(code, Some(65 | 78)), "{code:?} {}: {stderr}", damaged.display());
            assert!(!stderr.contains("panicked"), "{stderr}");
        }
        std::fs::write(&damaged, whole)?;
    }
    command(&work, "out").assert().success();
    Ok(())
}
