//! The command line itself.

use std::fs::File;
use std::sync::Arc;

use arrow::array::{ArrayRef, NullArray, RecordBatch};
use parquet::arrow::ArrowWriter;
use predicates::prelude::PredicateBooleanExt;
use predicates::str::contains;
use serde_json::{Value, json};

use crate::util::{TestResult, Workspace, polysift, root};

#[test]
fn the_version_names_the_commit() {
    polysift().arg("--version").assert().success().stdout(contains(env!("CARGO_PKG_VERSION")));
}

#[test]
fn every_command_explains_itself() {
    for command in [
        "run",
        "embed",
        "train",
        "score",
        "threshold",
        "export",
        "status",
        "verify",
        "inspect",
        "annotate",
        "evaluate",
        "sample",
        "card",
        "mix",
        "report",
        "head",
        "tokenize",
        "devices",
        "slurm",
        "completions",
        "man",
    ] {
        polysift().args([command, "--help"]).assert().success().stdout(contains("Usage"));
    }
}

#[test]
fn log_lines_are_selected_by_words_that_are_known() {
    let mut wrong = polysift();
    wrong.env("RUST_LOG", "polysift=loud").arg("models");
    wrong.assert().code(2).stderr(contains("RUST_LOG"));
}

#[test]
fn completions_are_printed() {
    polysift().args(["completions", "bash"]).assert().success().stdout(contains("_polysift"));
}

#[test]
fn man_pages_of_all_commands_are_written() -> TestResult {
    let dir = tempfile::tempdir()?;
    let folder = dir.path().join("man/man1");
    polysift().arg("man").arg(&folder).assert().success();
    for (page, text) in [
        ("polysift.1", "polysift\\-threshold(1)"),
        ("polysift-embed.1", "\\-\\-precision"),
        ("polysift-head-import.1", "polysift\\-head\\-import"),
    ] {
        let found = std::fs::read_to_string(folder.join(page))?;
        assert!(found.contains(text), "{page}: {found}");
    }
    polysift().args(["man", "/dev/null/man"]).assert().code(74).stderr(contains("/dev/null/man"));
    Ok(())
}

#[test]
fn an_unknown_flag_or_setting_is_a_usage_error() -> TestResult {
    polysift().args(["run", "--nonsense"]).assert().code(2);
    let work = Workspace::new()?;
    work.write("run.toml", "[input]\nfils = []\n")?;
    work.command("run", "out").assert().code(2).stderr(contains("fils").and(contains("run.toml")));
    Ok(())
}

#[test]
fn tokenize_prints_the_ids_of_every_chunk() -> TestResult {
    let work = Workspace::new()?;
    let output = polysift()
        .current_dir(work.dir.path())
        .args(["tokenize", "corpus/{lang}/*.jsonl", "--chunks", "all", "--max-tokens", "8"])
        .output()?;
    assert!(output.status.success());
    let lines = String::from_utf8(output.stdout)?;
    let first: serde_json::Value = serde_json::from_str(lines.lines().next().ok_or("no line")?)?;
    assert_eq!(first["chunk"], 0);
    let ids = first["input_ids"].as_array().ok_or("no ids")?;
    assert_eq!((ids.first(), ids.last()), (Some(&0.into()), Some(&2.into())));
    assert!(ids.len() <= 8);
    Ok(())
}

#[test]
fn tokenize_needs_an_encoder() -> TestResult {
    let work = Workspace::new()?;
    let mut command = polysift();
    command.current_dir(work.dir.path());
    command.args(["tokenize", "corpus/{lang}/*.jsonl", "--model", "none"]);
    command.assert().code(2).stderr(contains("encoder.model: is `none`, and `tokenize` prints"));
    Ok(())
}

/// An empty name is not that of the folder in which the command runs.
#[test]
fn a_model_without_a_name_is_refused() -> TestResult {
    let work = Workspace::new()?;
    let mut command = polysift();
    command.current_dir(work.dir.path()).args(["tokenize", "corpus/{lang}/*.jsonl", "--model", ""]);
    command.assert().code(2).stderr(contains("encoder.model: `` is neither"));
    Ok(())
}

#[test]
fn inspect_describes_files_heads_and_runs() -> TestResult {
    let work = Workspace::new()?;
    work.command("run", "out").assert().success();
    let inspect = |path: &str| {
        let mut command = polysift();
        command.arg("inspect").arg(work.path(path));
        command
    };
    inspect("out/export/fra_Latn/a.parquet")
        .assert()
        .success()
        .stdout(contains("quality_score").and(contains("quantiles")));
    inspect("out/heads/quality/fra_Latn.safetensors")
        .assert()
        .success()
        .stdout(contains("fra_Latn"));
    let told = contains("quality retention").and(contains("kept; removed:"));
    inspect("out").assert().success().stdout(told);
    inspect("corpus/fra_Latn/a.jsonl").assert().success().stdout(contains("rows: 40"));
    inspect("nothing.parquet").assert().code(66);
    Ok(())
}

#[test]
fn inspect_takes_files_and_directories_and_adds_them_up() -> TestResult {
    let work = Workspace::new()?;
    work.write("corpus/note.txt", "not data")?;
    work.write_lines("corpus/ita_Latn/b.jsonl", [json!({"text": null, "n": 0.5})].into_iter())?;
    let inspect = |args: &[&str]| {
        let mut command = polysift();
        command.current_dir(work.dir.path()).arg("inspect").args(args);
        command
    };
    inspect(&["corpus"]).assert().success().stdout(
        contains("file: corpus/deu_Latn/a.jsonl")
            .and(contains("total:\n  files: 3\n"))
            .and(contains("rows: 66")),
    );
    let output = inspect(&["corpus/fra_Latn/a.jsonl", "corpus/ita_Latn", "--json"]).output()?;
    let lines = String::from_utf8(output.stdout)?;
    let lines: Vec<Value> = lines.lines().map(serde_json::from_str).collect::<Result<_, _>>()?;
    assert_eq!(lines.len(), 3);
    assert_eq!((&lines[0]["rows"], &lines[1]["rows"]), (&json!(40), &json!(1)));
    let total = &lines[2]["total"];
    assert_eq!((&total["files"], &total["rows"]), (&json!(2), &json!(41)));
    assert_eq!(total["columns"]["text"], json!({"type": "Utf8", "nulls": 2}));
    assert_eq!(total["columns"]["n"], json!({"type": "Float64 | Int64", "nulls": 0, "nans": 0}));
    let column: ArrayRef = Arc::new(NullArray::new(3));
    let nulls = RecordBatch::try_from_iter_with_nullable([("none", column, true)])?;
    let mut writer =
        ArrowWriter::try_new(File::create(work.path("n.parquet"))?, nulls.schema(), None)?;
    writer.write(&nulls)?;
    writer.close()?;
    inspect(&["n.parquet"]).assert().success().stdout(contains("type: Null\n    nulls: 3"));
    // One file is one object, as ever.
    let output = inspect(&["corpus/ita_Latn", "--json"]).output()?;
    let one: Value = serde_json::from_slice(&output.stdout)?;
    assert_eq!(one["rows"], 1);
    inspect(&["corpus", "nothing.parquet"]).assert().code(66);
    inspect(&[]).assert().code(2);
    Ok(())
}

#[test]
fn settings_are_told_where_they_come_from() -> TestResult {
    let work = Workspace::new()?;
    for (set, told) in [
        ("nosuch.key=1", "--set nosuch.key: unknown field `nosuch`"),
        (
            "encoder.max_tokens=many",
            "--set encoder.max_tokens: is the text \"many\"; a whole number",
        ),
    ] {
        work.command("run", "out")
            .args(["--set", set])
            .assert()
            .code(2)
            .stderr(contains(told).and(contains("run.toml").not()).and(contains("line 1").not()));
    }
    work.command("run", "out")
        .args(["--seed", "9223372036854775808"])
        .assert()
        .code(2)
        .stderr(contains("--seed").and(contains("0..=9223372036854775807")));
    work.command("run", "out")
        .args(["--retention", "foo=0.5"])
        .assert()
        .code(2)
        .stderr(contains("languages._default.retention: names the head `foo`"))
        .stderr(contains("(there are: quality); define it by"));
    polysift()
        .current_dir(work.dir.path())
        .args(["embed", "--run", "missing"])
        .assert()
        .code(66)
        .stderr(contains("missing: no such run directory").and(contains("name its input")));
    assert!(!work.path("missing").exists());
    work.write("latin1.toml", b"# settings\nrun_dir = 'caf\xe9'\n")?;
    polysift()
        .current_dir(work.dir.path())
        .args(["run", "-c", "latin1.toml"])
        .assert()
        .code(2)
        .stderr(contains("latin1.toml: is not UTF-8 in line 2"));
    Ok(())
}

#[test]
fn a_rate_alone_is_as_good_as_a_list() -> TestResult {
    let work = Workspace::new()?;
    let settings = std::fs::read_to_string(work.path("run.toml"))?;
    let alone = settings.replace("quality = [0.1, 0.33]", "quality = 0.1");
    assert_ne!(alone, settings);
    work.write("run.toml", alone)?;
    work.command("run", "out").assert().success();
    let report = work.json("out/selection/fra_Latn.json")?;
    let rates = &report["thresholds"][0]["outcomes"];
    assert_eq!(rates.as_array().map(Vec::len), Some(1));
    assert_eq!(rates[0]["kept"]["num_documents"], 4, "a tenth of 38");
    Ok(())
}

#[test]
fn published_heads_are_imported_by_their_names() -> TestResult {
    let work = Workspace::new()?;
    let golden = root().join("tests/golden/heads_import");
    std::fs::create_dir(work.path("published"))?;
    for (from, to) in [("deu_Latn.pt", "fra_Latn.pt"), ("german_cls.pth", "german_cls.pth")] {
        std::fs::copy(golden.join(from), work.path("published").join(to))?;
    }
    work.write("published/README.md", "not a head")?;
    polysift()
        .current_dir(work.dir.path())
        .args(["head", "import", "published", "--out", "heads"])
        .assert()
        .success()
        .stdout(contains("class:1").and(contains("heads/fra_Latn.safetensors")));
    polysift()
        .current_dir(work.dir.path())
        .args(["inspect", "heads/deu_Latn.safetensors"])
        .assert()
        .success()
        .stdout(contains("german_cls.pth").and(contains("xlm-roberta-base")));
    Ok(())
}

#[test]
fn an_import_that_cannot_be_right_writes_nothing() -> TestResult {
    let work = Workspace::new()?;
    let golden = root().join("tests/golden/heads_import");
    std::fs::create_dir(work.path("published"))?;
    for to in ["deu_Latn.pt", "german.pt"] {
        std::fs::copy(golden.join("deu_Latn.pt"), work.path("published").join(to))?;
    }
    let import = |args: &[&str]| {
        let mut command = polysift();
        command.current_dir(work.dir.path()).args(["head", "import"]).args(args);
        command.assert()
    };
    let one = "published/deu_Latn.pt";
    import(&["published", "--out", "heads"]).code(2).stderr(contains("have the same language"));
    import(&["published", "--out", "x.safetensors"]).code(2).stderr(contains("--out"));
    import(&["published", "--out", "heads", "--language", "x"]).code(2);
    import(&[one, "--out", "heads", "--language", "../evil"])
        .code(2)
        .stderr(contains("--language: `../evil` is not made of up to 64"));
    import(&[one, "nowhere.pt", "--out", "heads"]).code(66).stderr(contains("nowhere.pt"));
    import(&[one, "run.toml", "--out", "heads"]).code(65).stderr(contains("run.toml"));
    work.write("nameless.pt", std::fs::read(work.path(one))?)?;
    import(&["nameless.pt", "--out", "heads"]).code(2).stderr(contains("--language"));
    assert!(!work.path("heads").exists() && !work.path("x.safetensors").exists());
    assert!(!work.path("evil.safetensors").exists());
    Ok(())
}

#[test]
fn progress_on_json_lines_is_told_by_the_bytes_of_what_is_encoded() -> TestResult {
    let work = Workspace::new()?;
    let output = work.command("embed", "out").args(["--log-format", "json"]).output()?;
    let lines = String::from_utf8(output.stderr)?;
    let ended = lines.lines().rfind(|line| line.contains(r#""ended":true"#));
    let told: Value = serde_json::from_str(ended.ok_or("no progress")?)?;
    assert_eq!((&told["total"], &told["share"]), (&Value::Null, &json!(1.0)), "{told}");
    assert_eq!(told["eta_secs"], 0.0, "{told}");
    Ok(())
}

#[test]
fn init_writes_settings_that_run_for_the_files_it_finds() -> TestResult {
    let work = Workspace::new()?;
    std::fs::remove_file(work.path("run.toml")).ok();
    let polysift_in = |folder: &str, args: &[&str]| {
        let mut command = polysift();
        command.current_dir(work.path(folder)).args(args);
        command
    };
    let labelled = ["positive", "negative"].map(|label| json!({"text": label, "label": label}));
    work.write_lines("labelled/toxicity/fra_Latn.jsonl", labelled.clone().into_iter())?;
    work.write_lines("raw/x.jsonl", [json!({"body": "no language", "n": 1})].into_iter())?;
    work.write("corpus/notes.json", "{")?;
    polysift_in(".", &["init", "."])
        .assert()
        .success()
        .stdout(contains("corpus/{lang}/*.jsonl").and(contains("next: polysift run -c run.toml")))
        .stderr(
            contains("left out: corpus/*.json")
                .and(contains("raw/*.jsonl: it has no column `text`")),
        );
    let written: toml::Table = std::fs::read_to_string(work.path("run.toml"))?.parse()?;
    assert_eq!(written["input"]["files"], toml::Value::from(vec!["corpus/{lang}/*.jsonl"]));
    // A folder whose name would be a pattern.
    work.write_lines("crawl [2024]/a.jsonl", [json!({"text": "a b"})].into_iter())?;
    polysift_in("crawl [2024]", &["init", ".", "--out", "../crawl.toml"]).assert().success();
    polysift_in(".", &["plan", "-c", "crawl.toml", "--run", "crawl"]).assert().success();
    assert_eq!(written["input"]["id"].as_str(), Some("id"));
    let toxicity = written["heads"]["toxicity"]["train"].clone();
    assert_eq!(toxicity, toml::Value::from(vec!["labelled/toxicity/{lang}.jsonl"]));
    polysift_in(".", &["init"]).assert().code(2).stderr(contains("run.toml: exists already"));

    // Without labels the settings embed and export all documents; other columns are found.
    let rows = [("a", "en"), ("b", "de")]
        .map(|(id, language)| json!({"uuid": id, "lang": language, "content": "some text"}));
    work.write_lines("other/a.jsonl", rows.into_iter())?;
    polysift_in("other", &["init"]).assert().success();
    polysift_in("other", &["run", "-c", "run.toml"]).assert().success();
    polysift_in("other", &["inspect", "run/export"]).assert().success().stdout(contains("rows: 2"));
    polysift_in(".", &["init", "labelled", "--out", "x.toml"]).assert().code(66);

    // Folders whose names are codes of rare languages, the first of them with an empty file.
    work.write("mine/lab/a.jsonl", "")?;
    for folder in ["lab", "new", "raw"] {
        work.write_lines(&format!("mine/{folder}/b.jsonl"), [json!({"text": "a b"})].into_iter())?;
    }
    polysift_in("mine", &["init"]).assert().success();
    let written: toml::Table = std::fs::read_to_string(work.path("mine/run.toml"))?.parse()?;
    let files = ["lab/*.jsonl", "new/*.jsonl", "raw/*.jsonl"].to_vec();
    assert_eq!(written["input"]["files"], toml::Value::from(files));
    Ok(())
}

/// Runs `polysift init NAMED` in a folder with `files` of two equal rows. Returns the lines of the
/// settings that begin with one of `keys`, with the comments behind them.
fn init(
    named: &str,
    files: &[(&str, Value)],
    keys: &[&str],
) -> Result<Vec<String>, Box<dyn std::error::Error>> {
    let folder = tempfile::tempdir()?;
    for (path, row) in files {
        let path = folder.path().join(path);
        std::fs::create_dir_all(path.parent().ok_or("no folder")?)?;
        std::fs::write(path, format!("{row}\n{row}\n"))?;
    }
    let mut command = polysift();
    command.current_dir(folder.path()).args(["init", named, "--out", "x.toml"]).assert().success();
    let written = std::fs::read_to_string(folder.path().join("x.toml"))?;
    let lines = written.lines().filter(|line| keys.iter().any(|key| line.starts_with(key)));
    Ok(lines.map(ToOwned::to_owned).collect())
}

#[test]
fn init_selects_the_files_that_it_found_and_no_others() -> TestResult {
    let [document, labelled] = [json!({"text": "a b"}), json!({"text": "a", "label": "positive"})];
    let row = |path: &str| if path.contains("lab") { labelled.clone() } else { document.clone() };
    for (named, files, expected) in [
        // Labels beside the folders of the languages.
        (".", "deu_Latn/d lab/deu_Latn", r#""{lang}/d.jsonl" ["lab/{lang}.jsonl"]"#),
        (
            ".",
            "de/docs fr/docs labels/de labels/fr",
            r#""{lang}/docs.jsonl" ["labels/{lang}.jsonl"]"#,
        ),
        (".", "docs all_labelled", r#""docs.jsonl" ["all_labelled.jsonl"]"#),
        // Languages beside the one that was named.
        ("c/deu_Latn", "c/deu_Latn/d c/fra_Latn/d", r#""c/deu_Latn/*.jsonl" "deu_Latn""#),
        (
            "c/fra_Latn/d.jsonl",
            "c/fra_Latn/d c/fra_Latn/e c/deu_Latn/d",
            r#""c/fra_Latn/d.jsonl" "fra_Latn""#,
        ),
        // Folders whose names are codes.
        ("raw", "raw/deu_Latn/d raw/fra_Latn/d", r#""raw/{lang}/*.jsonl""#),
        (".", "raw_text/de/d raw_text/fr/d", r#""raw_text/{lang}/*.jsonl""#),
        (".", "run/de/d run/fr/d", r#""run/{lang}/*.jsonl""#),
        (".", "deu_Latn/d raw/e", r#""raw/*.jsonl" "{lang}/d.jsonl""#),
        // Numbers behind a dot.
        (".", "c/d.00-of-02 c/d.01-of-02", r#""c/*.*.jsonl""#),
    ] {
        let paths: Vec<String> = files.split(' ').map(|path| format!("{path}.jsonl")).collect();
        let files: Vec<_> = paths.iter().map(|path| (path.as_str(), row(path))).collect();
        let written = init(named, &files, &["    ", "language = ", "train = "])?;
        let value = |line: &String| {
            let (value, _) = line.split_once("    #").unwrap_or((line, ""));
            let (_, value) = value.split_once(" = ").unwrap_or(("", value));
            value.trim_matches([' ', ',']).to_owned()
        };
        let written: Vec<String> = written.iter().map(value).collect();
        assert_eq!(written.join(" "), expected, "{named} {files:?}");
    }
    // Many files beside those with labels.
    let names: Vec<String> = (0..60).map(|at| format!("deu_Latn/part-{at}.jsonl")).collect();
    let mut files: Vec<_> = names.iter().map(|name| (name.as_str(), document.clone())).collect();
    files.push(("labels/deu_Latn.jsonl", labelled.clone()));
    let written = init(".", &files, &["    "])?;
    assert!(written.len() == 1 && written[0].contains("{lang}/p*.jsonl"), "{written:?}");
    Ok(())
}

#[test]
fn init_names_columns_that_the_run_can_read() -> TestResult {
    let init = |document: Value, label: Value| {
        let files = [("docs/a.jsonl", document), ("labels/a.jsonl", label)];
        let keys = ["text = ", "# id = ", "embeddings = ", "train = ", "kind = ", "# No labelled"];
        init(".", &files, &keys)
    };
    let written = init(json!({"text": "a", "id": 1}), json!({"text": "b", "label": 4}))?;
    let starts = |starts: [&str; 3], written: &[String]| {
        assert!(written.iter().zip(starts).all(|(line, start)| line.starts_with(start)));
    };
    assert!(written[1].contains("where some repeat"), "{written:?}");
    starts([r#"text = "text""#, "# id", r#"train = ["labels/*.jsonl"]"#], &written);
    assert!(written[3].starts_with(r#"kind = "ridge""#), "{written:?}");
    let written = init(json!({"doc": {"text": "a b"}}), json!({"text": "b", "label": 1}))?;
    assert!(written[1].contains("FILE/ROW"), "{written:?}");
    starts(
        [r#"text = "doc.text""#, "# id", "# No labelled texts with the column `doc.text`"],
        &written,
    );
    let embedded = |value: Value| json!({"text": "a", "embeddings": value});
    let written = init(embedded(json!([[0.5, 0.25]])), json!({"text": "b", "label": 1}))?;
    starts([r#"text = "text""#, "# id", r#"embeddings = "embeddings""#], &written);
    let written = init(embedded(json!("none")), json!({"text": "b", "label": 1}))?;
    starts([r#"text = "text""#, "# id", "train = "], &written);
    Ok(())
}

#[test]
fn a_run_is_named_by_position_by_flag_or_by_variable() -> TestResult {
    let work = Workspace::new()?;
    work.command("run", "out").assert().success().stdout(contains("next: polysift report"));
    let spaced = work.command("run", "my run").assert().success();
    spaced.stdout(contains("next: polysift report '").and(contains("my run'")));
    let polysift_in = |args: &[&str]| {
        let mut command = polysift();
        command.current_dir(work.dir.path()).args(args);
        command
    };
    for args in [["status", "out"].as_slice(), &["status", "--run", "out"], &["threshold", "out"]] {
        polysift_in(args).assert().success().stdout(contains("export"));
    }
    polysift_in(&["verify"]).env("POLYSIFT_RUN", "out").assert().success();
    let mut plan = work.command("plan", "other");
    plan.args(["--set", "run_dir=set"]).assert().success();
    assert!(work.path("set/plan.jsonl.zst").exists() && !work.path("other").exists());
    polysift_in(&["verify", "out"]).env("POLYSIFT_RUN", "other").assert().success();
    let both = contains("names a run, and so does the argument");
    polysift_in(&["verify", "out", "--run", "out"]).assert().code(2).stderr(both);
    polysift_in(&["export", "corpus"]).assert().code(66).stderr(contains("is not a run directory"));
    for command in ["export", "evaluate"] {
        let other = contains("--run: names other");
        polysift_in(&[command, "out", "--run", "other"]).assert().code(2).stderr(other);
    }
    Ok(())
}

#[test]
fn outputs_of_commands_go_to_no_url() -> TestResult {
    let folder = tempfile::tempdir()?;
    for command in [
        "init --out",
        "mix -c mix.toml --out",
        "report out --out",
        "sample out --out",
        "evaluate out --out",
        "head import a.pt --out",
        "devices --trace-out",
        "man",
    ] {
        let mut polysift = polysift();
        polysift.current_dir(folder.path()).args(command.split(' ')).arg("s3://bucket/x");
        let refused = contains("s3://bucket/x: is a URL; this output is written to a local path");
        polysift.assert().code(2).stderr(refused);
    }
    Ok(())
}

#[test]
fn the_result_of_a_run_is_one_json_document() -> TestResult {
    let work = Workspace::new()?;
    let output = work.command("run", "out").args(["--json", "--log-format", "json"]).output()?;
    assert!(output.status.success());
    let document: Value = serde_json::from_slice(&output.stdout)?;
    let heads = document["heads"].as_array().ok_or("no heads")?;
    assert!(heads.iter().any(|head| head["language"] == "fra_Latn"), "{document}");
    let stages = document["stages"].as_array().ok_or("no stages")?;
    assert!(stages.iter().any(|stage| stage["stage"] == "export"), "{document}");
    assert!(document["thresholds"]["fra_Latn"].is_object(), "{document}");
    let lines = String::from_utf8(output.stderr)?;
    let progress: Value = serde_json::from_str(lines.lines().next().ok_or("no progress")?)?;
    let time = progress["timestamp"].as_str().ok_or("no time")?;
    assert!(time.ends_with('Z') && time.contains('T'), "{time}");
    Ok(())
}
