//! Runs the encoder on a CPU, in f32, bf16, f16 or int8.
//!
//! A batch is split into ranges of whole sequences, which run in the caller's rayon pool. A range
//! takes its sequences through all layers in memory that later ranges reuse. The kernels compute
//! every row alone, so the result does not depend on ranges, batches or threads.
//!
//! A sequence with values beyond the precision (f16 ends at 65,504) is encoded again in f32, so
//! that no document is lost. The f32 weights are packed when this first happens.

mod calibration;
mod layer;

use std::ops::Range;
use std::sync::{Arc, Mutex};

use polysift_kernels::{Isa, Precision, mean_rows};
use rayon::prelude::*;

use self::calibration::{LayerInputs, TEXTS, token_kinds};
use self::layer::{PackedLayer, Workspace, normalise};
use super::architecture::Architecture;
use super::encode::{Encoder, EncoderInfo};
use super::files::ModelFiles;
use super::weights::{Blob, EmbeddingWeights, Weights};
use polysift_base::batch::PackedBatch;
use polysift_base::error::{Error, Result};
use polysift_base::panics::lock;
use polysift_base::progress::Stop;
use polysift_config::{DEFAULT_BATCH_TOKENS, EncoderConfig, EncoderPrecision, Pooling};

pub(super) struct CpuEncoder {
    info: EncoderInfo,
    architecture: Architecture,
    pooling: Pooling,
    embedding: EmbeddingWeights,
    precision: Precision,
    layers: Vec<PackedLayer>,
    /// Source of the weights for [`CpuEncoder::exact_layers`].
    files: Arc<[Blob]>,
    exact_layers: Mutex<Option<Arc<Vec<PackedLayer>>>>,
    /// Memory of finished ranges, for reuse by new ones.
    workspaces: Mutex<Vec<Workspace>>,
}

impl CpuEncoder {
    /// Reads and packs the weights, for int8 after a calibration; checks the width that int8 takes.
    pub(super) fn load(files: &ModelFiles, precision: EncoderPrecision) -> Result<Self> {
        tracing::debug!(%precision, instructions = Isa::detect().name(), "packing weights");
        let precision = kernel_precision(precision)?;
        let Architecture { width, inner, .. } = files.architecture;
        if precision == Precision::Int8 && width.max(inner) > MOST_INT8_INPUTS {
            let reason = format!(
                "is int8, for layers of up to {MOST_INT8_INPUTS} inputs; this model's have {}",
                width.max(inner)
            );
            return Err(Error::config("encoder.precision", reason));
        }
        let weights = Weights::open(&files.weights, &files.architecture)?;
        let mut this = Self {
            info: EncoderInfo {
                in_flight: batches_in_flight(files.recipe.max_tokens),
                ..files.info("cpu".into())
            },
            architecture: files.architecture.clone(),
            pooling: files.recipe.pooling,
            embedding: weights.read_embedding()?,
            precision,
            layers: Vec::new(),
            files: Arc::clone(&files.weights),
            exact_layers: Mutex::default(),
            workspaces: Mutex::default(),
        };
        let inputs = match precision {
            Precision::Int8 => this.calibrate(files, &weights)?,
            _ => Vec::new(),
        };
        this.layers = pack_layers(&weights, precision, &inputs)?;
        Ok(this)
    }

    /// Records the f32 inputs of each layer's linear maps for the sentences in [`TEXTS`].
    fn calibrate(&self, files: &ModelFiles, weights: &Weights<'_>) -> Result<Vec<LayerInputs>> {
        let tokenizer = files.tokenizer(&EncoderConfig::default())?;
        let mut batch = PackedBatch::default();
        for chunks in tokenizer.chunks_all(&TEXTS.lines().collect::<Vec<_>>())? {
            if let Some(chunk) = chunks.first().filter(|chunk| !chunk.is_empty()) {
                batch.push(chunk);
            }
        }
        let workspace = |i| {
            let mut workspace = Workspace::default();
            workspace.record_inputs();
            self.embed_tokens(&batch, i..i + 1, &mut workspace);
            workspace
        };
        let mut workspaces: Vec<Workspace> = (0..batch.num_sequences()).map(workspace).collect();
        let angles = self.architecture.angles();
        let layer = |i| {
            let layer = PackedLayer::load((Precision::F32, None), weights, &angles, i)?;
            workspaces.par_iter_mut().for_each(|workspace| {
                layer.forward(workspace, false, &Stop::default());
            });
            let mut inputs = LayerInputs::default();
            // Merging in the order of the texts makes the sums independent of the threads.
            for of_text in workspaces.iter_mut().filter_map(Workspace::record_inputs) {
                inputs.iter_mut().zip(&of_text).for_each(|(sums, of_text)| sums.merge(of_text));
            }
            Ok(inputs)
        };
        (0..self.architecture.layers.len()).map(layer).collect()
    }

    /// Embeds the sequences in `ranges` in parallel; other rows of `embeddings` stay unchanged.
    fn forward_all(
        &self,
        layers: &[PackedLayer],
        batch: &PackedBatch,
        ranges: Vec<Range<usize>>,
        embeddings: &mut [f32],
        stop: &Stop,
    ) -> Result<()> {
        let width = self.info.hidden_size;
        let (mut rest, mut next) = (embeddings, 0);
        let mut parts = Vec::with_capacity(ranges.len());
        for range in ranges {
            let (_, from_range) = rest.split_at_mut((range.start - next) * width);
            let (out, after) = from_range.split_at_mut(range.len() * width);
            (rest, next) = (after, range.end);
            parts.push((range, out));
        }
        // Threads take the ranges in order: the large ones come first.
        parts.into_iter().par_bridge().for_each(|(range, out)| {
            self.forward(layers, batch, range, out, stop);
        });
        stop.check()
    }

    /// Embeds the sequences `range` of `batch` in the calling thread, unless `stop` is asked for.
    fn forward(
        &self,
        layers: &[PackedLayer],
        batch: &PackedBatch,
        range: Range<usize>,
        embeddings: &mut [f32],
        stop: &Stop,
    ) {
        if stop.is_asked() {
            return;
        }
        let free = lock(&self.workspaces).pop();
        let mut workspace = free.unwrap_or_default();
        self.embed_tokens(batch, range, &mut workspace);
        // With `cls` pooling, only the first token's output of the last layer is needed.
        let only_first = |i: usize| self.pooling == Pooling::Cls && i + 1 == layers.len();
        let mut numbered = layers.iter().enumerate();
        let is_done = numbered.all(|(i, layer)| layer.forward(&mut workspace, only_first(i), stop));
        let embeddings = if is_done { embeddings } else { &mut [] };
        let width = self.info.hidden_size;
        for (out, span) in embeddings.chunks_exact_mut(width).zip(workspace.starts.windows(2)) {
            let (first, end) = (span[0] * width, span[1] * width);
            let pooled = match self.pooling {
                Pooling::Mean => first..end,
                Pooling::Cls => first..first + width,
                Pooling::Last => end - width..end,
            };
            let states = &workspace.hidden[pooled];
            let states = match &self.embedding.final_norm {
                None => states,
                Some(norm) => {
                    workspace.normed.resize(states.len(), 0.0);
                    normalise(norm, states, &mut workspace.normed);
                    &workspace.normed
                }
            };
            match self.pooling {
                Pooling::Mean => mean_rows(Isa::detect(), states, out),
                Pooling::Cls | Pooling::Last => out.copy_from_slice(states),
            }
        }
        lock(&self.workspaces).push(workspace);
    }

    /// Fills the initial states `[N, H]` of the sequences: layer norm of word + position + type.
    fn embed_tokens(&self, batch: &PackedBatch, range: Range<usize>, workspace: &mut Workspace) {
        let width = self.info.hidden_size;
        let (first, end) = (batch.cu_seqlens[range.start], batch.cu_seqlens[range.end]);
        let Workspace { starts, kinds: of_tokens, hidden, .. } = workspace;
        starts.clear();
        let in_batch = &batch.cu_seqlens[range.start..=range.end];
        starts.extend(in_batch.iter().map(|&start| (start - first) as usize));
        of_tokens.clear();
        of_tokens.extend(range.clone().flat_map(|i| token_kinds(batch.sequence(i).len())));
        hidden.resize((end - first) as usize * width, 0.0);
        let mut word = vec![0.0; width];
        let mut rows = hidden.chunks_exact_mut(width);
        let EmbeddingWeights { words, positions, norm, .. } = &self.embedding;
        for i in range {
            let ids = batch.sequence(i);
            for ((&id, row), out) in
                ids.iter().zip(self.architecture.positions.table_rows(ids)).zip(&mut rows)
            {
                words.read_row(id as usize, &mut word);
                let position = &positions[row * width..][..width];
                word.iter_mut().zip(position).for_each(|(value, &addend)| *value += addend);
                normalise(norm, &word, out);
            }
        }
    }

    /// Embeds the sequences whose embeddings are not finite again, in f32.
    fn repair(&self, batch: &PackedBatch, embeddings: &mut [f32], stop: &Stop) -> Result<()> {
        let rows = embeddings.chunks_exact(self.info.hidden_size);
        let broken = rows.enumerate().filter(|(_, row)| !row.iter().all(|v| v.is_finite()));
        let broken: Vec<Range<usize>> = broken.map(|(i, _)| i..i + 1).collect();
        if broken.is_empty() {
            return Ok(());
        }
        self.forward_all(&self.exact_layers()?, batch, broken, embeddings, stop)
    }

    /// Returns the layers in f32. The first call packs them, and others wait meanwhile.
    fn exact_layers(&self) -> Result<Arc<Vec<PackedLayer>>> {
        let mut layers = lock(&self.exact_layers);
        if let Some(layers) = &*layers {
            return Ok(Arc::clone(layers));
        }
        let precision = self.precision;
        tracing::info!("chunks whose states {precision:?} cannot hold are encoded in f32");
        let weights = Weights::open(&self.files, &self.architecture)?;
        let packed = Arc::new(pack_layers(&weights, Precision::F32, &[])?);
        Ok(Arc::clone(layers.insert(packed)))
    }
}

impl Encoder for CpuEncoder {
    fn info(&self) -> &EncoderInfo {
        &self.info
    }

    fn encode(&self, batch: &PackedBatch, embeddings: &mut [f32], stop: &Stop) -> Result<()> {
        self.info.check(batch, embeddings)?;
        let ranges = split_batch(&batch.cu_seqlens, rayon::current_num_threads());
        self.forward_all(&self.layers, batch, ranges, embeddings, stop)?;
        if self.precision == Precision::F32 {
            return Ok(());
        }
        self.repair(batch, embeddings, stop)
    }
}

/// Reads and packs layers in parallel: few are in memory in f32 at a time. Int8 needs `inputs`.
fn pack_layers(
    weights: &Weights<'_>,
    precision: Precision,
    inputs: &[LayerInputs],
) -> Result<Vec<PackedLayer>> {
    let angles = weights.architecture.angles();
    let layer = |i| PackedLayer::load((precision, inputs.get(i)), weights, &angles, i);
    (0..weights.architecture.layers.len()).into_par_iter().map(layer).collect()
}

/// Returns `precision` as the kernels name it, f32 for `auto`; fp8 is an error.
fn kernel_precision(precision: EncoderPrecision) -> Result<Precision> {
    Ok(match precision {
        EncoderPrecision::Auto | EncoderPrecision::F32 => Precision::F32,
        EncoderPrecision::Bf16 => Precision::Bf16,
        EncoderPrecision::F16 => Precision::F16,
        EncoderPrecision::Int8 => Precision::Int8,
        EncoderPrecision::Fp8 => {
            return Err(Error::config("encoder.precision", "is fp8, which is only for GPUs"));
        }
    })
}

/// Maximum tokens of a range of several sequences: enough rows for the matrix kernels, few enough
/// that the states of a base-sized model stay near the second-level cache.
const MOST_TOKENS: usize = 512;
/// Maximum inputs of a layer in int8: the sums of more products do not fit 32 bits.
const MOST_INT8_INPUTS: usize = 1 << 16;
/// Threads that one batch of mixed lengths keeps busy.
const THREADS_PER_BATCH: usize = 16;
/// Lower bound on the token limit of a range.
const FEWEST_TOKENS: usize = 64;

/// Returns the number of batches with sequences of up to `max_tokens` that keep all threads busy: a
/// batch's last ranges run beside the next one's first, and a long sequence in one thread.
fn batches_in_flight(max_tokens: usize) -> usize {
    let threads = rayon::current_num_threads();
    let batches = (2 * threads * max_tokens).div_ceil(DEFAULT_BATCH_TOKENS);
    batches.max(1 + threads.div_ceil(THREADS_PER_BATCH))
}

/// Splits a batch into consecutive ranges of whole sequences for threads that take them in order
/// and should finish together. A range is one sequence, or has at most half of a thread's share of
/// the remaining tokens (from [`FEWEST_TOKENS`] to [`MOST_TOKENS`]): ranges get smaller.
fn split_batch(cu_seqlens: &[u32], threads: usize) -> Vec<Range<usize>> {
    let num_sequences = cu_seqlens.len() - 1;
    let tokens = |range: Range<usize>| (cu_seqlens[range.end] - cu_seqlens[range.start]) as usize;
    let mut ranges = Vec::new();
    let mut start = 0;
    while start < num_sequences {
        let share = tokens(start..num_sequences) / (2 * threads);
        let most = share.clamp(FEWEST_TOKENS, MOST_TOKENS);
        let mut end = start + 1;
        while end < num_sequences && tokens(start..end + 1) <= most {
            end += 1;
        }
        ranges.push(start..end);
        start = end;
    }
    ranges
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::resolve;
    use polysift_base::hub::HubSettings;
    use polysift_config::EncoderConfig;

    fn starts(lengths: &[u32]) -> Vec<u32> {
        let sums = lengths.iter().scan(0, |sum, length| {
            *sum += length;
            Some(*sum)
        });
        std::iter::once(0).chain(sums).collect()
    }

    const PRECISIONS: [EncoderPrecision; 4] = [
        EncoderPrecision::F32,
        EncoderPrecision::Bf16,
        EncoderPrecision::F16,
        EncoderPrecision::Int8,
    ];

    #[test]
    fn the_first_tokens_alone_have_the_bits_that_they_have_among_all() -> Result<()> {
        for name in ["head64-f16", "gte", "modernbert"] {
            let model = format!("{}/../../tests/golden/encoder/{name}", env!("CARGO_MANIFEST_DIR"));
            let pooling = Some(Pooling::Cls);
            let config = EncoderConfig { model, max_tokens: 130, pooling, ..Default::default() };
            let files = resolve(&config, &HubSettings::from_env(|_| None))?;
            let mut batch = PackedBatch::default();
            for length in [1, 2, 17, 130, 1, 40] {
                batch.push(&(0..length).map(|i| i * 37 % 113 + 3).collect::<Vec<u32>>());
            }
            for precision in PRECISIONS {
                let encoder = CpuEncoder::load(&files, precision)?;
                let (width, stop) = (encoder.info.hidden_size, Stop::default());
                let mut embeddings = vec![0.0; 6 * width];
                encoder.encode(&batch, &mut embeddings, &stop)?;
                let mut workspace = Workspace::default();
                encoder.embed_tokens(&batch, 0..6, &mut workspace);
                for layer in &encoder.layers {
                    assert!(layer.forward(&mut workspace, false, &stop));
                }
                for (row, &start) in embeddings.chunks(width).zip(&workspace.starts) {
                    let mut first = workspace.hidden[start * width..][..width].to_vec();
                    if let Some(norm) = &encoder.embedding.final_norm {
                        normalise(norm, &first.clone(), &mut first);
                    }
                    let is_same = row.iter().zip(&first).all(|(a, b)| a.to_bits() == b.to_bits());
                    assert!(is_same, "{name}, {precision}, from {start}");
                }
            }
        }
        Ok(())
    }

    #[test]
    fn ranges_hold_whole_sequences_up_to_their_size() {
        assert!(split_batch(&[0], 2).is_empty());
        // The 2,600 tokens start with ranges of 512; a longer sequence is a range of its own.
        let lengths = [600, 300, 200, 300, 200, 300, 200, 300, 200];
        assert_eq!(split_batch(&starts(&lengths), 1), [0..1, 1..3, 3..5, 5..7, 7..8, 8..9]);
    }

    #[test]
    fn a_small_batch_has_work_for_every_thread_and_small_ranges_at_the_end() {
        let ranges = split_batch(&starts(&[64; 16]), 2);
        assert_eq!(
            ranges.iter().map(Range::len).collect::<Vec<_>>(),
            [4, 3, 2, 1, 1, 1, 1, 1, 1, 1]
        );
        assert_eq!(split_batch(&starts(&[20; 6]), 4), [0..3, 3..6]);
    }
}
