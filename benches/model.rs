//! Models of random weights for the benchmarks, of the families that polysift computes.
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

/// The names and kinds of a model's layers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Family {
    XlmRoberta,
    Gte,
    ModernBert,
}

/// Sizes of a model.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Shape {
    pub(crate) name: &'static str,
    pub(crate) family: Family,
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
        family: Family::XlmRoberta,
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
    let &Shape { family, hidden_size: h, intermediate_size: f, vocab_size, .. } = shape;
    let mut tensors = Vec::new();
    let mut add = |name: String, shape: Vec<usize>, center: f32, spread: f32| {
        tensors.push(Tensor { name, shape, center, spread });
    };
    let (words, norm, layer) = match family {
        Family::XlmRoberta | Family::Gte => ("word_embeddings", "LayerNorm", "encoder.layer"),
        Family::ModernBert => ("tok_embeddings", "norm", "layers"),
    };
    add(format!("embeddings.{words}.weight"), vec![vocab_size, h], 0.0, WORD_SPREAD);
    if family == Family::XlmRoberta {
        let name = "embeddings.position_embeddings.weight";
        add(name.into(), vec![514, h], 0.0, POSITION_SPREAD);
    }
    if family != Family::ModernBert {
        let name = "embeddings.token_type_embeddings.weight";
        add(name.into(), vec![1, h], 0.0, POSITION_SPREAD);
    }
    let mut norms = vec![format!("embeddings.{norm}")];
    // Name, outputs and inputs of the products of a layer, and the names of its norms.
    let (products, norms_of_layer): (&[_], _) = match family {
        Family::XlmRoberta => (
            &[
                ("attention.self.query", h, h),
                ("attention.self.key", h, h),
                ("attention.self.value", h, h),
                ("attention.output.dense", h, h),
                ("intermediate.dense", f, h),
                ("output.dense", h, f),
            ],
            ["attention.output.LayerNorm", "output.LayerNorm"],
        ),
        Family::Gte => (
            &[
                ("attention.qkv_proj", 3 * h, h),
                ("attention.o_proj", h, h),
                ("mlp.up_gate_proj", 2 * f, h),
                ("mlp.down_proj", h, f),
            ],
            ["attn_ln", "mlp_ln"],
        ),
        Family::ModernBert => (
            &[("attn.Wqkv", 3 * h, h), ("attn.Wo", h, h), ("mlp.Wi", 2 * f, h), ("mlp.Wo", h, f)],
            ["attn_norm", "mlp_norm"],
        ),
    };
    let has_bias = |part: &str| match family {
        Family::XlmRoberta => true,
        Family::Gte => part != "mlp.up_gate_proj",
        Family::ModernBert => false,
    };
    for i in 0..shape.num_hidden_layers {
        for &(part, outputs, inputs) in products {
            let name = format!("{layer}.{i}.{part}");
            add(format!("{name}.weight"), vec![outputs, inputs], 0.0, WEIGHT_SPREAD);
            if has_bias(part) {
                add(format!("{name}.bias"), vec![outputs], 0.0, BIAS_SPREAD);
            }
        }
        // ModernBERT's first layer has no norm before its attention.
        let first = usize::from(family == Family::ModernBert && i == 0);
        norms.extend(norms_of_layer[first..].iter().map(|norm| format!("{layer}.{i}.{norm}")));
    }
    if family == Family::ModernBert {
        norms.push("final_norm".into());
    }
    for norm in norms {
        add(format!("{norm}.weight"), vec![h], 1.0, GAMMA_SPREAD);
        if family != Family::ModernBert {
            add(format!("{norm}.bias"), vec![h], 0.0, BIAS_SPREAD);
        }
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
    let mut config = match shape.family {
        Family::XlmRoberta => json!({
            "architectures": ["XLMRobertaModel"], "model_type": "xlm-roberta",
            "hidden_act": "gelu", "position_embedding_type": "absolute",
            "max_position_embeddings": 514, "type_vocab_size": 1, "pad_token_id": 1,
            "bos_token_id": 0, "eos_token_id": 2, "layer_norm_eps": 1e-5,
            "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0,
        }),
        Family::Gte => json!({
            "model_type": "gte", "hidden_act": "gelu", "rope_theta": 20_000.0,
            "max_position_embeddings": 8192, "type_vocab_size": 1, "pad_token_id": 1,
            "layer_norm_eps": 1e-12,
        }),
        Family::ModernBert => json!({
            "model_type": "modernbert", "hidden_activation": "gelu", "local_attention": 128,
            "global_attn_every_n_layers": 3, "global_rope_theta": 160_000.0,
            "local_rope_theta": 160_000.0, "max_position_embeddings": 8192, "pad_token_id": 0,
            "norm_eps": 1e-5,
        }),
    };
    config["hidden_size"] = shape.hidden_size.into();
    config["num_hidden_layers"] = shape.num_hidden_layers.into();
    config["num_attention_heads"] = shape.num_attention_heads.into();
    config["intermediate_size"] = shape.intermediate_size.into();
    config["vocab_size"] = shape.vocab_size.into();
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
