//! Bits of stored files that are no longer what was written, and markers that are gone.

use std::collections::BTreeMap;
use std::error::Error;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use predicates::prelude::PredicateBooleanExt as _;
use predicates::str::contains;

use crate::util::{Random, TestResult, Workspace, digests};

/// Bits that are flipped in each part, spread over it, besides some in its footer.
const FLIPS: usize = 4;

/// Files below `root`.
fn files(root: &Path) -> Result<Vec<PathBuf>, Box<dyn Error>> {
    Ok(digests(root)?.into_keys().map(|name| root.join(name)).collect())
}

/// Flips a bit of the byte `at` of the file `path`; doing it twice is undoing it.
fn flip(path: &Path, at: usize) -> TestResult {
    let mut bytes = std::fs::read(path)?;
    bytes[at] ^= 1 << (at % 8);
    Ok(std::fs::write(path, bytes)?)
}

/// Makes the run `to` a copy of the run `from`.
fn copy(from: &Path, to: &Path) -> TestResult {
    if to.exists() {
        std::fs::remove_dir_all(to)?;
    }
    for file in files(from)? {
        let to = to.join(file.strip_prefix(from)?);
        std::fs::create_dir_all(to.parent().ok_or("no parent")?)?;
        std::fs::copy(&file, to)?;
    }
    Ok(())
}

#[test]
fn nothing_is_called_foreign_where_settings_are_lost() -> TestResult {
    let work = Workspace::new()?;
    work.command("run", "out").arg("--quiet").assert().success();
    for lost in ["config.toml", "frozen/score.json", "frozen/export.json"] {
        let path = work.path("out").join(lost);
        let content = std::fs::read(&path)?;
        std::fs::remove_file(&path)?;
        let mut verify = crate::util::polysift();
        let verify = verify.arg("verify").arg(work.path("out")).assert().code(65);
        let told = contains(format!("{lost}: is gone")).and(contains("remove it").not());
        verify.stdout(told);
        std::fs::write(&path, content)?;
    }
    Ok(())
}

/// Runs `command` once for each of some flipped bits of the parts in `folder` of the run `before`. Either
/// it fails and names the part, or its `outputs` are those of the run `whole`.
fn sweep(work: &Workspace, folder: &str, command: &str, outputs: &str) -> TestResult {
    let (before, run) = (work.path("before"), work.path("out"));
    let expected = digests(&work.path("whole").join(outputs))?;
    for part in files(&before.join(folder))? {
        let length = std::fs::metadata(&part)?.len() as usize;
        let part = run.join(part.strip_prefix(&before)?);
        let spread = (0..FLIPS).map(|i| length * i / FLIPS + i);
        for at in spread.chain([length - 300, length - 40, length - 6, length - 1]) {
            copy(&before, &run)?;
            flip(&part, at)?;
            let done = work.command(command, "out").output()?;
            let told = String::from_utf8_lossy(&done.stderr).into_owned();
            let name = part.strip_prefix(work.dir.path())?.display().to_string();
            match done.status.code() {
                Some(0) => assert_eq!(digests(&run.join(outputs))?, expected, "{name}, byte {at}"),
                // Where other shards could be done, the code is 3.
                Some(3 | 65) => assert!(told.contains(&name), "{name}, byte {at}: {told}"),
                code => return Err(format!("{name}, byte {at}: {code:?}, {told}").into()),
            }
        }
    }
    Ok(())
}

#[test]
fn no_flipped_bit_of_a_part_changes_a_result() -> TestResult {
    let work = Workspace::new()?;
    work.command("run", "whole").assert().success();
    for stage in ["embed", "train"] {
        work.command(stage, "before").assert().success();
    }
    sweep(&work, "embeddings", "score", "scores")?;
    work.command("score", "before").assert().success();
    sweep(&work, "scores", "threshold", "selection")?;
    work.command("threshold", "before").assert().success();
    sweep(&work, "embeddings", "export", "export")?;
    sweep(&work, "scores", "export", "export")
}

/// When each file of the run was written, those of its state aside.
fn times(run: &Path) -> Result<BTreeMap<PathBuf, SystemTime>, Box<dyn Error>> {
    let mut times = BTreeMap::new();
    for file in files(run)?.into_iter().filter(|file| !file.starts_with(run.join("state"))) {
        let time = std::fs::metadata(&file)?.modified()?;
        times.insert(file, time);
    }
    Ok(times)
}

/// Damages `part` of the finished run `out`, removes `gone` so that it is needed, and goes on as the
/// error says: only files whose names hold `again` may be written again.
fn mend(work: &Workspace, part: &str, gone: &[&str], again: &[&str]) -> TestResult {
    let run = work.path("out");
    let (before, written) = (digests(&run)?, times(&run)?);
    let path = run.join(part);
    flip(&path, std::fs::metadata(&path)?.len() as usize / 3)?;
    for file in gone {
        std::fs::remove_file(run.join(file))?;
    }
    let done = work.command("run", "out").output()?;
    let told = String::from_utf8_lossy(&done.stderr).into_owned();
    assert!(matches!(done.status.code(), Some(3 | 65)), "{part}: {told}");
    assert!(told.contains(part) && told.contains("remove the file"), "{part}: {told}");
    std::fs::remove_file(&path)?;
    work.command("run", "out").assert().success();
    assert_eq!(digests(&run)?, before, "{part}");
    for (file, time) in times(&run)? {
        let is_as_before = written.get(&file) == Some(&time);
        let name = file.display().to_string();
        assert!(is_as_before || again.iter().any(|again| name.contains(again)), "{part}: {name}");
    }
    Ok(())
}

#[test]
fn a_damaged_part_alone_is_made_again_once_it_is_removed() -> TestResult {
    let work = Workspace::with_bundled_encoder()?;
    let settings = "[encoder]\nprecision = 'int8'\n[selection]\nrefine = true\n";
    let config = std::fs::read_to_string(work.path("run.toml"))?;
    work.write("run.toml", format!("{config}{settings}"))?;
    work.command("run", "out").assert().success();
    let (embeddings, scores) = (
        "embeddings/fra_Latn/a/part-00001.parquet",
        "scores/quality/fra_Latn/a/part-00001.parquet",
    );
    let refined = "refined/quality/fra_Latn/a/part-00001.parquet";
    let round = "rounds/00/quality/fra_Latn/a/part-00000.parquet";
    let export = "export/fra_Latn/a.parquet";
    mend(&work, embeddings, &[scores], &["embeddings/fra_Latn/a/", "scores/quality/fra_Latn/a/"])?;
    mend(&work, embeddings, &[export], &["embeddings/fra_Latn/a/", export])?;
    mend(&work, scores, &[refined], &["scores/quality/fra_Latn/a/", "refined/"])?;
    mend(&work, refined, &[export], &["refined/", export])?;
    mend(&work, round, &[refined], &["rounds/00/quality/fra_Latn/a/", "refined/"])?;
    // A round is not over where a shard of it has no marker.
    let (run, expected) = (work.path("out"), digests(&work.path("out"))?);
    std::fs::remove_file(run.join("state/refine/done/.rounds/00/shards/fra_Latn/a.json"))?;
    std::fs::remove_dir_all(run.join("refined/quality"))?;
    work.command("run", "out").assert().success();
    assert_eq!(digests(&run)?, expected);
    Ok(())
}

/// Does `stage` of the run `out` again, if it is to be done again, from a run that ends with the files `expected`:
/// it ends with those, or it fails with `code` and names `lost`.
fn redo(
    work: &Workspace,
    stage: &str,
    expected: &BTreeMap<String, String>,
    (code, lost): (i32, &str),
) -> TestResult {
    let done = work.command(stage, "out").args(["--redo", stage]).output()?;
    let told = String::from_utf8_lossy(&done.stderr).into_owned();
    match done.status.code() {
        Some(0) => {
            for (name, digest) in digests(&work.path("out"))? {
                let is_state = name.starts_with("state/") || name.contains(lost);
                assert!(is_state || expected[&name] == digest, "{lost}, then {stage}: {name}");
            }
        }
        // Where other shards could be done, the code is 3.
        found => {
            assert!(found == Some(code) || found == Some(3), "{lost}: {found:?}, {told}");
            assert!(told.contains(lost), "{lost}, then {stage}: {told}");
        }
    }
    Ok(())
}

/// A finished run `whole` with heads of embeddings and of texts, filters, personal data and a card.
fn whole_run() -> Result<Workspace, Box<dyn Error>> {
    let work = Workspace::new()?;
    work.add_all_filters()?;
    let settings = std::fs::read_to_string(work.path("run.toml"))?;
    let words = "[heads.words]\nkind = 'fasttext'\ntrain = ['samples/{lang}.jsonl']\n\
                 [heads.words.fasttext]\ndim = 4\nbuckets = 100\nepochs = 2\n[pii]\n";
    let settings = settings.replace("quality = [0.1, 0.33]", "quality = 0.33, words = 0.5");
    work.write("run.toml", format!("{settings}{words}"))?;
    work.command("run", "whole").arg("--quiet").assert().success();
    Ok(work)
}

#[test]
fn no_flipped_bit_of_a_file_with_a_digest_changes_a_result() -> TestResult {
    let work = whole_run()?;
    let (whole, run) = (work.path("whole"), work.path("out"));
    let expected = digests(&whole)?;
    let mut random = Random(42);
    // What reads each file, and what has to be gone so that it is read.
    for (file, stage, gone) in [
        ("heads/quality/fra_Latn.safetensors", "score", ""),
        ("heads/words/deu_Latn.bin", "score", ""),
        ("heads/words/fra_Latn.json", "score", ""),
        ("verdicts/fra_Latn/a.parquet", "threshold", ""),
        ("duplicates/verdicts/fra_Latn/fra_Latn/a.parquet", "threshold", ""),
        ("duplicates/languages/deu_Latn.json", "deduplicate", "duplicates/report.json"),
        ("selection/deu_Latn.json", "export", ""),
        ("filters/shards/fra_Latn/a.json", "filter", "filters/known.json"),
        ("audit/shards/deu_Latn/a.json", "export", "audit/pii.json"),
    ] {
        let length = std::fs::metadata(whole.join(file))?.len() as usize;
        copy(&whole, &run)?;
        if gone.is_empty() {
            for _ in 0..2 {
                let at = random.below(length);
                flip(&run.join(file), at)?;
                redo(&work, stage, &expected, (65, file))?;
                copy(&whole, &run)?;
            }
        }
        let at = random.below(length);
        flip(&run.join(file), at)?;
        if !gone.is_empty() {
            std::fs::remove_file(run.join(gone))?;
            let failed = work.command(stage, "out").output()?;
            let told = String::from_utf8_lossy(&failed.stderr).into_owned();
            assert_eq!(failed.status.code(), Some(65), "{file}: {told}");
            assert!(told.contains(file) && told.contains("remove the file"), "{file}: {told}");
        }
        std::fs::remove_file(run.join(file))?;
        work.command("run", "out").arg("--quiet").assert().success();
        assert_eq!(digests(&run)?, expected, "{file}");
    }
    Ok(())
}

#[test]
fn what_lost_its_marker_is_missed_and_done_again() -> TestResult {
    let work = whole_run()?;
    let (whole, run) = (work.path("whole"), work.path("out"));
    let expected = digests(&whole)?;
    for (lost, is_removed, stages) in [
        (
            "embed/done/fra_Latn/a",
            true,
            &["filter", "score", "deduplicate", "threshold", "export"][..],
        ),
        ("embed/done/fra_Latn/a", false, &["filter", "score", "export"]),
        ("train/done/words/deu_Latn", true, &["score"]),
        ("train/done/quality/fra_Latn", false, &["score"]),
        ("score/done/words/fra_Latn/a", true, &["threshold", "export"]),
        ("score/done/quality/fra_Latn/a", true, &["deduplicate"]),
        ("filter/done/deu_Latn/a", true, &["deduplicate", "threshold", "export"]),
        ("deduplicate/done/deu_Latn", true, &["threshold", "export"]),
        ("threshold/done/deu_Latn", false, &["export"]),
    ] {
        for stage in stages {
            copy(&whole, &run)?;
            let marker = run.join("state").join(lost).with_extension("json");
            std::fs::remove_file(&marker)?;
            if !is_removed {
                std::fs::write(&marker, "")?;
            }
            redo(&work, stage, &expected, (66, lost.rsplit("done/").next().unwrap_or(lost)))?;
        }
        let told = work.command("run", "out").output()?;
        assert!(told.status.success(), "{lost}");
        let told = String::from_utf8_lossy(&told.stderr).into_owned();
        // Of heads nothing says that all were trained.
        let is_said = told.contains("done again") || lost.starts_with("train/");
        assert!(is_said, "{lost}: {told}");
        assert_eq!(digests(&run)?, expected, "{lost}");
    }
    Ok(())
}
