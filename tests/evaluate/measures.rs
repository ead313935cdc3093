//! Measures against scikit-learn and SciPy; the golden file is written by `tests/golden/evaluate.py`.

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};
use polysift::metrics::{
    Confusion, DECISION, WeightedText, average_precision, binary_cross_entropy, calibration,
    calibration_error, effective_size, kendall, proportion_interval, roc_auc, roc_auc_interval,
    spearman, spearman_interval, weighted_precision, weighted_recall,
};
use serde::Deserialize;

use crate::util::root;

#[derive(Deserialize)]
struct Case {
    logits: Vec<f32>,
    probabilities: Vec<f32>,
    labels: Vec<bool>,
    other: Vec<f32>,
    expected: Expected,
}

#[derive(Deserialize)]
struct Expected {
    roc_auc: Option<f64>,
    roc_auc_interval: Option<[f64; 2]>,
    average_precision: Option<f64>,
    log_loss: Option<f64>,
    f1: Option<f64>,
    spearman: Option<f64>,
}

fn cases() -> Result<BTreeMap<String, Case>> {
    let text = std::fs::read_to_string(root().join("tests/golden/evaluate/metrics.json"))?;
    let cases: BTreeMap<String, Case> = serde_json::from_str(&text)?;
    ensure!(cases.len() >= 10);
    Ok(cases)
}

/// Sums of at most 150 terms of order one in f64, on both sides: 300 roundings of 1.1e-16 at most.
/// The losses of logits up to 20 are of order 20, and scikit-learn takes them from 1 - p, whose
/// relative error there is 1.1e-16 / 2e-9: it enters the mean of 7 such cases by no more than 1e-8.
fn check(name: &str, what: &str, ours: Option<f64>, expected: Option<f64>) -> Result<()> {
    let tolerance = if what == "log loss" { 1e-8 } else { 1e-13 };
    let close = match (ours, expected) {
        (Some(a), Some(b)) => (a - b).abs() <= tolerance,
        (None, None) => true,
        _ => false,
    };
    ensure!(close, "{name}, {what}: {ours:?} {expected:?}");
    Ok(())
}

#[test]
fn measures_agree_with_scikit_learn_and_scipy() -> Result<()> {
    for (name, case) in cases()? {
        let Case { logits, probabilities, labels, other, expected, .. } = &case;
        let called = probabilities.iter().map(|&probability| probability > DECISION);
        let confusion = Confusion::of_calls(called.zip(labels.iter().copied()));
        for (what, ours, expected) in [
            ("ROC-AUC", roc_auc(logits, labels), expected.roc_auc),
            ("PR-AUC", average_precision(logits, labels), expected.average_precision),
            ("log loss", binary_cross_entropy(logits, labels), expected.log_loss),
            ("F1", confusion.f1(), expected.f1),
            ("Spearman", spearman(logits, other), expected.spearman),
        ] {
            check(&name, what, ours, expected)?;
        }
        let interval = roc_auc_interval(logits, labels);
        ensure!(interval.is_some() == expected.roc_auc_interval.is_some(), "{name}: {interval:?}");
        for (a, b) in interval.iter().flatten().zip(expected.roc_auc_interval.iter().flatten()) {
            check(&name, "interval", Some(*a), Some(*b))?;
        }
    }
    Ok(())
}

#[derive(Deserialize)]
struct Graded {
    cases: BTreeMap<String, GradedCase>,
    intervals: Vec<(usize, usize, f64, f64)>,
    correlations: Vec<(f64, usize, f64, f64)>,
}

#[derive(Deserialize)]
struct GradedCase {
    scores: Vec<f32>,
    grades: Vec<f32>,
    kendall: Option<f64>,
    groups: Vec<(usize, f64, f64)>,
    calibration_error: f64,
}

/// Against SciPy and NumPy.
#[test]
fn grades_and_intervals_agree_with_scipy() -> Result<()> {
    let text = std::fs::read_to_string(root().join("tests/golden/evaluate/grades.json"))?;
    let golden: Graded = serde_json::from_str(&text)?;
    ensure!(golden.cases.len() == 5 && golden.intervals.len() == 6);
    for (name, case) in golden.cases {
        check(&name, "Kendall", kendall(&case.scores, &case.grades), case.kendall)?;
        let bins = calibration(&case.scores, &case.grades);
        ensure!(bins.len() == case.groups.len(), "{name}");
        for (bin, (documents, mean_score, mean_label)) in bins.iter().zip(case.groups) {
            ensure!(bin.documents == documents, "{name}");
            check(&name, "mean score", Some(bin.mean_score), Some(mean_score))?;
            check(&name, "mean grade", Some(bin.mean_label), Some(mean_label))?;
        }
        check(&name, "calibration", calibration_error(&bins), Some(case.calibration_error))?;
    }
    for (successes, trials, low, high) in golden.intervals {
        let [own_low, own_high] = proportion_interval(successes, trials).context("no interval")?;
        // Logarithms of factorials up to 1000! have seven digits before the point.
        let error = (own_low - low).abs().max((own_high - high).abs());
        ensure!(error < 1e-10, "{successes} of {trials}: {own_low} {own_high}");
    }
    for (rho, n, low, high) in golden.correlations {
        let [own_low, own_high] = spearman_interval(rho, n).context("no interval")?;
        let error = (own_low - low).abs().max((own_high - high).abs());
        ensure!(error < 1e-12, "{rho} of {n}: {own_low} {own_high}");
    }
    ensure!(spearman_interval(0.5, 3).is_none() && proportion_interval(0, 0).is_none());
    Ok(())
}

#[derive(Deserialize)]
struct WeightedCase {
    /// Weights, probabilities and copies.
    columns: [Vec<f64>; 3],
    /// Which are selected, and which positive.
    flags: [Vec<bool>; 2],
    /// Precision and recall.
    expected: [Option<BTreeMap<String, f64>>; 2],
}

/// Against the same sums over single documents, and SciPy's quantiles of beta distributions.
#[test]
fn shares_of_weighted_samples_agree_with_scipy() -> Result<()> {
    let text = std::fs::read_to_string(root().join("tests/golden/evaluate/shares.json"))?;
    let cases: BTreeMap<String, WeightedCase> = serde_json::from_str(&text)?;
    ensure!(cases.len() == 12);
    for (name, WeightedCase { columns: [weights, probabilities, copies], flags, expected }) in cases
    {
        let text = |i: usize| WeightedText {
            weight: weights[i],
            probability: probabilities[i],
            copies: copies[i],
            is_selected: flags[0][i],
            is_positive: flags[1][i],
        };
        let texts: Vec<WeightedText> = (0..weights.len()).map(text).collect();
        let found = [weighted_precision(&texts), weighted_recall(&texts)];
        for (found, expected) in found.into_iter().zip(expected) {
            ensure!(found.is_some() == expected.is_some(), "{name}: {found:?}");
            let Some((found, expected)) = found.zip(expected) else { continue };
            ensure!(found.share.is_sign_positive(), "{name}: {found:?}");
            for (key, ours) in [("share", found.share), ("low", found.low), ("high", found.high)] {
                let tolerance = if key == "share" { 1e-13 } else { 1e-9 };
                let error = (ours - expected[key]).abs();
                ensure!(error <= tolerance, "{name}, {key}: {ours} {expected:?}");
            }
        }
    }
    // (1 + 2 + 3)² / (1 + 4 + 9)
    ensure!((effective_size(&[1.0, 2.0, 3.0]) - 36.0 / 14.0).abs() < 1e-15);
    Ok(())
}
