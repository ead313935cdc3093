//! Which files are found, and what they are called.

use std::os::unix::fs::symlink;
use std::path::Path;

use polysift::Error;
use polysift::input::{Compression, Format, InputFile, discover};
use tempfile::TempDir;

use super::{TestResult, chain};

/// A directory with these empty files.
fn tree(paths: &[&str]) -> std::io::Result<TempDir> {
    let directory = tempfile::tempdir()?;
    for path in paths {
        let path = directory.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap_or(Path::new("/")))?;
        std::fs::write(path, "")?;
    }
    Ok(directory)
}

fn find(base: &TempDir, patterns: &[&str]) -> Result<Vec<InputFile>, Error> {
    let patterns: Vec<_> = patterns.iter().map(ToString::to_string).collect();
    discover(&patterns, base.path())
}

/// `name` or `name:language` of each file.
fn names(base: &TempDir, patterns: &[&str]) -> Result<Vec<String>, Error> {
    let name = |file: InputFile| match file.language {
        Some(language) => format!("{}:{language}", file.name),
        None => file.name,
    };
    Ok(find(base, patterns)?.into_iter().map(name).collect())
}

fn refusal(base: &TempDir, patterns: &[&str]) -> String {
    find(base, patterns).err().map_or_else(|| "no error".into(), |e| chain(&e))
}

#[test]
fn a_directory_is_searched_for_known_extensions() -> TestResult {
    let base = tree(&[
        "d/b.parquet",
        "d/sub/a.jsonl.gz",
        "d/sub/README.md",
        "d/.hidden.parquet",
        "d/_SUCCESS",
        "d/_temporary/x.parquet",
        "other.parquet",
    ])?;
    assert_eq!(names(&base, &["d"])?, ["b", "sub/a"]);
    assert_eq!(find(&base, &["d"])?[1].format, Format::JsonLines(Compression::Gzip));
    Ok(())
}

#[test]
fn folders_that_look_like_patterns_and_names_that_meet_are_told_apart() -> TestResult {
    let base = tree(&["d[1]/a.jsonl", "deu/x.jsonl", "deu/deu/x.jsonl"])?;
    assert_eq!(names(&base, &["d[1]/*.jsonl"])?, ["a"]);
    assert_eq!(names(&base, &["{lang}/**/x.jsonl"])?, ["deu/x:deu", "x:deu"]);
    Ok(())
}

#[test]
fn run_directories_are_not_searched() -> TestResult {
    let base = tree(&[
        "d/a.parquet",
        "d/out/plan.jsonl.zst",
        "d/out/state/workers/1",
        "d/out/export/a.parquet",
        "d/out/rejects/a/part-00000.jsonl",
        "d/x/begun/frozen/train.json",
        "d/x/begun/state/train/done/q.json",
        "d/x/begun/heads/q/_all.json",
        "d/x/own/plan.jsonl.zst",
        "d/x/state/b.parquet",
    ])?;
    assert_eq!(names(&base, &["d"])?, ["a", "x/own/plan", "x/state/b"]);
    assert_eq!(names(&base, &["d/**/*.parquet"])?, ["a", "x/state/b"]);
    assert_eq!(names(&base, &["d/**/*.zst"])?, ["plan"]);
    assert!(names(&base, &["d/**/*.jsonl"]).is_err());
    assert!(names(&base, &["d/*/export/*.parquet"]).is_err());
    // What a folder in one holds is named by naming the folder.
    assert_eq!(names(&base, &["d/out/export/*.parquet"])?, ["a"]);
    assert!(refusal(&base, &["d/out"]).contains("run directory"));
    Ok(())
}

#[test]
fn globs_match_components_and_trees() -> TestResult {
    let base = tree(&["x/1/a.parquet", "x/2/b.parquet", "x/2/c.txt", "x/2/deep/d.parquet"])?;
    assert_eq!(names(&base, &["x/*/*.parquet"])?, ["1/a", "2/b"]);
    assert_eq!(names(&base, &["x/**/*.parquet"])?, ["1/a", "2/b", "2/deep/d"]);
    assert_eq!(names(&base, &["x/**"])?, ["1/a", "2/b", "2/deep/d"]);
    assert_eq!(names(&base, &["x/[2-9]/?.parquet"])?, ["b"]);
    assert_eq!(names(&base, &["x/*"])?, ["1/a", "2/b", "2/deep/d"]);
    Ok(())
}

#[test]
fn the_language_comes_from_the_pattern() -> TestResult {
    let base = tree(&[
        "data/deu_Latn/train/000_00000.parquet",
        "data/cmn_Hani/train/000_00000.parquet",
        "flat/train_fra_Latn.jsonl",
        "twice/deu/deu_1.parquet",
        "twice/deu/fra_1.parquet",
    ])?;
    assert_eq!(
        names(&base, &["data/{lang}/train/*.parquet"])?,
        ["cmn_Hani/train/000_00000:cmn_Hani", "deu_Latn/train/000_00000:deu_Latn"]
    );
    assert_eq!(names(&base, &["data/{lang}"])?.len(), 2);
    assert_eq!(names(&base, &["flat/train_{lang}.jsonl"])?, ["train_fra_Latn:fra_Latn"]);
    assert_eq!(names(&base, &["twice/{lang}/{lang}_*"])?, ["deu_1:deu"]);
    Ok(())
}

#[test]
fn two_languages_for_one_file_are_an_error() -> TestResult {
    let base = tree(&["deu/fra.jsonl"])?;
    let message = refusal(&base, &["{lang}/*.jsonl", "*/{lang}.jsonl"]);
    assert!(message.contains("two languages, deu and fra"), "{message}");
    assert_eq!(names(&base, &["deu/fra.jsonl", "{lang}/*.jsonl"])?, ["deu/fra:deu"]);
    Ok(())
}

#[test]
fn a_file_matched_twice_is_taken_once() -> TestResult {
    let base = tree(&["d/a.parquet", "d/b.parquet"])?;
    let whole = base.path().join("d/a.parquet");
    let whole = whole.to_string_lossy();
    assert_eq!(names(&base, &["d", "d/*.parquet", "./d/../d/a.parquet", &whole])?, ["a", "b"]);
    Ok(())
}

#[test]
fn links_are_followed_and_loops_end() -> TestResult {
    let base = tree(&["blobs/1.parquet", "snapshots/r/x.md"])?;
    let snapshot = base.path().join("snapshots/r");
    symlink(base.path().join("blobs/1.parquet"), snapshot.join("a.parquet"))?;
    symlink(base.path().join("blobs/1.parquet"), snapshot.join("b.parquet"))?;
    symlink(base.path(), snapshot.join("loop"))?;
    assert_eq!(names(&base, &["snapshots/*/*.parquet"])?, ["a", "b"]);
    assert!(names(&base, &["snapshots"])?.contains(&"a".to_owned()));
    assert!(names(&base, &["snapshots/**/*.parquet"])?.contains(&"a".to_owned()));
    Ok(())
}

#[test]
fn names_are_unique_and_sorted() -> TestResult {
    let base = tree(&["d/b.jsonl", "d/a.parquet", "d/a.jsonl", "e/a.parquet"])?;
    assert_eq!(names(&base, &["e", "d"])?, ["d/a.jsonl", "d/a.parquet", "d/b", "e/a"]);
    assert_eq!(names(&base, &["d/../d/b.jsonl"])?, ["b"]);
    Ok(())
}

#[test]
fn a_pattern_without_a_match_is_named() -> TestResult {
    let base = tree(&["d/a.txt", "empty/.x"])?;
    for pattern in ["none.parquet", "d/*.parquet", "{lang}/x.jsonl", "d", "empty", "d/a*"] {
        let error = find(&base, &[pattern]).err().ok_or(pattern)?;
        assert!(matches!(error, Error::Missing { .. }), "{error}");
        assert!(error.to_string().starts_with(pattern), "{error}");
    }
    Ok(())
}

#[test]
fn a_named_file_of_unknown_extension_is_refused() -> TestResult {
    let base = tree(&["a.txt"])?;
    let message = refusal(&base, &["a.txt"]);
    assert!(message.contains("a.txt") && message.contains(".ndjson"), "{message}");
    Ok(())
}

#[test]
fn a_directory_named_like_a_file_is_searched() -> TestResult {
    let base = tree(&["x.parquet/part-0.parquet", "x.parquet/_SUCCESS"])?;
    assert_eq!(names(&base, &["x.parquet"])?, ["part-0"]);
    assert_eq!(names(&base, &["*.parquet"])?, ["part-0"]);
    Ok(())
}

#[test]
fn a_fingerprint_sees_size_and_ends() -> TestResult {
    let base = tree(&[])?;
    let path = base.path().join("a.jsonl");
    let mut seen = Vec::new();
    let mut bytes = vec![b' '; 300_000];
    let mut fingerprint = |bytes: &[u8]| -> Result<(), Box<dyn std::error::Error>> {
        std::fs::write(&path, bytes)?;
        let file = &find(&base, &["a.jsonl"])?[0];
        assert_eq!(file.bytes, bytes.len() as u64);
        seen.push(file.fingerprint()?);
        Ok(())
    };
    fingerprint(&bytes)?;
    fingerprint(&bytes)?;
    bytes[0] = b'\n';
    fingerprint(&bytes)?;
    bytes[299_999] = b'\n';
    fingerprint(&bytes)?;
    fingerprint(&[&bytes[..150_000], b" ", &bytes[150_000..]].concat())?;
    assert_eq!(seen[0], seen[1]);
    seen.dedup();
    assert_eq!(seen.len(), 4);
    Ok(())
}
