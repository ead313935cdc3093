//! One story per document: what each command says of it agrees with what the others say.
//!
//! One run has all that can befall a document: blank texts, filters before and after the thresholds, one that flags, two
//! that cut and leave nothing of some texts, near duplicates, a cascade that drops and audits, ties, and documents without a score of one
//! head. The folders of its export are the story that `annotate`, `report`, `evaluate`, `sample`, `status`, `verify` and
//! the audit are held against.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use arrow::array::{Array, AsArray};
use arrow::datatypes::Float64Type;
use serde_json::{Value, json};

use crate::cascade::{CASCADE, workspace};
use crate::util::{TestResult, Workspace, polysift, read_parquet};

type Failure = Box<dyn std::error::Error>;

const FILTERS: &str = "
[filters.early]
kind = 'ids'
lists = ['early.txt']
[filters.late]
kind = 'ids'
lists = ['late.txt']
when = 'after'
[filters.marked]
kind = 'ids'
lists = ['marked.txt']
action = 'flag'
[filters.one]
kind = 'decontamination'
index = 'one.idx'
action = 'cut'
[filters.two]
kind = 'decontamination'
index = 'two.idx'
action = 'cut'
[filters.near]
kind = 'embeddings'
similarity = 0.9998
head = 'quality'
";

/// A document as the export has it.
struct Exported {
    /// `kept`, or the reason of removal.
    folder: String,
    scores: BTreeMap<&'static str, Option<f64>>,
    is_flagged: bool,
}

fn words(start: usize) -> String {
    (start..start + 17).map(|i| format!("word{i}")).collect::<Vec<_>>().join(" ")
}

fn command(work: &Workspace, arguments: &[&str]) -> assert_cmd::Command {
    let mut command = polysift();
    command.current_dir(work.dir.path()).args(arguments);
    command
}

/// Lines of the French corpus.
fn corpus(work: &Workspace) -> Result<Vec<Value>, Failure> {
    let mut rows = Vec::new();
    for file in ["a", "b", "c"] {
        let text = std::fs::read_to_string(work.path(&format!("corpus/fra_Latn/{file}.jsonl")))?;
        for line in text.lines() {
            rows.push(serde_json::from_str(line)?);
        }
    }
    Ok(rows)
}

/// The run `out` with everything that can befall a document.
fn run() -> Result<Workspace, Failure> {
    let work = workspace()?;
    let mut rows = corpus(&work)?;
    let (first, second) = (words(100), words(600));
    // Each filter leaves more than 200 characters, both together nothing; and a text of which pieces stay.
    let erased = format!("{first}{} {second}", " x".repeat(175));
    let (before, behind) = ("before ".repeat(200), " behind".repeat(200));
    for (id, text) in [("erased", erased), ("pieces", format!("{before}{first}{behind}"))] {
        rows.push(json!({"id": id, "text": text}));
    }
    for (at, row) in rows.iter_mut().enumerate() {
        // Many ties, and no value for one in seven.
        row["edu"] = if at % 7 == 3 { Value::Null } else { json!(at % 5) };
    }
    let third = rows.len().div_ceil(3);
    for (file, rows) in ["a", "b", "c"].iter().zip(rows.chunks(third)) {
        work.write_lines(&format!("corpus/fra_Latn/{file}.jsonl"), rows.iter().cloned())?;
    }
    std::fs::remove_dir_all(work.path("corpus/deu_Latn"))?;
    let ids = |step: usize| -> String {
        let ids = rows[..rows.len() - 2].iter().filter_map(|row| row["id"].as_str());
        ids.step_by(step).fold(String::new(), |list, id| list + id + "\n")
    };
    for (list, step) in [("early", 11), ("late", 4), ("marked", 6)] {
        work.write(&format!("{list}.txt"), ids(step))?;
    }
    for (index, start) in [("one", 100), ("two", 600)] {
        let item = json!({"task": index, "question": words(start), "language": "fra_Latn"});
        work.write_lines(&format!("{index}.jsonl"), [item].into_iter())?;
        let (items, out) = (format!("{index}.jsonl"), format!("{index}.idx"));
        let build = ["dataset", "benchmarks", "--items", &items, "--out", &out];
        command(&work, &build).assert().success();
    }
    let settings = std::fs::read_to_string(work.path("run.toml"))?;
    let edu = "[heads.edu]\nkind = 'column'\nscore = 'edu'\n[languages._default]";
    let settings = settings.replace("[languages._default]", edu);
    work.write("run.toml", settings + FILTERS + CASCADE)?;
    work.command("run", "out").args(["--keep-removed", "--quiet"]).assert().success();
    Ok(work)
}

/// The export by id.
fn exported(work: &Workspace) -> Result<BTreeMap<String, Exported>, Failure> {
    let mut found = BTreeMap::new();
    let mut take = |folder: &str, path: &Path| -> Result<(), Failure> {
        for file in ["a", "b", "c"] {
            let path = path.join(format!("fra_Latn/{file}.parquet"));
            if !path.is_file() {
                continue;
            }
            let batch = read_parquet(&path)?;
            let column = |name: &str| batch.column_by_name(name).ok_or(format!("no {name}"));
            let (ids, flags) = (column("id")?, column("marked")?);
            let scores = [("quality", column("quality_score")?), ("edu", column("edu_score")?)];
            for at in 0..batch.num_rows() {
                let mut of_heads = BTreeMap::new();
                for (head, column) in &scores {
                    let column = column.as_primitive::<Float64Type>();
                    of_heads.insert(*head, column.is_valid(at).then(|| column.value(at)));
                }
                let id = ids.as_string::<i32>().value(at).to_owned();
                let is_flagged = flags.is_valid(at);
                let document = Exported { folder: folder.to_owned(), scores: of_heads, is_flagged };
                assert!(found.insert(id, document).is_none(), "exported twice");
            }
        }
        Ok(())
    };
    take("kept", &work.path("out/export"))?;
    for folder in std::fs::read_dir(work.path("out/removed"))? {
        let folder = folder?;
        take(&folder.file_name().to_string_lossy(), &folder.path())?;
    }
    Ok(found)
}

fn json_of(work: &Workspace, arguments: &[&str]) -> Result<Value, Failure> {
    let output = command(work, arguments).output()?;
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Ok(serde_json::from_slice(&output.stdout)?)
}

/// The thresholds know the documents that the export calls `dropped`. The audit also counts those that filters remove:
/// neither were they encoded.
fn check_audit(work: &Workspace, dropped: u64) -> TestResult {
    let selection = work.json("out/selection/fra_Latn.json")?;
    assert_eq!(selection["thresholds"][0]["dropped"]["num_documents"], dropped);
    let audit = selection["cascade"]["dropped"].as_u64().ok_or("no audit")?;
    let status = json_of(work, &["status", "out", "--json"])?.to_string();
    assert!(status.contains(&format!("\"dropped\":{audit}")), "{audit} {status}");
    assert!(audit > dropped, "{audit}");
    Ok(())
}

#[test]
fn all_commands_tell_one_story_of_each_document() -> TestResult {
    let work = run()?;
    let story = exported(&work)?;
    let rows = corpus(&work)?;
    assert_eq!(story.len(), rows.len(), "every document is in one folder");
    let count = |folder: &str| story.values().filter(|d| d.folder == folder).count() as u64;
    for folder in ["kept", "quality", "no_text", "early", "late", "near", "cascade"] {
        assert!(count(folder) > 10, "{folder}: {}", count(folder));
    }
    // What two filters that cut erase between them is removed by the second of them, after the thresholds.
    assert_eq!(story["erased"].folder, "two");

    // annotate: it knows no cascade and compares no documents, so it says what would become of a dropped document or a
    // near duplicate otherwise.
    let input: String =
        rows.iter().fold(String::new(), |text, row| text + &with_language(row.clone()) + "\n");
    let annotate = command(&work, &["annotate", "--run", "out"]).write_stdin(input).output()?;
    assert!(annotate.status.success(), "{}", String::from_utf8_lossy(&annotate.stderr));
    for line in String::from_utf8(annotate.stdout)?.lines() {
        let row: Value = serde_json::from_str(line)?;
        let (id, said) = (row["id"].as_str().unwrap_or_default(), &row["annotation"]);
        let known = &story[id];
        let expected = match known.folder.as_str() {
            "kept" => (json!("kept"), Value::Null),
            "cascade" | "near" => continue,
            folder => (json!("removed"), json!(folder)),
        };
        assert_eq!((&said["verdict"], &said["reason"]), (&expected.0, &expected.1), "{row}");
        assert_eq!(said["flags"].get("marked").is_some(), known.is_flagged, "{row}");
    }

    // The documents that the thresholds were computed over.
    let early = std::fs::read_to_string(work.path("early.txt"))?;
    let early: BTreeSet<&str> = early.lines().collect();
    let counts = |id: &str, document: &Exported| !early.contains(id) && document.folder != "near";
    let counted = story.iter().filter(|(id, document)| counts(id, document));
    let counted: Vec<&Exported> = counted.map(|(_, document)| document).collect();
    let with_text = counted.iter().filter(|d| d.folder != "no_text").count() as u64;
    check_audit(&work, count("cascade"))?;

    command(&work, &["report", "out", "--out", "page", "--compare", "out"]).assert().success();
    let report = work.json("page/report.json")?;
    let language = &report["languages"][0];
    assert_eq!(language["documents"], counted.len() as u64, "the report");
    // The report counts what the thresholds keep: filters after them are not its selections'.
    assert_eq!(
        language["selected"]["quality=0.2"]["documents"],
        count("kept") + count("late") + count("two")
    );
    let compared = &report["compare"]["languages"][0];
    for key in ["here", "there", "both"] {
        assert_eq!(compared[key], count("kept"), "{key} in the comparison with itself");
    }
    let examples = language["examples"].as_array().ok_or("no examples")?;
    let told: BTreeMap<&str, Vec<&Value>> =
        examples.iter().fold(BTreeMap::new(), |mut told, row| {
            let known = &story[row["id"].as_str().unwrap_or_default()];
            let verdict = match known.folder.as_str() {
                "kept" => "quality=0.2".to_owned(),
                folder => format!("removed: {folder}"),
            };
            assert_eq!(row["verdict"], verdict, "{row}");
            let is_filtered = ["late", "two"].contains(&known.folder.as_str());
            assert!(!is_filtered || row["filter"] == known.folder, "{row}");
            told.entry(&known.folder).or_default().push(row);
            told
        });
    for folder in ["kept", "quality", "late"] {
        assert!(told.contains_key(folder), "no example of {folder}");
    }
    let scored = |head: &str| {
        let counts = |d: &&&Exported| d.folder != "cascade" && d.scores[head].is_some();
        counted.iter().filter(counts).count() as u64
    };
    for head in ["quality", "edu"] {
        assert_eq!(language["scores"][head]["n"], scored(head), "{head} in the report");
    }

    let agreement = json_of(&work, &["evaluate", "--run", "out", "--json", "--quiet"])?;
    let both = |d: &&&Exported| d.folder != "cascade" && d.scores.values().all(Option::is_some);
    let expected = counted.iter().filter(both).count() as u64;
    let pairs = agreement["agreement"].as_array().ok_or(format!("no pairs: {agreement}"))?;
    assert_eq!(pairs[0]["documents"], expected, "{agreement}");
    assert_eq!(report["agreement"][0]["documents"], expected, "agreement in the report");

    let sample = ["sample", "out", "--out", "sample.jsonl", "--count", "5000", "--json", "--quiet"];
    let sample = json_of(&work, &sample)?;
    let of_language = sample.get(0).unwrap_or(&sample["languages"][0]);
    assert_eq!(of_language["documents"], with_text, "{sample}");
    let drawn = std::fs::read_to_string(work.path("sample.jsonl"))?;
    for line in drawn.lines() {
        let row: Value = serde_json::from_str(line)?;
        let known = &story[row["id"].as_str().unwrap_or_default()];
        assert!(!["no_text", "early", "near"].contains(&known.folder.as_str()), "{row}");
        for (head, score) in &known.scores {
            let expected = score.filter(|_| known.folder != "cascade");
            let found = row["scores"][*head].as_f64();
            assert_eq!(found.is_some(), expected.is_some(), "{head} of {row}");
        }
    }

    let status = json_of(&work, &["status", "out", "--json"])?;
    let stages = status["stages"].as_array().ok_or("no stages")?;
    let export = stages.iter().find(|stage| stage["stage"] == "export").ok_or("no export")?;
    for (folder, documents) in export["counts"].as_object().ok_or("no counts")? {
        assert_eq!(*documents, count(folder), "{folder} in status");
    }
    command(&work, &["verify", "out"]).assert().success();
    Ok(())
}

fn with_language(mut row: Value) -> String {
    row["language"] = json!("fra_Latn");
    row.to_string()
}
