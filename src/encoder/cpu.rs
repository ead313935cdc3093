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

use self::layer::{Layer, Workspace};
use super::files::ModelFiles;
use super::weights::{EmbeddingWeights, NormWeights, Weights};
use super::{Encoder, EncoderInfo};
use crate::batch::PackedBatch;
use crate::config::{Dtype, Pooling};
use crate::error::Result;

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
    embedding_norm: NormWeights,
    layers: Vec<Layer>,
    /// Memory of tasks that are done, for those that start.
    workspaces: Mutex<Vec<Workspace>>,
}

impl CpuEncoder {
    pub(super) fn load(files: &ModelFiles, pooling: Pooling, dtype: Dtype) -> Result<Self> {
        let config = &files.architecture;
        let weights = &mut Weights::open(&files.weights)?;
        let EmbeddingWeights { words, positions, norm } = weights.embedding(config)?;
        let layers = (0..config.num_hidden_layers)
            .map(|i| Ok(Layer::new(weights.layer(i, config)?, config.num_attention_heads)));
        let layers = layers.collect::<Result<Vec<_>>>()?;
        Ok(Self {
            info: files.info(weights.num_parameters(), "cpu".into()),
            isa: Isa::detect(),
            pooling,
            pad_token_id: config.pad_token_id,
            words,
            positions,
            embedding_norm: norm,
            layers,
            workspaces: Mutex::default(),
        })
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
        let NormWeights { gamma, beta, eps } = &self.embedding_norm;
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
        self.info.check(batch, embeddings)?;
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
