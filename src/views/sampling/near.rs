//! Sizes of documents that are drawn near thresholds.

use polysift_config::Keep;
use polysift_heads::head::DocumentScore;
use polysift_selection::{Bound, RankKey};

#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum NearThreshold {
    /// The threshold keeps this share of the documents, the best ones.
    Share(f64),
    /// The threshold keeps the documents inside the bound.
    Bound(Bound),
}

/// The thresholds of a head that a share of the sample is drawn near to.
pub(super) struct NearThresholds {
    pub(super) share: f64,
    /// Place of the head among the run's heads.
    pub(super) head: usize,
    pub(super) keep: Keep,
    pub(super) thresholds: Vec<NearThreshold>,
}

impl NearThresholds {
    /// Returns each document's part of [`Self::share`] together with its equal part of the rest.
    /// `documents` are the scores by the head, which are never NaN.
    pub(super) fn sizes(&self, documents: &[Option<DocumentScore>]) -> Vec<f64> {
        let uniform = (1.0 - self.share) / documents.len() as f64;
        self.density(documents).into_iter().map(|near| uniform + self.share * near).collect()
    }

    /// Sums a Laplace kernel around each threshold; its width is half of the smaller side. A
    /// document without a score gets nothing. The sum over `documents` is 1 unless all get nothing.
    fn density(&self, documents: &[Option<DocumentScore>]) -> Vec<f64> {
        let places = self.locate(documents);
        let mut sizes = vec![0.0; places.len()];
        for threshold in &self.thresholds {
            let share = self.kept_share(*threshold, documents);
            // At an end of the order there is no smaller side; the width is then a hundredth.
            let width = (share.min(1.0 - share) / 2.0).max(0.01);
            let density = |place: &Option<f64>| {
                place.map_or(0.0, |place| (-(place - share).abs() / width).exp())
            };
            let density = normalised(places.iter().map(density).collect());
            sizes.iter_mut().zip(density).for_each(|(size, density)| *size += density);
        }
        normalised(sizes)
    }

    /// Returns the share of scored documents before each in the order, with half of its equals.
    fn locate(&self, documents: &[Option<DocumentScore>]) -> Vec<Option<f64>> {
        let key = |found: DocumentScore| RankKey::of_logit(found.logit, self.keep).logit;
        let keys: Vec<Option<u32>> = documents.iter().map(|score| score.map(key)).collect();
        let mut order: Vec<u32> = keys.iter().copied().flatten().collect();
        order.sort_unstable();
        let place = |key: u32| {
            let before = order.partition_point(|other| *other < key) as f64;
            let up_to = order.partition_point(|other| *other <= key) as f64;
            f64::midpoint(before, up_to) / order.len() as f64
        };
        keys.into_iter().map(|key| key.map(place)).collect()
    }

    /// Returns the share of the scored documents that `threshold` keeps.
    fn kept_share(&self, threshold: NearThreshold, documents: &[Option<DocumentScore>]) -> f64 {
        let bound = match threshold {
            NearThreshold::Share(share) => return share,
            NearThreshold::Bound(bound) => bound,
        };
        let scored = || documents.iter().flatten();
        let is_kept = |found: &&DocumentScore| {
            bound.keeps_key(RankKey::of_logit(found.logit, self.keep), found.score)
        };
        scored().filter(is_kept).count() as f64 / scored().count().max(1) as f64
    }
}

/// Divides `density` by its sum; zeros if the sum is zero.
fn normalised(mut density: Vec<f64>) -> Vec<f64> {
    let sum: f64 = density.iter().sum();
    if sum > 0.0 {
        for value in &mut density {
            *value /= sum;
        }
    }
    density
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bound_keeps_its_share_of_the_documents() {
        let document = |logit: f32| Some(DocumentScore { logit, score: logit });
        let documents: Vec<_> = (0..5u8).map(|score| document(score.into())).collect();
        let near =
            NearThresholds { share: 1.0, head: 0, keep: Keep::Above, thresholds: Vec::new() };
        let bounds = [
            (Bound::AtLeast(3.0), 2.0),
            (Bound::Above(3.0), 1.0),
            (Bound::UpTo(RankKey::of_logit(2.0, Keep::Above)), 3.0),
        ];
        for (bound, kept) in bounds {
            let share = near.kept_share(NearThreshold::Bound(bound), &documents);
            assert!((share * 5.0 - kept).abs() < 1e-12, "{bound:?}: {share}");
        }
    }
}
