//! Bad input through the program: a clear error that names file and row or column, the documented
//! exit code, nothing partial left behind.

use predicates::prelude::PredicateBooleanExt;
use predicates::str::contains;

use crate::util::{TestResult, Workspace, digests, text};

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
    assert.code(65).stderr(contains("bad.jsonl: row 2").and(contains("(2 such row(s)")));
    no_temporaries(&work)
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
    let rows = (0..3000).map(|i| serde_json::json!({"id": i, "text": text(i)}));
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
