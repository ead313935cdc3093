//! The embed stage: turns texts into embeddings, in four threads joined by bounded queues.
//!
//! ```text
//! read ──texts──▶ tokenize (rayon) ──tokens──▶ encode (several) ──embeddings──▶ round, write, mark
//! ```
//!
//! Several GPUs encode faster than one thread reads or writes, so several such *streams* feed
//! them. Each stream claims shards of its own; all streams use all GPUs.
//!
//! Batches of documents pass through the queues; the ends of parts and shards pass between the
//! batches and delay nothing. Packed batches mix chunks of all batches at hand, so small files keep
//! the encoder as busy as large ones.
//!
//! A shard is written in parts of `parts.rows` rows. A part's bytes depend only on its
//! rows and the frozen settings. A stop leaves incomplete parts: the next process reads and
//! tokenizes such a part from its beginning and encodes only what is missing.

mod encode;
mod queue;
mod read;
mod tokenize;
mod write;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::ScopedJoinHandle;

use serde_json::json;

use encode::Encoding;
use polysift_base::error::Result;
use polysift_base::panics::unpoisoned;
use polysift_base::progress::Busy;
use polysift_config::{Chunks, DEFAULT_MAX_DOCUMENT_BYTES, Weight};
use polysift_corpus::model::{freeze_encoded, load_model};
use polysift_corpus::work::Failures;
use polysift_corpus::{Cascade, Context, FrozenEmbeddings, FrozenEncoder, StageWork};
use polysift_encoder::Model;
use polysift_fasttext::LanguageIdentifier;
use polysift_runs::run::{Plan, Stage};
use queue::{Pipeline, queue};

/// Maximum bytes of text that wait to be tokenized.
const TEXT_BYTES: usize = 8 << 20;
/// Maximum bytes of embeddings that wait to be written.
const EMBEDDING_BYTES: usize = 16 << 20;
/// A stream feeds up to this many GPUs: they embed 33,000 documents of 400 tokens a second in fp8,
/// and a thread writes 48,000 (see `benches/cuda/node.rs`).
const GPUS_PER_STREAM: usize = 3;

/// Embeds the shards of `plan` that are not done, with `model` or else that of the settings.
pub fn embed(context: Context<'_>, plan: &Plan, model: Option<&Model>) -> Result<()> {
    let Context { config, run, .. } = context;
    let loads = config.embeds_texts() && model.is_none();
    let loaded = loads.then(|| load_model(context, Stage::Embed)).transpose()?;
    let model = model.or(loaded.as_ref());
    // A run that began with token counts continues with them.
    let counted = context.redo != Some(Stage::Embed)
        && FrozenEmbeddings::read(run, Stage::Embed)?.counts_tokens;
    // With only the first chunk, most of a long text is not even tokenized.
    let is_whole = config.encoder.chunks == Chunks::All;
    let counts_tokens =
        counted || config.embeds_texts() && (is_whole || config.selection.weight == Weight::Tokens);
    let (input, languages) = (&config.input, LanguageIdentifier::load(&config.input)?);
    let language = languages.as_ref().map_or_else(|| json!(input.language), |l| l.settings.clone());
    let mut settings = json!({
        "plan": plan.digest(),
        "input": {
            "text": input.text, "id": input.id, "language": language,
            "embeddings": input.embeddings, "max_rejects": input.max_rejects,
        },
        "encoder": FrozenEncoder::of(config, model),
        "chunks": config.encoder.chunks,
        "counts_tokens": counts_tokens,
        "parts": config.parts,
    });
    if input.max_document_bytes != DEFAULT_MAX_DOCUMENT_BYTES {
        settings["input"]["max_document_bytes"] = input.max_document_bytes.into();
    }
    let cascade = Cascade::of(context, plan)?;
    if let Some(config) = &config.cascade {
        settings["cascade"] = cascade.settings(config);
    }
    freeze_encoded(context, Stage::Embed, &settings, model)?;
    run.freeze_plan(plan)?;

    let work = StageWork::of_shards(context, Stage::Embed, plan)?;
    if work.is_over() {
        return work.finish(run);
    }
    let claims = work.claims(context);
    let pipeline = Pipeline {
        context,
        shards: &plan.shards,
        claims: &claims,
        model,
        languages,
        failures: Mutex::new(Failures::new(run, Stage::Embed)),
        is_broken: AtomicBool::new(false),
        counts_tokens,
        cascade: &cascade,
        reading: Busy::new("reading"),
        tokenizing: Busy::new("tokenizing"),
        encoding: Busy::new("encoding"),
        writing: Busy::new("writing"),
    };
    context.progress.begin("embed", pipeline.expected_rows(&work.items.own), "documents");
    let bytes: u64 = work.items.own.iter().map(|&place| plan.shards[place].bytes).sum();
    context.progress.input(0, bytes.cast_signed());
    // This process waits for others outside the pipeline; inside, half a batch would wait too.
    let outcome = loop {
        let outcome = pipeline.embed().and_then(|()| claims.settle());
        if !matches!(outcome, Ok(true)) {
            break outcome;
        }
    };
    let Pipeline { failures, reading, tokenizing, encoding, writing, .. } = pipeline;
    for busy in [reading, tokenizing, encoding, writing] {
        context.progress.busy(busy.activity, busy.time());
    }
    context.progress.end();
    let failed = unpoisoned(failures.into_inner()).finish();
    drop(claims);
    outcome.and(failed)?;
    work.finish(run)
}

impl Pipeline<'_> {
    /// Embeds the shards that can be claimed now.
    fn embed(&self) -> Result<()> {
        let gpus = self.model.map_or(0, |model| model.placement.gpus.len());
        let num_streams = gpus.div_ceil(GPUS_PER_STREAM).max(1);
        std::thread::scope(|scope| {
            let stream = move || {
                // A panic ends the other streams too.
                let outcome = catch_unwind(AssertUnwindSafe(|| self.embed_in_turn(num_streams)));
                self.is_broken.fetch_or(!matches!(outcome, Ok(Ok(()))), Ordering::Relaxed);
                joined(outcome)?
            };
            let begin = |_| scope.spawn(stream);
            let streams: Vec<_> = (0..num_streams).map(begin).collect();
            let outcomes: Vec<_> = streams.into_iter().map(ScopedJoinHandle::join).collect();
            outcomes.into_iter().try_for_each(|outcome| joined(outcome)?)
        })
    }

    /// Runs one of `num_streams` streams until no shard can be claimed or any stream fails.
    fn embed_in_turn(&self, num_streams: usize) -> Result<()> {
        let Self { context, model, encoding: busy, .. } = self;
        let encoding =
            model.map(|model| Encoding::new(*context, model.encoder.as_ref(), num_streams, busy));
        // The queue holds only enough to keep the encoder busy: a shard read long before its turn
        // is held long. A token takes as many bytes as its text does on average.
        let window_bytes =
            |encoding: &Encoding| (encoding.window() / 2).saturating_mul(size_of::<u32>());
        let token_bytes = encoding.as_ref().map_or(EMBEDDING_BYTES, window_bytes);
        let (to_tokenize, from_read) = queue(token_bytes.min(TEXT_BYTES));
        let (to_encode, from_tokenize) = queue(token_bytes);
        std::thread::scope(|scope| {
            // Each thread drops its queue ends when it is done.
            let reader = scope.spawn(move || self.read(&to_tokenize));
            let tokenizer = scope.spawn(move || self.tokenize(&from_read, &to_encode));
            let outcome = match encoding {
                Some(encoding) => {
                    let (to_write, from_encode) = queue(EMBEDDING_BYTES);
                    let writer = scope.spawn(move || self.write(&from_encode));
                    let encoded = encoding.run(&from_tokenize, &to_write);
                    drop(to_write); // the writer drains its queue
                    joined(writer.join()).and_then(|written| encoded.and(written))
                }
                None => self.write(&from_tokenize),
            };
            drop(from_tokenize); // the tokenizing thread cannot send
            joined(tokenizer.join())?;
            joined(reader.join())?;
            outcome
        })
    }
}

/// Continues the panic of a worker thread in this thread.
fn joined<T>(outcome: std::thread::Result<T>) -> Result<T> {
    outcome.map_err(|panic| std::panic::resume_unwind(panic))
}

#[cfg(test)]
mod tests;
