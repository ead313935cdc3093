//! Draws a sample of fixed size with inclusion probabilities that are known to the last bit.
//!
//! Probabilities and their sums are integer multiples of 2^-52: the probability written beside a
//! row is exactly the one with which the row was drawn.
//!
//! # Source
//! W. G. Madow: On the theory of systematic sampling, II, 1949 (unequal probabilities); H. O.
//! Hartley, J. N. K. Rao: Sampling with unequal probabilities and without replacement, 1962 (random
//! order of the list); C.-E. Särndal, B. Swensson, J. Wretman: Model Assisted Survey Sampling,
//! 1992, section 3.6.2 (sizes that would need a probability above 1).

use polysift_base::sample::hash_of;

/// The probability 1.
pub(super) const ONE: u64 = 1 << 52;
/// Smaller sizes count as 0, so that a division by their sum stays finite.
const LEAST_SIZE: f64 = 1e-290;

/// Returns the seed of `purpose` in `language`; `history` separates rounds with one seed.
pub(super) fn seed_of(seed: u64, history: &[u8], purpose: &str, language: &str) -> u64 {
    let seed = &seed.to_le_bytes()[..];
    let hash = hash_of([seed, history, purpose.as_bytes(), language.as_bytes()]);
    u64::from_le_bytes(hash.as_bytes().as_chunks::<8>().0[0])
}

/// Returns inclusion probabilities, in units of 1 / [`ONE`]: proportional to `sizes` (none below
/// 0), but at most 1. They add up to `count`, or to the number of sizes above 0 if that is smaller.
pub(super) fn inclusion_probabilities(sizes: &[f64], count: usize) -> Vec<u64> {
    let is_possible = |size: f64| size >= LEAST_SIZE;
    let count = count.min(sizes.iter().filter(|size| is_possible(**size)).count());
    let mut units = vec![0; sizes.len()];
    let (mut scale, mut num_certain) = (0.0, 0);
    // Certain documents leave less to the others, some of which may then become certain.
    while num_certain < count {
        let is_open = |(size, unit): &(&f64, &u64)| is_possible(**size) && **unit < ONE;
        let open = sizes.iter().zip(&units).filter(is_open);
        scale = (count - num_certain) as f64 / open.map(|(size, _)| size).sum::<f64>();
        let before = num_certain;
        for (size, unit) in sizes.iter().zip(&mut units) {
            if is_possible(*size) && *unit < ONE && size * scale >= 1.0 {
                *unit = ONE;
                num_certain += 1;
            }
        }
        if num_certain == before {
            break;
        }
    }
    if num_certain < count {
        for (size, unit) in sizes.iter().zip(&mut units).filter(|(_, unit)| **unit < ONE) {
            *unit = ((size * scale * ONE as f64).round() as u64).min(ONE);
        }
    }
    // Rounding leaves a few units over; the largest probabilities take them.
    let sum: u128 = units.iter().map(|unit| u128::from(*unit)).sum();
    let mut rest = count as i128 * i128::from(ONE) - sum.cast_signed();
    let mut order: Vec<usize> =
        (0..units.len()).filter(|&i| (1..ONE).contains(&units[i])).collect();
    order.sort_by_key(|&i| std::cmp::Reverse(units[i]));
    for i in order {
        let taken = rest.clamp(-i128::from(units[i]), i128::from(ONE - units[i]));
        units[i] = (i128::from(units[i]) + taken) as u64;
        rest -= taken;
    }
    units
}

/// Returns the items that contain one of the points `start`, `start + ONE`, `start + 2 ONE`... in
/// their interval of the running sum of `units`. If `start` is uniform below [`ONE`], each item is
/// drawn with the probability in `units`, and their sum is the sample size.
pub(super) fn draw_systematic(units: &[u64], start: u64) -> Vec<usize> {
    let (mut sum, mut next) = (0u128, u128::from(start));
    let mut drawn = Vec::new();
    for (i, unit) in units.iter().enumerate() {
        sum += u128::from(*unit);
        if next < sum {
            drawn.push(i);
            next += u128::from(ONE);
        }
    }
    drawn
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// By hand: of sizes 1, 1, 2, 4 and three to draw, the last would need 3 · 4/8 and is certain;
    /// the others share 2 as 1 : 1 : 2, and the third of them is certain too.
    #[test]
    fn sizes_that_ask_for_more_than_one_are_certain() {
        let units = inclusion_probabilities(&[1.0, 1.0, 2.0, 4.0], 3);
        assert_eq!(units, [ONE / 2, ONE / 2, ONE, ONE]);
        assert_eq!(draw_systematic(&units, 0), [0, 2, 3]);
        assert_eq!(draw_systematic(&units, ONE / 2), [1, 2, 3]);
    }

    #[test]
    fn fewer_items_than_are_asked_for_are_all_drawn() {
        assert_eq!(inclusion_probabilities(&[0.0, 0.5, 1e-250], 3), [0, ONE, ONE]);
        assert!(inclusion_probabilities(&[], 3).is_empty());
        assert_eq!(inclusion_probabilities(&[1.0], 0), [0]);
    }

    proptest! {
        #[test]
        fn probabilities_add_up_to_the_count_and_so_many_are_drawn(
            sizes in prop::collection::vec(0.0f64..10.0, 1..80), count in 0usize..90, start in 0..ONE,
        ) {
            let units = inclusion_probabilities(&sizes, count);
            let expected = count.min(sizes.iter().filter(|size| **size > 0.0).count());
            let sum: u128 = units.iter().map(|unit| u128::from(*unit)).sum();
            prop_assert_eq!(sum, expected as u128 * u128::from(ONE));
            let drawn = draw_systematic(&units, start);
            prop_assert_eq!(drawn.len(), expected);
            prop_assert!(drawn.iter().all(|&i| units[i] > 0));
        }

        /// For equidistant starts, an item is drawn as often as its probability says, up to the one
        /// start at either end of its interval.
        #[test]
        fn each_is_drawn_with_its_probability(
            sizes in prop::collection::vec(0.0f64..10.0, 1..30), count in 1usize..10,
        ) {
            const STARTS: u64 = 512;
            let units = inclusion_probabilities(&sizes, count);
            let mut drawn = vec![0u64; sizes.len()];
            for start in 0..STARTS {
                for i in draw_systematic(&units, start * (ONE / STARTS)) {
                    drawn[i] += 1;
                }
            }
            for (unit, drawn) in units.iter().zip(drawn) {
                prop_assert!((unit / (ONE / STARTS)).abs_diff(drawn) <= 1);
            }
        }
    }
}
