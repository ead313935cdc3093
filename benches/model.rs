//! XLM-R models of random weights, for the benchmarks.
//!
//! The weights are normal, and so spread that documents differ more than they would with 0.02
//! everywhere: there all embeddings are nearly one vector, and rounding has a say in which documents
//! a head selects.

use std::path::Path;

use anyhow::Result;
use rand::rngs::ChaCha8Rng;
use rand::{RngExt, SeedableRng};
use rayon::prelude::*;
use safetensors::{Dtype, tensor::TensorView};
use serde_json::json;

/// Sizes of a model.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Shape {
    pub(crate) name: &'static str,
    pub(crate) hidden_size: usize,
    pub(crate) num_hidden_layers: usize,
    pub(crate) num_attention_heads: usize,
    pub(crate) intermediate_size: usize,
    pub(crate) vocab_size: usize,
}

impl Shape {
    /// XLM-RoBERTa base.
    pub(crate) const BASE: Self = Self {
        name: "base",
        hidden_size: 768,
        num_hidden_layers: 12,
        num_attention_heads: 12,
        intermediate_size: 3072,
        vocab_size: 250_002,
    };
}

const WORD_SPREAD: f32 = 1.0;
const POSITION_SPREAD: f32 = 0.1;
const WEIGHT_SPREAD: f32 = 0.02;
const BIAS_SPREAD: f32 = 0.02;
/// Of the layer norms' scales, around 1.
const GAMMA_SPREAD: f32 = 0.1;

/// A tensor to be made.
struct Tensor {
    name: String,
    shape: Vec<usize>,
    center: f32,
    spread: f32,
}

fn tensors(shape: &Shape) -> Vec<Tensor> {
    let (h, f) = (shape.hidden_size, shape.intermediate_size);
    let mut tensors = Vec::new();
    let mut add = |name: String, shape: Vec<usize>, center: f32, spread: f32| {
        tensors.push(Tensor { name, shape, center, spread });
    };
    let embeddings = |part: &str| format!("embeddings.{part}_embeddings.weight");
    add(embeddings("word"), vec![shape.vocab_size, h], 0.0, WORD_SPREAD);
    add(embeddings("position"), vec![514, h], 0.0, POSITION_SPREAD);
    add(embeddings("token_type"), vec![1, h], 0.0, POSITION_SPREAD);
    let mut norms = vec!["embeddings.LayerNorm".to_owned()];
    for i in 0..shape.num_hidden_layers {
        for (part, outputs, inputs) in [
            ("attention.self.query", h, h),
            ("attention.self.key", h, h),
            ("attention.self.value", h, h),
            ("attention.output.dense", h, h),
            ("intermediate.dense", f, h),
            ("output.dense", h, f),
        ] {
            let name = format!("encoder.layer.{i}.{part}");
            add(format!("{name}.weight"), vec![outputs, inputs], 0.0, WEIGHT_SPREAD);
            add(format!("{name}.bias"), vec![outputs], 0.0, BIAS_SPREAD);
        }
        norms.push(format!("encoder.layer.{i}.attention.output.LayerNorm"));
        norms.push(format!("encoder.layer.{i}.output.LayerNorm"));
    }
    for norm in norms {
        add(format!("{norm}.weight"), vec![h], 1.0, GAMMA_SPREAD);
        add(format!("{norm}.bias"), vec![h], 0.0, BIAS_SPREAD);
    }
    tensors
}

/// Values near a normal distribution: the sum of four uniform ones, scaled to the spread.
fn bytes(tensor: &Tensor, seed: u64) -> Vec<u8> {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let count = tensor.shape.iter().product();
    let mut bytes = Vec::with_capacity(count * 4);
    for _ in 0..count {
        let bits: u64 = rng.random();
        let uniform = |part: u32| f32::from((bits >> (16 * part)) as u16) / 65_536.0 - 0.5;
        let normal = (0..4).map(uniform).sum::<f32>() * 3f32.sqrt();
        bytes.extend((tensor.center + tensor.spread * normal).to_le_bytes());
    }
    bytes
}

/// Writes `config.json`, `model.safetensors` (f32) and `tokenizer.json` into `directory`.
pub(crate) fn write_model(shape: &Shape, tokenizer: &[u8], directory: &Path) -> Result<()> {
    let config = json!({
        "architectures": ["XLMRobertaModel"],
        "model_type": "xlm-roberta", "hidden_act": "gelu", "position_embedding_type": "absolute",
        "hidden_size": shape.hidden_size, "num_hidden_layers": shape.num_hidden_layers,
        "num_attention_heads": shape.num_attention_heads,
        "intermediate_size": shape.intermediate_size,
        "vocab_size": shape.vocab_size, "max_position_embeddings": 514, "type_vocab_size": 1,
        "pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2, "layer_norm_eps": 1e-5,
        "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0,
    });
    let tensors = tensors(shape);
    let data: Vec<Vec<u8>> =
        tensors.par_iter().enumerate().map(|(i, t)| bytes(t, i as u64)).collect();
    let views = tensors
        .iter()
        .zip(&data)
        .map(|(t, bytes)| Ok((&t.name, TensorView::new(Dtype::F32, t.shape.clone(), bytes)?)));
    let views = views.collect::<Result<Vec<_>>>()?;
    std::fs::create_dir_all(directory)?;
    std::fs::write(directory.join("config.json"), serde_json::to_string_pretty(&config)?)?;
    std::fs::write(directory.join("tokenizer.json"), tokenizer)?;
    // Last: a directory with weights is whole.
    let path = directory.join("model.safetensors");
    let unfinished = path.with_extension("tmp");
    // transformers refuses a file without this entry.
    let metadata = [("format".to_owned(), "pt".to_owned())].into();
    safetensors::serialize_to_file(views, Some(metadata), &unfinished)?;
    Ok(std::fs::rename(unfinished, path)?)
}
