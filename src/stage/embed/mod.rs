//! Text to embeddings: four threads joined by bounded queues.
//!
//! ```text
//! read ──texts──▶ tokenize (rayon) ──tokens──▶ encode (lanes) ──embeddings──▶ round, write, mark
//! ```
//!
//! What passes is a block of documents; where parts, shards and files end passes between the blocks
//! and holds nobody up. Batches are made of whatever blocks are there, so small files keep the
//! encoder as busy as large ones.
//!
//! The unit of resume is the part: `store.part_rows` rows of one file. A part's bytes depend on
//! its rows and the frozen settings alone.

mod encode;
mod queue;
mod read;
mod tokenize;
mod write;

use serde_json::{Value, json};

use super::{Context, Failures};
use crate::config::{Chunks, Gelu, RunConfig, Weight};
use crate::encoder::{Model, Placement};
use crate::error::{Error, Result};
use crate::input::{InputFile, Reject};
use crate::progress::Busy;
use crate::run::{Plan, RunDir, Shard, Stage};
use encode::Encoding;
use queue::queue;
use read::Reading;
use tokenize::Tokenizing;
use write::Writing;

/// Bytes of text that wait to be tokenized.
const TEXT_BYTES: usize = 8 << 20;
/// Values of embeddings that wait to be written.
const VALUES: usize = 4 << 20;

/// What passes from thread to thread, in the order of the input.
enum Step<B> {
    /// Documents of the part in work.
    Block(B),
    /// The part is complete.
    PartEnd(PartEnd),
    /// The shard is.
    ShardEnd { shard: usize },
    /// The shard cannot be done, and so neither its part in work.
    Failed { shard: usize, error: Error },
}

impl<B> Step<B> {
    /// The same for another kind of block.
    fn map<C>(self, block: impl FnOnce(B) -> Step<C>) -> Step<C> {
        match self {
            Self::Block(documents) => block(documents),
            Self::PartEnd(end) => Step::PartEnd(end),
            Self::ShardEnd { shard } => Step::ShardEnd { shard },
            Self::Failed { shard, error } => Step::Failed { shard, error },
        }
    }
}

/// What is known of a part once all of it was read.
struct PartEnd {
    /// Position among the shards to do.
    shard: usize,
    index: usize,
    next_row: u64,
    rejects: Vec<Reject>,
}

/// Settings that the embeddings depend on; `model` is `None` where the input brings its own.
pub fn settings(config: &RunConfig, plan: &Plan, model: Option<&Model>) -> Value {
    let (input, store) = (&config.input, &config.store);
    json!({
        "shards": plan.settings(),
        "input": {
            "text": input.text, "id": input.id, "language": input.language,
            "embeddings": input.embeddings, "max_rejects": input.max_rejects,
        },
        "encoder": encoder_settings(config, model),
        "chunks": config.encoder.chunks,
        "counts_tokens": counts_tokens(config),
        "store": store,
    })
}

/// Whether the content tokens of whole documents are counted. For the first chunk alone most of a
/// long text is not even read.
fn counts_tokens(config: &RunConfig) -> bool {
    config.input.embeddings.is_none()
        && (config.selection.weight == Weight::Tokens || config.encoder.chunks == Chunks::All)
}

/// What an embedding depends on besides its text; samples and corpus have to agree on it. The type
/// that the device computes in is part of it, which device that is is not.
pub(crate) fn encoder_settings(config: &RunConfig, model: Option<&Model>) -> Value {
    let encoder = &config.encoder;
    let digest = model.map_or(FOREIGN_ENCODER, |m| m.encoder.info().digest.as_str());
    let mut settings = json!({
        "digest": digest, "pooling": encoder.pooling,
        "max_tokens": encoder.max_tokens, "prompt": encoder.prompt,
    });
    if let Some(model) = model {
        settings["dtype"] = model.placement.dtype().into();
        if encoder.gelu != Gelu::Erf {
            settings["gelu"] = json!(encoder.gelu);
        }
    }
    settings
}

/// Freezes the settings of a stage that ran `model`; where the type that it computes in is to blame
/// for a difference, the error says how to ask for the right one.
pub(crate) fn freeze_encoded(
    context: Context<'_>,
    stage: Stage,
    settings: &Value,
    model: Option<&Model>,
) -> Result<()> {
    let frozen = context.run.frozen_settings(stage)?.unwrap_or_default();
    let (Some(begun), Some(model)) = (frozen["encoder"]["dtype"].as_str(), model) else {
        return context.freeze(stage, settings);
    };
    // Cards have one type, so with them it is the device that has to be another.
    let flag = match &model.placement {
        placement if placement.dtype() == begun => return context.freeze(stage, settings),
        Placement::Cuda(_) => "--device cpu".to_owned(),
        Placement::Cpu(_) => format!("--dtype {begun}"),
    };
    context.freeze(stage, settings).map_err(|error| match error {
        Error::Mismatch { path, difference, hint } => Error::Mismatch {
            path,
            difference,
            hint: format!("give `{flag}`, as when this run was begun; or {hint}"),
        },
        other => other,
    })
}

/// Digest of the encoder that made the embeddings of `run`.
pub fn encoder_digest(run: &RunDir) -> Result<String> {
    let frozen = run.frozen_settings(Stage::Embed)?.unwrap_or_default();
    Ok(frozen["encoder"]["digest"].as_str().unwrap_or_default().to_owned())
}

/// Digest that stands for the encoder where the input brings its own embeddings.
pub(crate) const FOREIGN_ENCODER: &str = "embeddings from the input";

/// Embeds every shard of `files` that is not done yet.
pub fn embed(context: Context<'_>, files: &[InputFile]) -> Result<()> {
    let Context { config, run, .. } = context;
    let plan = Plan::new(files.to_vec());
    let model = match config.input.embeddings {
        None => Some(super::load_model(context, Stage::Embed)?),
        Some(_) => None,
    };
    let mut settings = settings(config, &plan, model.as_ref());
    // Counts that are there hurt nobody: a run that was begun with them goes on with them.
    let frozen = run.frozen_settings(Stage::Embed)?.unwrap_or_default();
    if frozen["counts_tokens"] == true && context.redo != Some(Stage::Embed) {
        settings["counts_tokens"] = true.into();
    }
    let counts_tokens = settings["counts_tokens"] == true;
    freeze_encoded(context, Stage::Embed, &settings, model.as_ref())?;
    run.write_plan(&plan)?;

    let mut todo = Vec::new();
    for shard in &plan.shards {
        if !run.is_done(Stage::Embed, &shard.name)? {
            todo.push(shard);
        }
    }
    if todo.is_empty() {
        return Ok(());
    }
    context.progress.begin("embed", read::expected_rows(context, &todo), "documents");
    let outcome = embed_shards(context, &todo, model.as_ref(), counts_tokens);
    context.progress.end();
    outcome?.finish()
}

fn embed_shards(
    context: Context<'_>,
    todo: &[&Shard],
    model: Option<&Model>,
    counts_tokens: bool,
) -> Result<Failures> {
    let activities = ["reading", "tokenizing", "encoding", "writing"].map(Busy::new);
    let [read_time, tokenize_time, encode_time, write_time] = &activities;
    let encoder = model.map(|m| m.encoder.as_ref());
    let encoding = encoder.map(|encoder| Encoding::new(context, encoder, encode_time));
    let (to_tokenize, from_read) = queue(TEXT_BYTES);
    let (to_encode, from_tokenize) = queue(encoding.as_ref().map_or(VALUES, Encoding::window));
    let (to_write, from_encode) = queue(VALUES);
    let reading = Reading { context, todo, busy: read_time };
    let tokenizer = model.map(|m| &m.tokenizer);
    let tokenizing = Tokenizing { tokenizer, counts_tokens, busy: tokenize_time };
    let writing = Writing { context, todo, busy: write_time };
    let outcome = std::thread::scope(|scope| {
        let reader = scope.spawn(move || reading.run(&to_tokenize));
        let tokenizer = scope.spawn(move || tokenizing.run(&from_read, &to_encode));
        let writer = scope.spawn(move || writing.run(&from_encode));
        let encoded = match encoding {
            Some(encoding) => encoding.run(&from_tokenize, &to_write),
            None => encode::pass_on(context, &from_tokenize, &to_write),
        };
        // Hanging up ends both neighbours: one cannot send any more, the other drains its queue.
        drop((from_tokenize, to_write));
        let written = joined(writer.join())?;
        joined(tokenizer.join())?;
        joined(reader.join())?;
        encoded.and(written)
    });
    for busy in &activities {
        context.progress.busy(busy.activity(), busy.time());
    }
    outcome
}

/// A panic of a worker thread goes on in this one.
fn joined<T>(outcome: std::thread::Result<T>) -> Result<T> {
    outcome.map_err(|panic| std::panic::resume_unwind(panic))
}

/// The plan of a run whose embeddings are complete; [`Error::Missing`] otherwise, since every
/// later stage is about the whole corpus.
pub(crate) fn finished_plan(run: &RunDir) -> Result<Plan> {
    let plan = run.plan()?;
    for shard in &plan.shards {
        if !run.is_done(Stage::Embed, &shard.name)? {
            return Err(Error::Missing {
                path: run.root().display().to_string(),
                reason: format!("shard {} is not embedded yet; run `polysift embed`", shard.name),
            });
        }
    }
    Ok(plan)
}

#[cfg(test)]
mod tests;
