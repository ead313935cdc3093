//! `polysift annotate`: documents in, the same documents with scores, thresholds and verdicts out.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};

use arrow::array::{Array, AsArray};
use arrow::datatypes::Float64Type;
use predicates::prelude::PredicateBooleanExt;
use predicates::str::{contains, is_empty};
use serde_json::{Value, json};

use crate::util::{TestResult, Workspace, polysift, read_parquet, text};

/// A run of the workspace with filters, whose removed documents are exported too.
fn run() -> Result<Workspace, Box<dyn std::error::Error>> {
    let work = Workspace::new()?;
    work.add_filters()?;
    work.command("run", "out").arg("--keep-removed").assert().success();
    Ok(work)
}

fn annotated(stdout: &[u8]) -> Result<Vec<Value>, serde_json::Error> {
    let lines = stdout.split(|&byte| byte == b'\n').filter(|line| !line.is_empty());
    lines.map(serde_json::from_slice).collect()
}

#[test]
fn another_recipe_of_embeddings_than_the_run_s_is_refused() -> TestResult {
    let work = run()?;
    // The heads say nothing of the recipe that they are for.
    let mut command = polysift();
    command.current_dir(work.dir.path()).args(["annotate", "--run", "out", "--pooling", "cls"]);
    command.write_stdin("{\"id\": 1, \"text\": \"a\", \"language\": \"fra_Latn\"}\n");
    command.assert().code(78).stderr(contains("encoder.pooling: was \"mean\", now \"cls\""));
    Ok(())
}

#[test]
fn documents_of_a_run_get_the_scores_and_verdicts_of_its_export() -> TestResult {
    let work = run()?;
    let mut input = Vec::new();
    for language in ["deu_Latn", "fra_Latn"] {
        let lines = std::fs::read_to_string(work.path(&format!("corpus/{language}/a.jsonl")))?;
        for line in lines.lines().filter(|line| !line.trim().is_empty()) {
            let object = line.strip_suffix('}').ok_or("no object")?;
            input
                .extend_from_slice(format!("{object}, \"language\":\"{language}\"}}\n").as_bytes());
        }
    }
    let mut command = polysift();
    command.current_dir(work.dir.path()).args(["annotate", "--run", "out"]);
    let output = command.write_stdin(input.clone()).output()?;
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let annotated = annotated(&output.stdout)?;

    // What comes out is what came in, byte for byte, and one key more.
    let lines = String::from_utf8(output.stdout)?;
    for (came, went) in String::from_utf8(input)?.lines().zip(lines.lines()) {
        assert!(went.starts_with(&came[..came.len() - 1]), "{went}");
    }

    let mut expected = BTreeMap::new();
    for folder in
        ["export", "removed/quality", "removed/requests", "removed/known", "removed/no_text"]
    {
        for language in ["deu_Latn", "fra_Latn"] {
            let path = work.path(&format!("out/{folder}/{language}/a.parquet"));
            if !path.is_file() {
                continue;
            }
            let rows = read_parquet(&path)?;
            let column = |name| rows.column_by_name(name).ok_or("no such column");
            let (ids, scores) = (column("id")?.as_string::<i32>(), column("quality_score")?);
            let scores = scores.as_primitive::<Float64Type>();
            for row in 0..rows.num_rows() {
                let reason = folder.strip_prefix("removed/");
                let score = scores.is_valid(row).then(|| scores.value(row));
                expected.insert(ids.value(row).to_owned(), (reason, score));
            }
        }
    }
    assert_eq!(expected.len(), 65);
    assert_eq!(annotated.len(), 65);
    for document in &annotated {
        let id = document["id"].as_str().ok_or("no id")?;
        let (reason, score) = &expected[id];
        let annotation = &document["annotation"];
        let verdict = if reason.is_some() { "removed" } else { "kept" };
        assert_eq!(annotation["verdict"], verdict, "{document}");
        assert_eq!(annotation.get("reason").and_then(Value::as_str), *reason, "{document}");
        let found = annotation["scores"]["quality"].as_f64();
        // A document that a filter before the thresholds removes is exported without its score.
        if score.is_some() {
            assert_eq!(found, *score, "{document}");
        }
    }
    // The thresholds are those of the run.
    let selection = work.json("out/selection/fra_Latn.json")?;
    let outcomes = &selection["thresholds"][0]["outcomes"];
    let french = annotated.iter().find(|d| d["language"] == "fra_Latn").ok_or("no French")?;
    assert_eq!(
        french["annotation"]["thresholds"],
        json!([
            {"head": "quality", "retention": 0.1, "score": outcomes[0]["threshold_score"]},
            {"head": "quality", "retention": 0.33, "score": outcomes[1]["threshold_score"]},
        ])
    );
    Ok(())
}

#[test]
fn a_text_alone_is_annotated_by_heads_from_files() -> TestResult {
    let work = Workspace::with_bundled_encoder()?;
    work.command("train", "out").assert().success();
    let annotate = |args: &[&str], input: &str| {
        let mut command = polysift();
        command.current_dir(work.dir.path()).arg("annotate").args(args).write_stdin(input);
        command
    };
    let head = "quality=out/heads/quality/{lang}.safetensors";
    let one = |text: &str| -> Result<f64, Box<dyn std::error::Error>> {
        let output = annotate(&["--head", head, "--language", "fra_Latn"], text).output()?;
        let documents = annotated(&output.stdout)?;
        assert_eq!(documents[0]["text"], text);
        assert_eq!(documents[0]["annotation"].get("verdict"), None);
        Ok(documents[0]["annotation"]["scores"]["quality"].as_f64().ok_or("no score")?)
    };
    assert!(one(&text(201))? > one(&text(200))?);
    // There is a head for each of two languages, and the text does not say which is its own.
    annotate(&["--head", head], "un texte").assert().code(2).stderr(contains("--language"));
    annotate(&["--head", "quality=nothing.safetensors"], "un texte").assert().code(66);
    // The settings say it.
    work.write("said.toml", "[input]\nlanguage = 'fra_Latn'\n")?;
    let said = ["-c", "said.toml", "--head", head];
    annotate(&said, "un texte").assert().success().stdout(contains("quality"));
    // JSON lines with a byte order mark are JSON lines; an array of objects is no text.
    let lines = "\u{feff}{\"text\":\"un\"}\n{\"text\":\"deux\"}\n";
    let output = annotate(&["--head", head, "--language", "fra_Latn"], lines).output()?;
    assert_eq!(
        annotated(output.stdout.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(&output.stdout))?.len(),
        2
    );
    let array = annotate(&["--head", head, "--language", "fra_Latn"], " [ {\"text\": 1}]");
    { array }.assert().code(2).stderr(contains("is a JSON array"));
    annotate(&[], "un texte").assert().code(2).stderr(contains("--run"));
    let in_a_run = contains("heads.quality: is trained in a run; name the run");
    annotate(&["-c", "run.toml"], "un texte").assert().code(66).stderr(in_a_run);
    annotate(&["--head", head, "--language", "fra_Latn"], "").assert().success().stdout(is_empty());
    Ok(())
}

#[test]
fn bad_lines_are_named_and_the_others_go_on() -> TestResult {
    let work = Workspace::new()?;
    work.command("run", "out").assert().success();
    let input = [
        r#"{"text": "one", "language": "fra_Latn", "n": 12345678901234567890123, "x": 1.10}"#,
        "{\"text\": \"two\", ",
        r#"{"txt": "three", "language": "fra_Latn"}"#,
        r#"{"text": "four"}"#,
        "",
        r#"{"text": "six", "language": "fra_Latn", "annotation": 1}"#,
        r#"{"text": 7, "language": "fra_Latn"}"#,
        r#"{"text": null, "language": "ita_Latn"}"#,
        r#"{"text": "nine", "language": "fra", "language_script": "Latn"}"#,
    ];
    let mut command = polysift();
    command.current_dir(work.dir.path()).args(["annotate", "--run", "out"]);
    let output = command.write_stdin(input.join("\n")).output()?;
    let errors = String::from_utf8(output.stderr)?;
    assert_eq!(output.status.code(), Some(65), "{errors}");
    for (line, reason) in [
        (2, "is not JSON"),
        (3, "has no `text`; its keys are txt, language"),
        (4, "has no language"),
        (6, "has a `annotation` already"),
        (7, "`text` is a number"),
    ] {
        assert!(errors.contains(&format!("standard input: line {line}: {reason}")), "{errors}");
    }
    assert!(errors.contains("5 bad row(s)"), "{errors}");
    let lines = String::from_utf8(output.stdout)?;
    assert!(lines.starts_with(r#"{"text": "one", "language": "fra_Latn", "n": 12345678901234567890123, "x": 1.10, "annotation": "#));
    let documents = annotated(lines.as_bytes())?;
    let languages: Vec<_> = documents.iter().map(|d| &d["annotation"]["language"]).collect();
    assert_eq!(languages, ["fra_Latn", "ita_Latn", "fra_Latn"]);
    // No head and no thresholds for Italian.
    assert_eq!(documents[1]["annotation"]["scores"], json!({"quality": null}));
    assert_eq!(documents[1]["annotation"].get("verdict"), None);
    Ok(())
}

#[test]
fn who_sends_one_document_gets_its_answer_before_the_next() -> TestResult {
    let work = Workspace::new()?;
    work.command("run", "out").assert().success();
    let mut child = Command::new(polysift().get_program())
        .current_dir(work.dir.path())
        .args(["annotate", "--run", "out", "--language", "fra_Latn"])
        .env("POLYSIFT_DEVICE", "cpu")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let mut input = child.stdin.take().ok_or("no input")?;
    let mut output = BufReader::new(child.stdout.take().ok_or("no output")?);
    for i in 0..3 {
        writeln!(input, "{}", json!({"id": i, "text": text(i)}))?;
        let mut line = String::new();
        output.read_line(&mut line)?;
        assert_eq!(serde_json::from_str::<Value>(&line)?["id"], i);
    }
    drop(input);
    assert!(child.wait()?.success());
    Ok(())
}

#[test]
fn a_reader_that_has_enough_ends_it_quietly() -> TestResult {
    let work = Workspace::new()?;
    work.command("run", "out").assert().success();
    let lines =
        (0..1100).map(|i| json!({"text": text(i), "language": "fra_Latn"}).to_string() + "\n");
    work.write("many.jsonl", lines.collect::<String>())?;
    let program = polysift().get_program().to_owned();
    let pipe = "set -o pipefail; \"$0\" annotate --run out < many.jsonl | head -n 2";
    let output = Command::new("bash")
        .args(["-c", pipe])
        .arg(program)
        .env("POLYSIFT_DEVICE", "cpu")
        .current_dir(work.dir.path())
        .output()?;
    assert_eq!(annotated(&output.stdout)?.len(), 2);
    assert!(output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
    Ok(())
}

#[test]
fn the_highest_rows_of_files_are_shown() -> TestResult {
    let work = Workspace::new()?;
    work.command("run", "out").arg("--keep-removed").assert().success();
    let inspect = |args: &[&str]| {
        let mut command = polysift();
        command.current_dir(work.dir.path()).arg("inspect").args(args);
        command
    };
    let folders = ["out/export", "out/removed"];
    let shown = |args: &[&str]| -> Result<Vec<(f64, String)>, Box<dyn std::error::Error>> {
        let output = inspect(&[&folders[..], args, &["--json"]].concat()).output()?;
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let rows = annotated(&output.stdout)?;
        let row = |row: &Value| {
            let columns = &row["columns"];
            let id = columns["id"].as_str().ok_or("no id")?.to_owned();
            Ok((columns["quality_score"].as_f64().ok_or("no score")?, id))
        };
        rows.iter().map(row).collect()
    };
    let all = shown(&["--sort-by", "quality_score", "--rows", "1000"])?;
    // All rows but two of each language without a text, which have no score.
    assert_eq!(all.len(), 61);
    assert!(all.windows(2).all(|two| two[0].0 >= two[1].0));
    assert_eq!(shown(&["--sort-by", "quality_score"])?, all[..10]);
    let lowest = shown(&["--sort-by", "quality_score", "--ascending", "--rows", "3"])?;
    let scores = |rows: &[(f64, String)]| rows.iter().map(|(score, _)| *score).collect::<Vec<_>>();
    assert_eq!(scores(&lowest), scores(&all[58..]).into_iter().rev().collect::<Vec<_>>());
    inspect(&["corpus", "--rows", "2"])
        .assert()
        .success()
        .stdout(contains("file: corpus/deu_Latn/a.jsonl").and(contains("id: deu_Latn-1\n")));
    inspect(&["corpus", "--sort-by", "text"])
        .assert()
        .code(65)
        .stderr(contains("needed are numbers"));
    inspect(&["corpus", "--sort-by", "score"])
        .assert()
        .code(65)
        .stderr(contains("there is none; the columns are"));
    Ok(())
}

#[test]
fn scores_and_flags_are_those_of_the_run() -> TestResult {
    let work = Workspace::new()?;
    work.write("words.txt", "rouge\nbleu\n")?;
    work.write(
        "run.toml",
        "[input]\nfiles = ['in/{lang}/*.jsonl']\n[encoder]\nmodel = 'none'\n\
         [heads.a]\nkind = 'column'\nscore = 's'\n[heads.chance]\nkind = 'random'\n\
         [filters.colours]\nkind = 'words'\nlists = ['words.txt']\naction = 'flag'\n\
         [languages._default]\nretention = { a = 1.0 }\n",
    )?;
    let rows = [("d0", json!("un mot rouge")), ("d1", Value::Null), ("d2", json!(" "))];
    let rows = rows.map(|(id, text)| json!({"id": id, "text": text, "s": 0.5}));
    work.write_lines("in/fra_Latn/a.jsonl", rows.iter().cloned())?;
    work.command("run", "out").assert().success();
    let exported = read_parquet(&work.path("out/export/fra_Latn/a.parquet"))?;
    let flag = exported.column_by_name("colours").ok_or("no flag")?.as_string::<i32>();
    assert_eq!((exported.num_rows(), flag.value(0)), (1, "rouge"));

    let input: String = rows.iter().map(|row| row.to_string() + "\n").collect();
    let mut command = polysift();
    command.current_dir(work.dir.path()).args(["annotate", "--run", "out"]);
    let output = command.args(["--language", "fra_Latn"]).write_stdin(input).output()?;
    let documents = annotated(&output.stdout)?;
    let [first, others @ ..] = &documents[..] else { return Err("no documents".into()) };
    assert_eq!(first["annotation"]["scores"]["a"], 0.5);
    assert!(first["annotation"]["scores"]["chance"].is_f64());
    assert_eq!(first["annotation"]["flags"], json!({"colours": "rouge"}));
    assert_eq!(others.len(), 2);
    for other in others {
        assert_eq!(other["annotation"]["scores"], json!({"a": null, "chance": null}));
        assert_eq!(other["annotation"]["reason"], "no_text");
    }
    Ok(())
}
