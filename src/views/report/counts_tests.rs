//! Compares counts with NumPy; `tests/golden/report.py` writes the golden file.

use std::error::Error;

use proptest::prelude::*;
use serde_json::Value;

use super::*;

type TestResult = Result<(), Box<dyn Error>>;

const BINS: usize = 200;

fn golden() -> Result<Value, Box<dyn Error>> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/golden/report/scores.json");
    Ok(serde_json::from_slice(&std::fs::read(path)?)?)
}

fn whole(values: &Value) -> Vec<u64> {
    values.as_array().into_iter().flatten().filter_map(Value::as_u64).collect()
}

fn found(logit: f32, score: f32) -> DocumentScore {
    DocumentScore { logit, score }
}

fn numbers(case: &Value) -> Vec<DocumentScore> {
    let scores = whole(&case["bits"]).into_iter().map(|bits| f32::from_bits(bits as u32));
    scores.filter(|score| !score.is_nan()).map(|score| found(score, score)).collect()
}

/// Counts `parts` in both passes, merged from the last to the first.
fn counted(parts: &[&[DocumentScore]]) -> (ScoreCounts, ScoreDetails) {
    let mut counts = ScoreCounts::default();
    for part in parts.iter().rev() {
        let mut new = ScoreCounts::default();
        part.iter().for_each(|&number| new.add(number));
        counts.merge(new);
    }
    let mut details = counts.begin_details(BINS);
    for part in parts.iter().rev() {
        let mut new = counts.begin_details(BINS);
        part.iter().for_each(|&number| new.add(number));
        details.merge(new);
    }
    (counts, details)
}

fn close(found: Option<f64>, expected: &Value) -> bool {
    let (found, expected) = (found.unwrap_or(f64::NAN), expected.as_f64().unwrap_or(f64::NAN));
    (found - expected).abs() <= 1e-11 * expected.abs()
}

#[test]
fn scores_have_the_figures_of_numpy() -> TestResult {
    let golden = golden()?;
    for name in ["raw", "shares", "close", "one"] {
        let case = &golden[name];
        let numbers = numbers(case);
        let (counts, details) = counted(&numbers.chunks(777).collect::<Vec<_>>());
        assert_eq!(Some(counts.n), case["n"].as_u64());
        assert!(close(counts.mean(), &case["mean"]), "{name}: {:?}", counts.mean());
        let std = counts.std(&details);
        assert!(close(std, &case["std"]), "{name}: {std:?} {}", case["std"]);
        let range = counts.range.map(|(min, max)| (f64::from(min), f64::from(max)));
        assert_eq!(range, case["min"].as_f64().zip(case["max"].as_f64()));
        for (thousandths, found) in QUANTILES.iter().zip(counts.quantiles(&details)) {
            let percent = (*thousandths as f64 / 1000.0).to_string();
            let found = found.filter(|found| found.is_finite()).map(f64::from);
            assert_eq!(found, case["quantiles"][&percent].as_f64(), "{name}, {percent}%");
        }
        assert_eq!(details.bins.counts, whole(&case["counts"]), "{name}");
    }
    Ok(())
}

#[test]
fn lengths_have_the_figures_of_numpy() -> TestResult {
    for case in golden()?["lengths"].as_array().ok_or("no lengths")? {
        let mut counts = ValueCounts::default();
        for part in whole(&case["values"]).chunks(1500) {
            let mut new = ValueCounts::default();
            for &value in part {
                new.add(value);
            }
            counts.merge(new);
        }
        let found = counts.distribution();
        let is_near = |name: &str| {
            let expected = case[name].as_f64().unwrap_or(f64::NAN);
            let found = found[name].as_f64().unwrap_or(f64::NAN);
            (found - expected).abs() <= 1e-6 * expected.abs()
        };
        assert!(is_near("mean") && is_near("std"), "{found}");
        assert_eq!(found["median"].as_f64(), case["median"].as_f64());
    }
    let none = ValueCounts::default().distribution();
    assert_eq!(none, serde_json::json!({"mean": null, "std": null, "median": null}));
    Ok(())
}

#[test]
fn nothing_has_no_figures() {
    let (counts, details) = counted(&[]);
    assert_eq!((counts.mean(), counts.std(&details), counts.range), (None, None, None));
    assert_eq!(counts.quantiles(&details), [None; 11]);
    assert!(details.bins.counts.is_empty());
    // Infinite scores alone have only quantiles.
    let (counts, details) = counted(&[&[found(0.0, f32::INFINITY)]]);
    assert_eq!((counts.n, counts.mean(), counts.range), (1, None, None));
    assert_eq!(counts.quantiles(&details), [Some(f32::INFINITY); 11]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(50))]

    #[test]
    fn order_and_parts_change_nothing(
        numbers in prop::collection::vec((any::<f32>(), any::<f32>()), 1..60), size in 1usize..20,
    ) {
        let numbers = numbers.into_iter().map(|(logit, score)| found(logit, score));
        let mut numbers: Vec<_> = numbers.filter(|found| !found.is_nan()).collect();
        let all = counted(&[&numbers]);
        numbers.reverse();
        let places = size % numbers.len().max(1);
        numbers.rotate_left(places);
        let parts = counted(&numbers.chunks(size).collect::<Vec<_>>());
        prop_assert_eq!(format!("{all:?}"), format!("{parts:?}"));
    }

    #[test]
    fn sums_lose_nothing(numbers in prop::collection::vec(-1i64 << 40..1 << 40, 0..50)) {
        let mut sum = ExactSum::default();
        for &number in &numbers {
            sum.add(number as f64 * 2f64.powi(-30));
            sum.add(1e300);
        }
        for _ in &numbers {
            sum.add(-1e300);
        }
        let expected = numbers.iter().sum::<i64>() as f64 * 2f64.powi(-30);
        prop_assert_eq!(sum.value().to_bits(), expected.to_bits());
    }

    #[test]
    fn keys_give_their_scores_back(score: f32) {
        prop_assume!(!score.is_nan());
        prop_assert_eq!(score_of(score_key(score)).to_bits(), (score + 0.0).to_bits());
    }
}

#[test]
fn words_are_parted_by_white_space_or_are_letters_of_scripts_without_spaces() {
    for (text, words) in [
        ("", 0),
        (" one  two\n– three ", 4),
        ("한국어 단어", 2),
        ("नमस्ते दुनिया", 2),
        ("我用GPT和BERT。", 5),
        ("你好，世界！ ok", 5),
        ("ﾊﾝｶｸ カタカナ・ひらがな", 12),
        ("ภาษาไทย", 7),
        ("ພາສາ", 4),
        ("。", 1),
    ] {
        assert_eq!(num_words(text), words, "{text}");
    }
}

#[test]
fn bins_grow_with_the_cube_root_of_the_documents() {
    let bins = [0, 1, 60, 125, 126, 1000, 1_000_000, u64::MAX].map(|n| num_bins(n, 200));
    assert_eq!(bins, [1, 2, 8, 10, 11, 20, 200, 200]);
    assert_eq!(num_bins(1000, 8), 8);
}
