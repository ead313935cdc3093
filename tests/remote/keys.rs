//! Keys are any text: what matches is found, read and written under its own name, or named.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use polysift::run::RunDir;
use predicates::str::contains;

use super::bucket::{Bucket, Nature, PLAIN};
use super::{Failure, RESULTS, S3, assert_same, run, with_s3, write_parquet};
use crate::util::{TestResult, Workspace, digests, polysift};

/// Names that mean something to a glob, a URL, a path, or XML.
const NAMES: [&str; 16] = [
    "q?", "h#a", "p%", "%3F", "a b", "a+b", "a&b", "<a>", "[x]", "{lang}", "*", "日本é", "a\\b",
    "a;b=c", " ", "~'\"^`|",
];

/// The Parquet file of so many rows.
fn parquet(work: &Workspace, num_rows: usize) -> Result<Vec<u8>, Failure> {
    let path = work.path("some.parquet");
    write_parquet(&path, 0..num_rows, 100, 0)?;
    Ok(std::fs::read(path)?)
}

/// `polysift plan` over `input` of the bucket, into the run directory `out`.
fn plan(
    work: &Workspace,
    bucket: &Bucket,
    input: &[&str],
    out: &str,
) -> Result<assert_cmd::Command, Failure> {
    let mut command = polysift();
    command.current_dir(work.dir.path()).args(["plan", "--run", out, "--quiet"]).args(input);
    // More than a request may take: one that the small server lets hang is asked again.
    command.env("POLYSIFT_STORE_RETRY_SECS", "150");
    with_s3(&mut command, bucket.address()?);
    Ok(command)
}

/// URL and number of rows of every shard of `run`.
fn planned_rows(work: &Workspace, run: &str) -> Result<BTreeMap<String, u64>, Failure> {
    let shards = RunDir::open(&work.path(run))?.plan()?.shards;
    let row = |shard: polysift::run::Shard| {
        (shard.file.display().to_string(), shard.num_rows.unwrap_or_default())
    };
    Ok(shards.into_iter().map(row).collect())
}

#[test]
fn objects_of_any_name_are_done_as_files_of_these_names() -> TestResult {
    let (work, s3) = (Workspace::new()?, S3::start()?);
    for (i, name) in NAMES.iter().enumerate() {
        let file = format!("fra_Latn/{name}.parquet");
        write_parquet(&work.path("odd").join(&file), 10 * i..10 * i + 10, 25, 0)?;
        s3.put(&work.path("odd").join(&file), &format!("p/{file}"))?;
    }
    run(&work, "odd/{lang}/*.parquet", "local").assert().success();
    let mut remote = run(&work, "s3://bucket/p/{lang}/**/*.parquet", "remote");
    with_s3(remote.args(["--export-to", "s3://bucket/out"]), s3.address()).assert().success();
    assert_same(&work, "local", "remote", &RESULTS[..4])?;
    assert_eq!(digests(&s3.object("out/export"))?, digests(&work.path("local/export"))?);
    assert_eq!(digests(&s3.object("out/export"))?.len(), NAMES.len());
    let mut verify = polysift();
    verify.arg("verify").arg(work.path("remote"));
    with_s3(&mut verify, s3.address()).assert().success();
    Ok(())
}

#[test]
fn a_key_can_be_named_as_it_is() -> TestResult {
    let work = Workspace::new()?;
    let mut objects = BTreeMap::new();
    for (i, name) in NAMES.iter().chain(&["x", "qq", "deu"]).enumerate() {
        objects.insert(format!("p/{name}.parquet"), parquet(&work, i + 1)?);
    }
    let bucket = Bucket::serve(objects, PLAIN)?;
    for (i, (input, key)) in [
        ("p/q[?].parquet", "p/q?.parquet"),
        ("p/h#a.parquet", "p/h#a.parquet"),
        ("p/%3F.parquet", "p/%3F.parquet"),
        ("p/[*].parquet", "p/*.parquet"),
        ("p/[[]x].parquet", "p/[x].parquet"),
        ("p/[{]lang}.parquet", "p/{lang}.parquet"),
        ("p/[wx].parquet", "p/x.parquet"),
        ("p/ .parquet", "p/ .parquet"),
    ]
    .into_iter()
    .enumerate()
    {
        let out = format!("out{i}");
        let input = format!("s3://bucket/{input}");
        plan(&work, &bucket, &[&input], &out)?.assert().success();
        let found = planned_rows(&work, &out)?;
        let keys: Vec<&String> = found.keys().collect();
        assert_eq!(keys, [&format!("s3://bucket/{key}")], "{input}");
    }
    Ok(())
}

#[test]
fn keys_that_are_no_paths_are_read_or_named() -> TestResult {
    let work = Workspace::new()?;
    let rows = parquet(&work, 5)?;
    let keys = [
        "p/deu//a.parquet",
        "p/deu/a.parquet",
        "p//b.parquet",
        "p/deu/a.parquet/",
        "p/deu/",
        "p/deu/x/../c.parquet",
        "p/deu/new\nline.txt",
        "bad/deu/new\nline.parquet",
        "bad/deu/good.parquet",
        "/deu/d.parquet",
    ];
    let objects = keys.iter().map(|key| ((*key).to_owned(), rows.clone())).collect();
    let bucket = Bucket::serve(objects, PLAIN)?;
    let files = |input: &str, out: &str| -> Result<Vec<String>, Failure> {
        plan(&work, &bucket, &[input], out)?.assert().success();
        let files = planned_rows(&work, out)?;
        assert!(files.values().all(|num_rows| *num_rows == 5));
        Ok(files.into_keys().map(|url| url.replace("s3://bucket/", "")).collect())
    };
    assert_eq!(files("s3://bucket/p/{lang}/*.parquet", "one")?, ["p/deu/a.parquet"]);
    let all = ["p/deu//a.parquet", "p/deu/a.parquet"];
    assert_eq!(files("s3://bucket/p/{lang}/**/*.parquet", "all")?, all);
    assert_eq!(files("s3://bucket/p/deu//a.parquet", "literal")?, all[..1]);
    assert_eq!(files("s3://bucket/p//*.parquet", "empty")?, ["p//b.parquet"]);

    for (input, named, reason) in [
        ("bad/deu/*.parquet", "bad/deu/new\\nline.parquet", "holds a control character"),
        ("p/deu/x/../*.parquet", "p/deu/x/../c.parquet", "holds the segment `.` or `..`"),
        ("/deu/*.parquet", "s3://bucket//deu/d.parquet", "begins with a slash"),
    ] {
        let input = format!("s3://bucket/{input}");
        let refused = plan(&work, &bucket, &[&input], "none")?.assert().code(2);
        refused.stderr(contains(named)).stderr(contains(reason));
    }
    assert!(!work.path("none").exists());
    Ok(())
}

#[test]
fn keys_of_chance_are_all_found_or_all_named() -> TestResult {
    const PIECES: [&str; 22] = [
        "a", "Z", "7", "/", "//", "?", "#", "%", "%2F", "%20", "+", " ", "*", "[", "]", "{lang}",
        "&", "<", "é", "日", "..x", "=",
    ];
    let work = Workspace::new()?;
    let mut keys = BTreeSet::new();
    for i in 0_u32..160 {
        let digest = blake3::hash(&i.to_le_bytes());
        let length = 1 + usize::from(digest.as_bytes()[0]) % 7;
        let pieces = digest.as_bytes()[1..=length].iter();
        let name: String = pieces.map(|&byte| PIECES[usize::from(byte) % PIECES.len()]).collect();
        keys.insert(format!("p/{name}.parquet"));
    }
    let mut objects = BTreeMap::new();
    let mut expected = BTreeMap::new();
    for (i, key) in keys.into_iter().enumerate() {
        // No component is hidden, as a file of that name would be.
        if !key.split('/').any(|name| name.starts_with('.')) {
            expected.insert(format!("s3://bucket/{key}"), i as u64 + 1);
        }
        objects.insert(key, parquet(&work, i + 1)?);
    }
    assert!(expected.len() > 100, "{}", expected.len());
    // Pages of seven: folders within folders are listed on their own.
    let bucket = Bucket::serve(objects, Nature { page_keys: 7, ..PLAIN })?;
    plan(&work, &bucket, &["s3://bucket/p/**/*.parquet"], "out")?.assert().success();
    assert_eq!(planned_rows(&work, "out")?, expected);
    Ok(())
}

#[test]
fn folders_and_files_are_looked_for_side_by_side() -> TestResult {
    let work = Workspace::new()?;
    let rows = parquet(&work, 5)?;
    let mut objects = BTreeMap::new();
    for language in 0..100 {
        for file in 0..12 {
            let key = format!("p/l{language}x/train/{file:02}.parquet");
            objects.insert(key, if file == 0 { rows.clone() } else { Vec::new() });
            objects.insert(format!("p/l{language}x/test/{file:02}.parquet"), rows.clone());
        }
    }
    let slow = Nature { page_keys: 20, delay: Duration::from_millis(30), refuses: None };
    let bucket = Bucket::serve(objects, slow)?;
    let listed = |pattern: &str, out: &str| -> Result<usize, Failure> {
        plan(&work, &bucket, &[pattern], out)?.assert().success();
        Ok(planned_rows(&work, out)?.len())
    };
    assert_eq!(listed("s3://bucket/p/{lang}/train/00.parquet", "one")?, 100);
    // Each once, whatever the line made necessary.
    let listings: BTreeSet<String> =
        bucket.urls().into_iter().filter(|url| url.contains("list-type")).collect();
    // A page of 20 is too short for the 24 keys of a language: its folders are asked for, and the
    // keys of `train`. So 3 requests for each, and 1 and 5 pages for the 100 folders above.
    assert!(!listings.iter().any(|url| url.contains("test")), "{listings:?}");
    assert_eq!(listings.len(), 306);
    assert!(bucket.most_at_once() >= 16, "{}", bucket.most_at_once());
    Ok(())
}

#[test]
fn objects_that_are_named_are_looked_for_side_by_side() -> TestResult {
    let work = Workspace::new()?;
    let rows = parquet(&work, 5)?;
    let keys: Vec<String> = (0..60).map(|i| format!("p/{i:02}.parquet")).collect();
    let objects = keys.iter().map(|key| (key.clone(), rows.clone())).collect();
    let slow = Nature { delay: Duration::from_millis(30), ..PLAIN };
    let bucket = Bucket::serve(objects, slow)?;
    let urls: Vec<String> = keys.iter().map(|key| format!("s3://bucket/{key}")).collect();
    let urls: Vec<&str> = urls.iter().map(String::as_str).collect();
    // One by one, 60 heads would take 1.8 s; the footers are read side by side anyway.
    plan(&work, &bucket, &urls, "out")?.arg("--dry-run").assert().success();
    let heads = bucket.urls().len();
    assert!(heads >= 120, "{heads}");
    assert!(bucket.most_at_once() >= 16, "{}", bucket.most_at_once());
    Ok(())
}

#[test]
fn a_refusal_is_told_at_once() -> TestResult {
    let work = Workspace::new()?;
    for (status, code, message) in [
        (401, 69, "access is refused: the server answers 401"),
        (403, 69, "access is refused: the server answers 403"),
        (404, 66, "there is no bucket `bucket`"),
        (400, 69, "the server answers 400"),
    ] {
        let bucket = Bucket::serve(BTreeMap::new(), Nature { refuses: Some(status), ..PLAIN })?;
        let began = Instant::now();
        let refused = plan(&work, &bucket, &["s3://bucket/p/*.parquet"], "none")?.assert();
        refused.code(code).stderr(contains(message));
        assert_eq!(bucket.urls().len(), 1, "{status}");
        assert!(began.elapsed() < Duration::from_secs(20), "{status}: {:?}", began.elapsed());
    }
    Ok(())
}
