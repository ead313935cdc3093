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
    let guess = guess_slots(view, order)?;
    let First { survey, candidates, mut searches, counts, bins, guessed } =
        First::scan(view, order, &guess)?;
    descend_all(&mut searches, &Slots::all(view), &counts)?;

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
                || open.new_counts(),
                |counts, candidates| order.count_all(&open, counts, candidates),
            )?;
            (scores, counts, &open)
        }
    };
    descend_all(&mut searches, counted, &counts)?;

    // If the boundary falls among equal logits, each digit of hash and ordinal takes one more scan
    // over the documents with that logit.
    for _ in ID_LEVEL..LEVELS {
        let open = Slots::open(&searches);
        if open.slots.is_empty() {
            break;
        }
        let logit = |slot: &Slot| order.orient(RankKey::last_with(&slot.prefix)).logit(order.keep);
        let logits: Vec<f32> = open.slots.iter().map(logit).collect();
        let counts = view.pass(
            Some(&logits),
            || open.new_counts(),
            |counts, candidates| order.count_all(&open, counts, candidates),
        )?;
        descend_all(&mut searches, &open, &counts)?;
    }
    let found = searches.into_iter().map(|search| search.into_found(order, &candidates));
    Ok(view.report(&survey, scores, &candidates, found))
}

/// Results of the scan for the first digit.
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
    /// Scans the corpus, and starts a search for each selection after the threshold.
    fn scan(view: &View<'_>, order: Order, guess: &Slots) -> Result<Self> {
        let all = Slots::all(view);
        let new = || (all.new_counts(), (Histogram::new(0.0, 1.0), guess.new_counts()));
        let (survey, counted) = view.survey(new, |(counts, (bins, guessed)), candidates| {
            candidates.for_each(|selection, logit, weight| {
                counts[selection].add(order.key(logit).first_digit(), weight);
            });
            if !guess.slots.is_empty() {
                bins.add(candidates.scores);
                order.count_all(guess, guessed, candidates);
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
fn guess_slots(view: &View<'_>, order: Order) -> Result<Slots> {
    let nothing = Slots::distinct(std::iter::empty());
    let is_budget = matches!(view.threshold.kind, ThresholdKind::Budget(_));
    let is_small = view.corpus.num_shards() < GUESS_EVERY;
    if is_budget || !view.threshold.output.is_probability() || is_small {
        return Ok(nothing);
    }
    let first = First::scan(&View { every: GUESS_EVERY, ..*view }, order, &nothing)?;
    let margin = first.survey.scored.weight / GUESS_MARGIN;
    let mut slots = Vec::new();
    for search in first.searches.iter().filter(|search| search.end.is_none()) {
        let selection = search.slot.selection;
        let digit = |weight| first.counts[selection].reach(weight).map(|(digit, _)| digit);
        let from = digit(search.needed.saturating_sub(margin).max(1));
        let last = search.needed.saturating_add(margin);
        let to = digit(last.min(first.candidates[selection].weight));
        let (Some(from), Some(to)) = (from, to) else { return Ok(nothing) };
        if slots.len() + (to - from) >= MAX_GUESSED {
            return Ok(nothing);
        }
        let slot = |digit| Slot { selection, prefix: vec![digit as u16] };
        slots.extend((from..=to).map(slot));
    }
    Ok(Slots::distinct(slots.into_iter()))
}

/// The order in which a threshold takes documents.
#[derive(Clone, Copy)]
struct Order {
    keep: Keep,
    /// Removals take the worst documents first, retentions and budgets the best.
    takes_worst: bool,
}

impl Order {
    /// Returns the key by which documents are taken, smallest first; tie-breaks are not set.
    fn key(self, logit: f32) -> RankKey {
        self.orient(RankKey::of_logit(logit, self.keep))
    }

    /// Turns a key of the threshold's order into one of this order, or back.
    fn orient(self, key: RankKey) -> RankKey {
        if self.takes_worst { key.reversed() } else { key }
    }

    /// Adds the candidates in the slots of `open` to `counts`, by the next digit of their keys.
    fn count_all(self, open: &Slots, counts: &mut [KeyCounts], candidates: &Candidates<'_>) {
        for (i, &logit) in candidates.logits.iter().enumerate() {
            if open.may_hold(self.key(logit)) {
                self.count_one(open, counts, candidates, i);
            }
        }
    }

    /// Counts candidate `i`; being a separate function keeps the loop over candidates short.
    #[inline(never)]
    fn count_one(
        self,
        open: &Slots,
        counts: &mut [KeyCounts],
        candidates: &Candidates<'_>,
        i: usize,
    ) {
        let Some(alive) = candidates.alive(i) else { return };
        let (mut rank, level) = (RankKey::of_logit(candidates.logits[i], self.keep), open.level());
        if level >= ID_LEVEL {
            rank = candidates.row(i).tied(rank);
        }
        let key = self.orient(rank);
        let digit = usize::from(key.digit(level));
        let begins_with = |prefix: &[u16]| (0..).zip(prefix).all(|(at, own)| key.digit(at) == *own);
        for (slot, counts) in open.slots.iter().zip(counts) {
            if alive >> slot.selection & 1 == 1 && begins_with(&slot.prefix) {
                counts.add(digit, candidates.weight(i));
                counts.raise_score(digit, candidates.scores[i]);
            }
        }
    }
}

/// The documents of one selection whose keys begin with the same digits.
#[derive(Debug, Clone, PartialEq)]
struct Slot {
    selection: usize,
    prefix: Vec<u16>,
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
    /// Starts a search, which ends at once if `needed` is 0 or more than the weight of
    /// `candidates`.
    fn new(selection: usize, needed: u64, candidates: Amount) -> Self {
        let (end, taken) = match needed {
            0 => (Some(Bound::Nothing), Amount::default()),
            _ if needed > candidates.weight => (Some(Bound::All), candidates),
            _ => (None, Amount::default()),
        };
        let slot = Slot { selection, prefix: Vec::new() };
        Self { slot, taken, needed, score: None, end }
    }

    /// Finds the next digit; returns `None` if the counted documents do not reach the target.
    fn descend(&mut self, counts: &KeyCounts) -> Option<()> {
        let (digit, before) = counts.reach(self.needed)?;
        self.slot.prefix.push(digit as u16);
        self.taken.merge(before);
        self.needed -= before.weight;
        self.score = self.score.or(counts.score(digit));
        // With two digits the logit is known.
        let level = self.slot.prefix.len();
        if level >= ID_LEVEL && (level == LEVELS || counts.takes_whole(digit, self.needed)) {
            self.taken.merge(counts.cells[digit]);
            self.end = Some(Bound::UpTo(RankKey::last_with(&self.slot.prefix)));
        }
        Some(())
    }

    /// Returns the bound, the score there and the amount kept; `candidates` is by selection.
    fn into_found(self, order: Order, candidates: &[Amount]) -> (Bound, Option<f32>, Amount) {
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

/// Distinct slots that are counted in one scan, with equally many digits.
struct Slots {
    slots: Vec<Slot>,
    /// One bit per first digit: whether a slot has it.
    first_digits: Vec<u64>,
}

impl Slots {
    /// Returns the slots of the searches that have not ended.
    fn open(searches: &[Search]) -> Self {
        let open = searches.iter().filter(|search| search.end.is_none());
        Self::distinct(open.map(|search| search.slot.clone()))
    }

    /// Returns one slot for each selection so far, with all of its documents.
    fn all(view: &View<'_>) -> Self {
        let selections = 0..view.num_before();
        Self::distinct(selections.map(|selection| Slot { selection, prefix: Vec::new() }))
    }

    fn distinct(slots: impl Iterator<Item = Slot>) -> Self {
        let mut found = Self { slots: Vec::new(), first_digits: vec![0; RADIX / 64] };
        for slot in slots {
            if !found.slots.contains(&slot) {
                let digit = slot.prefix.first().copied().unwrap_or_default();
                found.first_digits[usize::from(digit / 64)] |= 1 << (digit % 64);
                found.slots.push(slot);
            }
        }
        found
    }

    /// Returns the number of digits of the slots, which is the index of the next one.
    fn level(&self) -> usize {
        self.slots.first().map_or(0, |slot| slot.prefix.len())
    }

    /// Makes empty counts by the next digit, one for each slot.
    fn new_counts(&self) -> Vec<KeyCounts> {
        self.slots.iter().map(|_| KeyCounts::new(self.level() + 1 == ID_LEVEL)).collect()
    }

    /// Returns true if a slot has the first digit of `key`.
    fn may_hold(&self, key: RankKey) -> bool {
        let digit = key.first_digit();
        self.first_digits[digit / 64] >> (digit % 64) & 1 == 1
    }
}

/// Advances every search that has not ended by one digit. `counts[i]` belongs to slot `i`; fails if
/// the corpus changed between scans.
fn descend_all(searches: &mut [Search], slots: &Slots, counts: &[KeyCounts]) -> Result<()> {
    for search in searches.iter_mut().filter(|search| search.end.is_none()) {
        let at = slots.slots.iter().position(|slot| *slot == search.slot);
        let reached = at.and_then(|at| search.descend(counts.get(at)?));
        let reason = "a scan found other documents than the scan before it";
        reached.ok_or_else(|| Error::shape("select", reason))?;
    }
    Ok(())
}
