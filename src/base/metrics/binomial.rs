//! Exact binomial bounds on the misses that a sample may show and a population may have.
//!
//! # The threshold of a first pass
//!
//! Let S be the documents that the full run would keep. A document of S is *missed* if the first
//! pass scores it below the threshold c. Sort the members of S in a uniform sample of n documents
//! by first-pass score: Z_1 ≤ Z_2 ≤ … . If more than a share p of the population were missed at c =
//! Z_{x+1}, at most x of the n documents would lie among the p lowest of the missed, which has the
//! probability P(Binomial(n, p) ≤ x) (Wilks 1941: the coverage of an order statistic does not
//! depend on the distribution). So with x = [`allowed_misses`]`(n, p, risk)`, c misses at most p
//! with confidence 1 − risk. x does not depend on the scores, so no choice among thresholds needs a
//! correction. It is the largest x with a Clopper-Pearson (1934) upper bound of at most p. Drawing
//! without replacement makes so small a count even less likely (Uhlmann 1966).
//!
//! In the sample, S is known except for the threshold t of the full score. The best
//! [`rank_bound`]`(n, rate, risk)` of the sample replace it: with confidence 1 − risk the worst is
//! not better than t, so they contain the sample's part of S, and no Z_i, nor c, exceeds its true
//! value. Risks add up.
//! If the sample also chooses among m first passes, each has 1/m of the risk (Bonferroni).
//!
//! # The audit
//!
//! A uniform sample of m dropped documents is encoded after all. If the selection keeps x of them,
//! at most a share [`upper_bound`]`(x, m, risk)` of all dropped ones is lost (Clopper and Pearson).

/// Probability beyond either end of a 95% interval.
const TAIL: f64 = 0.025;
/// Maximum trials of an interval, where the precision of a log-factorial in f64 limits its width.
const MOST_TRIALS: f64 = 1e8;
/// Maximum terms of a continued fraction; a few times the root of the larger parameter suffice.
const MAX_TERMS: u32 = 100_000;

/// Returns P(X ≤ `x`) for a binomial X of `n` trials with probability `p`.
pub fn binomial_cdf(x: u64, n: u64, p: f64) -> f64 {
    if x >= n || p <= 0.0 {
        return 1.0;
    }
    if p >= 1.0 {
        return 0.0;
    }
    // Terms are logarithms relative to the largest so far, since the first may underflow f64.
    let odds = p.ln() - (-p).ln_1p();
    let mut term = n as f64 * (-p).ln_1p();
    let (mut largest, mut sum) = (term, 1.0);
    for k in 0..x {
        term += ((n - k) as f64).ln() - ((k + 1) as f64).ln() + odds;
        if term > largest {
            sum = sum * (largest - term).exp() + 1.0;
            largest = term;
        } else {
            sum += (term - largest).exp();
        }
    }
    (largest + sum.ln()).exp().min(1.0)
}

/// Returns the largest x with P(Binomial(`n`, `p`) ≤ x) ≤ `risk`; `None` if 0 is too likely.
pub fn allowed_misses(n: u64, p: f64, risk: f64) -> Option<u64> {
    partition_point(n, |x| binomial_cdf(x, n, p) <= risk).checked_sub(1)
}

/// Returns the smallest value, at most `n`, from which on `is_below` is false; before it is true.
pub fn partition_point(n: u64, is_below: impl Fn(u64) -> bool) -> u64 {
    let (mut low, mut high) = (0, n);
    while low < high {
        let middle = low + (high - low) / 2;
        if is_below(middle) { low = middle + 1 } else { high = middle }
    }
    low
}

/// Returns the highest first-pass threshold with at most `allowed` of `scores` below it, or `None`
/// if no finite one exists. `scores` are the first-pass scores of the sample's kept documents.
pub fn highest_threshold(mut scores: Vec<f32>, allowed: Option<u64>) -> Option<f32> {
    scores.sort_by(f32::total_cmp);
    let last = scores.len().checked_sub(1)?;
    Some(scores[(allowed? as usize).min(last)]).filter(|threshold| threshold.is_finite())
}

/// Returns the Clopper-Pearson upper bound: the largest p at which `x` or fewer hits in `n` trials
/// have a probability of at least `risk`; 1 without trials.
pub fn upper_bound(x: u64, n: u64, risk: f64) -> f64 {
    if x >= n {
        return 1.0;
    }
    bisect([0.0, 1.0], 100, |p| binomial_cdf(x, n, p) > risk)
}

/// Bisects `ends`; returns a point where `is_first` is false, next to one where it is true.
pub fn bisect(ends: [f64; 2], steps: u32, is_first: impl Fn(f64) -> bool) -> f64 {
    let [mut first, mut last] = ends;
    for _ in 0..steps {
        let middle = f64::midpoint(first, last);
        if is_first(middle) { first = middle } else { last = middle }
    }
    last
}

/// Returns the 95% confidence interval of a share with `successes` of `trials`, if any.
/// Source: C. J. Clopper, E. S. Pearson: The use of confidence or fiducial limits
/// illustrated in the case of the binomial, 1934.
pub fn proportion_interval(successes: usize, trials: usize) -> Option<[f64; 2]> {
    (trials > 0).then(|| share_interval(successes as f64 / trials as f64, trials as f64))
}

/// Returns [`proportion_interval`] of a `share` of `n` trials, not necessarily a whole number: the
/// bounds are quantiles of beta distributions. With infinite `n` the share is exact.
pub(super) fn share_interval(share: f64, n: f64) -> [f64; 2] {
    if n.is_infinite() {
        return [share; 2];
    }
    let n = n.min(MOST_TRIALS);
    let (hits, misses) = (share * n, (1.0 - share) * n);
    let low = if hits > 0.0 { beta_quantile(TAIL, hits, misses + 1.0) } else { 0.0 };
    let high = if misses > 0.0 { beta_quantile(1.0 - TAIL, hits + 1.0, misses) } else { 1.0 };
    [low.min(share), high.max(share)]
}

/// Returns the value below which the beta distribution of `a` and `b` has the probability `p`.
fn beta_quantile(p: f64, a: f64, b: f64) -> f64 {
    bisect([0.0, 1.0], 60, |x| beta_cdf(x, a, b) < p)
}

/// Computes the probability below `x`, in [0, 1], of a beta distribution by its continued fraction.
/// Sources: Abramowitz, Stegun: Handbook of Mathematical Functions, 1964, 26.5.8; W. J. Lentz:
/// Generating Bessel functions in Mie scattering calculations using continued fractions, 1976.
fn beta_cdf(x: f64, a: f64, b: f64) -> f64 {
    if x > (a + 1.0) / (a + b + 2.0) {
        return 1.0 - beta_cdf(1.0 - x, b, a); // where the fraction converges fast
    }
    let away = |value: f64| if value.abs() < f64::MIN_POSITIVE { f64::MIN_POSITIVE } else { value };
    let (mut c, mut d) = (1.0, 1.0 / away(1.0 - (a + b) * x / (a + 1.0)));
    let mut fraction = d;
    for m in 1..MAX_TERMS {
        let m = f64::from(m);
        let even = m * (b - m) * x / ((a + 2.0 * m - 1.0) * (a + 2.0 * m));
        let odd = -(a + m) * (a + b + m) * x / ((a + 2.0 * m) * (a + 2.0 * m + 1.0));
        let before = fraction;
        for term in [even, odd] {
            (c, d) = (away(1.0 + term / c), 1.0 / away(1.0 + term * d));
            fraction *= c * d;
        }
        if (fraction - before).abs() <= f64::EPSILON * fraction.abs() {
            break;
        }
    }
    let scale = libm::lgamma(a + b) - libm::lgamma(a) - libm::lgamma(b);
    fraction * (scale + a * x.ln() + b * (-x).ln_1p()).exp() / a
}

/// Returns the probability that Student's t with `freedom` degrees of freedom exceeds `t` ≥ 0.
/// Source: Abramowitz, Stegun: Handbook of Mathematical Functions, 1964, 26.7.1.
pub fn student_tail(t: f64, freedom: f64) -> f64 {
    0.5 * beta_cdf(freedom / (freedom + t * t), freedom / 2.0, 0.5)
}

/// Returns the 5% quantile of a chi-square distribution, within 2% from 5 degrees of `freedom` on,
/// too small below. Source: E. B. Wilson, M. M. Hilferty: The distribution of chi-square, 1931.
pub fn chi_square_low(freedom: f64) -> f64 {
    const NORMAL: f64 = -1.644_853_627;
    let part = 2.0 / (9.0 * freedom);
    freedom * (1.0 - part + NORMAL * part.sqrt()).powi(3)
}

/// Returns the smallest k with P(Binomial(`n`, `rate`) > k) ≤ `risk`: with this confidence at most
/// k documents of a sample of `n` are among the `rate` best of the population.
pub fn rank_bound(n: u64, rate: f64, risk: f64) -> u64 {
    // P(X > k) is P(n − X ≤ n − k − 1).
    partition_point(n, |k| binomial_cdf(n - k - 1, n, 1.0 - rate) > risk)
}

/// Returns the minimum sample that misses a share `p` entirely with probability at most `risk`.
pub fn least_sample(p: f64, risk: f64) -> u64 {
    (risk.ln() / (-p).ln_1p()).ceil() as u64
}

#[cfg(test)]
mod tests {
    use rand::rngs::ChaCha8Rng;
    use rand::seq::SliceRandom;
    use rand::{RngExt, SeedableRng};

    use super::*;

    /// Made by `tests/golden/cascade.py` (SciPy): kind, x or rate, n, p or risk, value.
    const GOLDEN: &str = include_str!("../../../tests/golden/cascade.tsv");

    #[test]
    fn bounds_are_those_of_scipy() {
        let mut seen = 0;
        for line in GOLDEN.lines().filter(|line| !line.starts_with('#')) {
            let fields: Vec<&str> = line.split('\t').collect();
            let number = |at: usize| fields[at].parse::<f64>().unwrap_or(f64::NAN);
            let (a, n, b, expected) = (number(1), number(2) as u64, number(3), number(4));
            // A sum has x terms, each with the rounding error of a logarithm.
            let (found, tolerance) = match fields[0] {
                "cdf" => (binomial_cdf(a as u64, n, b), 1e-8),
                "upper" => (upper_bound(a as u64, n, b), 1e-8),
                "misses" => (allowed_misses(n, a, b).map_or(-1.0, |x| x as f64), 0.0),
                "rank" => (rank_bound(n, a, b) as f64, 0.0),
                // The logarithm of gamma at up to 100 loses two digits of fifteen.
                "student" => (student_tail(a, b), 1e-11),
                "chi" => (chi_square_low(n as f64), 0.02),
                _ => (least_sample(a, b) as f64, 0.0),
            };
            assert!((found - expected).abs() <= tolerance * expected, "{line}: {found}");
            seen += 1;
        }
        assert!(seen > 100, "{seen}");
    }

    /// Returns the share of 300 samples in which the threshold misses more than promised, of the
    /// first pass that leaves the fewest sample documents. A rate is kept, or all above a
    /// threshold.
    fn broken(correlation: f64, step: f64, passes: usize, is_fixed: bool) -> f64 {
        const POPULATION: usize = 8000;
        const SAMPLE: usize = 1500;
        const RATE: f64 = 0.1;
        const RECALL: f64 = 0.9;
        const RISK: f64 = 0.1;
        let mut random = ChaCha8Rng::seed_from_u64(9);
        let mut failures = 0;
        for _ in 0..300 {
            // Full and first-pass scores share a part `correlation`; rounding to `step` makes ties.
            let round = |score: f64| if step > 0.0 { (score / step).floor() } else { score };
            let mut documents: Vec<(f64, Vec<f32>)> = (0..POPULATION)
                .map(|_| {
                    let full: f64 = random.random();
                    let mut cheap = |_| {
                        let noise: f64 = random.random();
                        round(correlation * full + (1.0 - correlation) * noise) as f32
                    };
                    let cheap = (0..passes).map(&mut cheap).collect();
                    (round(full), cheap)
                })
                .collect();
            let order =
                |documents: &mut [(f64, Vec<f32>)]| documents.sort_by(|a, b| b.0.total_cmp(&a.0));
            documents.shuffle(&mut random); // the order of equal scores
            let mut sample = documents[..SAMPLE].to_vec();
            order(&mut documents);
            order(&mut sample);
            let whole = (RATE * POPULATION as f64) as usize;
            let risk = RISK / 2.0 / passes as f64;
            let (wide, allowed) = if is_fixed {
                let wide = sample.partition_point(|document| document.0 >= documents[whole - 1].0);
                (wide, allowed_misses(wide as u64, 1.0 - RECALL, risk))
            } else {
                let wide = rank_bound(SAMPLE as u64, RATE, RISK / 2.0) as usize;
                (wide, allowed_misses(SAMPLE as u64, (1.0 - RECALL) * RATE, risk))
            };
            let threshold = |pass: usize| {
                let kept = sample[..wide].iter().map(|document| document.1[pass]).collect();
                (pass, highest_threshold(kept, allowed).unwrap_or(f32::INFINITY))
            };
            let left = |&(pass, threshold): &(usize, f32)| {
                sample.iter().filter(|document| document.1[pass] >= threshold).count()
            };
            let (pass, threshold) =
                (0..passes).map(threshold).min_by_key(left).unwrap_or((0, f32::INFINITY));
            let missed =
                documents[..whole].iter().filter(|document| document.1[pass] < threshold).count();
            failures += usize::from(missed as f64 > (1.0 - RECALL) * whole as f64);
        }
        failures as f64 / 300.0
    }

    #[test]
    fn the_promise_holds_as_often_as_it_says_whatever_the_first_pass_is_worth() {
        for (correlation, step) in [(0.0, 0.0), (0.5, 0.0), (0.9, 0.0), (0.9, 0.1), (1.0, 0.0)] {
            let broken = broken(correlation, step, 1, false);
            assert!(broken <= 0.1, "{correlation} {step}: {broken}");
        }
        let broken = broken(0.5, 0.0, 10, true);
        assert!(broken <= 0.1, "the best of ten: {broken}");
    }

    #[test]
    fn as_many_misses_are_allowed_as_the_upper_bound_lets_pass() {
        for (n, p, risk) in [(1000, 0.01, 0.05), (9211, 0.0005, 0.01), (500, 0.2, 0.005)] {
            let x = allowed_misses(n, p, risk).unwrap_or_default();
            assert!(upper_bound(x, n, risk) <= p && upper_bound(x + 1, n, risk) > p, "{n} {p}");
        }
    }
}
