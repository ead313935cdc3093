//! Tests against scikit-learn; `tests/golden/heads.py` writes the golden files.

use std::collections::HashMap;

use candle_core::{DType, Device, Tensor};

use super::*;
use crate::head::ScoreScratch;
use polysift_config::HeadOutput;

fn golden(name: &str) -> anyhow::Result<HashMap<String, Tensor>> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/golden/heads");
    Ok(candle_core::safetensors::load(format!("{folder}/{name}.safetensors"), &Device::Cpu)?)
}

/// Compares the optima with scikit-learn's. A gradient of norm g leaves the weights of a mean loss
/// with the penalty 1 / C n at most g C n from the optimum; scores are sums of nine such terms with
/// inputs of a few deviations, in f32 at the end.
fn check_optima(
    samples: &Samples,
    kind: LabelKind,
    golden: &HashMap<String, Tensor>,
) -> anyhow::Result<()> {
    let in_f64 = |name: String| golden[&name].to_dtype(DType::F64)?.to_vec1::<f64>();
    let rows: Vec<usize> = (0..samples.labels.len()).collect();
    let mut objective = Objective::new(samples, &rows, kind);
    for c in [0.1, 10.0] {
        objective.penalty = 1.0 / (c * rows.len() as f64);
        let parameters = objective.minimise(vec![0.0; 9])?;
        let (weight, bias) = (in_f64(format!("{c:?}.weight"))?, in_f64(format!("{c:?}.bias"))?);
        let scratch = &mut ScoreScratch::default();
        let scorer = objective.scorer(&parameters);
        let found = scorer.logits(&samples.embeddings, &rows, HeadOutput::Raw, scratch);
        for (row, found) in found.into_iter().enumerate() {
            let inputs = samples.embedding(row).iter().zip(&weight);
            let expected = inputs.map(|(&x, w)| f64::from(x) * w).sum::<f64>() + bias[0];
            let difference = (f64::from(found) - expected).abs();
            assert!(
                difference < 3.0 * TOLERANCE * c * 60.0 + 1e-5,
                "{c} {row}: {found} {expected}"
            );
        }
    }
    Ok(())
}

#[test]
fn golden_logistic_regression() -> anyhow::Result<()> {
    let golden = golden("logistic")?;
    let labels = golden["labels"].to_vec1::<u8>()?;
    let samples = Samples {
        labels: labels.iter().map(|&label| f32::from(label)).collect(),
        embeddings: golden["embeddings"].flatten_all()?.to_vec1()?,
        hidden_size: 8,
        ..Samples::default()
    };
    check_optima(&samples, LabelKind::Classes, &golden)
}

#[test]
fn golden_weighted_ridge_regression() -> anyhow::Result<()> {
    let golden = golden("graded")?;
    let samples = Samples {
        labels: golden["grades"].to_vec1()?,
        weights: golden["weights"].to_vec1()?,
        embeddings: golden["embeddings"].flatten_all()?.to_vec1()?,
        hidden_size: 8,
        ..Samples::default()
    };
    check_optima(&samples, LabelKind::Grades, &golden)
}
