//! Bad input through the program: a clear error that names file and row or column, the documented
//! exit code, nothing partial left behind.

use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::symlink;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use arrow::array::{ArrayRef, RecordBatch, StringArray};
use parquet::arrow::ArrowWriter;
use predicates::prelude::PredicateBooleanExt;
use predicates::str::contains;

use crate::util::{TestResult, Workspace, digests, polysift, read_parquet, text};

fn no_temporaries(work: &Workspace) -> TestResult {
    let files = digests(&work.path("out"))?;
    assert!(!files.keys().any(|name| name.contains(".tmp")), "{files:?}");
    Ok(())
}

/// Embeds a workspace whose only input is `name` with `content`.
fn embed_only(
    name: &str,
    content: impl AsRef<[u8]>,
) -> Result<(Workspace, assert_cmd::assert::Assert), Box<dyn std::error::Error>> {
    let work = Workspace::new()?;
    work.write(&format!("bad/{name}"), content)?;
    let mut command = crate::util::polysift();
    let assert =
        command.current_dir(work.dir.path()).args(["embed", "bad", "--run", "out"]).assert();
    Ok((work, assert))
}

#[test]
fn a_malformed_line_is_named_with_its_row_and_the_count() -> TestResult {
    let lines = "{\"text\": \"a\"}\n{\"text\": \n{\"text\": \"b\"}\n[1]\n";
    let (work, assert) = embed_only("bad.jsonl", lines)?;
    assert.code(65).stderr(contains("bad.jsonl: row 2").and(contains("(2 bad row(s)")));
    no_temporaries(&work)
}

#[test]
fn a_wrong_language_is_named_with_its_row_and_the_count() -> TestResult {
    let row = |language: &str| format!("{{\"text\": \"a\", \"language\": \"{language}\"}}\n");
    let lines = row("fra_Latn") + &row("../a") + &row("fra_Latn").repeat(2_000) + &row("b/c");
    let work = Workspace::new()?;
    work.write("bad/bad.jsonl", lines)?;
    let language = ["--set", "input.language={column='language'}"];
    let run = work.command("embed", "out").arg("bad").args(language).assert();
    run.code(65).stderr(contains("bad.jsonl: row 2").and(contains("(2 bad row(s)")));
    Ok(())
}

#[test]
fn malformed_lines_within_the_allowance_are_set_aside_verbatim() -> TestResult {
    let work = Workspace::new()?;
    work.write("bad/a.jsonl", "{\"text\": \"a\"}\n{oops\n{\"text\": \"b\"}\n")?;
    crate::util::polysift()
        .current_dir(work.dir.path())
        .args(["embed", "bad", "--run", "out", "--max-rejects", "1"])
        .assert()
        .success();
    let rejects = std::fs::read_to_string(work.path("out/rejects/a/part-00000.jsonl"))?;
    assert!(rejects.contains("{oops") && rejects.contains("\"row\":1"), "{rejects}");
    Ok(())
}

#[test]
fn documents_that_are_too_long_are_set_aside_or_fail_their_shard() -> TestResult {
    let work = Workspace::new()?;
    let long = "long ".repeat(100);
    let row = |i: usize| if i == 3 || i == 24 { long.clone() } else { text(i) };
    let ids: StringArray = (0..25).map(|i| Some(format!("p{i}"))).collect();
    let texts: StringArray = (0..25).map(|i| Some(row(i))).collect();
    let columns: [(&str, ArrayRef); 2] = [("id", Arc::new(ids)), ("text", Arc::new(texts))];
    let batch = RecordBatch::try_from_iter(columns)?;
    let mut parquet = Vec::new();
    let mut writer = ArrowWriter::try_new(&mut parquet, batch.schema(), None)?;
    writer.write(&batch)?;
    writer.close()?;
    work.write("corpus/fra_Latn/b.parquet", parquet)?;
    let mut lines = std::fs::read_to_string(work.path("corpus/deu_Latn/a.jsonl"))?;
    lines.push_str(&serde_json::json!({"id": "long", "text": long, "n": 0}).to_string());
    work.write("corpus/deu_Latn/a.jsonl", lines)?;
    let settings = std::fs::read_to_string(work.path("run.toml"))?;
    let limit = "files = ['corpus/{lang}/*']\nmax_document_bytes = 300";
    work.write("run.toml", settings.replace("files = ['corpus/{lang}/*.jsonl']", limit))?;

    work.command("embed", "out")
        .args(["--max-rejects", "1"])
        .assert()
        .code(3)
        .stderr(contains("b.parquet: row 4: `text` has 500 bytes").and(contains("(2 bad row(s)")));
    // Nothing is forgiven because it failed before.
    let again = work.command("embed", "out").args(["--max-rejects", "1"]).assert();
    again.code(65).stderr(contains("b.parquet: row 25:").and(contains("(2 bad row(s)")));
    let run = ["--max-rejects", "2", "--keep-removed", "--redo", "embed"];
    work.command("run", "out").args(run).assert().success();
    for (part, row) in [("fra_Latn/b/part-00000", 3), ("fra_Latn/b/part-00001", 24)] {
        let reject = work.json(&format!("out/rejects/{part}.jsonl"))?;
        assert_eq!(reject["row"], row, "{reject}");
    }
    let rows = |folder: &str| {
        Ok::<_, Box<dyn std::error::Error>>(read_parquet(&work.path(folder))?.num_rows())
    };
    let removed = rows("out/removed/quality/fra_Latn/b.parquet")?;
    assert_eq!(rows("out/export/fra_Latn/b.parquet")? + removed, 23);
    crate::util::polysift().arg("verify").arg(work.path("out")).assert().success();
    Ok(())
}

#[test]
fn text_that_is_not_text_is_an_error() -> TestResult {
    let (work, assert) = embed_only("bad.jsonl", "{\"text\": 5}\n")?;
    assert.code(65).stderr(contains("bad.jsonl").and(contains("text")));
    no_temporaries(&work)
}

#[test]
fn invalid_utf8_is_named_with_its_row() -> TestResult {
    let (_work, assert) = embed_only("bad.jsonl", b"{\"text\": \"ok\"}\n{\"text\": \"\xff\"}\n")?;
    assert.code(65).stderr(contains("bad.jsonl: row 2"));
    Ok(())
}

#[test]
fn a_truncated_parquet_file_is_an_error() -> TestResult {
    let (work, assert) = embed_only("bad.parquet", b"PAR1 and then nothing")?;
    assert.code(65).stderr(contains("bad.parquet"));
    no_temporaries(&work)
}

#[test]
fn a_missing_file_and_an_unknown_kind_have_their_codes() -> TestResult {
    let work = Workspace::new()?;
    crate::util::polysift()
        .current_dir(work.dir.path())
        .args(["embed", "no/such.parquet", "--run", "out"])
        .assert()
        .code(66)
        .stderr(contains("no/such.parquet"));
    assert!(!work.path("out").exists());
    Ok(())
}

#[test]
fn an_empty_file_and_odd_texts_are_fine() -> TestResult {
    let work = Workspace::new()?;
    work.write("odd/empty.jsonl", "")?;
    let long = "energy ".repeat(10 * 1024 * 1024 / 7);
    work.write_lines(
        "odd/odd.jsonl",
        [
            serde_json::json!({"id": "long", "text": long}),
            serde_json::json!({"id": "nul", "text": "a\u{0}b"}),
            serde_json::json!({"id": "blank", "text": ""}),
        ]
        .into_iter(),
    )?;
    crate::util::polysift()
        .current_dir(work.dir.path())
        .args(["embed", "odd", "--run", "out"])
        .assert()
        .success()
        .stdout(contains("2 with text"));
    Ok(())
}

#[test]
fn one_bad_shard_does_not_stop_the_others() -> TestResult {
    let work = Workspace::new()?;
    work.write("corpus/fra_Latn/b.jsonl", "{\n")?;
    work.command("run", "out").assert().code(3).stderr(contains("b.jsonl: row 1"));
    assert!(work.path("out/state/embed/done/fra_Latn/a.json").exists());
    assert!(!work.path("out/export").exists(), "a percentile over part of a corpus");
    Ok(())
}

#[test]
fn a_head_of_another_width_and_a_corrupt_one_are_refused() -> TestResult {
    let work = Workspace::new()?;
    work.write("head.safetensors", b"\xff\xff\xff\xff nonsense")?;
    let score = |head: &str| {
        let mut command = crate::util::polysift();
        command.current_dir(work.dir.path()).args(["score", "--run", "out", "--head", head]);
        command
    };
    crate::util::polysift()
        .current_dir(work.dir.path())
        .args(["embed", "corpus/{lang}/*.jsonl", "--run", "out"])
        .assert()
        .success();
    score("quality=head.safetensors").assert().code(65).stderr(contains("head.safetensors"));
    Ok(())
}

#[test]
fn a_read_only_output_is_an_error_that_names_it() -> TestResult {
    let work = Workspace::new()?;
    work.write("file", "in the way")?;
    crate::util::polysift()
        .current_dir(work.dir.path())
        .args(["embed", "corpus/{lang}/*.jsonl", "--run", "file/out"])
        .assert()
        .code(74)
        .stderr(contains("file"));
    Ok(())
}

#[test]
fn a_full_disk_leaves_nothing_partial() -> TestResult {
    let work = Workspace::new()?;
    let rows = (0..300).map(|i| serde_json::json!({"id": i, "text": text(i)}));
    work.write_lines("big/a.jsonl", rows)?;
    // A limit on file size is what a full disk looks like to the writer, without needing one.
    let script = "ulimit -f 64; trap '' XFSZ; exec \"$0\" embed big --run out";
    let output = std::process::Command::new("sh")
        .current_dir(work.dir.path())
        .args(["-c", script, env!("CARGO_BIN_EXE_polysift")])
        .output()?;
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(74), "{stderr}");
    assert!(stderr.contains("embeddings/a/part-00000.parquet"), "{stderr}");
    no_temporaries(&work)
}

/// A workspace with `pipe`, which nobody writes into.
fn with_pipe() -> Result<Workspace, Box<dyn std::error::Error>> {
    let work = Workspace::new()?;
    assert!(Command::new("mkfifo").arg(work.path("pipe")).status()?.success());
    Ok(work)
}

#[test]
fn a_pipe_in_the_place_of_a_file_is_refused_at_once() -> TestResult {
    let work = with_pipe()?;
    for name in [
        "pipe.txt",
        "pipe.jsonl",
        "pipe.csv",
        "pipe.safetensors",
        "pipe.bin",
        "pipe.pt",
        "pipe.toml",
    ] {
        symlink(work.path("pipe"), work.path(name))?;
    }
    let model = crate::util::root().join("tests/golden/encoder/head16-prefixed");
    for broken in ["config.json", "tokenizer.json", "model.safetensors"] {
        for entry in std::fs::read_dir(&model)? {
            let (name, from) = {
                let entry = entry?;
                (entry.file_name(), entry.path())
            };
            let to = work.path(&format!("model-{broken}")).join(name);
            std::fs::create_dir_all(to.parent().ok_or("no parent")?)?;
            let from = if to.ends_with(broken) { work.path("pipe") } else { from };
            symlink(from, to)?;
        }
    }
    let item = r#"{"id": "0", "task": "t", "answer": "one two three four five six", "language": "eng_Latn"}"#;
    work.write("items.jsonl", item)?;
    let filter = |settings: &str| format!("[filters.x]\n{settings}\n");
    let copies = "copies = { by = 'n', weights = 'pipe.txt' }";
    for (name, settings) in [
        ("ids", filter("kind = 'ids'\nlists = ['pipe.txt']")),
        ("urls", filter("kind = 'urls'\nlists = ['pipe.csv']")),
        ("index", filter("kind = 'decontamination'\nindex = 'pipe.bin'")),
        ("license", filter("kind = 'license'\nallow = 'pipe.txt'")),
        (
            "robots",
            filter(
                "kind = 'robots'\nurl = 'id'\nas_of = '2026-01'\nsources = [{ robots = 'pipe.txt' }]",
            ),
        ),
        ("card", "[card]\ntemplate = 'pipe.txt'\n[export]\ncard = true\n".to_owned()),
        (
            "mix",
            format!(
                "count = 'bytes'\n[[source]]\nfiles = ['corpus/*/*.jsonl']\nepochs = 1\n{copies}\n"
            ),
        ),
        (
            "tokenizer",
            "tokenizer = 'pipe.txt'\n[[source]]\nfiles = ['corpus/*/*.jsonl']\nepochs = 1\n".into(),
        ),
    ] {
        let run = std::fs::read_to_string(work.path("run.toml"))?;
        let is_mix = ["mix", "tokenizer"].contains(&name);
        work.write(&format!("{name}.toml"), if is_mix { settings } else { run + &settings })?;
    }
    for (at, line) in [
        "plan -c pipe.toml --run out",
        "run -c ids.toml --run out",
        "run -c urls.toml --run out",
        "run -c index.toml --run out",
        "run -c license.toml --run out",
        "run -c robots.toml --run out",
        "run -c card.toml --run out",
        "mix -c pipe.toml --out mixed",
        "mix -c mix.toml --out mixed",
        "mix -c tokenizer.toml --out mixed",
        "run -c run.toml --run out --model model-config.json",
        "run -c run.toml --run out --model model-tokenizer.json",
        "run -c run.toml --run out --model model-model.safetensors",
        "run pipe.jsonl --run out --head q=pipe.safetensors --retention q=0.5",
        "run corpus --run out --head q=pipe.safetensors --retention q=0.5",
        "train -c run.toml --run out --train-on q=pipe.jsonl",
        "head import pipe.pt --out heads",
        "inspect pipe.safetensors",
        "inspect pipe.bin",
        "inspect pipe.jsonl",
        "dataset benchmarks --items pipe.jsonl",
        "dataset benchmarks --sets pipe.toml",
        "dataset benchmarks --items items.jsonl --ignore pipe.txt",
    ]
    .into_iter()
    .enumerate()
    {
        let line = line.replace("--run out", &format!("--run out-{at}"));
        let mut command = crate::util::polysift();
        command.current_dir(work.dir.path()).args(line.split(' '));
        let done = command.timeout(Duration::from_secs(30)).output()?;
        let told = String::from_utf8_lossy(&done.stderr);
        let is_told = told.contains("pipe") || told.contains("model-");
        assert!(
            done.status.code().is_some_and(|code| [2, 65, 66].contains(&code)) && is_told,
            "{line}: {done:?}"
        );
    }
    Ok(())
}

#[test]
fn settings_may_come_out_of_a_pipe_that_a_shell_hands_over_and_a_stop_ends_the_wait() -> TestResult
{
    let work = Workspace::new()?;
    let shell = |line: &str| {
        let mut command = assert_cmd::Command::new("bash");
        command.current_dir(work.dir.path()).env("POLYSIFT", env!("CARGO_BIN_EXE_polysift"));
        command.args(["-c", line]).timeout(Duration::from_secs(30)).assert()
    };
    let settings = "<(printf '[encoder]\\nmodel = \"none\"\\n')";
    shell(&format!("$POLYSIFT plan --dry-run -c {settings} 'corpus/{{lang}}/*.jsonl'")).success();
    shell("printf '[encoder]\\nmodel = \"none\"\\n' | $POLYSIFT plan --dry-run -c /dev/stdin 'corpus/{lang}/*.jsonl'").success();
    // Nobody writes, and nobody closes.
    let endless = "-c /dev/stdin < <(exec sleep 20 2> /dev/null)";
    shell(&format!("timeout 1 $POLYSIFT plan --dry-run {endless}; test $? = 124")).success();
    Ok(())
}

/// A clone without Git LFS has pointers in place of large files, and an expired link gives a page.
#[test]
fn pointers_and_pages_in_the_place_of_files_are_named_as_what_they_are() -> TestResult {
    let work = Workspace::new()?;
    let pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:ab\nsize 9\n";
    for (content, told) in
        [(pointer, "is a Git LFS pointer"), ("\n<!DOCTYPE html>\n<html></html>", "is a web page")]
    {
        for name in ["a.jsonl", "a.parquet", "a.jsonl.zst", "q.pt", "q.safetensors", "q.bin"] {
            work.write(name, content)?;
        }
        for command in [
            "inspect a.jsonl",
            "inspect a.parquet",
            "inspect a.jsonl.zst",
            "inspect q.safetensors",
            "head import q.pt --out imported --name quality",
            "run a.jsonl --run out --head q=q.safetensors --model polysift-mini --language fra_Latn",
        ] {
            let mut program = crate::util::polysift();
            program.current_dir(work.dir.path()).args(command.split(' '));
            program.assert().code(65).stderr(contains(told).and(contains("--max-rejects").not()));
        }
        let model = crate::util::root().join("tests/golden/encoder/head32-bf16");
        for file in ["model.safetensors", "tokenizer.json", "config.json"] {
            std::fs::create_dir_all(work.path("model"))?;
            for name in ["config.json", "model.safetensors", "tokenizer.json"] {
                std::fs::copy(model.join(name), work.path("model").join(name))?;
            }
            work.write(&format!("model/{file}"), content)?;
            let mut program = crate::util::polysift();
            program.current_dir(work.dir.path()).args(["tokenize", "--model", "model"]);
            program.args(["corpus/fra_Latn/a.jsonl", "--max-tokens", "64"]);
            program.assert().code(65).stderr(contains(told));
        }
    }
    Ok(())
}

#[test]
fn links_to_nothing_and_files_that_are_not_read_are_told() -> TestResult {
    let work = Workspace::new()?;
    for name in ["a.jsonl", "b.jsonl.bz2", "c.csv", "d.CSV.gz", "README.md"] {
        work.write(&format!("data/{name}"), "{\"text\":\"a\"}\n")?;
    }
    let odd = std::ffi::OsStr::from_bytes(b"r\xe9sum\xe9.txt");
    std::fs::write(work.path("data").join(odd), "a")?;
    let told = contains("1 .bz2, 2 .csv").and(contains("README").not());
    work.command("plan", "out")
        .args(["data", "--dry-run", "--language", "und"])
        .assert()
        .stderr(told);
    work.write("run.toml", "[heads.r]\nkind = 'random'\n")?;
    for model in ["polysift-mini", "none"] {
        work.command("plan", "out")
            .args(["data", "--dry-run", "--language", "und", "--text-column", "nope"])
            .args(["--model", model])
            .assert()
            .code(65)
            .stderr(contains("column `nope`"));
    }
    for folder in ["deu_Latn", "pt.BR", ".hidden"] {
        work.write(&format!("by/{folder}/a.jsonl"), "{\"text\":\"a\"}\n")?;
    }
    work.command("plan", "out")
        .args(["by/{lang}/*.jsonl", "--dry-run"])
        .assert()
        .success()
        .stderr(contains("are left out: pt.BR").and(contains("hidden").not()));
    std::os::unix::fs::symlink("/nowhere/x", work.path("data/d.jsonl"))?;
    let told = contains("data/d.jsonl: is a link to a file that is gone");
    work.command("embed", "out").args(["data"]).assert().code(66).stderr(told);
    Ok(())
}

#[test]
fn names_that_results_cannot_be_named_after_are_refused_before_the_work() -> TestResult {
    let work = Workspace::new()?;
    let settings =
        "[input]\nfiles = ['data/*.jsonl']\nlanguage = 'und'\n[encoder]\nmodel = 'none'\n";
    work.write("run.toml", settings)?;
    let text = "{\"text\":\"a\"}\n";
    work.write(&format!("data/{}.jsonl", "x".repeat(220)), text)?;
    // A variable that is set to nothing is not set.
    work.command("run", "out")
        .env("POLYSIFT_THREADS", "")
        .env("POLYSIFT_TASK", "")
        .assert()
        .success();
    work.write(&format!("data/{}.jsonl", "y".repeat(221)), text)?;
    let told = contains("has a name of more than 220 bytes");
    work.command("run", "other").assert().code(2).stderr(told);
    for heads in ["heads.no_text.kind='random'", "heads={s={kind='random'},s_nan={kind='random'}}"]
    {
        let told = contains("is already a reason why documents are removed");
        work.command("run", "other").args(["--set", heads]).assert().code(2).stderr(told);
    }
    Ok(())
}

/// Readers of Arrow schemas stop at 64 levels, and an export that nobody can read is worse than a
/// refused row.
#[test]
fn what_is_nested_too_deeply_to_be_exported_is_refused_with_its_row() -> TestResult {
    let work = Workspace::new()?;
    work.write(
        "run.toml",
        "[input]\nfiles = ['deep.jsonl']\nlanguage = 'und'\n[encoder]\nmodel = 'none'\n\
         [heads.r]\nkind = 'random'\n[languages._default]\nretention = { r = 1 }\n",
    )?;
    let row = |levels: usize| {
        let nested = format!("{}1{}", "{\"a\":".repeat(levels - 1), "}".repeat(levels - 1));
        format!("{{\"text\":\"a\"}}\n{{\"text\":\"b\",\"d\":{nested}}}\n")
    };
    for layout in ["flat", "nested"] {
        work.write("deep.jsonl", row(48))?;
        work.command("run", layout).args(["--layout", layout]).assert().success();
        polysift().arg("verify").arg(work.path(layout)).assert().success();
        let rows = read_parquet(&work.path(layout).join("export/deep.parquet"))?;
        assert_eq!(rows.num_rows(), 2, "{layout}");
    }
    work.write("deep.jsonl", row(49))?;
    let told = contains("row 2: is not JSON: more than 48 levels of nesting");
    work.command("run", "refused").assert().code(65).stderr(told);
    Ok(())
}
