//! Margins around thresholds from the differences seen: beyond one, f32 should decide alike.

use polysift_base::metrics::{chi_square_low, partition_point, student_tail};
use polysift_config::REFINE_SAFETY;

/// Maximum degrees of freedom: the tail is then that of a normal distribution.
const MAX_FREEDOM: f64 = 200.0;
/// Minimum documents near thresholds from which a scale is taken.
const MIN_NEAR: u64 = 8;
/// Steps in which the distance to a threshold doubles.
const STEPS_PER_DOUBLING: u32 = 16;
/// Number of steps: distances of 1 to 32 scales.
const STEPS: usize = 5 * STEPS_PER_DOUBLING as usize + 1;

/// Differences between the logits of the run and in f32, for one head and language.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(super) struct Differences {
    /// Number of documents scored both ways.
    pub(super) documents: u64,
    /// Number of documents among them that the run could score.
    numbers: u64,
    /// Largest difference; `None` if no logit of the run was a number.
    pub(super) largest: Option<f64>,
    squares: f64,
    fourths: f64,
}

impl Differences {
    /// Adds a document by its `logit` of the run and its `exact` one in f32.
    pub(super) fn add(&mut self, logit: f32, exact: Option<f32>) {
        self.documents += 1;
        // Documents that the run could not score are scored in f32 whatever the margin is.
        if logit.is_nan() {
            return;
        }
        let difference = exact.map_or(f64::NAN, |exact| f64::from(logit) - f64::from(exact)).abs();
        // No margin is wide enough for a number that f32 does not confirm.
        let difference = if difference.is_nan() { f64::INFINITY } else { difference };
        self.numbers += 1;
        self.largest = Some(self.largest.map_or(difference, |largest| largest.max(difference)));
        self.squares += difference.powi(2);
        self.fourths += difference.powi(4);
    }

    pub(super) fn merge(&mut self, other: &Self) {
        self.documents += other.documents;
        self.numbers += other.numbers;
        if other.largest > self.largest {
            self.largest = other.largest;
        }
        self.squares += other.squares;
        self.fourths += other.fourths;
    }

    /// Returns the distribution of the differences; its scale is an upper 95% limit if `is_bound`.
    fn spread(&self, is_bound: bool) -> Spread {
        let n = self.numbers as f64;
        if self.numbers == 0 || !self.squares.is_finite() {
            return Spread { scale: f64::INFINITY, freedom: MAX_FREEDOM };
        }
        let mean_square = self.squares / n;
        // The kurtosis of a normal sample has a standard error of √(24/n).
        let excess = self.fourths / n / mean_square.powi(2) - 3.0 - (24.0 / n).sqrt();
        let freedom =
            if excess > 0.0 { (4.0 + 6.0 / excess).min(MAX_FREEDOM) } else { MAX_FREEDOM };
        let divisor = if is_bound { chi_square_low(n) } else { n };
        Spread { scale: (self.squares / divisor).sqrt(), freedom }
    }
}

/// Differences of all documents scored both ways, and of the ones near thresholds among them.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(super) struct Seen {
    pub(super) all: Differences,
    pub(super) near: Differences,
}

impl Seen {
    /// Returns the distribution for the margin: the wider one of all documents and of near ones.
    pub(super) fn spread(&self) -> Spread {
        // Before any document near a threshold is known, a small sample must not overestimate.
        let all = self.all.spread(self.near.documents > 0);
        if self.near.numbers < MIN_NEAR {
            return all;
        }
        let near = self.near.spread(true);
        Spread { scale: all.scale.max(near.scale), freedom: all.freedom.min(near.freedom) }
    }

    /// Returns the margin that is exact unless a difference exceeds it; infinite if none is known.
    pub(super) fn widest(&self) -> f64 {
        self.all.largest.map_or(f64::INFINITY, |largest| REFINE_SAFETY * largest)
    }
}

/// A distribution of differences: Student's, scaled to this standard deviation.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Spread {
    /// Standard deviation in logits; infinite if nothing is known.
    pub(super) scale: f64,
    pub(super) freedom: f64,
}

/// Numbers of documents by their distance to the nearest threshold, in steps of the scale.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Distances([u64; STEPS + 1]);

impl Distances {
    pub(super) const NONE: Self = Self([0; STEPS + 1]);

    /// Adds a document that the thresholds treat alike within a distance for which `is_alike`
    /// holds; it holds for no distance beyond one for which it does not.
    pub(super) fn add(&mut self, is_alike: impl Fn(f64) -> bool) {
        let steps = STEPS as u64;
        // Most documents are farther from a threshold than the last step.
        let step = if is_alike(distance(STEPS - 1)) {
            steps
        } else {
            partition_point(steps, |step| is_alike(distance(step as usize)))
        };
        self.0[step as usize] += 1;
    }

    pub(super) fn merge(&mut self, other: &Self) {
        self.0.iter_mut().zip(other.0).for_each(|(mine, theirs)| *mine += theirs);
    }

    /// Returns the least distance in scales beyond which f32 treats at most `allowed` documents
    /// differently on average, and that average; infinity if there is none. A document counts for
    /// each of `heads`.
    pub(super) fn reach(&self, freedom: f64, heads: usize, allowed: f64) -> (f64, f64) {
        let (mut reach, mut expected) = ((f64::INFINITY, 0.0), 0.0);
        for step in (0..STEPS).rev() {
            let beyond = student_tail(distance(step) / (1.0 - 2.0 / freedom).sqrt(), freedom);
            expected += heads as f64 * self.0[step + 1] as f64 * beyond;
            if expected > allowed {
                break;
            }
            reach = (distance(step), expected);
        }
        reach
    }
}

/// Returns the distance of `step` in scales.
fn distance(step: usize) -> f64 {
    (step as f64 / f64::from(STEPS_PER_DOUBLING)).exp2()
}

#[cfg(test)]
mod tests {
    use rand::rngs::ChaCha8Rng;
    use rand::{RngExt, SeedableRng};

    use super::*;

    #[test]
    fn the_widest_margin_follows_the_largest_difference_in_either_direction() {
        let mut seen = Seen::default();
        assert!(seen.widest().is_infinite());
        seen.all.add(1.0, Some(1.25));
        seen.all.add(-3.0, Some(-3.5));
        assert_eq!((seen.all.documents, seen.widest()), (2, REFINE_SAFETY * 0.5));
    }

    #[test]
    fn a_number_that_f32_does_not_confirm_asks_for_all_documents_and_a_nan_for_none() {
        let mut seen = Seen::default();
        seen.all.add(f32::NAN, Some(1.0));
        assert!(seen.spread().scale.is_infinite());
        seen.all.add(1.0, Some(1.0));
        assert_eq!((seen.all.largest, seen.spread().scale), (Some(0.0), 0.0));
        seen.all.add(1.0, Some(f32::NAN));
        assert!(seen.widest().is_infinite() && seen.spread().scale.is_infinite());
    }

    #[test]
    fn distances_are_found_in_their_steps() {
        let mut distances = Distances::NONE;
        for (at, step) in [(0.5, 0), (1.0, 1), (1.01, 1), (2.0, 17), (31.9, 80), (33.0, 81)] {
            let before = distances.0[step];
            distances.add(|distance| distance <= at);
            assert_eq!(distances.0[step], before + 1, "{at}");
        }
        // The document at 2 scales is allowed to be wrong; the two beyond it are hardly ever wrong.
        let normal = |t| student_tail(t / (1.0 - 2.0 / MAX_FREEDOM).sqrt(), MAX_FREEDOM);
        let (reach, expected) = distances.reach(MAX_FREEDOM, 2, 2.0 * normal(2.0) + 1e-9);
        // No document lies between 1.04 and 2.
        assert_eq!(reach.to_bits(), distance(1).to_bits());
        assert!((expected - 2.0 * normal(2.0)).abs() < 1e-9);
        assert_eq!(distances.reach(MAX_FREEDOM, 1, -1.0), (f64::INFINITY, 0.0));
    }

    /// Refines 400 documents around a threshold at 0 with `noise` of a scale of 1, from a sample of
    /// 16 others; returns the documents that are treated wrongly and those scored again, in the
    /// mean over 1,000 corpora.
    fn wrong(noise: impl Fn(&mut ChaCha8Rng) -> f64, allowed: f64) -> (f64, f64) {
        const CORPORA: u64 = 1000;
        let (mut wrong, mut refined) = (0, 0);
        for seed in 0..CORPORA {
            let mut random = ChaCha8Rng::seed_from_u64(seed);
            let documents: Vec<(f64, f64)> = (0..400)
                .map(|_| (20.0 * (random.random::<f64>() - 0.5), noise(&mut random)))
                .collect();
            let mut seen = Seen::default();
            (0..16).for_each(|_| seen.all.add(noise(&mut random) as f32, Some(0.0)));
            let mut width = 0.0;
            for round in 0.. {
                let spread = seen.spread();
                let mut distances = Distances::NONE;
                for (logit, _) in &documents {
                    distances.add(|distance| logit.abs() > distance * spread.scale);
                }
                let reach = distances.reach(spread.freedom, 1, allowed).0 * spread.scale;
                if round > 1 && reach <= width {
                    break;
                }
                for (logit, noise) in &documents {
                    if logit.abs() > width && logit.abs() <= reach {
                        seen.all.add(*noise as f32, Some(0.0));
                        seen.near.add(*noise as f32, Some(0.0));
                    }
                }
                width = reach.max(width);
            }
            let is_wrong = |(logit, noise): &&(f64, f64)| (logit + noise) * logit < 0.0;
            let outside = documents.iter().filter(|(logit, _)| logit.abs() > width);
            wrong += outside.filter(is_wrong).count();
            refined += documents.iter().filter(|(logit, _)| logit.abs() <= width).count();
        }
        (wrong as f64 / CORPORA as f64, refined as f64 / CORPORA as f64)
    }

    #[test]
    fn as_few_documents_are_treated_wrongly_as_promised() {
        let normal = |random: &mut ChaCha8Rng| {
            let radius = (-2.0 * (1.0 - random.random::<f64>()).ln()).sqrt();
            radius * (std::f64::consts::TAU * random.random::<f64>()).cos()
        };
        let laplace = |random: &mut ChaCha8Rng| {
            let tail = -(1.0 - random.random::<f64>()).ln() / std::f64::consts::SQRT_2;
            if random.random() { tail } else { -tail }
        };
        for allowed in [0.1f64, 0.02] {
            // The count has a standard error of √(allowed / 1000).
            let most = allowed + 3.0 * (allowed / 1000.0).sqrt();
            let (of_normal, again) = wrong(normal, allowed);
            let (of_laplace, more) = wrong(laplace, allowed);
            assert!(of_normal <= most && of_laplace <= most, "{of_normal} {of_laplace}");
            // A corpus of 400 has 40 documents a scale on both sides of the threshold.
            assert!(again < 4.5 * 40.0 && more > again, "{again} {more}");
        }
    }
}
