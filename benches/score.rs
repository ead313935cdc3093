//! Stored embeddings to scores, and stored scores to thresholds: the stages themselves on one thread,
//! from files in a temporary directory to files.
//!
//! ```sh
//! cargo bench --bench score                # both; PYTHON names a Python with numpy, torch, pyarrow
//! cargo bench --bench score -- threshold   # or score
//! ```
//!
//! Every measurement is a process of its own, so that its peak memory is its own. Baselines:
//! `score_baseline.py` on the same numbers, and a product of the same shape in memory.
//! `SCORES` and `DOCUMENTS` set the sizes.

#![expect(clippy::print_stdout, reason = "the report goes to the terminal")]

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use polysift::config::{EmbeddingDtype, RunConfig};
use polysift::corpus::Context;
use polysift::corpus::ScoreFiles;
use polysift::encoder::HubSettings;
use polysift::input::{DocumentBatch, DocumentBuilder, DocumentInfo};
use polysift::parts::{EmbeddingWriter, ScoreRows, write_scores};
use polysift::progress::{Silent, Stop};
use polysift::run::{PartFile, Plan, RunDir, Shard, ShardMarker, Stage, Worker};
use polysift::stages::{score, threshold};
use polysift_kernels::{
    Epilogue, GemmScratch, Isa, Matrix, MatrixMut, PackedMatrix, Precision, gemm,
};
use rayon::prelude::*;
use serde_json::json;

#[path = "cpu_seconds.rs"]
mod cpu_seconds;
#[path = "synthetic.rs"]
mod synthetic;

use cpu_seconds::cpu_seconds;
use synthetic::{HIDDEN, WIDTH, noise, scored, write_heads};

/// Rows of a part, the default of `parts.rows`.
const PART_ROWS: usize = 16_384;
const PARTS_PER_SHARD: usize = 64;
const ZSTD: i32 = 3;

/// Makes a run of `num_rows` rows, embedded and perhaps `scored`; `write` makes part `index` of a
/// shard from its range of rows.
fn make_run(
    root: &Path,
    num_rows: usize,
    scored: bool,
    write: impl Fn(&RunDir, &Shard, usize, std::ops::Range<usize>) -> Result<PartFile> + Sync,
) -> Result<RunDir> {
    let run = RunDir::create(root)?;
    let shards: Vec<Shard> = (0..num_rows.div_ceil(PART_ROWS * PARTS_PER_SHARD))
        .map(|i| Shard {
            name: format!("eng_Latn/{i:05}"),
            file: PathBuf::from(format!("/gone/{i:05}.parquet")),
            language: Some("eng_Latn".into()),
            bytes: 0,
            rows: None,
            num_rows: None,
            fingerprint: String::new(),
        })
        .collect();
    for (place, shard) in shards.iter().enumerate() {
        let first = place * PARTS_PER_SHARD * PART_ROWS;
        let end = num_rows.min(first + PARTS_PER_SHARD * PART_ROWS);
        let parts: Vec<PartFile> = (first..end)
            .step_by(PART_ROWS)
            .collect::<Vec<_>>()
            .into_par_iter()
            .enumerate()
            .map(|(index, start)| write(&run, shard, index, start..end.min(start + PART_ROWS)))
            .collect::<Result<_>>()?;
        let rows = (end - first) as u64;
        let marker = ShardMarker {
            rows,
            files: parts,
            counts: [("eng_Latn".to_owned(), rows)].into(),
            ..ShardMarker::default()
        };
        run.mark_shard(Stage::Embed, &shard.name, &marker)?;
        if scored {
            run.mark_shard(Stage::Score, &format!("quality/{}", shard.name), &marker)?;
        }
    }
    run.freeze_plan(&Plan { shards, ..Plan::default() })?;
    // As a run whose input brings its embeddings has it.
    let encoder = json!({"encoder": {"digest": "embeddings from the input"}});
    let stop = Stop::default();
    run.freeze(Stage::Embed, &encoder, &Worker::join(&run, &stop)?, &stop)?;
    Ok(run)
}

/// Settings of the run `root` with the head `kind`.
fn config(root: &Path, kind: &str) -> Result<RunConfig> {
    let head = root.join(kind);
    let text = format!(
        "[heads.quality]\nkind = '{kind}'\npath = '{}'\n\
         [languages._default]\nretention = {{ quality = [0.1] }}\n",
        head.display()
    );
    Ok(RunConfig::from_toml(&text, "run.toml")?)
}

/// Runs a stage over the run directory `root` and prints what it took.
fn measure(stage: &str, root: &Path, rows: f64) -> Result<()> {
    let run = RunDir::open(root)?;
    let kind = if stage == "cosine" { "cosine" } else { "mlp" };
    let config = config(root, kind)?;
    let hub = HubSettings::from_env(|_| None);
    let (stop, progress) = (Stop::default(), Silent);
    let worker = Worker::join(&run, &stop)?;
    let context = Context::observing(&config, &run, &hub, &stop, &progress, &worker);
    if stage == "threshold" {
        // The scores are there already: this only freezes the settings of the heads.
        score::score(context)?;
    }
    let (start, before) = (Instant::now(), cpu_seconds()?);
    match stage {
        "threshold" => threshold::threshold(context)?,
        _ => score::score(context)?,
    }
    let (wall, after) = (start.elapsed().as_secs_f64(), cpu_seconds()?);
    let status = std::fs::read_to_string("/proc/self/status")?;
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap_or_default();
    let (user, system) = (after.0 - before.0, after.1 - before.1);
    println!(
        "polysift {stage}: {wall:.2} s ({user:.2} user, {system:.2} system), {:.0} rows/s of CPU \
         time, peak {}",
        rows / (user + system),
        peak.trim()
    );
    Ok(())
}

/// [`measure`] in a process of its own with one thread.
fn measure_alone(stage: &str, root: &Path, rows: usize) -> Result<()> {
    let rows = rows.to_string();
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["measure", stage]).arg(root).arg(rows).env("RAYON_NUM_THREADS", "1");
    ensure!(command.status()?.success(), "{stage} failed");
    Ok(())
}

/// The Python side of a comparison.
fn baseline(args: &[&str], root: &Path) {
    let python = std::env::var("PYTHON").unwrap_or_else(|_| "python3".into());
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/score_baseline.py");
    let status = Command::new(python).arg(script).args(args).arg(root).status();
    if !status.as_ref().is_ok_and(std::process::ExitStatus::success) {
        println!("no baseline: {status:?}");
    }
}

fn size(name: &str, default: usize) -> Result<usize> {
    Ok(std::env::var(name).ok().map(|value| value.parse()).transpose()?.unwrap_or(default))
}

/// The documents of a part, by the number of the row in the run.
fn documents(rows: std::ops::Range<usize>) -> DocumentBatch {
    let mut documents = DocumentBuilder::default();
    for row in rows {
        let (number, shard_rows) = (row as u64, (PARTS_PER_SHARD * PART_ROWS) as u64);
        let hash = number.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        documents.push(&DocumentInfo {
            row: number % shard_rows,
            id: &format!("<urn:uuid:{hash:016x}-{number:016x}>"),
            language: "eng_Latn",
            num_bytes: 3000 + number % 977,
            num_tokens: Some(700 + number % 211),
        });
    }
    documents.finish()
}

fn thresholds() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let num_rows = size("SCORES", 100_000_000)?;
    make_run(dir.path(), num_rows, true, |run, shard, index, range| {
        let rows = ScoreRows {
            documents: documents(range.clone()),
            scores: range.map(|row| Some(scored(noise(row as u64)))).collect(),
        };
        let path = ScoreFiles::Scored.part(run, "quality", shard, index);
        let stamp = write_scores(&path, &rows, None, ZSTD)?;
        Ok(PartFile { path: run.relative(&path), rows: rows.documents.len() as u64, stamp })
    })?;
    write_heads(dir.path())?;
    measure_alone("threshold", dir.path(), num_rows)?;
    let raw: Vec<u8> = (0..num_rows as u64).flat_map(|row| noise(row).to_le_bytes()).collect();
    std::fs::write(dir.path().join("logits.f32"), raw)?;
    baseline(&["threshold"], dir.path());
    Ok(())
}

fn scores() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let num_rows = size("DOCUMENTS", 131_072)?;
    make_run(dir.path(), num_rows, false, |run, shard, index, range| {
        let (documents, path) = (documents(range.clone()), run.embeddings_part(shard, index));
        let mut writer = EmbeddingWriter::create(&path, EmbeddingDtype::F32, ZSTD)?;
        for (row, document) in range.zip(documents.iter()) {
            let values = (row * WIDTH..(row + 1) * WIDTH).map(|i| noise(i as u64) * 0.3);
            writer.push(&document, &values.collect::<Vec<_>>(), WIDTH)?;
        }
        let stamp = writer.finish()?;
        Ok(PartFile { path: run.relative(&path), rows: documents.len() as u64, stamp })
    })?;
    write_heads(dir.path())?;
    products()?;
    for stage in ["mlp", "cosine"] {
        // The cosine of eight thousand references takes thirty times as long.
        measure_alone(stage, dir.path(), num_rows)?;
        RunDir::open(dir.path())?.discard_from(Stage::Score, &|| Ok(()))?;
    }
    baseline(&["score"], dir.path());
    Ok(())
}

/// The products of both heads alone, in memory.
fn products() -> Result<()> {
    let rows = 126;
    let x: Vec<f32> = (0..(rows * WIDTH) as u64).map(noise).collect();
    for outputs in [HIDDEN, 1024] {
        let w: Vec<f32> = (0..(outputs * WIDTH) as u64).map(noise).collect();
        let w = Matrix::new(&w, outputs, WIDTH, WIDTH);
        let w = PackedMatrix::new(Isa::detect(), Precision::F32, w);
        let mut y = vec![0.0; rows * outputs];
        let mut scratch = GemmScratch::default();
        let mut seconds: Vec<f64> = (0..200)
            .map(|_| {
                let start = Instant::now();
                let (x, y) = (Matrix::new(&x, rows, WIDTH, WIDTH), &mut y);
                let mut y = MatrixMut::new(y, rows, outputs, outputs);
                gemm(Isa::detect(), x, &w, Epilogue::None, &mut y, &mut scratch);
                start.elapsed().as_secs_f64()
            })
            .collect();
        seconds.sort_by(f64::total_cmp);
        let median = seconds.get(seconds.len() / 2).context("no measurement")?;
        let rate = 2.0 * (rows * WIDTH * outputs) as f64 / median / 1e9;
        println!(
            "product {rows}x{outputs}x{WIDTH}: {rate:.0} GFLOP/s, {:.0} rows/s",
            rows as f64 / median
        );
    }
    Ok(())
}

fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).filter(|arg| arg != "--bench").collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    match args[..] {
        ["measure", stage, root, rows] => measure(stage, Path::new(root), rows.parse()?),
        ["threshold"] => thresholds(),
        ["score"] => scores(),
        _ => thresholds().and_then(|()| scores()),
    }
}
