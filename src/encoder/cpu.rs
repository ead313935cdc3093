//! The encoder on a CPU, in f32.
//!
//! A batch is cut into tasks of whole sequences, about [`TASK_TOKENS`] each, which run in the
//! caller's rayon pool; a task takes its sequences through all layers in memory that is used
//! again by the next one. The kernels compute every row alone, so neither tasks nor batches nor
//! threads show in the result.

mod attention;
mod layer;

use std::ops::Range;
use std::sync::{Mutex, PoisonError};

use polysift_kernels::{Isa, add_layer_norm, mean_rows};
use rayon::prelude::*;

use self::layer::{Layer, Norm, Workspace};
use super::architecture::Architecture;
use super::files::ModelFiles;
use super::weights::Weights;
use super::{Encoder, EncoderInfo};
use crate::batch::PackedBatch;
use crate::config::Pooling;
use crate::error::{Error, Result};

/// Tokens of one task: enough rows for the matrix kernels, few enough that the states of a
/// base-sized model stay near the second-level cache.
const TASK_TOKENS: usize = 512;

/// See the module.
pub(super) struct CpuEncoder {
    info: EncoderInfo,
    isa: Isa,
    pooling: Pooling,
    pad_token_id: usize,
    /// `[vocab_size, H]`.
    words: Vec<f32>,
    /// `[max_position_embeddings, H]`, the embedding of token type 0 added.
    positions: Vec<f32>,
    embedding_norm: Norm,
    layers: Vec<Layer>,
    /// Memory of tasks that are done, for those that start.
    workspaces: Mutex<Vec<Workspace>>,
}

impl CpuEncoder {
    pub(super) fn load(files: &ModelFiles, pooling: Pooling) -> Result<Self> {
        let config = &files.architecture;
        let weights = &mut Weights::open(&files.weights)?;
        let width = config.hidden_size;
        let words =
            weights.tensor("embeddings.word_embeddings.weight", &[config.vocab_size, width])?;
        let shape = [config.max_position_embeddings, width];
        let mut positions = weights.tensor("embeddings.position_embeddings.weight", &shape)?;
        let shape = [config.type_vocab_size, width];
        let types = weights.tensor("embeddings.token_type_embeddings.weight", &shape)?;
        for row in positions.chunks_exact_mut(width) {
            for (value, type_value) in row.iter_mut().zip(&types) {
                *value += type_value;
            }
        }
        let embedding_norm = Norm::load(weights, "embeddings.LayerNorm", config)?;
        let layers = (0..config.num_hidden_layers).map(|i| Layer::load(weights, i, config));
        let layers = layers.collect::<Result<Vec<_>>>()?;
        Ok(Self {
            info: info(files, config, weights.num_parameters()),
            isa: Isa::detect(),
            pooling,
            pad_token_id: config.pad_token_id,
            words,
            positions,
            embedding_norm,
            layers,
            workspaces: Mutex::default(),
        })
    }

    fn check(&self, batch: &PackedBatch, embeddings: &[f32]) -> Result<()> {
        let fail = |reason: String| Err(Error::shape("encode", reason));
        let EncoderInfo { hidden_size, max_tokens, vocab_size, .. } = self.info;
        let starts = &batch.cu_seqlens;
        let whole = starts.first() == Some(&0)
            && starts.last().is_some_and(|&end| end as usize == batch.num_tokens());
        if !whole || !starts.is_sorted() {
            return fail("cu_seqlens does not run from 0 to the number of tokens".into());
        }
        let needed = batch.num_sequences() * hidden_size;
        if embeddings.len() != needed {
            return fail(format!("{} values for embeddings, not {needed}", embeddings.len()));
        }
        for i in 0..batch.num_sequences() {
            let ids = batch.sequence(i);
            if ids.is_empty() || ids.len() > max_tokens {
                let length = ids.len();
                return fail(format!("sequence {i} has {length} tokens, not 1 to {max_tokens}"));
            }
            if let Some(id) = ids.iter().find(|&&id| id as usize >= vocab_size) {
                return fail(format!("token id {id} in sequence {i}; there are {vocab_size}"));
            }
        }
        Ok(())
    }

    fn take_workspace(&self) -> Workspace {
        let mut free = self.workspaces.lock().unwrap_or_else(PoisonError::into_inner);
        free.pop().unwrap_or_default()
    }

    fn return_workspace(&self, workspace: Workspace) {
        self.workspaces.lock().unwrap_or_else(PoisonError::into_inner).push(workspace);
    }

    /// Embeds the sequences `range` of `batch` in the calling thread.
    fn forward(&self, batch: &PackedBatch, range: Range<usize>, embeddings: &mut [f32]) {
        let mut workspace = self.take_workspace();
        let first = batch.cu_seqlens[range.start];
        workspace.starts.clear();
        let starts = &batch.cu_seqlens[range.start..=range.end];
        workspace.starts.extend(starts.iter().map(|&start| (start - first) as usize));
        self.embed_tokens(batch, range, &mut workspace.hidden);
        for layer in &self.layers {
            layer.forward(self.isa, &mut workspace);
        }
        let width = self.info.hidden_size;
        for (out, span) in embeddings.chunks_exact_mut(width).zip(workspace.starts.windows(2)) {
            let states = &workspace.hidden[span[0] * width..span[1] * width];
            match self.pooling {
                Pooling::Mean => mean_rows(self.isa, states, out),
                Pooling::Cls => out.copy_from_slice(&states[..width]),
            }
        }
        self.return_workspace(workspace);
    }

    /// Layer norm of word + position + type, `[N, H]`.
    fn embed_tokens(&self, batch: &PackedBatch, range: Range<usize>, hidden: &mut Vec<f32>) {
        let width = self.info.hidden_size;
        let tokens = batch.cu_seqlens[range.end] - batch.cu_seqlens[range.start];
        hidden.resize(tokens as usize * width, 0.0);
        let mut rows = hidden.chunks_exact_mut(width);
        let Norm { gamma, beta, eps } = &self.embedding_norm;
        for i in range {
            let mut position = self.pad_token_id;
            for (&id, out) in batch.sequence(i).iter().zip(&mut rows) {
                let id = id as usize;
                // As in transformers, a padding token has the padding position and counts for none.
                let row = if id == self.pad_token_id {
                    self.pad_token_id
                } else {
                    position += 1;
                    position
                };
                let word = &self.words[id * width..][..width];
                let position = &self.positions[row * width..][..width];
                add_layer_norm(self.isa, word, position, gamma, beta, *eps, out);
            }
        }
    }
}

impl Encoder for CpuEncoder {
    fn info(&self) -> &EncoderInfo {
        &self.info
    }

    fn encode(&self, batch: &PackedBatch, embeddings: &mut [f32]) -> Result<()> {
        self.check(batch, embeddings)?;
        let width = self.info.hidden_size;
        let mut rest = &mut *embeddings;
        let mut tasks = Vec::new();
        for range in split(&batch.cu_seqlens) {
            let (out, after) = rest.split_at_mut(range.len() * width);
            rest = after;
            tasks.push((range, out));
        }
        tasks.into_par_iter().for_each(|(range, out)| self.forward(batch, range, out));
        Ok(())
    }
}

fn info(files: &ModelFiles, config: &Architecture, num_parameters: u64) -> EncoderInfo {
    EncoderInfo {
        model: files.model.clone(),
        hidden_size: config.hidden_size,
        num_hidden_layers: config.num_hidden_layers,
        vocab_size: config.vocab_size,
        max_tokens: config.max_tokens(),
        num_parameters,
        device: "cpu".into(),
        digest: files.digest.clone(),
    }
}

/// Consecutive ranges of whole sequences of at most [`TASK_TOKENS`] tokens, or of one sequence.
fn split(cu_seqlens: &[u32]) -> Vec<Range<usize>> {
    let mut ranges: Vec<Range<usize>> = Vec::new();
    for i in 0..cu_seqlens.len() - 1 {
        match ranges.last_mut() {
            Some(range)
                if (cu_seqlens[i + 1] - cu_seqlens[range.start]) as usize <= TASK_TOKENS =>
            {
                range.end = i + 1;
            }
            _ => ranges.push(i..i + 1),
        }
    }
    ranges
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tasks_hold_whole_sequences_up_to_their_size() {
        assert!(split(&[0]).is_empty());
        assert_eq!(split(&[0, 600, 900, 1112, 1113]), [0..1, 1..3, 3..4]);
    }
}
