//! Against scikit-learn; the golden file is written by `tests/golden/heads.py`.

use candle_core::{DType, Device};

use super::*;
use crate::config::HeadOutput;

/// The optima are scikit-learn's. A gradient of norm g leaves the weights of a mean loss with the penalty
/// 1 / C n at most g C n from the optimum; scores are sums of nine such terms with inputs of a few
/// deviations, in f32 at the end.
#[test]
fn golden_logistic_regression() -> anyhow::Result<()> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/heads/logistic.safetensors");
    let golden = candle_core::safetensors::load(path, &Device::Cpu)?;
    let in_f64 = |name: String| golden[&name].to_dtype(DType::F64)?.to_vec1::<f64>();
    let labels = golden["labels"].to_vec1::<u8>()?;
    let rows: Vec<usize> = (0..labels.len()).collect();
    let samples = Samples {
        labels: labels.iter().map(|&label| f32::from(label)).collect(),
        embeddings: golden["embeddings"].flatten_all()?.to_vec1()?,
        hidden_size: 8,
        ..Samples::default()
    };
    let mut objective = Objective::new(&samples, &rows, LabelKind::Classes);
    for c in [0.1, 10.0] {
        objective.penalty = 1.0 / (c * rows.len() as f64);
        let parameters = objective.minimise(vec![0.0; 9])?;
        let (weight, bias) = (in_f64(format!("{c:?}.weight"))?, in_f64(format!("{c:?}.bias"))?);
        let logits =
            objective.scorer(&parameters).logits(&samples.embeddings, &rows, HeadOutput::Sigmoid);
        for (row, logit) in logits.into_iter().enumerate() {
            let inputs = samples.embedding(row).iter().zip(&weight);
            let expected = inputs.map(|(&x, w)| f64::from(x) * w).sum::<f64>() + bias[0];
            let difference = (f64::from(logit) - expected).abs();
            assert!(
                difference < 3.0 * TOLERANCE * c * 60.0 + 1e-5,
                "{c} {row}: {logit} {expected}"
            );
        }
    }
    Ok(())
}

/// The optima are those of scikit-learn's `Ridge` with these weights; the bound is that of the test above.
#[test]
fn golden_ridge_regression() -> anyhow::Result<()> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/heads/graded.safetensors");
    let golden = candle_core::safetensors::load(path, &Device::Cpu)?;
    let in_f64 = |name: String| golden[&name].to_dtype(DType::F64)?.to_vec1::<f64>();
    let samples = Samples {
        labels: golden["grades"].to_vec1()?,
        weights: golden["weights"].to_vec1()?,
        embeddings: golden["embeddings"].flatten_all()?.to_vec1()?,
        hidden_size: 8,
        ..Samples::default()
    };
    let rows: Vec<usize> = (0..samples.labels.len()).collect();
    let mut objective = Objective::new(&samples, &rows, LabelKind::Grades);
    for c in [0.1, 10.0] {
        objective.penalty = 1.0 / (c * rows.len() as f64);
        let parameters = objective.minimise(vec![0.0; 9])?;
        let (weight, bias) = (in_f64(format!("{c:?}.weight"))?, in_f64(format!("{c:?}.bias"))?);
        let found =
            objective.scorer(&parameters).logits(&samples.embeddings, &rows, HeadOutput::Raw);
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
