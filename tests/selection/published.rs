use std::collections::BTreeSet;

use polysift::Result;
use polysift::config::{HeadOutput, Keep, Mode};
use polysift::selection::{
    Bound, Corpus, HeadColumn, ScanRequest, ScoreBatch, Threshold, ThresholdKind, select,
};

use super::{InMemory, documents, kept_ordinals, rate, raw, threshold};

#[derive(serde::Deserialize)]
struct Golden {
    cases: Vec<Case>,
    sampled: Sampled,
}

#[derive(serde::Deserialize)]
struct Case {
    name: String,
    scores: Vec<u32>,
    rate: String,
    upper: u64,
    upper_f32: u32,
    num_above_upper: u64,
    num_above_upper_f32: u64,
    num_below_upper_f32: u64,
    lower: u64,
    num_below_lower: u64,
}

#[derive(serde::Deserialize)]
struct Sampled {
    num_files: usize,
    rows_per_file: u64,
    rate: String,
    threshold_f32: u32,
}

fn golden() -> Result<Golden, serde_json::Error> {
    serde_json::from_str(include_str!("../golden/select/quantiles.json"))
}

#[test]
fn golden_quantiles_are_numpys_to_the_bit() -> anyhow::Result<()> {
    for case in golden()?.cases {
        let mut documents = documents(&vec![Some(0.0); case.scores.len()]);
        for (document, bits) in documents.iter_mut().zip(&case.scores) {
            document.scores = vec![Some(raw(f32::from_bits(*bits)))];
        }
        let corpus = InMemory(vec![documents]);
        let outcome = |keep, kind, output| -> Result<(Bound, u64)> {
            let threshold = Threshold { output, ..threshold(0, keep, kind) };
            let selection = select(&corpus, &[threshold], Mode::Published)?;
            let outcome = &selection.thresholds[0].outcomes[0];
            Ok((outcome.bound, outcome.kept.num_documents))
        };
        let listed = rate(&case.rate);
        let retain = ThresholdKind::Retain(vec![listed]);
        let upper = f64::from_bits(case.upper);
        let upper_f32 = f64::from(f32::from_bits(case.upper_f32));
        let name = format!("{} at {}", case.name, case.rate);
        assert_eq!(
            outcome(Keep::Above, retain.clone(), HeadOutput::Raw)?,
            (Bound::Above(upper), case.num_above_upper),
            "{name}"
        );
        assert_eq!(
            outcome(Keep::Above, retain.clone(), HeadOutput::Sigmoid)?,
            (Bound::Above(upper_f32), case.num_above_upper_f32),
            "{name}"
        );
        assert_eq!(
            outcome(Keep::Below, ThresholdKind::Remove(listed), HeadOutput::Sigmoid)?,
            (Bound::Below(upper_f32), case.num_below_upper_f32),
            "{name}"
        );
        assert_eq!(
            outcome(Keep::Below, retain, HeadOutput::Raw)?,
            (Bound::Below(f64::from_bits(case.lower)), case.num_below_lower),
            "{name}"
        );
    }
    Ok(())
}

/// The corpus of `sampled` in the generating script, each file cut into so many shards.
struct Synthetic(Sampled, usize);

impl Corpus for Synthetic {
    fn num_shards(&self) -> usize {
        self.0.num_files * self.1
    }

    fn file(&self, shard: usize) -> usize {
        shard / self.1
    }

    fn scan(
        &self,
        shard: usize,
        _: &ScanRequest,
        visit: &mut dyn FnMut(&ScoreBatch<'_>) -> Result<()>,
    ) -> Result<()> {
        let (file, part, parts) = (shard / self.1, (shard % self.1) as u64, self.1 as u64);
        let bound = |part: u64| part * self.0.rows_per_file / parts;
        let rows = bound(part)..bound(part + 1);
        let score = |row: u64| {
            let ordinal = file as u64 * self.0.rows_per_file + row;
            let uniform = (ordinal.wrapping_mul(2_654_435_761) & 0xffff_ffff) >> 8;
            uniform as f32 / 16_777_216.0
        };
        let scores: Vec<f32> = rows.clone().map(score).collect();
        let present: Vec<bool> = rows.map(|row| !file.is_multiple_of(7) || row != 0).collect();
        let (scores, present) = (scores.as_slice(), Some(present.as_slice()));
        let heads = [HeadColumn { logits: scores, scores, present }];
        visit(&ScoreBatch { len: scores.len(), heads: &heads, ..ScoreBatch::default() })
    }
}

#[test]
fn golden_published_mode_samples_the_head_of_every_file() -> anyhow::Result<()> {
    for shards_of_a_file in [1, 2] {
        let sampled = golden()?.sampled;
        let expected = f64::from(f32::from_bits(sampled.threshold_f32));
        let retain = ThresholdKind::Retain(vec![rate(&sampled.rate)]);
        let thresholds = [threshold(0, Keep::Above, retain)];
        let corpus = Synthetic(sampled, shards_of_a_file);
        let selection = select(&corpus, &thresholds, Mode::Published)?;
        let bound = selection.thresholds[0].outcomes[0].bound;
        assert_eq!(bound, Bound::Above(expected), "{shards_of_a_file}");
    }
    Ok(())
}

#[test]
fn published_mode_keeps_nothing_of_a_plateau_where_the_default_mode_meets_the_rate() -> Result<()> {
    let logits: Vec<Option<f32>> =
        (0u8..100).map(|i| Some(if i < 20 { 40.0 } else { -f32::from(i) })).collect();
    let documents = documents(&logits);
    let corpus = InMemory(vec![documents.clone()]);
    let thresholds = [threshold(0, Keep::Above, ThresholdKind::Retain(vec![rate("0.1")]))];
    let kept = |mode| Ok(kept_ordinals(&select(&corpus, &thresholds, mode)?, &documents));
    let published: Result<Vec<u64>> = kept(Mode::Published);
    assert!(published?.is_empty());
    let exact: Result<Vec<u64>> = kept(Mode::Default);
    let exact: BTreeSet<u64> = exact?.into_iter().collect();
    assert!(exact.len() == 10 && exact.iter().all(|&ordinal| ordinal < 20));
    Ok(())
}

#[test]
fn published_mode_leaves_nan_out_of_the_sample() -> Result<()> {
    let with_nan = documents(&[Some(f32::NAN), Some(0.0), Some(1.0), Some(2.0)]);
    let corpus = InMemory(vec![with_nan.clone()]);
    let thresholds = [threshold(0, Keep::Above, ThresholdKind::Retain(vec![rate("0.5")]))];
    let selection = select(&corpus, &thresholds, Mode::Published)?;
    assert_eq!(kept_ordinals(&selection, &with_nan), [3]);
    Ok(())
}

#[test]
fn published_mode_samples_a_row_of_each_file_where_there_are_more_files_than_rows() -> Result<()> {
    let files =
        Sampled { num_files: 1_000_001, rows_per_file: 2, rate: "0.1".into(), threshold_f32: 0 };
    let thresholds = [threshold(0, Keep::Above, ThresholdKind::Retain(vec![rate("0.1")]))];
    let selection = select(&Synthetic(files, 1), &thresholds, Mode::Published)?;
    assert!(matches!(selection.thresholds[0].outcomes[0].bound, Bound::Above(_)));
    Ok(())
}
