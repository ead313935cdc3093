//! Repetitions and what follows from them: rates, floating-point operations, shares.

use std::io::Write;
use std::path::Path;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// One measured configuration; the Python baselines write the same record.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Run {
    /// What computed: `polysift`, `pytorch-padded`...
    pub(crate) engine: String,
    /// Which documents: see [`crate::workload`].
    pub(crate) workload: String,
    /// Everything else that was chosen: bucket size, batch, callers.
    pub(crate) settings: Value,
    pub(crate) documents: usize,
    /// Real tokens, never padding.
    pub(crate) tokens: usize,
    /// Every repetition, after the warm-up.
    pub(crate) seconds: Vec<f64>,
    pub(crate) median_seconds: f64,
    pub(crate) documents_per_second: f64,
    pub(crate) tokens_per_second: f64,
    /// Of the work that the real tokens need.
    pub(crate) tflops: f64,
}

/// The sizes that the work depends on, from `config.json`.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Sizes {
    pub(crate) model_type: String,
    pub(crate) hidden_size: usize,
    pub(crate) num_hidden_layers: usize,
    pub(crate) num_attention_heads: usize,
    pub(crate) intermediate_size: usize,
    pub(crate) vocab_size: usize,
}

impl Sizes {
    /// Of the model in `directory`.
    pub(crate) fn read(directory: &Path) -> Result<Self> {
        let path = directory.join("config.json");
        let bytes = std::fs::read(&path)
            .with_context(|| format!("{} cannot be read; `prepare` makes it", path.display()))?;
        Ok(serde_json::from_slice(&bytes)?)
    }

    /// Operations that sequences of these lengths need: 2 for each weight of a linear layer and
    /// token, and 4 · length · hidden for each token and layer in attention (with a window too).
    pub(crate) fn operations(&self, lengths: impl Iterator<Item = usize>) -> f64 {
        let (h, f) = (self.hidden_size as f64, self.intermediate_size as f64);
        // All families but XLM-RoBERTa have a gate beside the inner states.
        let inner_products = if self.model_type == "xlm-roberta" { 2.0 } else { 3.0 };
        let linear = 2.0 * (4.0 * h * h + inner_products * h * f);
        let of_sequence = |length: usize| {
            let length = length as f64;
            length * (linear + 4.0 * length * h)
        };
        self.num_hidden_layers as f64 * lengths.map(of_sequence).sum::<f64>()
    }
}

/// The middle one, or the mean of the two in the middle.
pub(crate) fn median(seconds: &[f64]) -> f64 {
    let mut sorted = seconds.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => f64::NAN,
        n if n % 2 == 1 => sorted[middle],
        _ => f64::midpoint(sorted[middle - 1], sorted[middle]),
    }
}

/// Calls `work` once to warm up and `repetitions` times by the clock; every result must be finite.
pub(crate) fn repeat(
    repetitions: usize,
    mut work: impl FnMut() -> Result<Vec<f32>>,
) -> Result<(Vec<f64>, Vec<f32>)> {
    let mut last = work()?;
    let mut seconds = Vec::new();
    for _ in 0..repetitions {
        let began = Instant::now();
        last = work()?;
        seconds.push(began.elapsed().as_secs_f64());
    }
    ensure!(last.iter().all(|v| v.is_finite()), "an embedding is not finite");
    Ok((seconds, last))
}

impl Run {
    pub(crate) fn new(
        (engine, workload, settings): (&str, &str, Value),
        chunks: &[&[u32]],
        sizes: &Sizes,
        seconds: Vec<f64>,
    ) -> Self {
        let median_seconds = median(&seconds);
        let tokens = chunks.iter().map(|chunk| chunk.len()).sum::<usize>();
        let operations = sizes.operations(chunks.iter().map(|chunk| chunk.len()));
        Self {
            engine: engine.into(),
            workload: workload.into(),
            settings,
            documents: chunks.len(),
            tokens,
            seconds,
            median_seconds,
            documents_per_second: chunks.len() as f64 / median_seconds,
            tokens_per_second: tokens as f64 / median_seconds,
            tflops: operations / median_seconds / 1e12,
        }
    }
}

/// Prints one line.
pub(crate) fn line(text: &str) -> Result<()> {
    Ok(writeln!(std::io::stdout(), "{text}")?)
}

/// Writes `value` as indented JSON.
pub(crate) fn write_json(path: &Path, value: &impl Serialize) -> Result<()> {
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder)?;
    }
    std::fs::write(path, serde_json::to_string_pretty(value)? + "\n")
        .with_context(|| format!("{} cannot be written", path.display()))
}
