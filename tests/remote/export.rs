//! Export to a store: the objects are the files of a local export, whatever happens on the way.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{ArrayRef, BinaryArray, RecordBatch, StringArray};
use predicates::str::contains;
use serde_json::Value;

use super::bucket::{Bucket, PLAIN};
use super::server::{Faults, Line};
use super::{Failure, S3, corpus, noise, run, with_s3, write_batch};
use crate::util::{TestResult, Workspace, digests, polysift, text};

const TO: &str = "s3://bucket/out/x";

/// Whether the objects are those of the export in the run directory `local`.
fn assert_exported(work: &Workspace, s3: &S3, local: &str) -> TestResult {
    for folder in ["export", "removed"] {
        let objects = digests(&s3.object("out/x").join(folder))?;
        assert_eq!(objects, digests(&work.path(local).join(folder))?, "{folder}");
    }
    Ok(())
}

/// The files that the marker of a shard names.
fn marked(work: &Workspace, run: &str, shard: &str) -> Result<Vec<Value>, Failure> {
    let marker = work.json(&format!("{run}/state/export/done/{shard}.json"))?;
    Ok(marker["files"].as_array().ok_or("no files")?.clone())
}

#[test]
fn the_objects_are_the_files_of_a_local_export() -> TestResult {
    let (work, s3) = corpus()?;
    run(&work, "corpus/{lang}/*", "local").arg("--keep-removed").assert().success();
    let mut remote = run(&work, "s3://bucket/data/v?/{lang}/*", "remote");
    remote.args(["--keep-removed", "--export-to", TO]);
    with_s3(&mut remote, s3.address()).assert().success().stdout(contains(format!("{TO}/export")));
    assert_exported(&work, &s3, "local")?;
    assert!(!work.path("remote/export").exists());
    let files = marked(&work, "remote", "fra_Latn/b")?;
    let local = marked(&work, "local", "fra_Latn/b")?;
    for (file, local) in files.iter().zip(&local) {
        let path = local["path"].as_str().ok_or("no path")?;
        assert_eq!(file["path"], format!("{TO}/{path}"));
        assert_eq!((&file["rows"], &file["blake3"]), (&local["rows"], &local["blake3"]));
        assert!(file["etag"].as_str().is_some_and(|etag| etag.len() == 32));
        assert_eq!(local["etag"], Value::Null);
    }

    // Asked for again, the same objects are written again.
    std::fs::remove_dir_all(work.path("remote/state/export"))?;
    let mut again = polysift();
    again.args(["export", "--run"]).arg(work.path("remote"));
    with_s3(&mut again, s3.address()).assert().success();
    assert_exported(&work, &s3, "local")?;
    assert_eq!(marked(&work, "remote", "fra_Latn/b")?, files);
    // And where they are marked, nobody is asked.
    polysift().args(["export", "--run"]).arg(work.path("remote")).assert().success();
    Ok(())
}

#[test]
fn verify_finds_objects_that_changed_or_went() -> TestResult {
    let (work, s3) = corpus()?;
    let mut command = run(&work, "corpus/{lang}/*", "out");
    with_s3(command.args(["--export-to", TO]), s3.address()).assert().success();
    let verify = || {
        let mut command = polysift();
        command.arg("verify").arg(work.path("out"));
        with_s3(&mut command, s3.address()).assert()
    };
    verify().success();
    let object = s3.object("out/x/export/fra_Latn/b.parquet");
    let bytes = std::fs::read(&object)?;
    let mut changed = bytes.clone();
    changed[bytes.len() / 2] ^= 1;
    std::fs::write(&object, changed)?;
    // The server keeps the ETag of what was put, as none would that is written to by its own means.
    for entry in std::fs::read_dir(s3.object("").parent().ok_or("no parent")?)? {
        let path = entry?.path();
        if path.to_string_lossy().contains("internal") {
            std::fs::remove_file(path)?;
        }
    }
    verify().code(65).stdout(contains("export/fra_Latn/b.parquet: changed since it was written"));
    std::fs::write(&object, &bytes)?;
    verify().success();
    std::fs::remove_file(&object)?;
    verify().code(65).stdout(contains("export/fra_Latn/b.parquet: no such object"));
    Ok(())
}

#[test]
fn a_place_is_of_one_run_only() -> TestResult {
    let (work, s3) = corpus()?;
    let go = |out: &str, flags: &[&str]| {
        let mut command = run(&work, "corpus/{lang}/*", out);
        command.args(["--export-to", TO]).args(flags);
        with_s3(&mut command, s3.address()).assert()
    };
    go("one", &[]).success();
    let objects = digests(&s3.object("out/x"))?;
    // The same results may be written by another, who has the same.
    go("two", &[]).success();
    assert_eq!(digests(&s3.object("out/x"))?, objects);
    let other = ["--retention", "quality=0.5"];
    go("three", &other).code(78).stderr(contains("choose another place"));
    assert_eq!(digests(&s3.object("out/x"))?, objects);
    go("three", &[&other[..], &["--redo", "export"]].concat()).success();
    assert_ne!(digests(&s3.object("out/x"))?, objects);
    go("one", &[]).success(); // all of it is done
    std::fs::remove_dir_all(work.path("one/state/export"))?;
    go("one", &[]).code(78);
    Ok(())
}

#[test]
fn objects_of_others_are_not_replaced() -> TestResult {
    let (work, s3) = corpus()?;
    s3.put(&work.path("corpus/fra_Latn/a.jsonl"), "out/x/export/deu_Latn/a.parquet")?;
    let go = |input: &str, flags: &[&str]| {
        let mut command = run(&work, input, "out");
        command.args(["--export-to", TO]).args(flags);
        with_s3(&mut command, s3.address()).assert()
    };
    let theirs = digests(&s3.object("out/x"))?;
    let refused = contains("export: holds files that this run did not make");
    go("corpus/{lang}/*", &[]).code(78).stderr(refused);
    assert_eq!(digests(&s3.object("out/x"))?, theirs);
    go("corpus/{lang}/*", &["--redo", "export"]).success();
    assert_ne!(digests(&s3.object("out/x"))?, theirs);
    Ok(())
}

/// A workspace with one file of 73 documents with images of `image_bytes`, done locally as `local`
/// and up to the export of `remote`. An upload has parts of 8 MiB.
fn large(image_bytes: usize) -> Result<(Workspace, S3), Failure> {
    let (work, s3) = (Workspace::new()?, S3::start()?);
    let texts: StringArray = (0..80).map(|i| (i % 11 != 7).then(|| text(i))).collect();
    let ids = StringArray::from_iter_values((0..80).map(|i| format!("id-{i}")));
    let images = BinaryArray::from_iter_values((0..80).map(|i| noise(i, image_bytes)));
    let batch = RecordBatch::try_from_iter([
        ("text", Arc::new(texts) as ArrayRef),
        ("id", Arc::new(ids)),
        ("image", Arc::new(images)),
    ])?;
    write_batch(&work.path("large/fra_Latn/a.parquet"), &batch, 20)?;
    let mut local = run(&work, "large/{lang}/*", "local");
    local.args(["--keep-removed", "--retention", "quality=1"]).assert().success();
    // The same run but for the place of its export.
    let mut remote = run(&work, "large/{lang}/*", "remote");
    remote.args(["--keep-removed", "--retention", "quality=1", "--export-to", TO]);
    with_s3(&mut remote, s3.address());
    for stage in ["embed", "train", "score", "threshold"] {
        let mut command = work.command(stage, "remote");
        command.args(["--keep-removed", "--retention", "quality=1", "--export-to", TO]);
        if stage == "embed" {
            command.arg("large/{lang}/*");
        } else {
            command.args(["--set", "input.files=['large/{lang}/*']"]);
        }
        command.assert().success();
    }
    Ok((work, s3))
}

/// The export of `remote`.
fn export(work: &Workspace) -> assert_cmd::Command {
    let mut command = polysift();
    command.args(["export", "--run"]).arg(work.path("remote"));
    command.env("POLYSIFT_STORE_RETRY_SECS", "20");
    command
}

#[test]
fn a_large_object_is_sent_in_parts_over_a_line_that_breaks() -> TestResult {
    let (work, s3) = large(240_000)?;
    let line = Line::to(s3.address(), Faults { cut_after: 600, busy_every: 2 })?;
    with_s3(&mut export(&work), line.address()).assert().success();
    let (cut, busy) = line.faults();
    assert!(cut + busy > 2, "{cut} {busy}");
    assert_exported(&work, &s3, "local")?;
    let files = marked(&work, "remote", "fra_Latn/a")?;
    let kept = files.iter().find(|file| file["rows"] == 73).ok_or("no file")?;
    // How S3 names what came in three parts.
    assert!(kept["etag"].as_str().is_some_and(|etag| etag.ends_with("-3")), "{kept}");
    assert_eq!(s3.unfinished()?, 0);
    Ok(())
}

#[test]
fn an_export_that_is_killed_anywhere_leaves_whole_objects_or_none() -> TestResult {
    let (work, s3) = large(120_000)?; // two parts
    let expected = digests(&work.path("local/export"))?;
    let mut killed = 0;
    for boundary in 1.. {
        let mut command = export(&work);
        command.env("POLYSIFT_KILL_AT", boundary.to_string());
        let outcome = with_s3(&mut command, s3.address()).output()?;
        let folder = s3.object("out/x/export");
        if folder.exists() {
            let found = digests(&folder)?;
            assert!(found.iter().all(|(name, digest)| expected.get(name) == Some(digest)));
        }
        if outcome.status.success() {
            break;
        }
        killed += 1;
        assert!(!work.path("remote/state/export/done/fra_Latn/a.json").exists() || boundary > 8);
    }
    assert!(killed > 8, "{killed}");
    assert_exported(&work, &s3, "local")
}

#[test]
fn a_bucket_that_is_missing_is_called_so() -> TestResult {
    let work = Workspace::new()?;
    let bucket = Bucket::serve(BTreeMap::new(), PLAIN)?;
    let mut command = run(&work, "corpus/{lang}/*", "out");
    command.args(["--export-to", "s3://nobucket/out"]);
    with_s3(&mut command, bucket.address()?)
        .assert()
        .code(66)
        .stderr(contains("there is no bucket `nobucket`"));
    Ok(())
}

#[test]
fn a_store_that_refuses_leaves_nothing_and_says_so() -> TestResult {
    let (work, s3) = corpus()?;
    let mut refused = run(&work, "corpus/{lang}/*", "out");
    with_s3(refused.args(["--export-to", TO]), s3.address())
        .env("AWS_SECRET_ACCESS_KEY", "wrong")
        .assert()
        .code(69)
        .stderr(contains("access is refused"));
    assert!(!s3.object("out").exists());
    // The stages before it are done.
    let mut export = polysift();
    export.args(["export", "--run"]).arg(work.path("out"));
    with_s3(&mut export, s3.address()).assert().success();
    assert_eq!(digests(&s3.object("out/x/export"))?.len(), 4);
    Ok(())
}
