//! The audit of a cascade bounds how many dropped documents the full run would keep, from a sample
//! of them that was encoded anyway; if the bound fails, more documents are encoded.

use crate::cascaded::LanguageCascade;
use crate::model::GPU_FLOPS_PER_SEC;
use crate::rows::RunRows;
use crate::score_files::ScoreFiles;
use crate::{Context, Embedded};
use polysift_base::error::Result;
use polysift_base::metrics::upper_bound;
use polysift_config::{CascadeConfig, Rate};
use polysift_runs::run::Encoded;
use polysift_selection::{CascadeAudit, Decision, Outcome, Recall, Selection, ThresholdKind};

/// A document that was encoded for the audit.
pub struct Audited {
    /// Margin over the thresholds of the first pass.
    pub margin: f32,
    /// By entry of [`kept_counts`], true if the selection keeps the document.
    pub kept: Vec<bool>,
}

/// Returns head, rate and number of kept documents for every rate of the retentions, and without a
/// rate for fixed thresholds. Removals and budgets have no entry.
pub fn kept_counts(selection: &Selection) -> Vec<(String, Option<Rate>, u64)> {
    let outcomes = selection.outcomes();
    let kept = |outcome: Option<&Outcome>| outcome.map_or(0, |outcome| outcome.kept.num_documents);
    let mut wanted = Vec::new();
    for report in &selection.thresholds {
        let head = &report.threshold.head_name;
        match &report.threshold.kind {
            ThresholdKind::Retain(rates) => {
                for (i, rate) in rates.iter().enumerate() {
                    // There is one outcome per rate, or one for all rates.
                    let is_by_rate = outcomes.len() == rates.len();
                    let outcome = if is_by_rate { outcomes.get(i) } else { outcomes.last() };
                    wanted.push((head.clone(), Some(*rate), kept(outcome)));
                }
            }
            ThresholdKind::Fixed(_) => wanted.push((head.clone(), None, kept(outcomes.last()))),
            ThresholdKind::Remove(_) | ThresholdKind::Budget(_) => {}
        }
    }
    wanted
}

/// Reads the audited documents of `language`, without those that filters remove.
pub fn read_audited(
    context: Context<'_>,
    embedded: &Embedded,
    language: &str,
    files: ScoreFiles,
    selection: &Selection,
) -> Result<Vec<Audited>> {
    let wanted = kept_counts(selection);
    let retentions: Vec<&str> = selection.retention_heads().collect();
    let mut found = Vec::new();
    let rows = RunRows::open(context, Some(files), [language.to_owned()])?;
    for (place, shard, _) in embedded.shards_with(&[language]) {
        let mut shard = rows.shard(place, shard)?;
        if shard.left_out.audited.is_empty() {
            continue;
        }
        shard.for_each(|row| {
            let Some(margin) = row.audited_margin.filter(|_| !row.is_removed) else {
                return Ok(());
            };
            let decision = selection.decide(&row.scored);
            let is_kept = |(head, rate, _): &(String, Option<Rate>, u64)| match (&decision, rate) {
                (Decision::Removed { .. }, _) => false,
                (Decision::Kept { .. }, None) => true,
                (Decision::Kept { retentions: rates }, Some(rate)) => {
                    let at = retentions.iter().position(|name| name == head);
                    at.and_then(|at| rates.get(at)).is_some_and(|least| least <= rate)
                }
            };
            found.push(Audited { margin, kept: wanted.iter().map(is_kept).collect() });
            Ok(())
        })?;
    }
    Ok(found)
}

/// Bounds from above, at this `risk`, how many kept documents are lost: of the `dropped` ones,
/// `audited` were encoded all the same, and `kept` of these are kept.
pub fn most_lost(dropped: u64, audited: u64, kept: u64, risk: f64) -> u64 {
    let most = (dropped as f64 * upper_bound(kept, audited, risk)).floor() as u64;
    most.saturating_sub(kept).min(dropped - audited)
}

/// Bounds the recall from below, if `kept` documents are kept and at most `lost` are lost.
pub fn least_recall(rate: Option<Rate>, kept: u64, lost: u64) -> f64 {
    match (rate, kept + lost) {
        (_, 0) => 1.0,
        // The full run keeps as many documents; at most `lost` of them are others.
        (Some(_), _) => (1.0 - lost as f64 / kept.max(1) as f64).max(0.0),
        (None, all) => kept as f64 / all as f64,
    }
}

/// Summarises the audit of `language`: what was dropped and saved, and the recall it proves.
pub(crate) fn audit(
    config: &CascadeConfig,
    embedded: &Embedded,
    result: &LanguageCascade,
    language: &str,
    audited: &[Audited],
    selection: &Selection,
) -> CascadeAudit {
    let left = selection.thresholds.first().map_or(0, |report| report.dropped.num_documents);
    let (m, dropped) = (audited.len() as u64, left + audited.len() as u64);
    let mut encoded = Encoded::default();
    // With a cascade, a shard has one language.
    let of_language = embedded.summaries.iter().filter(|s| s.counts.contains_key(language));
    of_language.filter_map(|summary| summary.encoded).for_each(|shard| encoded.add(&shard));
    let recalls = kept_counts(selection).into_iter().enumerate().map(|(at, (head, rate, kept))| {
        let found = audited.iter().filter(|audited| audited.kept[at]).count() as u64;
        let lost = most_lost(dropped, m, found, config.risk());
        let bound = least_recall(rate, kept, lost);
        Recall {
            head,
            rate,
            audited_kept: found,
            lower_bound: bound,
            is_proved: bound >= config.recall,
        }
    });
    let saved = |per_document: f64| encoded.dropped as f64 * per_document;
    let flops = saved(result.flops_per_dropped_document);
    CascadeAudit {
        first_pass: result.first_pass.map(|pass| pass.to_string()).unwrap_or_default(),
        documents: encoded.documents,
        dropped: encoded.dropped,
        audited: m,
        tokens_saved: saved(result.tokens_per_dropped_document).round() as u64,
        gpu_hours_saved: flops / GPU_FLOPS_PER_SEC / 3600.0,
        cost: cost(config, &encoded, result),
        recalls: recalls.collect(),
    }
}

/// Returns the pilot's relative cost, corrected by the dropped share; 1 without a first pass.
fn cost(config: &CascadeConfig, encoded: &Encoded, result: &LanguageCascade) -> f64 {
    let Some(pilot) = result.candidate() else { return 1.0 };
    let audit = 1.0 / config.audit_every() as f64;
    let in_pilot = (1.0 - pilot.encoded_share) * (1.0 - audit);
    let dropped = encoded.dropped as f64 / encoded.documents.max(1) as f64;
    let saves = result.flops_per_dropped_document / result.flops_per_document;
    pilot.cost + (in_pilot - dropped) * saves
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_audited_is_not_lost_and_without_an_audit_all_may_be() {
        assert_eq!(most_lost(1000, 1000, 3, 0.01), 0);
        assert_eq!(most_lost(1000, 0, 0, 0.01), 1000);
        // 1 − 0.01^(1/100) = 0.0450 of 1,000.
        assert_eq!(most_lost(1000, 100, 0, 0.01), 45);
    }

    #[test]
    fn a_rate_has_others_in_the_place_of_what_is_lost_and_a_threshold_has_not() {
        let rate = "0.1".parse().ok();
        for (found, expected) in [
            (least_recall(rate, 100, 5), 0.95),
            (least_recall(None, 95, 5), 0.95),
            (least_recall(rate, 10, 50), 0.0),
            (least_recall(None, 0, 0), 1.0),
        ] {
            assert!((found - expected).abs() < 1e-12, "{found} {expected}");
        }
    }
}
