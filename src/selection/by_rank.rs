//! Thresholds at an exact rate: the radix search.

use super::block::Document;
use super::counts::{Amount, KeyCounts, Merge};
use super::rank::{ID_LEVEL, LEVELS, RADIX, RankKey};
use super::report::{Bound, Boundary, ThresholdReport};
use super::scan::{Alive, Candidates, View};
use super::stats::Survey;
use super::{Corpus, Threshold, ThresholdKind};
use crate::config::Rate;
use crate::error::{Error, Result};

/// Makes a retention or a removal at each of `rates` in each of the selections so far.
pub(super) fn threshold(
    corpus: &dyn Corpus,
    done: &[ThresholdReport],
    threshold: &Threshold,
    rates: &[Rate],
) -> Result<ThresholdReport> {
    let view = View { corpus, done, threshold };
    let side = Side { threshold, takes_worst: matches!(threshold.kind, ThresholdKind::Remove(_)) };
    let first: Vec<Slot> =
        (0..view.num_branches()).map(|parent| Slot { parent, prefix: RankKey::FIRST }).collect();
    let (survey, counts) = view.survey(
        || empty_counts(&first, 0),
        |counts, _, candidates, alive| side.count_first(counts, candidates, alive),
    )?;
    let mut searches = start(&view, &side, &survey, rates)?;
    descend(&mut searches, 0, &first, &counts)?;

    let slots = OpenSlots::of(&searches);
    let (scores, counts) = view.histogram(
        &survey,
        || empty_counts(&slots.slots, 1),
        |counts, candidates| side.count(&view, 1, &slots, counts, candidates),
    )?;
    descend(&mut searches, 1, &slots.slots, &counts)?;

    for level in ID_LEVEL..LEVELS {
        let slots = OpenSlots::of(&searches);
        if slots.slots.is_empty() {
            break;
        }
        let logit = |slot: &Slot| side.oriented(slot.prefix).logit(threshold.keep);
        let logits: Vec<f32> = slots.slots.iter().map(logit).collect();
        let counts = view.ties(
            &logits,
            || empty_counts(&slots.slots, level),
            |counts, candidates| side.count(&view, level, &slots, counts, candidates),
        )?;
        descend(&mut searches, level, &slots.slots, &counts)?;
    }
    let boundaries = searches.into_iter().map(|search| search.into_boundary(&side)).collect();
    view.report(&survey, scores, boundaries)
}

/// Which end of the order documents are taken from.
struct Side<'a> {
    threshold: &'a Threshold,
    /// Removals take the worst, retentions the best.
    takes_worst: bool,
}

impl Side<'_> {
    /// Key by which documents are taken, smallest first; tie-breaks are not set.
    fn key(&self, logit: f32) -> RankKey {
        self.oriented(RankKey::of_logit(logit, self.threshold.keep))
    }

    fn oriented(&self, key: RankKey) -> RankKey {
        if self.takes_worst { key.reversed() } else { key }
    }

    /// Adds candidates to the counts by first digit, of each selection that keeps them.
    fn count_first(
        &self,
        counts: &mut [KeyCounts],
        candidates: &Candidates<'_>,
        alive: &Alive<'_>,
    ) {
        let digits = candidates.logits.iter().map(|&logit| self.key(logit).digit(0));
        match (alive, candidates.weights) {
            (Alive::All, None) => digits.for_each(|digit| counts[0].add_one(digit)),
            (Alive::All, Some(weights)) => {
                digits.zip(weights).for_each(|(digit, &weight)| counts[0].add(digit, weight));
            }
            (Alive::Each(alive), _) => {
                for (i, (digit, alive)) in digits.zip(*alive).enumerate() {
                    for (parent, counts) in counts.iter_mut().enumerate() {
                        if alive.has(parent) {
                            counts.add(digit, candidates.weight(i));
                        }
                    }
                }
            }
        }
    }

    /// Adds candidates to the counts of the slots they fall under.
    fn count(
        &self,
        view: &View<'_>,
        level: usize,
        slots: &OpenSlots,
        counts: &mut [KeyCounts],
        candidates: &Candidates<'_>,
    ) {
        for (i, &logit) in candidates.logits.iter().enumerate() {
            let mut key = self.key(logit);
            if !slots.may_hold(key) {
                continue;
            }
            let row = candidates.row(i);
            let Some(alive) = view.alive(row) else {
                continue;
            };
            if level >= ID_LEVEL {
                let rank = RankKey::of_logit(logit, self.threshold.keep);
                key = self.oriented(rank.with_id(row.id(), row.ordinal()));
            }
            let (prefix, digit) = (key.prefix(level), key.digit(level));
            for (slot, counts) in slots.slots.iter().zip(counts.iter_mut()) {
                if slot.prefix == prefix && alive.has(slot.parent) {
                    counts.add(digit, candidates.weight(i));
                    counts.see_score(digit, candidates.scores[i]);
                }
            }
        }
    }
}

/// A prefix under which documents of one selection are counted.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Slot {
    parent: usize,
    prefix: RankKey,
}

fn empty_counts(slots: &[Slot], level: usize) -> Vec<KeyCounts> {
    slots.iter().map(|_| KeyCounts::new(level + 1 == ID_LEVEL)).collect()
}

/// The search for the last document taken at one rate in one selection.
#[derive(Debug)]
struct Search {
    slot: Slot,
    candidates: Amount,
    /// Documents taken so far; while the search goes on, those before the prefix.
    taken: Amount,
    /// Weight still to be taken under the prefix.
    needed: u64,
    /// Score of the documents under the prefix, once their logit is known.
    score: Option<f32>,
    found: Option<Found>,
}

#[derive(Debug)]
enum Found {
    All,
    Nothing,
    UpTo(RankKey),
}

/// A search per selection and rate, in that order.
fn start(view: &View<'_>, side: &Side<'_>, survey: &Survey, rates: &[Rate]) -> Result<Vec<Search>> {
    let scored = view.scored(survey)?;
    let mut searches = Vec::new();
    for (parent, &candidates) in survey.candidates.iter().enumerate() {
        for rate in rates {
            let whole = if side.takes_worst { candidates } else { scored };
            let needed = rate.ceil_of(whole.weight);
            let found = match needed {
                0 => Some(Found::Nothing),
                _ if needed > candidates.weight => Some(Found::All),
                _ => None,
            };
            let taken =
                if matches!(found, Some(Found::All)) { candidates } else { Amount::default() };
            let slot = Slot { parent, prefix: RankKey::FIRST };
            searches.push(Search { slot, candidates, taken, needed, score: None, found });
        }
    }
    Ok(searches)
}

/// The distinct slots of the searches that go on.
struct OpenSlots {
    slots: Vec<Slot>,
    /// A bit per first digit: whether a slot has it.
    first_digits: Vec<u64>,
}

impl OpenSlots {
    fn of(searches: &[Search]) -> Self {
        let mut open = Self { slots: Vec::new(), first_digits: vec![0; RADIX / 64] };
        for search in searches.iter().filter(|search| search.found.is_none()) {
            if !open.slots.contains(&search.slot) {
                open.slots.push(search.slot);
                let digit = search.slot.prefix.digit(0);
                open.first_digits[digit / 64] |= 1 << (digit % 64);
            }
        }
        open
    }

    /// Whether there is a slot with the first digit of `key`.
    fn may_hold(&self, key: RankKey) -> bool {
        let digit = key.digit(0);
        self.first_digits[digit / 64] >> (digit % 64) & 1 == 1
    }
}

/// Takes every open search one digit further; `counts[i]` belongs to `slots[i]`.
fn descend(
    searches: &mut [Search],
    level: usize,
    slots: &[Slot],
    counts: &[KeyCounts],
) -> Result<()> {
    for search in searches.iter_mut().filter(|search| search.found.is_none()) {
        let slot = slots.iter().position(|slot| *slot == search.slot);
        let reached = slot.and_then(|slot| search.descend(level, counts.get(slot)?));
        reached.ok_or_else(|| {
            Error::shape("select", "a scan found other documents than the scan before it")
        })?;
    }
    Ok(())
}

impl Search {
    /// Finds the next digit; `None` where the documents counted do not reach the target.
    fn descend(&mut self, level: usize, counts: &KeyCounts) -> Option<()> {
        let (digit, before) = counts.reach(self.needed)?;
        self.slot.prefix = self.slot.prefix.with_digit(level, digit);
        self.taken.merge(before);
        self.needed -= before.weight;
        self.score = self.score.or(counts.score(digit));
        let logit_is_known = level + 1 >= ID_LEVEL;
        let is_last = level + 1 == LEVELS;
        if logit_is_known && (is_last || counts.takes_whole(digit, self.needed)) {
            self.taken.merge(counts.cell(digit));
            self.found = Some(Found::UpTo(self.slot.prefix.last_of_prefix(level + 1)));
        }
        Some(())
    }

    fn into_boundary(self, side: &Side<'_>) -> Boundary {
        let Self { slot, candidates, taken, score, found, .. } = self;
        let kept = if side.takes_worst { candidates.without(taken) } else { taken };
        let bound = match (side.takes_worst, found) {
            (false, Some(Found::All)) | (true, Some(Found::Nothing)) => Bound::All,
            (true, Some(Found::All)) | (false, Some(Found::Nothing)) | (_, None) => Bound::Nothing,
            (false, Some(Found::UpTo(last))) => Bound::UpTo(last),
            (true, Some(Found::UpTo(last))) => Bound::Before(last.reversed()),
        };
        let threshold_score = score.map(f64::from);
        Boundary { parent: slot.parent, candidates, kept, bound, threshold_score }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_do_not_grow_with_documents() {
        let count = |num_documents: u32| {
            let mut counts = KeyCounts::new(true);
            for i in 0..num_documents {
                counts.add(i as usize % 65_536, 1);
            }
            counts.num_counters()
        };
        assert_eq!(count(1), 65_536);
        assert_eq!(count(1_000_000), 65_536);
    }
}
