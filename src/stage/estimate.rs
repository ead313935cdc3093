//! What a run would do and cost, measured on a sample of its own input; writes nothing.

use std::collections::BTreeMap;
use std::time::Instant;

use serde::Serialize;

use crate::config::RunConfig;
use crate::encoder::{self, HubSettings, Model};
use crate::error::Result;
use crate::input::DocumentReader;
use crate::progress::Stop;
use crate::run::{Plan, Shard};
use crate::tokenize::Tokenized;

/// Files of the plan from which documents are sampled.
const SAMPLE_FILES: usize = 8;
/// Documents sampled from each of them.
const SAMPLE_ROWS: usize = 128;
/// Stop encoding the sample after this time.
const SAMPLE_SECS: f64 = 3.0;

/// The plan with its price.
#[derive(Debug, Clone, Serialize)]
pub struct Estimate {
    /// Input files.
    pub shards: usize,
    /// Bytes of input.
    pub input_bytes: u64,
    /// Shards by language (`_column` where a column decides).
    pub languages: BTreeMap<String, usize>,
    /// Rows, counted where the files say so, else scaled from the sample.
    pub rows: u64,
    /// Whether `rows` was counted.
    pub rows_counted: bool,
    /// Mean encoded tokens of a document.
    pub tokens_per_document: f64,
    /// Tokens to encode.
    pub tokens: f64,
    /// Measured on the sample.
    pub tokens_per_sec: f64,
    /// Seconds the encoder would take on this machine.
    pub encode_secs: f64,
    /// Bytes of stored embeddings before compression.
    pub embeddings_bytes: f64,
    /// Name of the encoder.
    pub model: String,
    /// Digest of the encoder.
    pub encoder_digest: String,
    /// Fingerprint of every input file.
    pub fingerprints: BTreeMap<String, String>,
}

/// Totals over the sampled documents.
#[derive(Default)]
struct Sample {
    rows: u64,
    chunks: Vec<Vec<u32>>,
    tokens: u64,
    /// Rows of sampled files that tell their number, with the bytes of those files.
    counted: (u64, u64),
    /// Rows read and the text bytes they held, for files that do not.
    text: (u64, u64),
}

/// Plans and measures.
pub fn estimate(config: &RunConfig, hub: &HubSettings, stop: &Stop) -> Result<Estimate> {
    let plan = Plan::new(super::input_files(config)?);
    let model = encoder::load(&config.encoder, hub)?;
    let sample = sample(config, &plan, &model, stop)?;
    let tokens_per_sec = measure(config, &model, &sample)?;
    let (rows, rows_counted) = rows(config, &plan, &sample);
    let per_document = sample.tokens as f64 / (sample.rows.max(1)) as f64;
    let chunks_per_document = sample.chunks.len() as f64 / (sample.rows.max(1)) as f64;
    let tokens = per_document * rows as f64;
    let info = model.encoder.info();
    let mut languages = BTreeMap::new();
    for shard in &plan.shards {
        let language = shard.language.clone().unwrap_or_else(|| match &config.input.language {
            crate::config::LanguageSource::Fixed(code) => code.clone(),
            _ => "_column".to_owned(),
        });
        *languages.entry(language).or_default() += 1;
    }
    Ok(Estimate {
        shards: plan.shards.len(),
        input_bytes: plan.bytes(),
        languages,
        rows,
        rows_counted,
        tokens_per_document: per_document,
        tokens,
        tokens_per_sec,
        encode_secs: tokens / tokens_per_sec.max(1e-9),
        embeddings_bytes: rows as f64 * chunks_per_document * info.hidden_size as f64 * 4.0,
        model: info.model.clone(),
        encoder_digest: info.digest.clone(),
        fingerprints: plan.shards.iter().map(|s| (s.name.clone(), s.fingerprint.clone())).collect(),
    })
}

/// The first documents of files spread over the plan.
fn sample(config: &RunConfig, plan: &Plan, model: &Model, stop: &Stop) -> Result<Sample> {
    let mut sample = Sample::default();
    let step = plan.shards.len().div_ceil(SAMPLE_FILES).max(1);
    for shard in plan.shards.iter().step_by(step) {
        stop.check()?;
        let mut reader = DocumentReader::open(&shard.input()?, &config.input)?;
        if let Some(rows) = reader.num_rows_hint() {
            sample.counted.0 += rows;
            sample.counted.1 += shard.bytes;
        }
        let Some(block) = reader.next_block(SAMPLE_ROWS)? else { continue };
        sample.rows += block.len() as u64;
        sample.text.0 += block.len() as u64;
        sample.text.1 += block.iter().map(|d| d.num_bytes).sum::<u64>();
        let texts: Vec<&str> = block.iter().filter_map(|d| d.text.as_deref()).collect();
        let tokenized: Vec<Tokenized> = model.tokenizer.tokenize_all(&texts)?;
        for chunk in tokenized.into_iter().flat_map(|t| t.chunks) {
            sample.tokens += chunk.len() as u64;
            sample.chunks.push(chunk);
        }
    }
    Ok(sample)
}

/// Encodes as much of the sample as fits the time; tokens per second.
fn measure(config: &RunConfig, model: &Model, sample: &Sample) -> Result<f64> {
    let began = Instant::now();
    let mut tokens = 0;
    for group in sample.chunks.chunks(64) {
        let chunks: Vec<&[u32]> = group.iter().map(Vec::as_slice).collect();
        encoder::embed_chunks(
            model.encoder.as_ref(),
            &chunks,
            config.encoder.batch_tokens,
            &mut |_, batch_tokens| {
                tokens += batch_tokens;
                Ok(())
            },
        )?;
        if began.elapsed().as_secs_f64() > SAMPLE_SECS {
            break;
        }
    }
    Ok(tokens as f64 / began.elapsed().as_secs_f64().max(1e-9))
}

/// Rows of the whole plan, and whether they were counted rather than scaled.
fn rows(config: &RunConfig, plan: &Plan, sample: &Sample) -> (u64, bool) {
    let count = |shard: &Shard| {
        DocumentReader::open(&shard.input().ok()?, &config.input).ok()?.num_rows_hint()
    };
    if plan.shards.len() <= SAMPLE_FILES * 100
        && let Some(rows) = plan.shards.iter().map(count).sum::<Option<u64>>()
    {
        return (rows, true);
    }
    let (rows, bytes) = if sample.counted.1 > 0 { sample.counted } else { sample.text };
    ((plan.bytes() as f64 * rows as f64 / bytes.max(1) as f64) as u64, false)
}
