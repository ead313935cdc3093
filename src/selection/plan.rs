//! Turns a language's settings into an ordered list of thresholds, without looking at documents.

use serde::{Deserialize, Serialize};

use polysift_base::error::{Error, Result};
use polysift_config::{
    Budget, FixedThreshold, HeadKind, HeadOutput, Keep, LanguageThresholds, Rate,
};
use polysift_heads::head::HeadSpec;

/// Maximum number of rates of a retention.
pub const MAX_RATES: usize = 64;

/// A threshold for the documents of one language.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Threshold {
    /// Index in [`ScoredDocument::scores`](super::ScoredDocument::scores); `None` if missing.
    pub head: Option<usize>,
    /// Name of the head.
    pub head_name: String,
    /// Whether high or low scores are good.
    pub keep: Keep,
    /// What the threshold keeps or removes.
    pub kind: ThresholdKind,
    /// Meaning of the head's score. The published code rounds the quantile of a probability, but
    /// not of a raw score, to f32 before it compares.
    pub output: HeadOutput,
}

/// What a [`Threshold`] keeps or removes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ThresholdKind {
    /// Keeps the best documents, in a selection for each of these ascending rates.
    Retain(Vec<Rate>),
    /// Removes the worst documents.
    Remove(Rate),
    /// Keeps scores on the good side of this one.
    Fixed(FixedThreshold),
    /// Keeps the best documents until they weigh this much.
    Budget(Budget),
}

impl Threshold {
    /// Returns the rates of a retention or removal.
    pub fn rates(&self) -> &[Rate] {
        match &self.kind {
            ThresholdKind::Retain(rates) => rates,
            ThresholdKind::Remove(rate) => std::slice::from_ref(rate),
            ThresholdKind::Fixed(_) | ThresholdKind::Budget(_) => &[],
        }
    }

    /// Returns the rate for the selection `i` of a retention or removal; a removal has one for all.
    pub fn rate(&self, i: usize) -> Option<Rate> {
        let rates = self.rates();
        rates.get(i).or(rates.last()).copied()
    }
}

/// Returns the thresholds of `language` in the order in which they are computed.
///
/// `heads` are the run's heads by name, in the order of
/// [`ScoredDocument::scores`](super::ScoredDocument::scores); `None` if the language has no such
/// head. `order` names each head with a threshold (other names are ignored); a head's
/// thresholds have the order removal, threshold, retention, budget. If `order` is empty, all
/// removals come first, then thresholds, retentions and budgets, each by name of the head; random
/// heads come last. For a head that the language lacks, a removal or threshold is skipped, see
/// [`Selection::skipped`](super::Selection::skipped); others select nothing.
pub fn plan_thresholds(
    language: &str,
    settings: &LanguageThresholds,
    heads: &[(&str, Option<&HeadSpec>)],
    order: &[String],
) -> Result<Vec<Threshold>> {
    let removals =
        (settings.removal.iter()).map(|(head, &rate)| (head, ThresholdKind::Remove(rate)));
    let thresholds = (settings.threshold.iter()).map(|(head, &t)| (head, ThresholdKind::Fixed(t)));
    let retentions =
        settings.retention.iter().map(|(head, rates)| (head, ThresholdKind::Retain(rates.clone())));
    let budgets = settings.budget.iter().map(|(head, &b)| (head, ThresholdKind::Budget(b)));
    let with_head = |(name, kind): (&String, ThresholdKind)| {
        let head = heads.iter().position(|(known, spec)| known == name && spec.is_some());
        let spec = head.and_then(|index| heads[index].1);
        Threshold {
            head,
            head_name: name.clone(),
            keep: spec.map_or(Keep::default(), |spec| spec.keep),
            kind,
            output: spec.map_or(HeadOutput::default(), |spec| spec.output),
        }
    };
    let all = removals.chain(thresholds).chain(retentions).chain(budgets);
    let mut planned: Vec<Threshold> = all.map(with_head).collect();
    if order.is_empty() {
        // Random heads come last, because each takes a share of what the others keep.
        let spec = |threshold: &Threshold| threshold.head.and_then(|head| heads[head].1);
        let is_random = |spec: &HeadSpec| spec.kind == HeadKind::Random;
        planned.sort_by_key(|threshold| spec(threshold).is_some_and(is_random));
    } else {
        planned.sort_by_key(|t| order.iter().position(|head| *head == t.head_name));
    }
    check(&format!("languages.{language}."), &planned)?;
    Ok(planned)
}

/// Checks what the type [`Threshold`] cannot; keys in errors begin with `place`.
pub(crate) fn check(place: &str, thresholds: &[Threshold]) -> Result<()> {
    let mut with_several: Option<&str> = None;
    for Threshold { head, head_name, kind, keep, .. } in thresholds {
        let config =
            |key: &str, reason| Err(Error::config(format!("{place}{key}.{head_name}"), reason));
        match kind {
            ThresholdKind::Retain(rates) if rates.is_empty() || rates.len() > MAX_RATES => {
                let reason = format!("has {} rates; 1 to {MAX_RATES} are allowed", rates.len());
                return config("retention", reason);
            }
            ThresholdKind::Retain(rates) if rates.len() > 1 => {
                if let Some(other) = with_several.replace(head_name.as_str()) {
                    let reason = format!(
                        "has several rates, and so has that of `{other}`; only one head may have several"
                    );
                    return config("retention", reason);
                }
            }
            ThresholdKind::Fixed(fixed) if !(fixed.score() as f32).is_finite() => {
                return config("threshold", format!("is {fixed}; a finite number is needed"));
            }
            ThresholdKind::Fixed(fixed) if head.is_some() => {
                let reason = match (fixed, keep) {
                    (FixedThreshold::AtLeast { .. }, Keep::Below) => "low scores: `at_most`",
                    (FixedThreshold::AtMost { .. }, Keep::Above) => "high scores: `at_least`",
                    _ => continue,
                };
                return config("threshold", format!("the head keeps {reason}"));
            }
            _ => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    /// Plans for a language that has only the first `num_served` heads of the run.
    fn plan(
        settings: &LanguageThresholds,
        num_served: usize,
        order: &[String],
    ) -> Result<Vec<Threshold>> {
        let heads = [
            ("quality", Keep::Above, HeadOutput::Sigmoid),
            ("toxicity", Keep::Below, HeadOutput::Class(1)),
            ("nearness", Keep::Above, HeadOutput::Raw),
        ];
        let specs = heads.map(|(_, keep, output)| HeadSpec { output, keep, ..HeadSpec::default() });
        let heads: Vec<(&str, Option<&HeadSpec>)> = (heads.iter().zip(&specs).enumerate())
            .map(|(i, ((name, ..), spec))| (*name, Some(spec).filter(|_| i < num_served)))
            .collect();
        plan_thresholds("deu_Latn", settings, &heads, order)
    }

    fn settings() -> Result<LanguageThresholds, String> {
        Ok(LanguageThresholds {
            retention: [("quality".to_owned(), vec!["0.1".parse()?, "0.33".parse()?])].into(),
            removal: [("toxicity".to_owned(), "0.05".parse()?)].into(),
            threshold: [("nearness".to_owned(), FixedThreshold::Beyond(0.5))].into(),
            budget: BTreeMap::new(),
        })
    }

    fn names(thresholds: &[Threshold]) -> Vec<&str> {
        thresholds.iter().map(|threshold| threshold.head_name.as_str()).collect()
    }

    #[test]
    fn without_an_order_removals_precede_thresholds_and_retentions() -> Result<(), String> {
        let thresholds = plan(&settings()?, 3, &[]).map_err(|e| e.to_string())?;
        assert_eq!(names(&thresholds), ["toxicity", "nearness", "quality"]);
        assert_eq!(
            thresholds.iter().map(|threshold| threshold.head).collect::<Vec<_>>(),
            [Some(1), Some(2), Some(0)]
        );
        assert_eq!(thresholds[0].keep, Keep::Below);
        assert_eq!(
            (thresholds[0].output, thresholds[1].output),
            (HeadOutput::Class(1), HeadOutput::Raw)
        );
        assert_eq!(
            thresholds[2].kind,
            ThresholdKind::Retain(vec!["0.1".parse()?, "0.33".parse()?])
        );
        Ok(())
    }

    #[test]
    fn a_configured_order_is_followed() -> Result<(), String> {
        let order = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        let plan = |text: &str| plan(&settings().unwrap_or_default(), 3, &order(text));
        let thresholds = plan("quality other toxicity nearness").map_err(|e| e.to_string())?;
        assert_eq!(names(&thresholds), ["quality", "toxicity", "nearness"]);
        Ok(())
    }

    #[test]
    fn a_head_the_language_lacks_is_planned_without_index() -> Result<(), String> {
        let thresholds = plan(&settings()?, 1, &[]).map_err(|e| e.to_string())?;
        assert_eq!(
            thresholds.iter().map(|threshold| threshold.head).collect::<Vec<_>>(),
            [None, None, Some(0)]
        );
        Ok(())
    }

    #[test]
    fn values_that_cannot_be_thresholds_are_refused() -> Result<(), String> {
        let changed = |change: fn(&mut LanguageThresholds)| {
            settings().map(|mut thresholds| {
                change(&mut thresholds);
                plan(&thresholds, 3, &[])
            })
        };
        for wrong in [f64::NAN, f64::INFINITY, 1e39] {
            let mut thresholds = settings()?;
            thresholds.threshold = [("nearness".to_owned(), FixedThreshold::Beyond(wrong))].into();
            assert!(plan(&thresholds, 3, &[]).is_err(), "{wrong}");
        }
        assert!(changed(|c| c.retention.values_mut().for_each(Vec::clear))?.is_err());
        let mut thresholds = settings()?;
        let rates = vec!["0.1".parse()?, "0.2".parse()?];
        thresholds.retention.insert("nearness".to_owned(), rates);
        let planned = plan(&thresholds, 3, &[]);
        assert!(planned.is_err_and(|e| e.to_string().contains("that of `nearness`")));
        Ok(())
    }
}
