//! candle-transformers' own XLM-R on the GPU: sorted by length, padded to the longest of a batch.
//!
//! In f16, not bf16: candle counts positions in the model's type, and bf16 has no odd integers
//! above 256, so every second token beyond the 256th would get its neighbour's position.
//!
//! The embeddings of SEL are written too: f16 has three more bits than bf16, enough for an oracle where
//! there is no PyTorch.

use anyhow::{Context, Result};
use candle_core::{DType, Device};
use serde_json::json;

use crate::Common;
use crate::candle_padded::Padded;
use crate::measure::{Run, Sizes, line, repeat, write_json};
use crate::workload::{MAX_TOKENS, Workload, write_embeddings};

pub(crate) fn measure(common: &Common, padded_tokens: usize) -> Result<()> {
    let device = Device::new_cuda(0).context("candle finds no CUDA device")?;
    let directory = common.data.join("model");
    let sizes = Sizes::read(&directory)?;
    let model = Padded::load(&directory, DType::F16, &device)?;
    let mut runs = Vec::new();
    for name in ["W2", "W1"] {
        let workload = Workload::read(&common.data, name)?;
        let mut chunks = workload.chunks();
        chunks.sort_by_key(|chunk| std::cmp::Reverse(chunk.len()));
        let batch = padded_tokens / chunks.first().map_or(MAX_TOKENS, |chunk| chunk.len());
        let (seconds, _) = repeat(common.repetitions, || model.embed(&chunks, batch))?;
        let settings = json!({"precision": "f16", "batch": batch, "order": "by length"});
        let run = Run::new(("candle", name, settings), &chunks, &sizes, seconds);
        line(&run.describe())?;
        runs.push(run);
        write_json(&common.out, &json!({"runs": runs}))?;
    }
    let workload = Workload::read(&common.data, "SEL")?;
    let embeddings = model.embed(&workload.chunks(), padded_tokens / MAX_TOKENS)?;
    let path = common.data.join("candle.npy");
    write_embeddings(&path, &embeddings, sizes.hidden_size)?;
    line(&format!("{}: {} embeddings", path.display(), workload.sequences.len()))
}
