//! What is expected of one H200 at the base shape, to be printed beside what is measured.
//!
//! Arithmetic (`benches/README.md` has the floors), not measurements.

use serde::Serialize;
use serde_json::Value;

use crate::measure::Sizes;

/// Beside the rate of the product of 8192³.
pub(crate) const MATRIX_TFLOPS: &str = " (predicted: 770 or more)";

const BATCH_TOKENS: usize = 16_896;

/// At [`BATCH_TOKENS`] tokens in sequences of 512: operation, outputs x inputs, microseconds.
const KERNELS: [(&str, &str, &str); 16] = [
    ("qkv", "2304x768", "93"),
    ("attention output", "768x768", "36"),
    ("ffn1 + gelu (erf)", "3072x768", "113 to 123"),
    ("ffn1 + gelu (tanh)", "3072x768", "113 to 139"),
    ("ffn2", "768x3072", "112"),
    ("attention, warp", "", "99 to 113"),
    ("attention, group", "", "66 to 85"),
    ("gelu (erf)", "", "50 to 58"),
    ("layer norm", "", "12 to 15"),
    ("qkv, fp8", "2304x768", "54 to 60"),
    ("attention output, fp8", "768x768", "20 to 24"),
    ("ffn1 + gelu, fp8", "3072x768", "72 to 80"),
    ("ffn2, fp8", "768x3072", "66 to 72"),
    ("context to e4m3", "", "9 to 12"),
    ("ffn1 to e4m3", "", "36 to 42"),
    ("embed + layer norm", "", "10 to 20"),
];

/// Workload, form, million tokens per second of as many batches at once as the encoder asks for.
const RATES: [(&str, &str, &str); 6] = [
    ("W1", "erf", "2.45 M; 2.86 M with GELU in the product, 3.1 M with the own products"),
    ("W1", "tanh", "2.86 M; 3.1 M with the own products"),
    ("W1", "fp8", "3.6 to 4.0 M"),
    ("W2", "erf", "2.53 M; 2.93 M with GELU in the product, 3.2 M with the own products"),
    ("W2", "tanh", "2.93 M; 3.2 M with the own products"),
    ("W2", "fp8", "3.7 to 4.1 M"),
];

/// What is expected of one operation.
#[derive(Debug, Clone, Copy, Serialize)]
pub(crate) struct Predicted {
    /// Outputs x inputs of a matrix product.
    pub(crate) shape: &'static str,
    pub(crate) microseconds: &'static str,
}

impl Predicted {
    /// Of `kernel`, where there is a prediction.
    pub(crate) fn of(sizes: &Sizes, tokens: usize, kernel: &str) -> Option<Self> {
        let mut known = KERNELS.iter().filter(|_| is_base(sizes) && tokens == BATCH_TOKENS);
        let &(_, shape, microseconds) = known.find(|(name, ..)| *name == kernel)?;
        Some(Self { shape, microseconds })
    }
}

/// What is expected of the encoder with `settings`, in words; empty where nothing is.
pub(crate) fn rate(sizes: &Sizes, workload: &str, settings: &Value) -> String {
    let is_usual = settings["batch_tokens"] == BATCH_TOKENS && settings["batches_at_once"] == "all";
    let form = match (settings["precision"].as_str(), settings["gelu"].as_str()) {
        (Some("fp8"), _) => "fp8",
        (_, gelu) => gelu.unwrap_or("erf"),
    };
    let mut known = RATES.iter().filter(|_| is_base(sizes) && is_usual);
    known
        .find(|(of_workload, of_form, _)| (*of_workload, *of_form) == (workload, form))
        .map_or_else(String::new, |(.., rate)| format!("  (predicted: {rate})"))
}

fn is_base(sizes: &Sizes) -> bool {
    let Sizes { hidden_size, num_hidden_layers, intermediate_size, .. } = *sizes;
    (hidden_size, num_hidden_layers, intermediate_size) == (768, 12, 3072)
}
