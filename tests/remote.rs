//! Objects of stores, with a real S3 server, web servers and a hub that the tests start.

#[path = "remote/bucket.rs"]
mod bucket;
#[path = "remote/export.rs"]
mod export;
#[path = "remote/hub.rs"]
mod hub;
#[path = "remote/input.rs"]
mod input;
#[path = "remote/keys.rs"]
mod keys;
#[path = "remote/publish.rs"]
mod publish;
#[path = "remote/secrets.rs"]
mod secrets;
#[path = "remote/server.rs"]
mod server;
#[path = "remote/tls.rs"]
mod tls;
#[path = "remote/web.rs"]
mod web;

use std::path::Path;
use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array, RecordBatch, StringArray};
use assert_cmd::Command;
use parquet::arrow::ArrowWriter;
use parquet::file::properties::WriterProperties;
use polysift::run::RunDir;

use crate::util::{TestResult, Workspace, digests, text};
use server::{S3, with_s3};

type Failure = Box<dyn std::error::Error>;

/// Returns bytes that do not compress; `seed` determines them.
fn noise(seed: usize, length: usize) -> Vec<u8> {
    let mut noise = vec![0; length];
    blake3::Hasher::new().update(&seed.to_le_bytes()).finalize_xof().fill(&mut noise);
    noise
}

/// Writes documents `rows` to a Parquet file in row groups of `group_rows`; texts of about `padding`
/// more bytes that do not compress.
fn write_parquet(
    path: &Path,
    rows: std::ops::Range<usize>,
    group_rows: usize,
    padding: usize,
) -> TestResult {
    let long = |i: usize| {
        let noise = noise(i, padding / 2);
        let noise = noise.iter().map(|byte| format!("{byte:02x}"));
        format!("{} {}", text(i), noise.collect::<String>())
    };
    let texts = rows.clone().map(|i| (i % 11 != 7).then(|| long(i)));
    let ids = rows.clone().map(|i| format!("id-{i}"));
    let numbers = rows.map(i64::try_from).collect::<Result<Vec<_>, _>>()?;
    let batch = RecordBatch::try_from_iter_with_nullable([
        ("text", Arc::new(texts.collect::<StringArray>()) as ArrayRef, true),
        ("id", Arc::new(StringArray::from_iter_values(ids)), true),
        ("n", Arc::new(Int64Array::from(numbers)), true),
    ])?;
    write_batch(path, &batch, group_rows)
}

fn write_batch(path: &Path, batch: &RecordBatch, group_rows: usize) -> TestResult {
    std::fs::create_dir_all(path.parent().ok_or("no parent")?)?;
    let properties =
        WriterProperties::builder().set_max_row_group_row_count(Some(group_rows)).build();
    let file = std::fs::File::create(path)?;
    let mut writer = ArrowWriter::try_new(file, batch.schema(), Some(properties))?;
    writer.write(batch)?;
    writer.close()?;
    Ok(())
}

/// A corpus in three formats and two languages, with a server that holds the same.
fn corpus() -> Result<(Workspace, S3), Failure> {
    let work = Workspace::new()?;
    write_parquet(&work.path("corpus/fra_Latn/b.parquet"), 200..260, 25, 0)?;
    let lines = std::fs::read(work.path("corpus/deu_Latn/a.jsonl"))?;
    work.write("corpus/deu_Latn/c.jsonl.zst", zstd::encode_all(&lines[..], 3)?)?;
    let s3 = S3::start()?;
    for file in
        ["fra_Latn/a.jsonl", "fra_Latn/b.parquet", "deu_Latn/a.jsonl", "deu_Latn/c.jsonl.zst"]
    {
        s3.put(&work.path("corpus").join(file), &format!("data/v1/{file}"))?;
    }
    Ok((work, s3))
}

/// `polysift run` over `input`, with the other settings of the workspace.
fn run(work: &Workspace, input: &str, out: &str) -> Command {
    let mut command = work.command("run", out);
    command.arg(input).env("POLYSIFT_STORE_RETRY_SECS", "20");
    command
}

/// Whether two runs left the same results.
fn assert_same(work: &Workspace, left: &str, right: &str, folders: &[&str]) -> TestResult {
    for folder in folders {
        let of = |run: &str| digests(&work.path(run).join(folder));
        assert_eq!(of(left)?, of(right)?, "{folder}");
    }
    Ok(())
}

/// What does not depend on where the input is.
const RESULTS: [&str; 5] = ["embeddings", "heads", "scores", "selection", "export"];

/// Name and file of every shard of the plan of `run`.
fn planned(work: &Workspace, run: &str) -> Result<Vec<(String, String)>, Failure> {
    let shards = RunDir::open(&work.path(run))?.plan()?.shards;
    Ok(shards.into_iter().map(|shard| (shard.name, shard.file.display().to_string())).collect())
}
