//! What is expected of one H200 at the base shape, to be printed beside what is measured.
//!
//! What one gave, in the last two runs of `benches/runs/2026-11-26-h200.md`.

use serde::Serialize;
use serde_json::Value;

use crate::measure::Sizes;

/// Beside the rate of the product of 8192³.
pub(crate) const MATRIX_TFLOPS: &str = " (expected: 630)";

const BATCH_TOKENS: usize = 16_896;

/// At [`BATCH_TOKENS`] tokens in sequences of 512: operation, outputs x inputs, microseconds.
const KERNELS: [(&str, &str, &str); 12] = [
    ("qkv", "2304x768", "80"),
    ("attention output", "768x768", "33"),
    ("ffn1 + gelu", "3072x768", "117"),
    ("ffn2", "768x3072", "107"),
    ("attention, warp", "", "108"),
    ("attention, group", "", "82"),
    ("layer norm", "", "16"),
    ("qkv, fp8", "2304x768", "48"),
    ("attention output, fp8", "768x768", "26"),
    ("ffn1 + gelu, fp8", "3072x768", "85"),
    ("ffn2, fp8", "768x3072", "58"),
    ("embed + layer norm", "", "17"),
];

/// Workload, form, million tokens per second of as many batches at once as the encoder asks for.
const RATES: [(&str, &str, &str); 4] = [
    ("W1", "bf16", "2.68 M"),
    ("W1", "fp8", "3.48 M"),
    ("W2", "bf16", "2.73 M"),
    ("W2", "fp8", "3.51 M"),
];

/// What is expected of one operation.
#[derive(Debug, Clone, Copy, Serialize)]
pub(crate) struct Expected {
    /// Outputs x inputs of a matrix product.
    pub(crate) shape: &'static str,
    pub(crate) microseconds: &'static str,
}

impl Expected {
    /// Of `kernel`, where it was measured.
    pub(crate) fn of(sizes: &Sizes, tokens: usize, kernel: &str) -> Option<Self> {
        let mut known = KERNELS.iter().filter(|_| is_base(sizes) && tokens == BATCH_TOKENS);
        let &(_, shape, microseconds) = known.find(|(name, ..)| *name == kernel)?;
        Some(Self { shape, microseconds })
    }
}

/// What is expected of the encoder with `settings`, in words; empty where nothing is.
pub(crate) fn rate(sizes: &Sizes, workload: &str, settings: &Value) -> String {
    let is_usual = settings["batch_tokens"] == BATCH_TOKENS && settings["batches_at_once"] == "all";
    let form = settings["precision"].as_str().unwrap_or("bf16");
    let mut known = RATES.iter().filter(|_| is_base(sizes) && is_usual);
    known
        .find(|(of_workload, of_form, _)| (*of_workload, *of_form) == (workload, form))
        .map_or_else(String::new, |(.., rate)| format!("  (expected: {rate})"))
}

fn is_base(sizes: &Sizes) -> bool {
    let Sizes { hidden_size, num_hidden_layers, intermediate_size, .. } = *sizes;
    (hidden_size, num_hidden_layers, intermediate_size) == (768, 12, 3072)
}
