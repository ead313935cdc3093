//! From a language's settings to an ordered list of cuts.
//!
//! Knows settings and names of heads only; sees no document.

use serde::{Deserialize, Serialize};

use crate::config::{Activation, Keep, LanguageCuts, Rate};
use crate::error::{Error, Result};

/// Most selections that run side by side: the product of the numbers of rates of all retentions.
pub const MAX_BRANCHES: usize = 64;

/// A head whose scores the corpus has, as the cuts need it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeadInfo {
    /// Name in the settings.
    pub name: String,
    /// Side of a threshold that is kept.
    pub keep: Keep,
    /// Output activation; decides how [`SelectionMode::Reference`](crate::config::SelectionMode::Reference) compares.
    pub activation: Activation,
}

/// Precision in which the reference's code compares a score with a quantile.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Precision {
    /// The threshold is rounded to f32 first (probabilities of a network).
    F32,
    /// As it is (raw scores: cosine similarities).
    F64,
}

/// One cut of the documents of a language.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cut {
    /// Index of the head in [`Row::logits`](super::Row::logits); `None`: the language has no such head.
    pub head: Option<usize>,
    /// Name of the head.
    pub head_name: String,
    /// Which scores are good.
    pub keep: Keep,
    /// What is kept or removed.
    pub kind: CutKind,
    /// See [`Precision`]; used in reference mode only.
    pub precision: Precision,
}

/// What a [`Cut`] keeps or removes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CutKind {
    /// Keep the best; one selection per rate, ascending.
    Retain(Vec<Rate>),
    /// Remove the worst.
    Remove(Rate),
    /// Keep the scores strictly on the good side of this one.
    Threshold(f64),
}

/// The cuts of one language in the order they are made.
///
/// `heads`: those the corpus has scores of, in the order of [`Row::logits`](super::Row::logits).
/// `order`: names of heads; every head with a cut has to be named once (other names are ignored),
/// and a head's own cuts come as removal, threshold, retention. Empty: all removals, then all
/// thresholds, then all retentions, each by name of the head.
///
/// A cut by a head that `heads` lacks has [`Cut::head`] `None`: a removal or a threshold is then
/// skipped and listed in [`Selection::skipped`](super::Selection::skipped), a retention selects
/// nobody.
///
/// # Errors
/// [`Error::Config`] for an incomplete or repeating order, a retention without rates, a threshold
/// that is not finite, and more than [`MAX_BRANCHES`] combinations of rates.
pub fn plan_cuts(cuts: &LanguageCuts, heads: &[HeadInfo], order: &[String]) -> Result<Vec<Cut>> {
    let removals = (cuts.removal.iter()).map(|(head, &rate)| (head, CutKind::Remove(rate)));
    let thresholds = (cuts.threshold.iter()).map(|(head, &t)| (head, CutKind::Threshold(t)));
    let retentions = cuts.retention.iter().map(|(head, rates)| {
        let mut rates = rates.clone();
        rates.sort_unstable();
        rates.dedup();
        (head, CutKind::Retain(rates))
    });
    let mut planned: Vec<Cut> = (removals.chain(thresholds).chain(retentions))
        .map(|(name, kind)| new_cut(name, kind, heads))
        .collect();
    if !order.is_empty() {
        let config = |reason| Err(Error::config("selection.order", reason));
        if let Some(twice) = order.iter().enumerate().find(|(i, head)| order[..*i].contains(head)) {
            return config(format!("names the head `{}` twice", twice.1));
        }
        if let Some(cut) = planned.iter().find(|cut| !order.contains(&cut.head_name)) {
            return config(format!("does not name the head `{}`, which has a cut", cut.head_name));
        }
        planned.sort_by_key(|cut| order.iter().position(|head| *head == cut.head_name));
    }
    check(&planned)?;
    Ok(planned)
}

fn new_cut(name: &str, kind: CutKind, heads: &[HeadInfo]) -> Cut {
    let head = heads.iter().position(|head| head.name == name);
    let info = head.map(|index| &heads[index]);
    let raw = info.is_some_and(|head| head.activation == Activation::Raw);
    Cut {
        head,
        head_name: name.to_owned(),
        keep: info.map_or(Keep::default(), |head| head.keep),
        kind,
        precision: if raw { Precision::F64 } else { Precision::F32 },
    }
}

/// Checks what [`Cut`]'s types cannot.
pub(super) fn check(cuts: &[Cut]) -> Result<()> {
    let mut num_branches = 1usize;
    for Cut { head_name, kind, .. } in cuts {
        let config = |key: &str, reason| Err(Error::config(format!("{key}.{head_name}"), reason));
        match kind {
            CutKind::Retain(rates) if rates.is_empty() => {
                return config("retention", "has no rate; at least one is needed".to_owned());
            }
            CutKind::Retain(rates) if !rates.is_sorted_by(|a, b| a < b) => {
                return config("retention", "rates are not ascending".to_owned());
            }
            CutKind::Retain(rates) => num_branches = num_branches.saturating_mul(rates.len()),
            CutKind::Threshold(t) if !t.is_finite() => {
                return config("threshold", format!("is {t}; a finite number is needed"));
            }
            CutKind::Remove(_) | CutKind::Threshold(_) => {}
        }
    }
    if num_branches > MAX_BRANCHES {
        return Err(Error::config(
            "retention",
            format!("the rates make {num_branches} selections; at most {MAX_BRANCHES} are allowed"),
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(name: &str, keep: Keep, activation: Activation) -> HeadInfo {
        HeadInfo { name: name.to_owned(), keep, activation }
    }

    fn heads() -> Vec<HeadInfo> {
        vec![
            head("quality", Keep::Above, Activation::Sigmoid),
            head("toxicity", Keep::Below, Activation::Softmax { class: 1 }),
            head("nearness", Keep::Above, Activation::Raw),
        ]
    }

    fn settings() -> Result<LanguageCuts, String> {
        Ok(LanguageCuts {
            retention: [("quality".to_owned(), vec!["0.33".parse()?, "0.1".parse()?])].into(),
            removal: [("toxicity".to_owned(), "0.05".parse()?)].into(),
            threshold: [("nearness".to_owned(), 0.5)].into(),
        })
    }

    fn names(cuts: &[Cut]) -> Vec<&str> {
        cuts.iter().map(|cut| cut.head_name.as_str()).collect()
    }

    #[test]
    fn without_an_order_removals_precede_thresholds_and_retentions() -> Result<(), String> {
        let cuts = plan_cuts(&settings()?, &heads(), &[]).map_err(|e| e.to_string())?;
        assert_eq!(names(&cuts), ["toxicity", "nearness", "quality"]);
        assert_eq!(
            cuts.iter().map(|cut| cut.head).collect::<Vec<_>>(),
            [Some(1), Some(2), Some(0)]
        );
        assert_eq!(cuts[0].keep, Keep::Below);
        assert_eq!((cuts[0].precision, cuts[1].precision), (Precision::F32, Precision::F64));
        assert_eq!(cuts[2].kind, CutKind::Retain(vec!["0.1".parse()?, "0.33".parse()?]));
        Ok(())
    }

    #[test]
    fn a_configured_order_is_followed_and_has_to_be_complete() -> Result<(), String> {
        let order = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        let plan = |text: &str| plan_cuts(&settings().unwrap_or_default(), &heads(), &order(text));
        let cuts = plan("quality other toxicity nearness").map_err(|e| e.to_string())?;
        assert_eq!(names(&cuts), ["quality", "toxicity", "nearness"]);
        assert!(plan("quality toxicity").is_err_and(|e| e.to_string().contains("`nearness`")));
        assert!(plan("quality toxicity nearness quality").is_err());
        Ok(())
    }

    #[test]
    fn a_head_the_language_lacks_is_planned_without_index() -> Result<(), String> {
        let cuts = plan_cuts(&settings()?, &heads()[..1], &[]).map_err(|e| e.to_string())?;
        assert_eq!(cuts.iter().map(|cut| cut.head).collect::<Vec<_>>(), [None, None, Some(0)]);
        Ok(())
    }

    #[test]
    fn values_that_cannot_be_cut_by_are_refused() -> Result<(), String> {
        let plan = |change: fn(&mut LanguageCuts)| {
            settings().map(|mut cuts| {
                change(&mut cuts);
                plan_cuts(&cuts, &heads(), &[])
            })
        };
        assert!(plan(|c| c.threshold.values_mut().for_each(|t| *t = f64::NAN))?.is_err());
        assert!(plan(|c| c.retention.values_mut().for_each(Vec::clear))?.is_err());
        let rates: Vec<Rate> = (1..10).flat_map(|i| format!("0.{i}").parse()).collect();
        let mut cuts = settings()?;
        cuts.retention = heads().into_iter().map(|head| (head.name, rates.clone())).collect();
        assert!(plan_cuts(&cuts, &heads(), &[]).is_err_and(|e| e.to_string().contains("729")));
        Ok(())
    }
}
