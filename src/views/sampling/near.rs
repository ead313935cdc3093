//! Sizes of documents that are drawn near thresholds.

use super::frame::FrameDocument;
use polysift_config::Keep;
use polysift_selection::RankKey;

#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum NearThreshold {
    /// The threshold keeps this share of the documents, the best ones.
    Share(f64),
    Score(f64),
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
    pub(super) fn sizes(&self, documents: &[FrameDocument]) -> Vec<f64> {
        let uniform = (1.0 - self.share) / documents.len() as f64;
        self.density(documents).into_iter().map(|near| uniform + self.share * near).collect()
    }

    /// Sums a Laplace kernel around each threshold; its width is half of the smaller side. A
    /// document without a score gets nothing. The sum over `documents` is 1 unless all get nothing.
    fn density(&self, documents: &[FrameDocument]) -> Vec<f64> {
        let places = self.places(documents);
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

    /// Returns the share of scored documents before each in the order, and half of its equals.
    fn places(&self, documents: &[FrameDocument]) -> Vec<Option<f64>> {
        let key = |(logit, _)| RankKey::of_logit(logit, self.keep).logit;
        let keys = documents.iter().map(|document| document.number.map(key));
        let keys: Vec<Option<u32>> = keys.collect();
        let mut order: Vec<u32> = keys.iter().copied().flatten().collect();
        order.sort_unstable();
        let place = |key: u32| {
            let before = order.partition_point(|other| *other < key) as f64;
            let up_to = order.partition_point(|other| *other <= key) as f64;
            f64::midpoint(before, up_to) / order.len() as f64
        };
        keys.into_iter().map(|key| key.map(place)).collect()
    }

    fn kept_share(&self, threshold: NearThreshold, documents: &[FrameDocument]) -> f64 {
        let threshold = match threshold {
            NearThreshold::Share(share) => return share,
            NearThreshold::Score(score) => score,
        };
        let scores = || documents.iter().filter_map(|d| Some(f64::from(d.number?.1)));
        let is_kept = |score: &f64| match self.keep {
            Keep::Above => *score > threshold,
            Keep::Below => *score < threshold,
        };
        scores().filter(is_kept).count() as f64 / scores().count().max(1) as f64
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
