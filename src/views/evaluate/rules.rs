//! Rules that call documents positive: fixed thresholds, rates, and the thresholds of a run.

use polysift_base::metrics::DECISION;
use polysift_config::{HeadKind, Keep, Rate};
use polysift_heads::head::{DocumentScore, HeadSpec};
use polysift_selection::{RankKey, Selection, ThresholdKind};

/// A decision rule to evaluate a head by, apart from any run.
#[derive(Debug, Clone, PartialEq)]
pub struct DecisionRule {
    /// Name of the head; `None` for all heads.
    pub head: Option<String>,
    /// Which documents of each language are kept or removed.
    pub kind: ThresholdKind,
}

/// The documents that a rule calls positive.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Calls {
    pub(super) rule: String,
    pub(super) threshold: Option<f64>,
    /// The grade threshold that the rule belongs to; `None` for all of them.
    pub(super) cut: Option<f64>,
    pub(super) positive: Vec<bool>,
}

impl Calls {
    /// Creates calls for all grade thresholds.
    pub(super) fn new(rule: String, threshold: Option<f64>, positive: Vec<bool>) -> Self {
        Self { rule, threshold, cut: None, positive }
    }
}

/// Returns whether scores are grades, not probabilities or only an order of documents.
pub(super) fn gives_grades(spec: &HeadSpec) -> bool {
    !spec.output.is_probability() && !matches!(spec.kind, HeadKind::Cosine | HeadKind::Random)
}

/// The scores of one head on the documents of one language, with the keys that order them.
pub(super) struct Ranked<'a> {
    pub(super) head: &'a str,
    pub(super) spec: &'a HeadSpec,
    pub(super) scores: &'a [DocumentScore],
    /// Sort key of each document in the head's order, best first.
    pub(super) keys: &'a [RankKey],
}

impl Ranked<'_> {
    /// Applies all rules: 0.5 for a probability, each of the thresholds `cuts` for a grade, then
    /// `rules`, then the thresholds of `selection`.
    pub(super) fn apply_rules(
        &self,
        rules: &[DecisionRule],
        cuts: &[f64],
        selection: Option<&Selection>,
    ) -> Vec<Calls> {
        let mut calls: Vec<Calls> = Vec::new();
        if self.spec.output.is_probability() {
            calls.push(self.call_above(f64::from(DECISION)));
        } else if gives_grades(self.spec) {
            let of_cut = |&cut: &f64| Calls { cut: Some(cut), ..self.call_above(cut) };
            calls.extend(cuts.iter().map(of_cut));
        }
        let applies = |rule: &&DecisionRule| rule.head.as_ref().is_none_or(|h| h == self.head);
        for rule in rules.iter().filter(applies) {
            match &rule.kind {
                ThresholdKind::Fixed(threshold) => {
                    let score = threshold.score();
                    if calls.iter().all(|call| (call.threshold, call.cut) != (Some(score), None)) {
                        calls.push(self.call_above(score));
                    }
                }
                ThresholdKind::Retain(rates) => {
                    calls.extend(rates.iter().map(|&rate| self.call_at_rate(rate, false)));
                }
                ThresholdKind::Remove(rate) => calls.push(self.call_at_rate(*rate, true)),
                // A budget refers to the size of a corpus, which says nothing about these texts.
                ThresholdKind::Budget(_) => {}
            }
        }
        calls.extend(selection.into_iter().flat_map(|selection| self.call_by_run(selection)));
        calls
    }

    /// Calls the texts with scores above `threshold` positive. It is rounded to f32, as a run's
    /// thresholds are.
    fn call_above(&self, threshold: f64) -> Calls {
        let is_above = |score: &DocumentScore| score.score > threshold as f32;
        let positive = self.scores.iter().map(is_above).collect();
        Calls::new(format!("score above {threshold}"), Some(threshold), positive)
    }

    /// Returns whether kept or removed documents are positive; those with high scores are.
    fn is_positive(&self, is_kept: bool) -> bool {
        is_kept == (self.spec.keep == Keep::Above)
    }

    /// Keeps the best documents at the retention `rate`, or all but the worst at a removal rate.
    fn call_at_rate(&self, rate: Rate, removes: bool) -> Calls {
        let mut order: Vec<usize> = (0..self.keys.len()).collect();
        order.sort_unstable_by_key(|&row| self.keys[row]);
        let number = rate.ceil_of(order.len() as u64) as usize;
        let (name, at) =
            if removes { ("removal", order.len() - number) } else { ("retention", number) };
        let (kept, others) = order.split_at(at);
        let boundary = if removes { others.first() } else { kept.last() };
        let mut positive = vec![self.is_positive(false); self.scores.len()];
        for &row in kept {
            positive[row] = self.is_positive(true);
        }
        let threshold = boundary.map(|&row| f64::from(self.scores[row].score));
        Calls::new(format!("{name} {rate}"), threshold, positive)
    }

    /// Applies the thresholds of this head in `selection`, each on its own.
    fn call_by_run(&self, selection: &Selection) -> Vec<Calls> {
        let mut calls = Vec::new();
        let reports = selection.thresholds.iter();
        for report in reports.filter(|report| report.threshold.head_name == self.head) {
            for outcome in &report.outcomes {
                let mut rates: Vec<String> =
                    outcome.retentions.iter().map(ToString::to_string).collect();
                let rule = match &report.threshold.kind {
                    ThresholdKind::Retain(_) => {
                        format!("retention {}", rates.pop().unwrap_or_default())
                    }
                    ThresholdKind::Remove(rate) => format!("removal {rate}"),
                    ThresholdKind::Fixed(threshold) => format!("threshold {threshold}"),
                    ThresholdKind::Budget(budget) => format!("budget {budget}"),
                };
                let before = rates.join(", ");
                let after = if rates.is_empty() { "" } else { " after " };
                let kept = |(&score, key): (&DocumentScore, &RankKey)| {
                    self.is_positive(outcome.bound.keeps_key(*key, score.score))
                };
                let positive = self.scores.iter().zip(self.keys).map(kept).collect();
                let rule = format!("run: {rule}{after}{before}");
                calls.push(Calls::new(rule, outcome.threshold_score, positive));
            }
        }
        calls
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use polysift_config::{Activation, ChunkRule, FixedThreshold, HeadKind, HeadOutput};

    const LOGITS: [f32; 5] = [0.5, -1.0, 2.0, 0.0, 2.0];

    fn called(keep: Keep, output: HeadOutput, rules: &[DecisionRule]) -> Vec<(String, Vec<usize>)> {
        let spec = HeadSpec {
            kind: HeadKind::Mlp,
            layer_sizes: vec![1, 1],
            activation: Activation::Relu,
            norm_eps: None,
            output,
            chunk: ChunkRule::First,
            keep,
        };
        let scores = LOGITS.map(|logit| DocumentScore::new(logit, output));
        let key =
            |(i, &logit): (usize, &f32)| RankKey::of_logit(logit, keep).with_id("same", i as u64);
        let keys: Vec<RankKey> = LOGITS.iter().enumerate().map(key).collect();
        let ranked = Ranked { head: "h", spec: &spec, scores: &scores, keys: &keys };
        let rows = |calls: Calls| {
            let rows = calls.positive.iter().enumerate();
            (calls.rule, rows.filter(|(_, p)| **p).map(|(i, _)| i).collect())
        };
        ranked.apply_rules(rules, &[], None).into_iter().map(rows).collect()
    }

    fn rules() -> Result<Vec<DecisionRule>, String> {
        let rule = |head: Option<&str>, kind| DecisionRule { head: head.map(Into::into), kind };
        Ok(vec![
            rule(None, ThresholdKind::Fixed(FixedThreshold::Beyond(0.0))),
            rule(Some("other"), ThresholdKind::Fixed(FixedThreshold::Beyond(3.0))),
            rule(Some("h"), ThresholdKind::Retain(vec!["0.2".parse()?])),
            rule(None, ThresholdKind::Remove("0.2".parse()?)),
        ])
    }

    #[test]
    fn what_a_head_keeps_is_positive() -> Result<(), String> {
        let found = called(Keep::Above, HeadOutput::Raw, &rules()?);
        let expected = [
            ("score above 0", vec![0, 2, 4]),
            ("retention 0.2", vec![2]),
            ("removal 0.2", vec![0, 2, 3, 4]),
        ];
        assert_eq!(found, expected.map(|(rule, rows)| (rule.to_owned(), rows)));
        Ok(())
    }

    #[test]
    fn what_a_head_that_keeps_low_scores_removes_is_positive() -> Result<(), String> {
        let found = called(Keep::Below, HeadOutput::Class(1), &rules()?);
        let expected = [
            ("score above 0.5", vec![0, 2, 4]),
            ("score above 0", vec![0, 1, 2, 3, 4]),
            ("retention 0.2", vec![0, 2, 3, 4]),
            ("removal 0.2", vec![4]), // the later of two equal scores
        ];
        assert_eq!(found, expected.map(|(rule, rows)| (rule.to_owned(), rows)));
        Ok(())
    }
}
