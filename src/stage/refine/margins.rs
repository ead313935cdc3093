//! How far the scores of the run are from those of f32: what was seen, and the margins it asks for.

use std::collections::BTreeMap;

use rayon::prelude::*;

use super::Job;
use super::overlay::{for_each_part, overlay};
use crate::config::REFINE_SAFETY;
use crate::error::Result;
use crate::run::Shard;

/// Differences between the logits of the run and those in f32, of one head in one language.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(super) struct Seen {
    /// Documents that were scored both ways.
    pub(super) documents: u64,
    /// The largest difference; `None` where no logit of the run was a number.
    pub(super) largest: Option<f64>,
}

impl Seen {
    fn add(&mut self, logit: f32, exact: Option<f32>) {
        self.documents += 1;
        // Documents that the run could not score are scored in f32 whatever the margin is.
        if logit.is_nan() {
            return;
        }
        let difference = exact.map_or(f64::NAN, |exact| f64::from(logit) - f64::from(exact)).abs();
        // No margin is wide enough for a number that f32 does not confirm.
        let difference = if difference.is_nan() { f64::INFINITY } else { difference };
        self.largest = Some(self.largest.map_or(difference, |largest| largest.max(difference)));
    }

    fn merge(&mut self, other: &Self) {
        self.documents += other.documents;
        self.largest = match (self.largest, other.largest) {
            (Some(mine), Some(theirs)) => Some(mine.max(theirs)),
            (mine, theirs) => mine.or(theirs),
        };
    }

    /// The margin that the differences ask for: all documents where none says anything.
    pub(super) fn margin(&self) -> f64 {
        self.largest.map_or(f64::INFINITY, |largest| REFINE_SAFETY * largest)
    }
}

/// Differences by language, one entry per head of the run.
pub(super) type Evidence = BTreeMap<String, Vec<Seen>>;

/// What the first `rounds` rounds saw.
pub(super) fn evidence(job: &Job<'_>, rounds: usize) -> Result<Evidence> {
    let shards = job.plan.shards.par_iter();
    shards.map(|shard| of_shard(job, rounds, shard)).try_reduce(Evidence::new, |mut all, shard| {
        for (language, heads) in shard {
            let known = all.entry(language).or_insert_with(|| vec![Seen::default(); heads.len()]);
            known.iter_mut().zip(&heads).for_each(|(mine, theirs)| mine.merge(theirs));
        }
        Ok(all)
    })
}

fn of_shard(job: &Job<'_>, rounds: usize, shard: &Shard) -> Result<Evidence> {
    let overlay = overlay(job, rounds, shard)?;
    let mut evidence = Evidence::new();
    if overlay.is_empty() {
        return Ok(evidence);
    }
    for_each_part(job, shard, |heads| {
        let Some(first) = heads.first() else { return Ok(()) };
        for (at, row) in first.rows.iter().enumerate() {
            let Some(exact) = overlay.get(row) else { continue };
            let none = || vec![Seen::default(); heads.len()];
            let seen = evidence.entry(first.languages[at].clone()).or_insert_with(none);
            for (head, part) in heads.iter().enumerate() {
                if let Some(logit) = part.logits[at] {
                    seen[head].add(logit, exact.logits.get(head).copied().flatten());
                }
            }
        }
        Ok(())
    })?;
    Ok(evidence)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_margin_follows_the_largest_difference_in_either_direction() {
        let mut seen = Seen::default();
        assert!(seen.margin().is_infinite());
        seen.add(1.0, Some(1.25));
        seen.add(-3.0, Some(-3.5));
        assert_eq!((seen.documents, seen.margin()), (2, REFINE_SAFETY * 0.5));
    }

    #[test]
    fn a_number_that_f32_does_not_confirm_asks_for_all_documents_and_a_nan_for_none() {
        let mut seen = Seen::default();
        seen.add(f32::NAN, Some(1.0));
        seen.add(1.0, Some(1.0));
        assert_eq!(seen.largest, Some(0.0));
        seen.add(1.0, Some(f32::NAN));
        assert!(seen.margin().is_infinite());
    }
}
