//! Made-up numbers and heads for the benches of stages.

#[path = "splitmix.rs"]
mod splitmix;

use std::path::Path;

use anyhow::Result;
use polysift::config::HeadOutput;
use polysift::head::DocumentScore;

use self::splitmix::splitmix64;

pub(crate) const WIDTH: usize = 768;
pub(crate) const HIDDEN: usize = 256;
pub(crate) const REFERENCES: usize = 8192;

/// Values near a normal distribution, a function of their index.
pub(crate) fn noise(index: u64) -> f32 {
    let bits = splitmix64(index);
    let uniform = |part: u32| ((bits >> (21 * part)) & 0x1f_ffff) as f32 / 2_097_152.0 - 0.5;
    (0..3).map(uniform).sum::<f32>() * 2.0
}

pub(crate) fn scored(logit: f32) -> DocumentScore {
    DocumentScore::new(logit, HeadOutput::Sigmoid)
}

/// The head files of a run, an MLP and a cosine head, of noise.
pub(crate) fn write_heads(root: &Path) -> Result<()> {
    let tensor = |seed: u64, shape: &[usize], scale: f32| {
        let count: usize = shape.iter().product();
        let values = (0..count as u64).map(|i| noise(seed << 40 | i) * scale);
        (shape.to_vec(), values.flat_map(f32::to_le_bytes).collect::<Vec<u8>>())
    };
    let mlp = [
        ("classifier.0.weight", tensor(1, &[HIDDEN, WIDTH], 0.05)),
        ("classifier.0.bias", tensor(2, &[HIDDEN], 0.05)),
        ("classifier.3.weight", tensor(3, &[1, HIDDEN], 0.1)),
        ("classifier.3.bias", tensor(4, &[1], 0.1)),
    ];
    let cosine = [("references", tensor(5, &[REFERENCES, WIDTH], 1.0))];
    for (name, tensors) in [("mlp", &mlp[..]), ("cosine", &cosine[..])] {
        let views = tensors.iter().map(|(name, (shape, bytes))| {
            let view = safetensors::tensor::TensorView::new;
            Ok((*name, view(safetensors::Dtype::F32, shape.clone(), bytes)?))
        });
        let views: Vec<_> = views.collect::<Result<_>>()?;
        std::fs::write(root.join(name), safetensors::serialize(views, None)?)?;
    }
    Ok(())
}
