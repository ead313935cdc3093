//! What earlier releases wrote is read: the folders of `golden/formats`, each made by `make.sh` there.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use predicates::str::contains;

use crate::util::{TestResult, Workspace, digests, polysift, root};

/// A copy of each folder, with the encoder that its run names.
fn releases() -> Result<Vec<(PathBuf, tempfile::TempDir)>, Box<dyn std::error::Error>> {
    let mut releases = Vec::new();
    for entry in std::fs::read_dir(root().join("tests/golden/formats"))? {
        let from = entry?.path();
        if !from.is_dir() {
            continue;
        }
        let dir = tempfile::tempdir()?;
        let copied = Command::new("cp").arg("-r").arg(from.join(".")).arg(dir.path()).status()?;
        assert!(copied.success());
        let encoder = root().join("tests/golden/encoder/head16-prefixed");
        std::os::unix::fs::symlink(encoder, dir.path().join("encoder"))?;
        releases.push((from, dir));
    }
    assert!(!releases.is_empty());
    Ok(releases)
}

/// Digest of every file of `run`; of compressed ones the content, which releases wrote without a checksum.
fn contents(run: &Path) -> Result<BTreeMap<String, String>, Box<dyn std::error::Error>> {
    let mut found = digests(run)?;
    for (name, content) in found.iter_mut().filter(|(name, _)| name.ends_with(".jsonl.zst")) {
        let lines = zstd::decode_all(&std::fs::read(run.join(name))?[..])?;
        *content = String::from_utf8(lines)?;
    }
    Ok(found)
}

fn command(dir: &Path, arguments: &[&str]) -> assert_cmd::assert::Assert {
    polysift().current_dir(dir).args(arguments).assert()
}

#[test]
fn a_run_of_a_release_is_verified_reported_and_mended() -> TestResult {
    for (release, dir) in releases()? {
        let dir = dir.path();
        let before = contents(&dir.join("run"))?;
        command(dir, &["verify", "run"]).success();
        command(dir, &["status", "run"]).success();
        command(dir, &["report", "run", "--out", "report"]).success();
        // Both are made of what the release stored.
        for gone in ["scores/quality/fra_Latn/a/part-00001.parquet", "selection/fra_Latn.json"] {
            std::fs::remove_file(dir.join("run").join(gone))?;
        }
        command(dir, &["score", "--run", "run"]).success();
        command(dir, &["threshold", "--run", "run"]).success();
        assert_eq!(contents(&dir.join("run"))?, before, "{}", release.display());
    }
    Ok(())
}

#[test]
fn heads_and_indexes_of_a_release_are_used() -> TestResult {
    for (_, dir) in releases()? {
        let head = |name: &str, file: &str| format!("{name}=run/heads/{name}/fra_Latn.{file}");
        let (quality, words) = (head("quality", "safetensors"), head("words", "bin"));
        let index = "[filters.items]\nkind = 'decontamination'\nindex = 'benchmarks.idx'\n";
        let kind = "heads = { words = { kind = 'fasttext' } }\n";
        std::fs::write(dir.path().join("new.toml"), format!("{kind}{index}"))?;
        command(
            dir.path(),
            &[
                "run",
                "corpus",
                "--language",
                "fra_Latn",
                "-c",
                "new.toml",
                "--run",
                "new",
                "--model",
                "encoder",
                "--head",
                &quality,
                "--head",
                &words,
                "--retention",
                "quality=0.5",
                "--retention",
                "words=0.5",
            ],
        )
        .success();
    }
    Ok(())
}

#[test]
fn a_run_directory_of_a_newer_format_is_refused_untouched() -> TestResult {
    let work = Workspace::new()?;
    work.command("plan", "out").assert().success();
    work.write("out/format.json", "{\"format\": 2, \"more\": true}\n")?;
    let before = digests(&work.path("out"))?;
    work.command("run", "out").assert().code(2).stderr(contains("a newer polysift"));
    let mut status = polysift();
    status.arg("status").arg(work.path("out")).assert().code(2);
    assert_eq!(digests(&work.path("out"))?, before);
    Ok(())
}
