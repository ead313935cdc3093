//! Embeds workloads when told to, and says how long each took.

use std::path::PathBuf;
use std::time::Instant;

use anyhow::{Context, Result};
use candle_core::{DType, Device};
use clap::{Args, ValueEnum};
use polysift::config::EncoderConfig;
use polysift::encoder::{HubSettings, batch_tokens, embed_chunks, load};
use polysift::progress::Stop;
use serde::Deserialize;
use serde_json::json;

use crate::candle_padded::Padded;
use crate::line;
use crate::workload::{Workload, write_embeddings};

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Engine {
    Polysift,
    Candle,
}

#[derive(Debug, Args)]
pub(crate) struct Options {
    engine: Engine,
    /// Folder that `prepare` filled
    data: PathBuf,
    /// Directory of a model
    model: PathBuf,
    /// As `polysift --precision`; candle computes in f32
    #[arg(long, default_value = "f32")]
    dtype: String,
    /// Documents that candle gets at a time
    #[arg(long, default_value_t = 4)]
    batch: usize,
}

/// A line of standard input.
#[derive(Debug, Deserialize)]
struct Request {
    workload: String,
    documents: Option<usize>,
    out: Option<PathBuf>,
}

/// Chunks in any order to `[n, D]`.
type Embed = Box<dyn Fn(&[&[u32]]) -> Result<Vec<f32>>>;

pub(crate) fn serve(options: &Options) -> Result<()> {
    let embed = match options.engine {
        Engine::Polysift => polysift(options)?,
        Engine::Candle => candle(options)?,
    };
    for request in std::io::stdin().lines() {
        let request: Request = serde_json::from_str(&request?)?;
        let workload = Workload::read(&options.data, &request.workload)?;
        let mut chunks = workload.chunks();
        chunks.truncate(request.documents.unwrap_or(usize::MAX));
        let start = Instant::now();
        let embeddings = embed(&chunks)?;
        let secs = start.elapsed().as_secs_f64();
        if let Some(out) = request.out {
            write_embeddings(&out, &embeddings, embeddings.len() / chunks.len().max(1))?;
        }
        line(&json!({ "secs": secs }).to_string())?;
    }
    Ok(())
}

fn ready(engine: &str, dtype: &str, version: &str) -> Result<()> {
    line(&json!({ "engine": engine, "dtype": dtype, "version": version }).to_string())
}

fn polysift(options: &Options) -> Result<Embed> {
    let config: EncoderConfig = serde_json::from_value(json!({
        "model": options.model.display().to_string(), "device": "cpu", "precision": options.dtype,
    }))
    .with_context(|| format!("precision {}", options.dtype))?;
    let model = load(&config, &HubSettings::from_env(|_| None))?;
    ready("polysift", &model.placement.precision.to_string(), env!("CARGO_PKG_VERSION"))?;
    Ok(Box::new(move |chunks| {
        let encoder = model.encoder.as_ref();
        let batch_tokens = batch_tokens(&config, encoder);
        Ok(embed_chunks(encoder, chunks, batch_tokens, &Stop::default(), &mut |_, _| {})?)
    }))
}

/// Longest chunks first, as the Python engines do it.
fn candle(options: &Options) -> Result<Embed> {
    let model = Padded::load(&options.model, DType::F32, &Device::Cpu)?;
    ready("candle", "f32", "0.11")?;
    let batch = options.batch;
    Ok(Box::new(move |chunks| {
        let mut order: Vec<usize> = (0..chunks.len()).collect();
        order.sort_by_key(|&i| std::cmp::Reverse(chunks[i].len()));
        let sorted: Vec<&[u32]> = order.iter().map(|&i| chunks[i]).collect();
        let rows = model.embed(&sorted, batch)?;
        let width = rows.len() / chunks.len().max(1);
        let mut embeddings = vec![0.0; rows.len()];
        for (row, &i) in rows.chunks_exact(width.max(1)).zip(&order) {
            embeddings[i * width..][..width].copy_from_slice(row);
        }
        Ok(embeddings)
    }))
}
