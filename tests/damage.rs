//! Bits of stored parts that are no longer what was written.

use std::collections::BTreeMap;
use std::error::Error;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use crate::util::{TestResult, Workspace, digests};

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

/// Runs `command` once for each of some flipped bits of the parts in `folder` of the run `before`. Either
/// it fails and names the part, or its `outputs` are those of the run `whole`.
fn sweep(work: &Workspace, folder: &str, command: &str, outputs: &str) -> TestResult {
    let (before, run) = (work.path("before"), work.path("out"));
    let expected = digests(&work.path("whole").join(outputs))?;
    let copy = || -> TestResult {
        if run.exists() {
            std::fs::remove_dir_all(&run)?;
        }
        for file in files(&before)? {
            let to = run.join(file.strip_prefix(&before)?);
            std::fs::create_dir_all(to.parent().ok_or("no parent")?)?;
            std::fs::copy(&file, to)?;
        }
        Ok(())
    };
    for part in files(&before.join(folder))? {
        let length = std::fs::metadata(&part)?.len() as usize;
        let part = run.join(part.strip_prefix(&before)?);
        let spread = (0..FLIPS).map(|i| length * i / FLIPS + i);
        for at in spread.chain([length - 300, length - 40, length - 6, length - 1]) {
            copy()?;
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
    Ok(())
}
