//! candle-transformers' XLM-R as a baseline: padded batches, mean of the real tokens.

use std::path::Path;

use anyhow::Result;
use candle_core::{DType, Device, Tensor};
use candle_nn::VarBuilder;
use candle_transformers::models::xlm_roberta::{Config, XLMRobertaModel};

/// A model on a device.
pub(crate) struct Padded {
    model: XLMRobertaModel,
    device: Device,
}

impl Padded {
    /// Loads the model in `directory`.
    pub(crate) fn load(directory: &Path, dtype: DType, device: &Device) -> Result<Self> {
        let file = |name| std::fs::read(directory.join(name));
        let weights =
            VarBuilder::from_buffered_safetensors(file("model.safetensors")?, dtype, device)?;
        let config: Config = serde_json::from_slice(&file("config.json")?)?;
        Ok(Self { model: XLMRobertaModel::new(&config, weights)?, device: device.clone() })
    }

    /// Embeds `chunks` in order, `batch` at a time, each batch padded to its longest chunk: `[n, D]` f32.
    pub(crate) fn embed(&self, chunks: &[&[u32]], batch: usize) -> Result<Vec<f32>> {
        let mut embeddings = Vec::new();
        for batch in chunks.chunks(batch) {
            let longest = batch.iter().map(|chunk| chunk.len()).max().unwrap_or(0);
            let (mut ids, mut mask) = (Vec::new(), Vec::new());
            for chunk in batch {
                let padding = std::iter::repeat_n(1, longest - chunk.len());
                ids.extend(chunk.iter().copied().chain(padding));
                mask.extend((0..longest).map(|i| u32::from(i < chunk.len())));
            }
            let shape = (batch.len(), longest);
            let input_ids = Tensor::from_vec(ids, shape, &self.device)?;
            let mask = Tensor::from_vec(mask, shape, &self.device)?;
            let types = input_ids.zeros_like()?;
            let hidden = self.model.forward(&input_ids, &mask, &types, None, None, None)?;
            let (hidden, mask) = (hidden.to_dtype(DType::F32)?, mask.to_dtype(DType::F32)?);
            let sums = hidden.broadcast_mul(&mask.unsqueeze(2)?)?.sum(1)?;
            let means = sums.broadcast_div(&mask.sum_keepdim(1)?)?;
            embeddings.extend(means.flatten_all()?.to_vec1::<f32>()?);
        }
        Ok(embeddings)
    }
}
