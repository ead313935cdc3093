//! Measures how well an order separates two classes, and how similar two orders are.

use super::binomial::bisect;

/// Half-width of a 95% interval of a normal distribution, in standard deviations.
const Z_95: f64 = 1.959_963_984_540_054;

struct ScoreGroup {
    positives: u64,
    negatives: u64,
}

/// Counts the classes of the documents of each score, in ascending order; -0 and 0 are one score.
fn group_by_score(scores: &[f32], labels: &[bool]) -> Vec<ScoreGroup> {
    let mut pairs: Vec<(f32, bool)> = scores.iter().copied().zip(labels.iter().copied()).collect();
    pairs.sort_unstable_by(|a, b| a.0.total_cmp(&b.0));
    #[expect(clippy::float_cmp, reason = "ties are equal values, -0 and 0 among them")]
    let groups = pairs.chunk_by(|a, b| a.0 == b.0);
    let count = |group: &[(f32, bool)]| {
        let positives = group.iter().filter(|pair| pair.1).count() as u64;
        ScoreGroup { positives, negatives: group.len() as u64 - positives }
    };
    groups.map(count).collect()
}

/// Returns the numbers of positives and negatives.
fn count_classes(groups: &[ScoreGroup]) -> (u64, u64) {
    groups.iter().fold((0, 0), |(positives, negatives), group| {
        (positives + group.positives, negatives + group.negatives)
    })
}

/// Computes the area under the ROC curve: the share of (positive, negative) pairs in which the
/// positive scores higher, ties counting one half; `None` unless both classes occur. O(n log n).
pub fn roc_auc(scores: &[f32], labels: &[bool]) -> Option<f64> {
    area_of_groups(&group_by_score(scores, labels))
}

/// Computes [`roc_auc`] from groups of ascending score.
fn area_of_groups(groups: &[ScoreGroup]) -> Option<f64> {
    // Counts half pairs, which are integers.
    let (mut won, mut negatives) = (0u128, 0u64);
    for group in groups {
        won += u128::from(group.positives) * u128::from(2 * negatives + group.negatives);
        negatives += group.negatives;
    }
    let (positives, negatives) = count_classes(groups);
    let all = 2 * u128::from(positives) * u128::from(negatives);
    (all > 0).then(|| won as f64 / all as f64)
}

/// Computes the 95% confidence interval of [`roc_auc`]: the areas whose standard error by Hanley
/// and McNeil (1982) does not exclude the observed one, so it has a width even if the classes do
/// not overlap. Assumes independent draws. `None` with fewer than two documents of a class.
/// Source: R. G. Newcombe: Confidence intervals for an effect size measure based on the
/// Mann-Whitney statistic, part 2, 2006, method 5.
pub fn roc_auc_interval(scores: &[f32], labels: &[bool]) -> Option<[f64; 2]> {
    let groups = group_by_score(scores, labels);
    let area = area_of_groups(&groups)?;
    let (positives, negatives) = count_classes(&groups);
    if positives < 2 || negatives < 2 {
        return None;
    }
    let (m, n) = (positives as f64, negatives as f64);
    let others = f64::midpoint(m, n) - 1.0;
    let variance = |x: f64| {
        let pairs = 1.0 + others * ((1.0 - x) / (2.0 - x) + x / (1.0 + x));
        x * (1.0 - x) * pairs / (m * n)
    };
    let is_excluded = |x: f64| (area - x).powi(2) > Z_95 * Z_95 * variance(x);
    // The areas nearest to either end that are not excluded.
    Some([0.0, 1.0].map(|end| bisect([end, area], 60, is_excluded)))
}

/// Computes the average precision, the area under the precision-recall curve as scikit-learn sums
/// it: the sum over distinct scores, best first, of the gain in recall times the precision there.
pub fn average_precision(scores: &[f32], labels: &[bool]) -> Option<f64> {
    let groups = group_by_score(scores, labels);
    let (positives, _) = count_classes(&groups);
    let (mut found, mut called, mut sum) = (0, 0, 0.0);
    for group in groups.iter().rev() {
        found += group.positives;
        called += group.positives + group.negatives;
        sum += group.positives as f64 * (found as f64 / called as f64);
    }
    (positives > 0).then(|| sum / positives as f64)
}

/// Computes Spearman's rank correlation, from -1 to 1; ties take the mean of their ranks. `None`
/// unless both lists have the same length and each holds two different values.
pub fn spearman(a: &[f32], b: &[f32]) -> Option<f64> {
    if a.len() != b.len() {
        return None;
    }
    let (a, b) = (centred_ranks(a), centred_ranks(b));
    let dot = |x: &[isize], y: &[isize]| -> i128 {
        x.iter().zip(y).map(|(&x, &y)| x as i128 * y as i128).sum()
    };
    let (aa, bb) = (dot(&a, &a), dot(&b, &b));
    // The root of a square is exact, so equal orders correlate by exactly 1.
    (aa > 0 && bb > 0).then(|| dot(&a, &b) as f64 / (aa as f64 * bb as f64).sqrt())
}

/// Computes the 95% confidence interval of [`spearman`]'s `rho` of `n` pairs, if `n` > 3. Source:
/// D. G. Bonett, T. A. Wright: Sample size requirements for estimating [...] correlations, 2000.
pub fn spearman_interval(rho: f64, n: usize) -> Option<[f64; 2]> {
    let half = Z_95 * ((1.0 + rho * rho / 2.0) / (n as f64 - 3.0)).sqrt();
    (n > 3).then(|| [-half, half].map(|step| (rho.atanh() + step).tanh()))
}

/// Computes Kendall's rank correlation tau-b, which accounts for ties, from -1 to 1. `None` unless
/// both lists have the same length and each holds two different values. O(n log n).
/// Source: W. R. Knight: A computer method for calculating Kendall's tau with ungrouped data, 1966.
pub fn kendall(a: &[f32], b: &[f32]) -> Option<f64> {
    if a.len() != b.len() {
        return None;
    }
    // -0 and 0 are one value.
    let mut pairs: Vec<(f32, f32)> = a.iter().zip(b).map(|(a, b)| (a + 0.0, b + 0.0)).collect();
    pairs.sort_unstable_by(|x, y| x.0.total_cmp(&y.0).then(x.1.total_cmp(&y.1)));
    let pairs_in = |n: usize| n as i128 * (n as i128 - 1) / 2;
    let tied = |values: &mut dyn Iterator<Item = usize>| values.map(pairs_in).sum::<i128>();
    let equal = |x: f32, y: f32| x.total_cmp(&y).is_eq();
    let in_a = tied(&mut pairs.chunk_by(|x, y| equal(x.0, y.0)).map(<[_]>::len));
    let both = |x: &(f32, f32), y: &(f32, f32)| equal(x.0, y.0) && equal(x.1, y.1);
    let in_both = tied(&mut pairs.chunk_by(both).map(<[_]>::len));
    let mut second: Vec<f32> = pairs.into_iter().map(|pair| pair.1).collect();
    let discordant = sort_counting_inversions(&mut second);
    let in_b = tied(&mut second.chunk_by(|x, y| equal(*x, *y)).map(<[_]>::len));
    let all = pairs_in(a.len());
    let difference = all - in_a - in_b + in_both - 2 * discordant;
    let (of_a, of_b) = (all - in_a, all - in_b);
    (of_a > 0 && of_b > 0).then(|| difference as f64 / (of_a as f64 * of_b as f64).sqrt())
}

/// Counts the pairs of `values` in which the first is larger, and sorts `values`.
fn sort_counting_inversions(values: &mut [f32]) -> i128 {
    if values.len() < 2 {
        return 0;
    }
    let (left, right) = values.split_at_mut(values.len() / 2);
    let mut count = sort_counting_inversions(left) + sort_counting_inversions(right);
    let (mut merged, mut at) = (Vec::with_capacity(left.len() + right.len()), 0);
    for &value in right.iter() {
        while at < left.len() && left[at].total_cmp(&value).is_le() {
            merged.push(left[at]);
            at += 1;
        }
        count += (left.len() - at) as i128;
        merged.push(value);
    }
    merged.extend_from_slice(&left[at..]);
    values.copy_from_slice(&merged);
    count
}

/// Returns twice each rank minus twice the mean rank: integers, so sums are exact.
fn centred_ranks(values: &[f32]) -> Vec<isize> {
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_unstable_by(|&i, &j| values[i].total_cmp(&values[j]));
    let mut ranks = vec![0; values.len()];
    let mut before = 0;
    #[expect(clippy::float_cmp, reason = "ties are equal values, -0 and 0 among them")]
    for group in order.chunk_by(|&i, &j| values[i] == values[j]) {
        for &i in group {
            ranks[i] = (2 * before + group.len()).cast_signed() - values.len().cast_signed();
        }
        before += group.len();
    }
    ranks
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Makes few distinct values, so that there are ties.
    fn scored() -> impl Strategy<Value = Vec<(f32, f32, bool)>> {
        prop::collection::vec((-4i8..4, -4i8..4, any::<bool>()), 0..60).prop_map(|rows| {
            rows.into_iter().map(|(a, b, y)| (f32::from(a), f32::from(b) / 3.0, y)).collect()
        })
    }

    fn columns(rows: &[(f32, f32, bool)]) -> (Vec<f32>, Vec<f32>, Vec<bool>) {
        (
            rows.iter().map(|r| r.0).collect(),
            rows.iter().map(|r| r.1).collect(),
            rows.iter().map(|r| r.2).collect(),
        )
    }

    /// Sums have at most 60 terms of order one: 60 roundings of 2^-53 each, and some more.
    fn close(a: Option<f64>, b: Option<f64>) -> bool {
        match (a, b) {
            (Some(a), Some(b)) => (a - b).abs() < 1e-13,
            (None, None) => true,
            _ => false,
        }
    }

    proptest! {
        #[test]
        fn the_order_of_documents_changes_nothing(
            (rows, shuffled) in scored().prop_flat_map(|r| (Just(r.clone()), Just(r).prop_shuffle())),
        ) {
            let ((a, b, y), (c, d, z)) = (columns(&rows), columns(&shuffled));
            prop_assert_eq!(roc_auc(&a, &y), roc_auc(&c, &z));
            prop_assert_eq!(roc_auc_interval(&a, &y), roc_auc_interval(&c, &z));
            prop_assert_eq!(average_precision(&a, &y), average_precision(&c, &z));
            prop_assert_eq!(spearman(&a, &b), spearman(&c, &d));
            prop_assert_eq!(kendall(&a, &b), kendall(&c, &d));
        }

        #[test]
        fn a_growing_function_of_the_scores_changes_nothing(rows in scored()) {
            let (a, b, y) = columns(&rows);
            let grown: Vec<f32> = a.iter().map(|&x| x * x * x + 5.0).collect();
            prop_assert_eq!(roc_auc(&a, &y), roc_auc(&grown, &y));
            prop_assert_eq!(roc_auc_interval(&a, &y), roc_auc_interval(&grown, &y));
            prop_assert_eq!(average_precision(&a, &y), average_precision(&grown, &y));
            prop_assert_eq!(spearman(&a, &b), spearman(&grown, &b));
        }

        #[test]
        fn swapped_labels_and_reversed_scores_mirror_the_area(rows in scored()) {
            let (a, b, y) = columns(&rows);
            let swapped: Vec<bool> = y.iter().map(|&y| !y).collect();
            let reversed: Vec<f32> = a.iter().map(|&x| -x).collect();
            let mirrored = roc_auc(&a, &y).map(|area| 1.0 - area);
            prop_assert!(close(roc_auc(&a, &swapped), mirrored));
            prop_assert!(close(roc_auc(&reversed, &y), mirrored));
            prop_assert_eq!(spearman(&reversed, &b), spearman(&a, &b).map(|r| -r));
            prop_assert_eq!(spearman(&a, &b), spearman(&b, &a));
        }

        #[test]
        fn kendall_counts_all_pairs(rows in scored()) {
            let (a, b, _) = columns(&rows);
            let (mut sum, mut of_a, mut of_b) = (0i32, 0i32, 0i32);
            for i in 0..a.len() {
                for j in 0..i {
                    let sign = |x: f32| i32::from(x > 0.0) - i32::from(x < 0.0);
                    let (x, y) = (sign(a[i] - a[j]), sign(b[i] - b[j]));
                    (sum, of_a, of_b) = (sum + x * y, of_a + x * x, of_b + y * y);
                }
            }
            let product = f64::from(of_a) * f64::from(of_b);
            let expected = (product > 0.0).then(|| f64::from(sum) / product.sqrt());
            prop_assert_eq!(kendall(&a, &b), expected);
        }

        #[test]
        fn the_interval_holds_the_area(rows in scored()) {
            let (a, _, y) = columns(&rows);
            if let (Some(area), Some([low, high])) = (roc_auc(&a, &y), roc_auc_interval(&a, &y)) {
                prop_assert!(0.0 <= low && low <= area && area <= high && high <= 1.0);
            }
        }
    }

    #[test]
    fn one_class_or_one_value_has_no_measure() {
        assert_eq!(roc_auc(&[1.0, 2.0], &[true, true]), None);
        assert_eq!(roc_auc_interval(&[1.0, 2.0, 3.0], &[true, true, false]), None);
        assert_eq!(average_precision(&[1.0], &[false]), None);
        assert_eq!(average_precision(&[1.0], &[true]), Some(1.0));
        assert_eq!(spearman(&[1.0, 1.0], &[1.0, 2.0]), None);
        assert_eq!(kendall(&[1.0, 1.0], &[1.0, 2.0]), None);
        assert_eq!(spearman(&[], &[]), None);
        assert_eq!(spearman(&[1.0, 2.0], &[1.0]), None);
    }
}
