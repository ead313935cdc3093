//! Labelled samples and their 80/10/10 split: stratified, seeded, by content; where samples name the split
//! they are of, they are in it.
//!
//! Samples of the same id or the same embedding (or text) form a group that no split separates.
//! Groups are ordered by a keyed hash of their content, so neither the order of the samples nor that
//! of the files matters, and a few more samples leave most of the others where they were.

use std::collections::HashMap;

use crate::config::LabelKind;
use crate::error::{Error, Result};
use crate::head::{ClassCounts, GradeCounts, LabelCounts};
use crate::input::Split;
use crate::metrics::rounded;

/// A validation and a test sample of this many.
const HOLD_OUT: usize = 10;

/// Labelled samples; sample `i` is `ids[i]`, `labels[i]` and row `i` of `embeddings`, or `texts[i]`.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Samples {
    /// Ids; samples of the same id are taken for duplicates and never separated by the split.
    pub ids: Vec<String>,
    /// 1 of the positive (toxic...) class and 0 of the other, or grades.
    pub labels: Vec<f32>,
    /// How much each counts, not below 0; empty where all count the same.
    pub weights: Vec<f32>,
    /// `[num_samples, D]` f32, row-major: one vector per sample; none for a head of texts.
    pub embeddings: Vec<f32>,
    /// Width `D`.
    pub hidden_size: usize,
    /// The texts as they are in the corpus, for a head of texts.
    pub texts: Vec<String>,
    /// Split that each sample names for itself; empty where none does.
    pub splits: Vec<Option<Split>>,
}

impl Samples {
    /// Embedding of sample `row`.
    pub(super) fn embedding(&self, row: usize) -> &[f32] {
        &self.embeddings[row * self.hidden_size..(row + 1) * self.hidden_size]
    }

    /// Whether sample `row` is of the positive class.
    pub(super) fn is_positive(&self, row: usize) -> bool {
        self.labels[row] > 0.5
    }

    /// Whether each sample of `rows` is of the positive class.
    pub(super) fn classes(&self, rows: &[usize]) -> Vec<bool> {
        rows.iter().map(|&row| self.is_positive(row)).collect()
    }

    /// Grades of the samples of `rows`.
    pub(super) fn grades(&self, rows: &[usize]) -> Vec<f32> {
        rows.iter().map(|&row| self.labels[row]).collect()
    }

    /// How much sample `row` counts.
    pub(super) fn weight(&self, row: usize) -> f64 {
        self.weights.get(row).map_or(1.0, |&weight| f64::from(weight))
    }

    /// How much the samples of `rows` count together.
    pub(super) fn total_weight(&self, rows: &[usize]) -> f64 {
        rows.iter().map(|&row| self.weight(row)).sum()
    }

    /// Mean and standard deviation of the grades of `rows`.
    pub(super) fn mean_and_deviation(&self, rows: &[usize]) -> (f64, f64) {
        let grades = || rows.iter().map(|&row| f64::from(self.labels[row]));
        let count = rows.len().max(1) as f64;
        let mean = grades().sum::<f64>() / count;
        let variance = grades().map(|grade| (grade - mean).powi(2)).sum::<f64>() / count;
        (mean, variance.sqrt())
    }

    /// The samples of `rows` by label.
    pub(super) fn counts(&self, rows: &[usize], kind: LabelKind) -> LabelCounts {
        if kind != LabelKind::Grades {
            let positive =
                self.classes(rows).into_iter().filter(|is_positive| *is_positive).count();
            return LabelCounts::Classes(ClassCounts { positive, negative: rows.len() - positive });
        }
        let grades = || rows.iter().map(|&row| f64::from(self.labels[row]));
        let (mean, deviation) = self.mean_and_deviation(rows);
        LabelCounts::Grades(GradeCounts {
            num_samples: rows.len(),
            mean: rounded(mean),
            deviation: rounded(deviation),
            lowest: grades().reduce(f64::min).unwrap_or_default(),
            highest: grades().reduce(f64::max).unwrap_or_default(),
        })
    }

    /// BLAKE3 of the text or the embedding of sample `row`.
    fn digest(&self, row: usize) -> [u8; 32] {
        let mut hasher = blake3::Hasher::new();
        for value in self.embedding(row) {
            hasher.update(&value.to_le_bytes());
        }
        hasher.update(self.texts.get(row).map_or(&[], |text| text.as_bytes()));
        *hasher.finalize().as_bytes()
    }

    /// [`Error::Shape`] unless the lists describe the same samples, of texts where `of_texts`.
    pub(super) fn check(&self, of_texts: bool) -> Result<()> {
        let Self { ids, labels, weights, embeddings, hidden_size, texts, splits } = self;
        let (values, num_texts) =
            if of_texts { (Some(0), ids.len()) } else { (ids.len().checked_mul(*hidden_size), 0) };
        if labels.len() == ids.len()
            && (weights.is_empty() || weights.len() == ids.len())
            && (splits.is_empty() || splits.len() == ids.len())
            && values == Some(embeddings.len())
            && num_texts == texts.len()
            && (*hidden_size == 0) == of_texts
        {
            return Ok(());
        }
        Err(Error::shape(
            "train",
            format!(
                "{} id(s), {} label(s), {} weight(s), {} split(s), {} text(s) and {} values of embeddings \
                 [_, {hidden_size}] do not fit together",
                ids.len(),
                labels.len(),
                weights.len(),
                splits.len(),
                texts.len(),
                embeddings.len()
            ),
        ))
    }
}

/// Rows of the samples by split, each list in the order of (id, embedding, label).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Splits {
    /// What is learned from.
    pub train: Vec<usize>,
    /// What chooses an epoch.
    pub validation: Vec<usize>,
    /// What is looked at once.
    pub test: Vec<usize>,
}

/// Splits the given `rows` of `samples`.
///
/// A sample that names its split is in it. Of the others, within each class (of a group: that of
/// its first sample; grades are one class) one tenth, rounded to nearest, goes to validation and, if `with_test`, as much
/// to test, less what groups too large for the rest of it leave open; such groups go to train. A
/// group in which some samples name a split goes where the first of them is.
pub fn split(
    samples: &Samples,
    rows: Vec<usize>,
    kind: LabelKind,
    seed: u64,
    with_test: bool,
) -> Splits {
    let keyed = rows.into_iter().map(|row| Keyed {
        id: &samples.ids[row],
        digest: samples.digest(row),
        label: samples.labels[row],
        is_positive: kind != LabelKind::Grades && samples.is_positive(row),
        named: samples.splits.get(row).copied().flatten(),
        row,
    });
    let mut ordered: Vec<Keyed<'_>> = keyed.collect();
    // Samples equal in all of this are interchangeable, so the row itself never decides anything
    // that shows.
    ordered.sort_unstable_by(|a, b| {
        let content = (a.id, a.digest).cmp(&(b.id, b.digest));
        content.then(a.label.total_cmp(&b.label)).then(a.row.cmp(&b.row))
    });

    let mut splits = vec![Split::Train; ordered.len()];
    let mut open = Vec::new();
    for group in groups(&ordered) {
        match group.iter().find_map(|&at| ordered[at].named) {
            None => open.push(group),
            Some(first) => {
                for at in group {
                    splits[at] = ordered[at].named.unwrap_or(first);
                }
            }
        }
    }
    for is_positive in [true, false] {
        assign(&ordered, &open, is_positive, seed, with_test, &mut splits);
    }
    let rows_of = |part: Split| {
        ordered.iter().zip(&splits).filter(|(_, own)| **own == part).map(|(s, _)| s.row).collect()
    };
    Splits {
        train: rows_of(Split::Train),
        validation: rows_of(Split::Validation),
        test: rows_of(Split::Test),
    }
}

/// A sample with what orders it.
struct Keyed<'a> {
    id: &'a str,
    /// Of the content.
    digest: [u8; 32],
    label: f32,
    is_positive: bool,
    /// Split that it names for itself.
    named: Option<Split>,
    row: usize,
}

/// Assigns those of `groups` whose first sample is of this class.
fn assign(
    ordered: &[Keyed<'_>],
    groups: &[Vec<usize>],
    is_positive: bool,
    seed: u64,
    with_test: bool,
    splits: &mut [Split],
) {
    let key = *blake3::hash(&seed.to_le_bytes()).as_bytes();
    let mut groups: Vec<([u8; 32], &Vec<usize>)> = groups
        .iter()
        .filter(|group| ordered[group[0]].is_positive == is_positive)
        .map(|group| {
            let first = &ordered[group[0]];
            let mut hasher = blake3::Hasher::new_keyed(&key);
            hasher.update(&first.digest).update(first.id.as_bytes());
            (*hasher.finalize().as_bytes(), group)
        })
        .collect();
    groups.sort_unstable();
    let sizes: Vec<usize> = groups.iter().map(|(_, group)| group.len()).collect();
    let validation = tenth(sizes.iter().sum());
    let test = if with_test { validation } else { 0 };
    for ((_, group), part) in groups.iter().zip(hold_out(&sizes, validation, test)) {
        for &at in *group {
            splits[at] = part;
        }
    }
}

/// One tenth of `size`, rounded to nearest.
pub(crate) fn tenth(size: usize) -> usize {
    (size + HOLD_OUT / 2) / HOLD_OUT
}

/// Splits of groups of these sizes, in their order: `validation` samples first, then `test`; a
/// group that is too large for what is left of them goes to train.
pub(crate) fn hold_out(sizes: &[usize], mut validation: usize, mut test: usize) -> Vec<Split> {
    let place = |&size: &usize| {
        if size <= validation {
            validation -= size;
            Split::Validation
        } else if size <= test {
            test -= size;
            Split::Test
        } else {
            Split::Train
        }
    };
    sizes.iter().map(place).collect()
}

/// Positions of `ordered` in groups of equal id or equal digest, transitively; ascending within a
/// group and by the first of each group.
fn groups(ordered: &[Keyed<'_>]) -> Vec<Vec<usize>> {
    let mut parents: Vec<usize> = (0..ordered.len()).collect();
    let mut by_digest = HashMap::new();
    for at in 0..ordered.len() {
        if at > 0 && ordered[at].id == ordered[at - 1].id {
            join(&mut parents, at - 1, at);
        }
        let twin = *by_digest.entry(ordered[at].digest).or_insert(at);
        join(&mut parents, twin, at);
    }
    let mut groups: Vec<Vec<usize>> = vec![Vec::new(); ordered.len()];
    for at in 0..ordered.len() {
        let root = root(&mut parents, at);
        groups[root].push(at);
    }
    groups.retain(|group| !group.is_empty());
    groups
}

/// Joins the groups of `a` and `b`; the smaller root stays a root.
fn join(parents: &mut [usize], a: usize, b: usize) {
    let (a, b) = (root(parents, a), root(parents, b));
    parents[a.max(b)] = a.min(b);
}

/// Root of the group of `at`; halves the path on its way.
fn root(parents: &mut [usize], mut at: usize) -> usize {
    while parents[at] != at {
        parents[at] = parents[parents[at]];
        at = parents[at];
    }
    at
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Samples of one-value embeddings.
    fn samples(rows: &[(u8, bool, u8)]) -> Samples {
        Samples {
            ids: rows.iter().map(|(id, ..)| format!("d{id}")).collect(),
            labels: rows.iter().map(|&(_, label, _)| f32::from(u8::from(label))).collect(),
            embeddings: rows.iter().map(|&(.., value)| f32::from(value)).collect(),
            hidden_size: 1,
            ..Samples::default()
        }
    }

    /// Content of the rows of each split.
    fn content(samples: &Samples, splits: &Splits) -> Vec<Vec<(String, bool, u32)>> {
        let of = |rows: &Vec<usize>| {
            rows.iter()
                .map(|&r| {
                    (
                        samples.ids[r].clone(),
                        samples.is_positive(r),
                        samples.embeddings[r].to_bits(),
                    )
                })
                .collect()
        };
        vec![of(&splits.train), of(&splits.validation), of(&splits.test)]
    }

    #[test]
    fn each_class_gives_a_tenth_to_validation_and_to_test() {
        let rows: Vec<_> = (0..100u8).map(|i| (i, i < 40, i)).collect();
        let samples = samples(&rows);
        let splits = split(&samples, (0..100).collect(), LabelKind::Classes, 7, true);
        for (rows, positive, negative) in
            [(&splits.train, 32, 48), (&splits.validation, 4, 6), (&splits.test, 4, 6)]
        {
            let counts = LabelCounts::Classes(ClassCounts { positive, negative });
            assert_eq!(samples.counts(rows, LabelKind::Classes), counts);
        }
    }

    #[test]
    fn without_a_test_split_its_tenth_is_learned_from() {
        let rows: Vec<_> = (0..100u8).map(|i| (i, i < 40, i)).collect();
        let samples = samples(&rows);
        let (two, three) = (
            split(&samples, (0..100).collect(), LabelKind::Classes, 7, false),
            split(&samples, (0..100).collect(), LabelKind::Classes, 7, true),
        );
        assert_eq!(two.validation, three.validation);
        assert_eq!((two.train.len(), two.test.len()), (90, 0));
    }

    #[test]
    fn another_seed_gives_another_split() {
        let rows: Vec<_> = (0..100u8).map(|i| (i, i < 40, i)).collect();
        let samples = samples(&rows);
        let by = |seed| split(&samples, (0..100).collect(), LabelKind::Classes, seed, true);
        assert_ne!(by(1), by(2));
    }

    #[test]
    fn samples_that_name_their_split_are_in_it() {
        let rows: Vec<_> = (0..100u8).map(|i| (i, i < 40, i)).collect();
        let mut samples = samples(&rows);
        let named = |i| match i % 4 {
            0 => Some(Split::Test),
            1 => Some(Split::Train),
            _ => None,
        };
        samples.splits = (0..100).map(named).collect();
        // A twin of a test sample that names no split.
        samples.ids[2] = samples.ids[0].clone();
        let splits = split(&samples, (0..100).collect(), LabelKind::Classes, 7, true);
        assert!((0..100).step_by(4).all(|row| splits.test.contains(&row)));
        assert!((1..100).step_by(4).all(|row| splits.train.contains(&row)));
        assert!(splits.test.contains(&2));
        // 19 positives and 30 negatives are open.
        assert_eq!(splits.validation.len(), 2 + 3);
        assert_eq!(splits.test.len(), 25 + 1 + 2 + 3);
    }

    proptest! {
        #[test]
        fn duplicates_stay_together_and_order_does_not_matter(
            (rows, shuffled) in prop::collection::vec((0..30u8, any::<bool>(), 0..40u8), 0..80)
                .prop_flat_map(|rows| (Just(rows.clone()), Just(rows).prop_shuffle())),
            seed in any::<u64>(),
        ) {
            let (one, two) = (samples(&rows), samples(&shuffled));
            let splits = split(&one, (0..rows.len()).collect(), LabelKind::Classes, seed, true);
            let parts = content(&one, &splits);
            prop_assert_eq!(
                &parts,
                &content(&two, &split(&two, (0..rows.len()).collect(), LabelKind::Classes, seed, true))
            );
            prop_assert_eq!(parts.iter().map(Vec::len).sum::<usize>(), rows.len());
            for (a, b) in [(0, 1), (0, 2), (1, 2)] {
                for x in &parts[a] {
                    prop_assert!(parts[b].iter().all(|y| x.0 != y.0 && x.2 != y.2));
                }
            }
        }
    }
}
