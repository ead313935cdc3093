//! What the run directory itself costs at web scale: plan, status, retry and thresholds over many shards.
//!
//! ```sh
//! cargo bench --bench scale               # 100,000 shards, 4 billion documents
//! SHARDS=1000 cargo bench --bench scale   # also ROWS (of a shard), LANGUAGES
//! ```
//!
//! The commands are those of the program, over real files: every input file is a link to one of a few,
//! and so is every part of the scores (40,000 rows each). Only what the embed and score stages would
//! have left is made up: their markers, and the scores. Needs about 3 GB of disk.

#![expect(clippy::print_stdout, reason = "the report goes to the terminal")]

use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use arrow::array::{ArrayRef, RecordBatch, StringArray};
use parquet::arrow::ArrowWriter;
use polysift::corpus::ScoreFiles;
use polysift::input::{DocumentBuilder, DocumentInfo};
use polysift::parts::{ScoreRows, write_scores};
use polysift::run::{PartFile, RunDir, Shard, ShardMarker};
use rayon::prelude::*;

#[path = "../synthetic.rs"]
mod synthetic;

use synthetic::{noise, scored, write_heads};

/// Files of a language that stand for all of a kind; ext4 allows 65,000 links to one.
const TEMPLATES: usize = 4;

struct Sizes {
    shards: usize,
    rows: usize,
    languages: usize,
}

fn size(name: &str, default: usize) -> Result<usize> {
    Ok(std::env::var(name).ok().map(|value| value.parse()).transpose()?.unwrap_or(default))
}

fn main() -> Result<()> {
    let sizes = Sizes {
        shards: size("SHARDS", 100_000)?,
        rows: size("ROWS", 40_000)?,
        languages: size("LANGUAGES", 20)?.max(1),
    };
    let dir = match std::env::var_os("SCALE_DIR") {
        Some(dir) => tempfile::tempdir_in(dir)?,
        None => tempfile::tempdir()?,
    };
    let root = dir.path();
    make_input(root, &sizes)?;
    println!(
        "{} shards, {} documents, {} languages",
        sizes.shards,
        sizes.shards * sizes.rows,
        sizes.languages
    );
    measure(root, "plan", &["plan", "-c", "run.toml", "--run", "run", "--quiet"])?;
    measure(root, "retry, nothing done", &["retry", "run", "--num-tasks", "400"])?;
    pretend(&RunDir::open(&root.join("run"))?, root, &sizes)?;
    measure(root, "status, all embedded and scored", &["status", "run"])?;
    measure(root, "retry, all embedded and scored", &["retry", "run", "--num-tasks", "400"])?;
    measure(root, "threshold, the first reader of all markers", &["threshold", "--run", "run"])?;
    measure(root, "threshold again, finished", &["threshold", "--run", "run"])?;
    measure(
        root,
        "threshold computed again, finished",
        &["threshold", "--run", "run", "--redo", "threshold"],
    )?;
    measure(root, "status, finished", &["status", "run"])
}

/// Runs the program in `root` and prints what it took.
fn measure(root: &Path, what: &str, args: &[&str]) -> Result<()> {
    let began = Instant::now();
    let mut child = Command::new(env!("CARGO_BIN_EXE_polysift"))
        .args(args)
        .current_dir(root)
        .stdout(Stdio::null())
        .stderr(Stdio::inherit())
        .spawn()?;
    let mut peak_kilobytes = 0;
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break status;
        }
        let status = std::fs::read_to_string(format!("/proc/{}/status", child.id()));
        let status = status.unwrap_or_default();
        let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let peak = peak.and_then(|peak| peak.split_whitespace().next()?.parse().ok());
        peak_kilobytes = peak_kilobytes.max(peak.unwrap_or(0u64));
        std::thread::sleep(Duration::from_millis(10));
    };
    ensure!(status.success(), "{what}: {status}");
    let (secs, megabytes) = (began.elapsed().as_secs_f64(), peak_kilobytes / 1000);
    println!("{what:44} {secs:8.2} s   peak {megabytes} MB");
    Ok(())
}

fn language(shard: usize, sizes: &Sizes) -> String {
    format!("l{:02}_Latn", shard % sizes.languages)
}

/// Input files, heads and settings.
fn make_input(root: &Path, sizes: &Sizes) -> Result<()> {
    let templates = root.join("templates");
    std::fs::create_dir_all(&templates)?;
    for template in 0..TEMPLATES * sizes.languages {
        let texts = (0..10).map(|row| Some(format!("document {row} of file {template}")));
        let texts: ArrayRef = Arc::new(texts.collect::<StringArray>());
        let batch = RecordBatch::try_from_iter([("text", texts)])?;
        let file = std::fs::File::create(templates.join(format!("{template}.parquet")))?;
        let mut writer = ArrowWriter::try_new(file, batch.schema(), None)?;
        writer.write(&batch)?;
        writer.close()?;
    }
    for index in 0..sizes.languages {
        std::fs::create_dir_all(root.join("data").join(language(index, sizes)))?;
    }
    (0..sizes.shards).into_par_iter().try_for_each(|shard| {
        let from = templates.join(format!("{}.parquet", shard % (TEMPLATES * sizes.languages)));
        let folder = root.join("data").join(language(shard, sizes));
        std::fs::hard_link(from, folder.join(format!("{shard:06}.parquet")))
    })?;
    write_heads(root)?;
    let settings = "[input]\nfiles = ['data/{lang}/*.parquet']\n\
                    [heads.quality]\nkind = 'mlp'\npath = 'mlp'\n\
                    [languages._default]\nretention = { quality = [0.1] }\n";
    Ok(std::fs::write(root.join("run.toml"), settings)?)
}

/// Leaves what the embed and score stages would have left of every shard.
fn pretend(run: &RunDir, root: &Path, sizes: &Sizes) -> Result<()> {
    let plan = run.plan()?;
    let templates: Vec<PartFile> = (0..TEMPLATES * sizes.languages)
        .into_par_iter()
        .map(|template| {
            let numbers = 0..sizes.rows as u64;
            let value = |row: u64| noise((template * sizes.rows) as u64 + row);
            let mut documents = DocumentBuilder::default();
            for row in numbers.clone() {
                documents.push(&DocumentInfo {
                    row,
                    id: &format!("<urn:uuid:{template:08x}-{row:08x}>"),
                    language: &language(template, sizes),
                    num_bytes: 3000 + row % 977,
                    num_tokens: None,
                });
            }
            let rows = ScoreRows {
                documents: documents.finish(),
                scores: numbers.map(|row| Some(scored(value(row)))).collect(),
            };
            let path = root.join(format!("templates/{template}.scores"));
            let stamp = write_scores(&path, &rows, None, 3)?;
            Ok(PartFile { path: path.display().to_string(), rows: sizes.rows as u64, stamp })
        })
        .collect::<Result<_>>()?;
    plan.shards.par_iter().try_for_each(|shard| {
        let number: usize = shard.name.rsplit('/').next().context("no name")?.parse()?;
        let template = &templates[number % templates.len()];
        let language = shard.language.clone().context("a shard without a language")?;
        let scores = ScoreFiles::Scored.part(run, "quality", shard, 0);
        // A file is there where the marker says so; only the scores are read.
        for (stage, path, key) in [
            ("embed", run.embeddings_part(shard, 0), shard.name.clone()),
            ("score", scores, format!("quality/{}", shard.name)),
        ] {
            link(run, shard, &path, template)?;
            let rows = sizes.rows as u64;
            let counts = if stage == "embed" { language.clone() } else { "scored".to_owned() };
            let marker = ShardMarker {
                rows,
                files: vec![PartFile { path: run.relative(&path), ..template.clone() }],
                counts: [(counts, rows)].into(),
                ..ShardMarker::default()
            };
            let done = run.path(format!("state/{stage}/done/{key}.json"));
            std::fs::create_dir_all(done.parent().context("no folder")?)?;
            std::fs::write(done, serde_json::to_vec(&marker)?)?;
        }
        Ok(())
    })
}

fn link(run: &RunDir, shard: &Shard, path: &Path, template: &PartFile) -> Result<()> {
    std::fs::create_dir_all(path.parent().context("no folder")?)?;
    let from = Path::new(&template.path);
    std::fs::hard_link(from, path).with_context(|| {
        format!("{} of {} in {}", path.display(), shard.name, run.root().display())
    })
}
