//! Labelled samples and their 80/10/10 split, which is stratified, seeded and by text.
//!
//! Samples with equal ids or equal texts (case and white space aside) form a group that the split
//! keeps together. A keyed hash of their texts orders the groups, so the split depends neither on
//! the head, the encoder and its precision nor on the order of the samples, and a few more samples
//! leave most others where they were.

use std::collections::HashMap;

use crate::head::LabelCounts;
use polysift_base::metrics::rounded;
use polysift_base::sample::{Ranks, text_key};
use polysift_config::LabelKind;
use polysift_data::input::Split;

/// One sample in this many goes to validation, and one to test.
const HOLD_OUT: usize = 10;

/// Labelled samples; sample `i` is `ids[i]`, `texts[i]`, `labels[i]` and row `i` of `embeddings`.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Samples {
    /// Ids. Samples with equal ids count as duplicates, which the split keeps together.
    pub ids: Vec<String>,
    /// Grades, or 1 for the positive class (toxic for example) and 0 for the other.
    pub labels: Vec<f32>,
    /// Weight of each sample, at least 0; empty if all count the same.
    pub weights: Vec<f32>,
    /// `[num_samples, D]` f32, row-major: one vector per sample; empty for a head of texts.
    pub embeddings: Vec<f32>,
    /// Width `D`.
    pub hidden_size: usize,
    /// Texts as in the corpus. The split uses them, and heads of texts train on them.
    pub texts: Vec<String>,
    /// Split that each sample names for itself; empty if none does.
    pub splits: Vec<Option<Split>>,
}

impl Samples {
    /// Returns copies of the samples of `rows`, in that order.
    #[must_use]
    pub fn of_rows(&self, rows: &[usize]) -> Self {
        fn clone_rows<T: Clone>(all: &[T], rows: &[usize]) -> Vec<T> {
            let rows = if all.is_empty() { &[] } else { rows };
            rows.iter().map(|&row| all[row].clone()).collect()
        }
        Self {
            ids: clone_rows(&self.ids, rows),
            labels: clone_rows(&self.labels, rows),
            weights: clone_rows(&self.weights, rows),
            embeddings: rows.iter().flat_map(|&row| self.embedding(row)).copied().collect(),
            hidden_size: self.hidden_size,
            texts: clone_rows(&self.texts, rows),
            splits: clone_rows(&self.splits, rows),
        }
    }

    pub(super) fn embedding(&self, row: usize) -> &[f32] {
        &self.embeddings[row * self.hidden_size..(row + 1) * self.hidden_size]
    }

    pub(super) fn is_positive(&self, row: usize) -> bool {
        self.labels[row] > 0.5
    }

    pub(super) fn classes(&self, rows: &[usize]) -> Vec<bool> {
        rows.iter().map(|&row| self.is_positive(row)).collect()
    }

    /// Returns the labels of `rows`, whether they are grades or classes.
    pub(super) fn labels_of(&self, rows: &[usize]) -> Vec<f32> {
        rows.iter().map(|&row| self.labels[row]).collect()
    }

    /// Returns the weight of a sample, 1 if samples have none.
    pub(super) fn weight(&self, row: usize) -> f64 {
        self.weights.get(row).map_or(1.0, |&weight| f64::from(weight))
    }

    pub(super) fn total_weight(&self, rows: &[usize]) -> f64 {
        rows.iter().map(|&row| self.weight(row)).sum()
    }

    /// Returns the mean `[D]` of `term(i, x)`, where `x` is value `i` of an embedding, over `rows`,
    /// summed in their order.
    pub(super) fn means(&self, rows: &[usize], term: impl Fn(usize, f64) -> f64) -> Vec<f64> {
        let mut sums = vec![0.0; self.hidden_size];
        for &row in rows {
            for (i, (sum, &x)) in sums.iter_mut().zip(self.embedding(row)).enumerate() {
                *sum += term(i, f64::from(x));
            }
        }
        sums.into_iter().map(|sum| sum / rows.len().max(1) as f64).collect()
    }

    /// Returns the mean and the population deviation of the labels of `rows`, without weights.
    pub(super) fn mean_and_deviation(&self, rows: &[usize]) -> (f64, f64) {
        let grades = || rows.iter().map(|&row| f64::from(self.labels[row]));
        let count = rows.len().max(1) as f64;
        let mean = grades().sum::<f64>() / count;
        let variance = grades().map(|grade| (grade - mean).powi(2)).sum::<f64>() / count;
        (mean, variance.sqrt())
    }

    /// Counts the classes of `rows`, or summarises their grades with rounded figures.
    pub(super) fn count_labels(&self, rows: &[usize], kind: LabelKind) -> LabelCounts {
        if kind != LabelKind::Grades {
            let positive = rows.iter().filter(|row| self.is_positive(**row)).count();
            return LabelCounts::Classes { positive, negative: rows.len() - positive };
        }
        let grades = || rows.iter().map(|&row| f64::from(self.labels[row]));
        let (mean, deviation) = self.mean_and_deviation(rows);
        LabelCounts::Grades {
            num_samples: rows.len(),
            mean: rounded(mean),
            deviation: rounded(deviation),
            lowest: grades().reduce(f64::min).unwrap_or_default(),
            highest: grades().reduce(f64::max).unwrap_or_default(),
        }
    }

    /// Returns a digest in hex of the texts of `rows`, in any order.
    pub(super) fn text_digest(&self, rows: &[usize]) -> String {
        let mut keys: Vec<u128> = rows.iter().map(|&row| text_key(&self.texts[row])).collect();
        keys.sort_unstable();
        let bytes: Vec<u8> = keys.iter().flat_map(|key| key.to_le_bytes()).collect();
        blake3::hash(&bytes).to_hex().to_string()
    }
}

/// Rows of the samples by split, each list ordered by the split's hash.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Splits {
    /// Samples to train on.
    pub train: Vec<usize>,
    /// Samples that choose an epoch.
    pub validation: Vec<usize>,
    /// Samples that are evaluated only once.
    pub test: Vec<usize>,
}

/// Splits `samples`.
///
/// A sample that names its split is in it; others of its group go where the first such sample is.
/// The remaining samples are divided by whether their label (in a group, that of its first sample)
/// is above 0.5. Of each part one tenth, rounded to nearest, goes to validation and, if
/// `with_test`, as much to test; a group that is too large for the rest of both goes to train.
pub fn split(samples: &Samples, seed: u64, with_test: bool) -> Splits {
    let ranks = Ranks::new(seed, "training");
    let ranks: Vec<u128> = samples.texts.iter().map(|text| ranks.rank_of(text_key(text))).collect();
    let named = |row: usize| samples.splits.get(row).copied().flatten();
    let mut ordered: Vec<usize> = (0..samples.ids.len()).collect();
    // Samples equal in all of this are interchangeable, so their order decides nothing visible.
    ordered.sort_by(|&a, &b| {
        let content = (ranks[a], &samples.ids[a]).cmp(&(ranks[b], &samples.ids[b]));
        let labels = samples.labels[a].total_cmp(&samples.labels[b]);
        content.then(labels).then(samples.weight(a).total_cmp(&samples.weight(b)))
    });

    let mut splits = vec![Split::Train; ordered.len()];
    let mut open = [Vec::new(), Vec::new()];
    for group in group_rows(&ordered, &ranks, &samples.ids) {
        match group.iter().find_map(|&row| named(row)) {
            None => open[usize::from(samples.is_positive(group[0]))].push(group),
            Some(first) => {
                for row in group {
                    splits[row] = named(row).unwrap_or(first);
                }
            }
        }
    }
    for groups in open {
        let sizes: Vec<usize> = groups.iter().map(Vec::len).collect();
        let validation = tenth(sizes.iter().sum());
        let test = if with_test { validation } else { 0 };
        for (group, part) in groups.iter().zip(hold_out(&sizes, validation, test)) {
            for &row in group {
                splits[row] = part;
            }
        }
    }
    let rows_of =
        |part: Split| ordered.iter().copied().filter(|&row| splits[row] == part).collect();
    Splits {
        train: rows_of(Split::Train),
        validation: rows_of(Split::Validation),
        test: rows_of(Split::Test),
    }
}

/// Returns one tenth of `size`, rounded to nearest.
pub fn tenth(size: usize) -> usize {
    (size + HOLD_OUT / 2) / HOLD_OUT
}

/// Assigns groups of these sizes, in their order: first `validation` samples, then `test`. A group
/// too large for the rest of both goes to train.
pub fn hold_out(sizes: &[usize], mut validation: usize, mut test: usize) -> Vec<Split> {
    let place = |&size: &usize| {
        for (rest, part) in [(&mut validation, Split::Validation), (&mut test, Split::Test)] {
            if size <= *rest {
                *rest -= size;
                return part;
            }
        }
        Split::Train
    };
    sizes.iter().map(place).collect()
}

/// Groups the rows in `ordered` by equal id or equal rank of the text, transitively. Rows keep
/// their order, and groups have the order of their first rows.
fn group_rows(ordered: &[usize], ranks: &[u128], ids: &[String]) -> Vec<Vec<usize>> {
    let mut parents: Vec<usize> = (0..ordered.len()).collect();
    let mut by_id = HashMap::new();
    for (at, &row) in ordered.iter().enumerate() {
        let of_text = at.checked_sub(1).filter(|&before| ranks[row] == ranks[ordered[before]]);
        let of_id = *by_id.entry(&ids[row]).or_insert(at);
        for twin in of_text.into_iter().chain([of_id]) {
            let (a, b) = (find_root(&mut parents, twin), find_root(&mut parents, at));
            // The smaller root stays a root.
            parents[a.max(b)] = a.min(b);
        }
    }
    let mut groups: Vec<Vec<usize>> = vec![Vec::new(); ordered.len()];
    for (at, &row) in ordered.iter().enumerate() {
        groups[find_root(&mut parents, at)].push(row);
    }
    groups.retain(|group| !group.is_empty());
    groups
}

/// Finds the root of the group of `at`; halves the path on its way.
fn find_root(parents: &mut [usize], mut at: usize) -> usize {
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

    fn samples(rows: &[(u8, bool, u8)]) -> Samples {
        Samples {
            ids: rows.iter().map(|(id, ..)| format!("d{id}")).collect(),
            labels: rows.iter().map(|&(_, label, _)| f32::from(u8::from(label))).collect(),
            texts: rows.iter().map(|&(.., text)| format!("t {text}")).collect(),
            ..Samples::default()
        }
    }

    fn content(samples: &Samples, splits: &Splits) -> Vec<Vec<(String, bool, String)>> {
        let of = |rows: &Vec<usize>| {
            rows.iter()
                .map(|&r| {
                    (samples.ids[r].clone(), samples.is_positive(r), samples.texts[r].clone())
                })
                .collect()
        };
        vec![of(&splits.train), of(&splits.validation), of(&splits.test)]
    }

    #[test]
    fn each_class_gives_a_tenth_to_validation_and_to_test() {
        let rows: Vec<_> = (0..100u8).map(|i| (i, i < 40, i)).collect();
        let samples = samples(&rows);
        let splits = split(&samples, 7, true);
        for (rows, positive, negative) in
            [(&splits.train, 32, 48), (&splits.validation, 4, 6), (&splits.test, 4, 6)]
        {
            let counts = LabelCounts::Classes { positive, negative };
            assert_eq!(samples.count_labels(rows, LabelKind::Classes), counts);
        }
    }

    #[test]
    fn without_a_test_split_its_tenth_is_learned_from() {
        let rows: Vec<_> = (0..100u8).map(|i| (i, i < 40, i)).collect();
        let samples = samples(&rows);
        let (two, three) = (split(&samples, 7, false), split(&samples, 7, true));
        assert_eq!(two.validation, three.validation);
        assert_eq!((two.train.len(), two.test.len()), (90, 0));
    }

    /// Samples of one text (in any spelling) or one id share a split; a sample of both joins them.
    #[test]
    fn no_group_is_divided_and_what_is_learned_decides_nothing() {
        let mut samples = samples(&(0..200u8).map(|i| (i, i % 3 == 0, i)).collect::<Vec<_>>());
        for row in 0..40 {
            samples.texts[row + 40] = format!(" T  {row}\n");
            samples.ids[row + 80] = samples.ids[row + 40].clone();
        }
        for seed in 0..20 {
            let splits = split(&samples, seed, true);
            for rows in [&splits.train, &splits.validation, &splits.test] {
                for row in 0..40 {
                    let group = [row, row + 40, row + 80].map(|row| rows.contains(&row));
                    assert!(group == [group[0]; 3], "{seed} {row}: {group:?}");
                }
            }
            assert!(splits.validation.len() >= 15 && splits.test.len() >= 15, "{seed}");
            let embedded = Samples {
                embeddings: (0..200u8).map(|i| f32::from(i / 2) / 7.0).collect(),
                hidden_size: 1,
                ..samples.clone()
            };
            assert_eq!(split(&embedded, seed, true), splits);
        }
    }

    #[test]
    fn another_seed_gives_another_split() {
        let rows: Vec<_> = (0..100u8).map(|i| (i, i < 40, i)).collect();
        let samples = samples(&rows);
        let by = |seed| split(&samples, seed, true);
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
        let splits = split(&samples, 7, true);
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
            let splits = split(&one, seed, true);
            let parts = content(&one, &splits);
            prop_assert_eq!(
                &parts,
                &content(&two, &split(&two, seed, true))
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
