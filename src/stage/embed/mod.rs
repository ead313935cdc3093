//! Text to embeddings: three threads joined by bounded queues.
//!
//! ```text
//! read + tokenize (rayon) ──part──▶ encode (rayon, this thread) ──part──▶ round, write, mark
//! ```
//!
//! Where the encoder has several lanes (cards), the middle one keeps two parts in work, each in a
//! thread of its own, so that the cards need not wait for the last batches of a part.
//!
//! The unit of resume is the part: `store.part_rows` rows of one file. A part's bytes depend on
//! its rows and the frozen settings alone.

mod read;
mod write;

use std::collections::VecDeque;
use std::thread::ScopedJoinHandle;

use crossbeam_channel::{Receiver, Sender, bounded};
use serde_json::{Value, json};

use super::{Context, Failures};
use crate::config::{Gelu, RunConfig};
use crate::encoder::{self, Encoder, Model, Placement};
use crate::error::{Error, Result};
use crate::input::InputFile;
use crate::run::{Plan, RunDir, Shard, Stage};
use crate::store::EmbeddingRows;
use read::{Content, PartInput, Reading};
use write::Writing;

/// Parts waiting between two threads; one is in work on either side of a queue.
const QUEUE_PARTS: usize = 1;
/// Parts in work at once where the encoder has several lanes.
const PARTS_IN_WORK: usize = 2;

/// Between the reading and the encoding thread.
enum Work {
    Part(Box<PartInput>),
    End { shard: usize },
    Failed { shard: usize, error: Error },
}

/// Between the encoding and the writing thread.
enum Done {
    Part(Box<PartInput>, EmbeddingRows),
    End { shard: usize },
    Failed { shard: usize, error: Error },
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
        "store": store,
    })
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
    let settings = settings(config, &plan, model.as_ref());
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
    let outcome = embed_shards(context, &todo, model.as_ref());
    context.progress.end();
    outcome?.finish()
}

fn embed_shards(context: Context<'_>, todo: &[&Shard], model: Option<&Model>) -> Result<Failures> {
    let (to_encode, from_read) = bounded(QUEUE_PARTS);
    let (to_write, from_encode) = bounded(QUEUE_PARTS);
    let reading = Reading { context, todo, tokenizer: model.map(|m| &m.tokenizer) };
    let writing = Writing { context, todo };
    std::thread::scope(|scope| {
        let reader = scope.spawn(move || reading.run(&to_encode));
        let writer = scope.spawn(move || writing.run(&from_encode));
        let encoder = model.map(|m| m.encoder.as_ref());
        let encoded = encode_parts(context, encoder, &from_read, &to_write);
        // Hanging up ends both neighbours: the reader cannot send, the writer drains its queue.
        drop((from_read, to_write));
        let written = joined(writer.join())?;
        joined(reader.join())?;
        encoded.and(written)
    })
}

/// A panic of a worker thread goes on in this one.
fn joined<T>(outcome: std::thread::Result<T>) -> Result<T> {
    outcome.map_err(|panic| std::panic::resume_unwind(panic))
}

/// Encodes what comes `from_read` and passes it on `to_write` in the same order.
fn encode_parts(
    context: Context<'_>,
    encoder: Option<&dyn Encoder>,
    from_read: &Receiver<Work>,
    to_write: &Sender<Done>,
) -> Result<()> {
    if encoder.is_some_and(|encoder| encoder.lanes() > 1) {
        encode_parts_in_lanes(context, encoder, from_read, to_write)?;
    } else {
        for work in from_read {
            if to_write.send(encode_work(context, encoder, work)?).is_err() {
                break; // the writer failed and says why
            }
        }
    }
    context.stop.check()
}

/// As [`encode_parts`], with [`PARTS_IN_WORK`] parts in work at once.
fn encode_parts_in_lanes(
    context: Context<'_>,
    encoder: Option<&dyn Encoder>,
    from_read: &Receiver<Work>,
    to_write: &Sender<Done>,
) -> Result<()> {
    std::thread::scope(|scope| {
        let pass_on = |work: ScopedJoinHandle<'_, Result<Done>>| -> Result<bool> {
            Ok(to_write.send(joined(work.join())??).is_ok())
        };
        let (mut in_work, mut parts) = (VecDeque::new(), 0);
        for work in from_read {
            let is_part = matches!(work, Work::Part(_));
            parts += usize::from(is_part);
            let work = scope.spawn(move || encode_work(context, encoder, work));
            in_work.push_back((is_part, work));
            while parts == PARTS_IN_WORK
                && let Some((is_part, oldest)) = in_work.pop_front()
            {
                parts -= usize::from(is_part);
                if !pass_on(oldest)? {
                    return Ok(()); // the writer failed and says why
                }
            }
        }
        for (_, work) in in_work {
            if !pass_on(work)? {
                break;
            }
        }
        Ok(())
    })
}

fn encode_work(context: Context<'_>, encoder: Option<&dyn Encoder>, work: Work) -> Result<Done> {
    Ok(match work {
        Work::Part(mut part) => {
            let rows = encode_part(context, encoder, &mut part)?;
            Done::Part(part, rows)
        }
        Work::End { shard } => Done::End { shard },
        Work::Failed { shard, error } => Done::Failed { shard, error },
    })
}

/// Embeds the chunks of a part and takes its documents over into rows.
fn encode_part(
    context: Context<'_>,
    encoder: Option<&dyn Encoder>,
    part: &mut PartInput,
) -> Result<EmbeddingRows> {
    let mut rows = EmbeddingRows::default();
    let mut chunks: Vec<&[u32]> = Vec::new();
    let mut stored: Vec<f32> = Vec::new();
    rows.chunk_offsets.push(0);
    for document in &part.documents {
        rows.rows.push(document.row);
        rows.ids.push(document.id.clone());
        rows.languages.push(document.language.clone());
        rows.num_bytes.push(document.num_bytes);
        rows.num_tokens.push(document.num_tokens);
        let before = rows.chunk_offsets[rows.chunk_offsets.len() - 1];
        let num_chunks = match &document.content {
            Content::Nothing => 0,
            Content::Chunks(ids) => {
                chunks.extend(ids.iter().map(Vec::as_slice));
                ids.len()
            }
            Content::Embeddings(vectors) => {
                stored.extend(vectors.iter().flatten());
                vectors.len()
            }
        };
        rows.chunk_offsets.push(before + num_chunks);
    }
    part.tokens = chunks.iter().map(|c| c.len() as u64).sum();
    if let Some(encoder) = encoder {
        rows.hidden_size = encoder.info().hidden_size;
        rows.values = encode_chunks(context, encoder, &chunks, part.documents.len())?;
    } else {
        let total = rows.chunk_offsets[rows.chunk_offsets.len() - 1];
        rows.hidden_size = stored.len().checked_div(total).unwrap_or(0);
        rows.values = stored;
        context.progress.advance(part.documents.len() as u64, 0);
    }
    Ok(rows)
}

/// Runs the encoder; progress counts documents in proportion to finished chunks.
fn encode_chunks(
    context: Context<'_>,
    encoder: &dyn Encoder,
    chunks: &[&[u32]],
    num_documents: usize,
) -> Result<Vec<f32>> {
    let (mut done_chunks, mut told) = (0, 0);
    let values = encoder::embed_chunks(
        encoder,
        chunks,
        encoder::batch_tokens(&context.config.encoder, encoder),
        &mut |batch_chunks, batch_tokens| {
            done_chunks += batch_chunks;
            let documents = num_documents * done_chunks / chunks.len();
            context.progress.advance((documents - told) as u64, batch_tokens as u64);
            told = documents;
            context.stop.check()
        },
    )?;
    context.progress.advance((num_documents - told) as u64, 0);
    Ok(values)
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
