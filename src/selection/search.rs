//! Computes thresholds at exact rates and budgets with a radix search.
//!
//! A key of ten digits orders all documents: two digits of the logit, four of the id's hash, four
//! of the ordinal. The search finds the key of the last document taken digit by digit, from the
//! top. A scan sums weights by the next digit, over the documents that share the digits found so
//! far; the next digit found is the one in which the running weight reaches the target.

use super::batch::RankedDocument;
use super::counts::{Amount, Histogram, KeyCounts, Merge, Survey};
use super::plan::ThresholdKind;
use super::rank::{ID_LEVEL, LEVELS, RADIX, RankKey};
use super::report::{Bound, ThresholdReport};
use super::scan::{Candidates, View};
use polysift_base::error::{Error, Result};
use polysift_config::Keep;

/// A guess samples one of this many shards.
const GUESS_EVERY: usize = 64;
/// A guess holds if corpus and sample differ by at most 1/400 of the sample's weight.
const GUESS_MARGIN: u64 = 400;
/// Maximum slots of a guess: each takes 1,280 KiB per thread.
const MAX_GUESSED: usize = 16;

/// Computes a budget, or a retention or removal at each rate in each of the selections so far.
pub(super) fn by_rank(view: &View<'_>) -> Result<ThresholdReport> {
    let takes_worst = matches!(view.threshold.kind, ThresholdKind::Remove(_));
    let order = Order { keep: view.threshold.keep, takes_worst };
    let guess = guess(view, order)?;
    let First { survey, candidates, mut searches, counts, bins, guessed } =
        First::scan(view, order, &guess)?;
    descend(&mut searches, 0, &Slots::all(view), &counts)?;

    // The second digit completes the logit. It needs a second scan unless it was guessed.
    let open = Slots::open(&searches);
    let range = survey.range();
    let bins = bins.zip(range).and_then(|(bins, (min, max))| bins.spanning(min, max));
    let (scores, counts, counted) = match bins {
        Some(bins) if open.slots.iter().all(|slot| guess.slots.contains(slot)) => {
            (Some(bins), guessed, &guess)
        }
        _ => {
            let (scores, counts) = view.histogram(
                &survey,
                || open.counts(1),
                |counts, candidates| order.count(1, &open, counts, candidates),
            )?;
            (scores, counts, &open)
        }
    };
    descend(&mut searches, 1, counted, &counts)?;

    // If the boundary falls among equal logits, each digit of hash and ordinal takes one more scan
    // over the documents with that logit.
    for level in ID_LEVEL..LEVELS {
        let open = Slots::open(&searches);
        if open.slots.is_empty() {
            break;
        }
        let logit = |slot: &Slot| order.oriented(slot.prefix).logit(order.keep);
        let logits: Vec<f32> = open.slots.iter().map(logit).collect();
        let counts = view.pass(
            Some(&logits),
            || open.counts(level),
            |counts, candidates| order.count(level, &open, counts, candidates),
        )?;
        descend(&mut searches, level, &open, &counts)?;
    }
    let found = searches.into_iter().map(|search| search.found(order, &candidates));
    Ok(view.report(&survey, scores, &candidates, found))
}

struct First {
    survey: Survey,
    /// One amount per selection so far.
    candidates: Vec<Amount>,
    searches: Vec<Search>,
    /// Counts by the first digit of the logits, one per selection so far.
    counts: Vec<KeyCounts>,
    /// Histogram of the scores, assumed to be in [0, 1]; `None` without a guess.
    bins: Option<Histogram>,
    /// Counts by the second digit, one per guessed slot.
    guessed: Vec<KeyCounts>,
}

impl First {
    fn scan(view: &View<'_>, order: Order, guess: &Slots) -> Result<Self> {
        let all = Slots::all(view);
        let new = || (all.counts(0), (Histogram::new(0.0, 1.0), guess.counts(1)));
        let (survey, counted) = view.survey(new, |(counts, (bins, guessed)), candidates| {
            candidates.for_each(|selection, logit, weight| {
                counts[selection].add(order.key(logit).digit(0), weight);
            });
            if !guess.slots.is_empty() {
                bins.add(candidates.scores);
                order.count(1, guess, guessed, candidates);
            }
        })?;
        let (counts, (bins, guessed)) = counted;
        let candidates: Vec<Amount> = counts.iter().map(KeyCounts::total).collect();
        let all = survey.whole();
        let search = |(i, parent): (usize, usize)| {
            let whole = if order.takes_worst { candidates[parent] } else { all };
            let needed = match view.threshold.kind {
                ThresholdKind::Budget(budget) => budget.0,
                _ => view.threshold.rate(i).map_or(0, |rate| rate.ceil_of(whole.weight)),
            };
            Search::new(parent, needed, candidates[parent])
        };
        let searches = view.parents().into_iter().enumerate().map(search).collect();
        let bins = Some(bins).filter(|_| !guess.slots.is_empty());
        Ok(Self { survey, candidates, searches, counts, bins, guessed })
    }
}

/// Predicts from a sample of shards which slots the searches open after the first digit; none if a
/// second scan is needed anyway (for a histogram of scores that are not probabilities), for a
/// budget (a sample's share of it is unknown), or if there may be too many slots.
fn guess(view: &View<'_>, order: Order) -> Result<Slots> {
    let nothing = Slots::of(std::iter::empty());
    let is_budget = matches!(view.threshold.kind, ThresholdKind::Budget(_));
    let is_small = view.corpus.num_shards() < GUESS_EVERY;
    if is_budget || !view.threshold.output.is_probability() || is_small {
        return Ok(nothing);
    }
    let first = First::scan(&View { every: GUESS_EVERY, ..*view }, order, &nothing)?;
    let margin = first.survey.scored.weight / GUESS_MARGIN;
    let mut slots = Vec::new();
    for search in first.searches.iter().filter(|search| search.end.is_none()) {
        let Slot { selection, .. } = search.slot;
        let digit = |weight| first.counts[selection].reach(weight).map(|(digit, _)| digit);
        let from = digit(search.needed.saturating_sub(margin).max(1));
        let last = search.needed.saturating_add(margin);
        let to = digit(last.min(first.candidates[selection].weight));
        let (Some(from), Some(to)) = (from, to) else { return Ok(nothing) };
        if slots.len() + (to - from) >= MAX_GUESSED {
            return Ok(nothing);
        }
        let prefix = |digit| RankKey::FIRST.with_digit(0, digit);
        slots.extend((from..=to).map(|digit| Slot { selection, prefix: prefix(digit) }));
    }
    Ok(Slots::of(slots.into_iter()))
}

#[derive(Clone, Copy)]
struct Order {
    keep: Keep,
    /// Removals take the worst documents first, retentions and budgets the best.
    takes_worst: bool,
}

impl Order {
    /// Returns the key by which documents are taken, smallest first; tie-breaks are not set.
    fn key(self, logit: f32) -> RankKey {
        self.oriented(RankKey::of_logit(logit, self.keep))
    }

    fn oriented(self, key: RankKey) -> RankKey {
        if self.takes_worst { key.reversed() } else { key }
    }

    /// Counts candidates by digit `level` in the slots that contain them.
    fn count(
        self,
        level: usize,
        open: &Slots,
        counts: &mut [KeyCounts],
        candidates: &Candidates<'_>,
    ) {
        for (i, &logit) in candidates.logits.iter().enumerate() {
            if open.may_hold(self.key(logit)) {
                self.count_one(level, open, counts, candidates, i);
            }
        }
    }

    /// Counts candidate `i`; being a separate function keeps the loop over candidates short.
    #[inline(never)]
    fn count_one(
        self,
        level: usize,
        open: &Slots,
        counts: &mut [KeyCounts],
        candidates: &Candidates<'_>,
        i: usize,
    ) {
        let Some(alive) = candidates.alive(i) else { return };
        let mut rank = RankKey::of_logit(candidates.logits[i], self.keep);
        if level >= ID_LEVEL {
            rank = candidates.row(i).tied(rank);
        }
        let key = self.oriented(rank);
        let (prefix, digit) = (key.prefix(level), key.digit(level));
        for (slot, counts) in open.slots.iter().zip(counts) {
            if slot.prefix == prefix && alive >> slot.selection & 1 == 1 {
                counts.add(digit, candidates.weight(i));
                counts.see_score(digit, candidates.scores[i]);
            }
        }
    }
}

/// A prefix of keys under which the documents of one selection are counted.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Slot {
    selection: usize,
    prefix: RankKey,
}

/// The search for the last document taken at one rate in one selection.
#[derive(Debug)]
struct Search {
    slot: Slot,
    /// Documents taken so far; during the search, those before the prefix.
    taken: Amount,
    /// Weight still to be taken under the prefix.
    needed: u64,
    /// Score of the documents under the prefix, once their logit is known.
    score: Option<f32>,
    end: Option<Bound>,
}

impl Search {
    fn new(selection: usize, needed: u64, candidates: Amount) -> Self {
        let (end, taken) = match needed {
            0 => (Some(Bound::Nothing), Amount::default()),
            _ if needed > candidates.weight => (Some(Bound::All), candidates),
            _ => (None, Amount::default()),
        };
        let slot = Slot { selection, prefix: RankKey::FIRST };
        Self { slot, taken, needed, score: None, end }
    }

    /// Finds the next digit; returns `None` if the counted documents do not reach the target.
    fn descend(&mut self, level: usize, counts: &KeyCounts) -> Option<()> {
        let (digit, before) = counts.reach(self.needed)?;
        self.slot.prefix = self.slot.prefix.with_digit(level, digit);
        self.taken.merge(before);
        self.needed -= before.weight;
        self.score = self.score.or(counts.score(digit));
        let logit_is_known = level + 1 >= ID_LEVEL;
        let is_last = level + 1 == LEVELS;
        if logit_is_known && (is_last || counts.takes_whole(digit, self.needed)) {
            self.taken.merge(counts.cells[digit]);
            self.end = Some(Bound::UpTo(self.slot.prefix.last_of_prefix(level + 1)));
        }
        Some(())
    }

    /// Returns the bound, the score there and the amount kept; `candidates` is by selection.
    fn found(self, order: Order, candidates: &[Amount]) -> (Bound, Option<f32>, Amount) {
        let candidates = candidates[self.slot.selection];
        let kept = if order.takes_worst { candidates.without(self.taken) } else { self.taken };
        let bound = match (order.takes_worst, self.end.unwrap_or(Bound::Nothing)) {
            (true, Bound::Nothing) => Bound::All,
            (true, Bound::All) => Bound::Nothing,
            (true, Bound::UpTo(last)) => Bound::Before(last.reversed()),
            (_, taken) => taken,
        };
        (bound, self.score, kept)
    }
}

struct Slots {
    slots: Vec<Slot>,
    /// One bit per first digit: whether a slot has it.
    first_digits: Vec<u64>,
}

impl Slots {
    fn open(searches: &[Search]) -> Self {
        let open = searches.iter().filter(|search| search.end.is_none());
        Self::of(open.map(|search| search.slot))
    }

    fn all(view: &View<'_>) -> Self {
        let selections = 0..view.num_before();
        Self::of(selections.map(|selection| Slot { selection, prefix: RankKey::FIRST }))
    }

    fn of(slots: impl Iterator<Item = Slot>) -> Self {
        let mut distinct = Self { slots: Vec::new(), first_digits: vec![0; RADIX / 64] };
        for slot in slots {
            if !distinct.slots.contains(&slot) {
                distinct.slots.push(slot);
                let digit = slot.prefix.digit(0);
                distinct.first_digits[digit / 64] |= 1 << (digit % 64);
            }
        }
        distinct
    }

    fn counts(&self, level: usize) -> Vec<KeyCounts> {
        self.slots.iter().map(|_| KeyCounts::new(level + 1 == ID_LEVEL)).collect()
    }

    /// Returns true if a slot has the first digit of `key`.
    fn may_hold(&self, key: RankKey) -> bool {
        let digit = key.digit(0);
        self.first_digits[digit / 64] >> (digit % 64) & 1 == 1
    }
}

/// Advances every unfinished search by one digit; `counts[i]` belongs to slot `i`.
fn descend(
    searches: &mut [Search],
    level: usize,
    slots: &Slots,
    counts: &[KeyCounts],
) -> Result<()> {
    for search in searches.iter_mut().filter(|search| search.end.is_none()) {
        let at = slots.slots.iter().position(|slot| *slot == search.slot);
        let reached = at.and_then(|at| search.descend(level, counts.get(at)?));
        let reason = "a scan found other documents than the scan before it";
        reached.ok_or_else(|| Error::shape("select", reason))?;
    }
    Ok(())
}
