//! Estimates the work and cost of a run from a sample of its input; writes nothing.

use std::collections::BTreeMap;
use std::time::Instant;

use serde::Serialize;

use polysift_base::error::Result;
use polysift_base::progress::{Progress, Stop};
use polysift_config::{
    DEFAULT_LANGUAGE, EmbeddingDtype, EncoderPrecision, LanguageSource, Rate, RunConfig,
};
use polysift_corpus::languages::language_of;
use polysift_corpus::model::GPU_FLOPS_PER_SEC;
use polysift_corpus::training::PlannedHead;
use polysift_data::input::{DocumentBatch, DocumentReader};
use polysift_encoder::{self as encoder, EncoderInfo, HubSettings, Model, ResolvedSetting};
use polysift_runs::run::{Plan, Shard};

const SAMPLE_FILES: usize = 8;
const SAMPLE_ROWS: usize = 128;
const SAMPLE_SECS: f64 = 3.0;
/// Rows are counted in this many stored bytes at the beginning of a file of JSON lines. A
/// reader buffers far fewer bytes, so its position tells how many bytes the rows take.
const COUNTED_BYTES: u64 = 4 << 20;
/// Bytes on disk of a score: logit and score uncompressed, ids compressed to about half.
const SCORE_BYTES: f64 = 40.0;

/// A plan with its estimated cost.
#[derive(Debug, Clone, Serialize)]
pub struct Estimate {
    /// Number of shards: files, or parts of large ones.
    pub shards: usize,
    /// Bytes of input.
    pub input_bytes: u64,
    /// Shards by language (`by a column` or `by a model` if each document has its own).
    pub languages: BTreeMap<String, usize>,
    /// Number of rows, counted if the files know it, else scaled from the sample.
    pub rows: u64,
    /// Whether `rows` was counted.
    pub rows_counted: bool,
    /// The encoder and its work; `None` without one.
    #[serde(flatten)]
    pub encoding: Option<EncodingEstimate>,
    /// The heads that would be trained.
    pub training: Vec<PlannedHead>,
    /// Approximate bytes of the stored scores.
    pub scores_bytes: f64,
    /// Approximate bytes of the exported files at the largest retention rate.
    pub export_bytes: f64,
    /// Fingerprint of every input file.
    pub fingerprints: BTreeMap<String, String>,
}

/// The encoder of a run and its estimated work.
#[derive(Debug, Clone, Serialize)]
pub struct EncodingEstimate {
    /// Mean number of encoded tokens of a document.
    pub tokens_per_document: f64,
    /// Number of tokens to encode.
    pub tokens: f64,
    /// Throughput measured on the sample on a CPU; on GPUs the throughput of an H200.
    pub tokens_per_sec: f64,
    /// Whether `tokens_per_sec` was measured.
    pub speed_measured: bool,
    /// Seconds that the encoder would take at that throughput.
    pub encode_secs: f64,
    /// Device of the run: `cpu` or `cuda:0,2`.
    pub device: String,
    /// Numeric type of the computation: `f32` or `bf16`.
    pub precision: EncoderPrecision,
    /// Tokens of the training samples, at most one longest chunk each; samples count for each head.
    pub training_tokens: f64,
    /// Seconds that the encoder would take for the training samples.
    pub training_secs: f64,
    /// Hours on one H200, at the throughput that one had with an encoder of the base shape.
    pub gpu_hours: f64,
    /// Approximate bytes of the stored embeddings.
    pub embeddings_bytes: f64,
    /// Name of the encoder.
    pub model: String,
    /// Tokenizer: the built-in engine, or the `tokenizers` crate and why.
    pub tokenizer: String,
    /// Effective settings of the encoder.
    pub encoder_settings: Vec<ResolvedSetting>,
    /// Digest of the encoder.
    pub encoder_digest: String,
}

/// Documents at the beginnings of some input files, and their chunks.
#[derive(Default)]
struct InputSample {
    rows: u64,
    chunks: Vec<Vec<u32>>,
    /// Rows of the sampled files as far as they are known, and the bytes of the files that hold
    /// them.
    counted: (u64, u64),
    /// Tokens and bytes of texts that fit into one chunk without being truncated.
    whole: (u64, u64),
}

/// Estimates the cost of `plan` and of the `training` of heads; on a CPU, by encoding a sample.
pub fn estimate(
    config: &RunConfig,
    plan: &Plan,
    training: Vec<PlannedHead>,
    hub: &HubSettings,
    stop: &Stop,
    progress: &dyn Progress,
) -> Result<Estimate> {
    progress.begin("estimate", None, "chunks");
    let encodes = config.has_embeddings() && config.input.embeddings.is_none();
    let model = encodes.then(|| encoder::load(&config.encoder, hub)).transpose()?;
    let sample = sample_input(config, plan, model.as_ref(), stop)?;
    let speed = |model: &Model| match model.placement.gpus.len() {
        0 => measure_speed(config, model, &sample, stop, progress),
        gpus => Ok(speed_of_gpus(model.encoder.info(), sample.mean_length(), gpus)),
    };
    let tokens_per_sec = model.as_ref().map(speed).transpose()?;
    progress.end();
    let (counted, bytes) = sample.counted;
    let scaled = || (plan.bytes() as f64 * counted as f64 / bytes.max(1) as f64) as u64;
    let rows = plan.num_rows().unwrap_or_else(scaled);
    let encoding = model.zip(tokens_per_sec).map(|(model, tokens_per_sec)| {
        let sampled: usize = sample.chunks.iter().map(Vec::len).sum();
        let per_document = sampled as f64 / (sample.rows.max(1)) as f64;
        let chunks_per_document = sample.chunks.len() as f64 / (sample.rows.max(1)) as f64;
        let tokens = per_document * rows as f64;
        let most = config.encoder.max_tokens as f64;
        let per_byte = sample.whole.0 as f64 / sample.whole.1.max(1) as f64;
        let of_head = |head: &PlannedHead| {
            let tokens = head.text_bytes as f64 * per_byte;
            tokens.min(head.samples as f64 * most) + head.negatives as f64 * per_document.min(most)
        };
        let encoded = training.iter().filter(|head| head.is_encoded);
        let training_tokens: f64 = encoded.map(of_head).sum();
        let info = model.encoder.info();
        let values = rows as f64 * chunks_per_document * info.embedding_size as f64;
        EncodingEstimate {
            tokens_per_document: per_document,
            tokens,
            tokens_per_sec,
            speed_measured: model.placement.gpus.is_empty(),
            device: model.placement.to_string(),
            precision: model.placement.precision,
            encode_secs: tokens / tokens_per_sec.max(1e-9),
            training_tokens,
            training_secs: training_tokens / tokens_per_sec.max(1e-9),
            gpu_hours: tokens / speed_of_gpus(info, sample.mean_length(), 1) / 3600.0,
            embeddings_bytes: values * bytes_per_value(config.parts.embeddings),
            model: config.encoder.model.clone(),
            tokenizer: model.tokenizer.engine(),
            encoder_settings: model.settings.clone(),
            encoder_digest: model.recipe.model_digest.clone(),
        }
    });
    let mut languages = BTreeMap::new();
    for shard in &plan.shards {
        let language = match &config.input.language {
            LanguageSource::Column { .. } => "by a column".to_owned(),
            LanguageSource::Model { .. } => "by a model".to_owned(),
            _ => language_of(config, shard),
        };
        *languages.entry(language).or_default() += 1;
    }
    // The largest retention rate of any language; 1 if there is no retention.
    let named = config.languages.keys().map(String::as_str).chain([DEFAULT_LANGUAGE]);
    let rates = named.flat_map(|language| config.thresholds(language).retention.into_values());
    let largest = rates.flatten().map(Rate::as_f64).reduce(f64::max).unwrap_or(1.0);
    let embeddings_bytes = encoding.as_ref().map_or(0.0, |encoding| encoding.embeddings_bytes);
    let with_embeddings = if config.export.with_embeddings { embeddings_bytes } else { 0.0 };
    Ok(Estimate {
        shards: plan.shards.len(),
        input_bytes: plan.bytes(),
        languages,
        rows,
        rows_counted: plan.num_rows().is_some(),
        encoding,
        training,
        scores_bytes: rows as f64 * config.heads.len() as f64 * SCORE_BYTES,
        export_bytes: largest * (plan.bytes() as f64 + with_embeddings),
        fingerprints: plan.shards.iter().map(|s| (s.name.clone(), s.fingerprint.clone())).collect(),
    })
}

impl InputSample {
    /// Returns the length in tokens of the chunk that a token is in, averaged over all tokens.
    fn mean_length(&self) -> f64 {
        let lengths = || self.chunks.iter().map(Vec::len);
        let squares: usize = lengths().map(|length| length.pow(2)).sum();
        squares.max(1) as f64 / lengths().sum::<usize>().max(1) as f64
    }
}

/// Returns the bytes on disk of one stored embedding value. In Parquet with BYTE_STREAM_SPLIT and
/// zstd, 768 values took 2,599, 1,301 and 1,052 bytes (pyarrow, normal values).
fn bytes_per_value(dtype: EmbeddingDtype) -> f64 {
    match dtype {
        EmbeddingDtype::F32 => 3.38,
        EmbeddingDtype::F16 => 1.69,
        EmbeddingDtype::Bf16InF32 => 1.37,
    }
}

/// Reads the first documents of files spread over the plan, and tokenizes them if there is a model.
/// Returns the first error if none can be read.
fn sample_input(
    config: &RunConfig,
    plan: &Plan,
    model: Option<&Model>,
    stop: &Stop,
) -> Result<InputSample> {
    let (mut sample, mut failure) = (InputSample::default(), None);
    let step = plan.shards.len().div_ceil(SAMPLE_FILES).max(1);
    for shard in plan.shards.iter().step_by(step) {
        stop.check()?;
        let read = || -> Result<_> {
            let mut reader = DocumentReader::open(&shard.input()?, &config.input)?;
            let batch = reader.next_batch(SAMPLE_ROWS)?;
            let read = batch.as_ref().map_or(0, DocumentBatch::len);
            Ok((count_rows(&mut reader, read, shard)?, batch))
        };
        let ((rows, bytes), batch) = match read() {
            Ok(read) => read,
            Err(error) => {
                // The embed stage will report this as well, for this shard only.
                tracing::warn!(shard = %shard.name, error = %error.report(), "not sampled");
                failure.get_or_insert(error);
                continue;
            }
        };
        sample.counted.0 += rows;
        sample.counted.1 += bytes;
        let Some(batch) = batch else { continue };
        sample.rows += batch.len() as u64;
        let Some(model) = model else { continue };
        let texts: Vec<&str> = batch.texts().map(|(_, text)| text).collect();
        let tokenized = model.tokenizer.chunks_all(&texts)?;
        for (text, chunks) in texts.iter().zip(&tokenized) {
            if let [chunk] = &chunks[..]
                && chunk.len() < config.encoder.max_tokens
            {
                sample.whole.0 += chunk.len() as u64;
                sample.whole.1 += text.len() as u64;
            }
        }
        sample.chunks.extend(tokenized.into_iter().flatten());
    }
    match failure {
        Some(error) if sample.rows == 0 => Err(error),
        _ => Ok(sample),
    }
}

/// Returns the number of rows of `shard`, or of its beginning, and the bytes of the file with them.
/// The `reader` has read `rows`.
fn count_rows(reader: &mut DocumentReader, mut rows: usize, shard: &Shard) -> Result<(u64, u64)> {
    if let Some(rows) = shard.num_rows {
        return Ok((rows, shard.bytes));
    }
    while reader.bytes_read().is_some_and(|bytes| bytes < COUNTED_BYTES) {
        match reader.next_batch(SAMPLE_ROWS)? {
            Some(batch) => rows += batch.len(),
            None => return Ok((rows as u64, shard.bytes)),
        }
    }
    Ok((rows as u64, reader.bytes_read().unwrap_or(shard.bytes)))
}

/// Encodes the sample for at most [`SAMPLE_SECS`] and one more group; returns tokens per second.
fn measure_speed(
    config: &RunConfig,
    model: &Model,
    sample: &InputSample,
    stop: &Stop,
    progress: &dyn Progress,
) -> Result<f64> {
    let encoder = model.encoder.as_ref();
    let batch_tokens = encoder::batch_tokens(&config.encoder, encoder);
    let began = Instant::now();
    let mut tokens = 0;
    for group in sample.chunks.chunks(64) {
        let chunks: Vec<&[u32]> = group.iter().map(Vec::as_slice).collect();
        encoder::embed_chunks(encoder, &chunks, batch_tokens, stop, &mut |_, batch_tokens| {
            tokens += batch_tokens;
            progress.advance(0, batch_tokens as u64);
        })?;
        progress.advance(group.len() as u64, 0);
        if began.elapsed().as_secs_f64() > SAMPLE_SECS {
            break;
        }
    }
    Ok(tokens as f64 / began.elapsed().as_secs_f64().max(1e-9))
}

/// Returns the tokens per second of `gpus` H200 in sequences of `length` tokens.
fn speed_of_gpus(info: &EncoderInfo, length: f64, gpus: usize) -> f64 {
    GPU_FLOPS_PER_SEC * gpus as f64 / info.flops_per_token(length)
}
