//! Strategies for choosing documents, and mixtures of them. A strategy spreads its share of a
//! sample over the documents of a frame.

use std::collections::BTreeMap;
use std::str::FromStr;

use serde::Serialize;

use super::frame::FrameDocument;
use polysift_config::{Keep, Rate};
use polysift_selection::RankKey;

/// Tolerance for the sum of the shares, which has to be 1.
const SHARE_TOLERANCE: f64 = 1e-9;

/// A strategy for choosing documents of a language.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Strategy {
    /// All documents have the same probability.
    Uniform,
    /// Documents near a threshold in the order of the scores are favoured.
    Near,
}

impl Strategy {
    /// All strategies.
    pub const ALL: [Self; 2] = [Self::Uniform, Self::Near];

    /// Returns the name in flags and rows.
    pub fn name(self) -> &'static str {
        match self {
            Self::Uniform => "uniform",
            Self::Near => "near",
        }
    }
}

/// Strategies with their shares of the sample, which add up to 1.
///
/// ```
/// use polysift_views::sampling::Mixture;
///
/// assert!("uniform=0.7,near=0.3".parse::<Mixture>().is_ok());
/// assert!("uniform=0.7".parse::<Mixture>().is_err());
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mixture(BTreeMap<Strategy, Rate>);

impl Mixture {
    pub(super) fn has(&self, strategy: Strategy) -> bool {
        self.0.contains_key(&strategy)
    }

    /// Returns for each of `documents` its size in a sample, and the strategy that contributes most
    /// of it.
    pub(super) fn sizes(
        &self,
        documents: &[FrameDocument],
        near: Option<&NearThresholds>,
    ) -> Vec<(f64, Strategy)> {
        let share = |strategy| self.0.get(&strategy).map_or(0.0, |share| share.as_f64());
        let uniform = share(Strategy::Uniform) * (1.0 / documents.len() as f64);
        let near = near.map_or_else(|| vec![0.0; documents.len()], |near| near.density(documents));
        let size = |density: f64| {
            let near = share(Strategy::Near) * density;
            (uniform + near, if near > uniform { Strategy::Near } else { Strategy::Uniform })
        };
        near.into_iter().map(size).collect()
    }
}

impl FromStr for Mixture {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut shares: BTreeMap<Strategy, Rate> = BTreeMap::new();
        for part in text.split(',') {
            let (name, share) = part.split_once('=').unwrap_or((part, "1"));
            let known = Strategy::ALL.into_iter().find(|strategy| strategy.name() == name);
            let strategy = known.ok_or_else(|| {
                let names = Strategy::ALL.map(Strategy::name).join(", ");
                format!("`{name}` is no strategy; the strategies are {names}")
            })?;
            if shares.insert(strategy, share.parse()?).is_some() {
                return Err(format!("names `{name}` twice"));
            }
        }
        let sum: f64 = shares.values().map(|share| share.as_f64()).sum();
        if (sum - 1.0).abs() > SHARE_TOLERANCE {
            return Err(format!("the shares add up to {sum}, not to 1"));
        }
        Ok(Self(shares))
    }
}

/// A threshold in the order of a head's documents.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum NearThreshold {
    /// The threshold keeps this share of the documents, the best ones.
    Share(f64),
    /// The threshold is a score.
    Score(f64),
}

/// The thresholds of a head that documents are drawn near to.
pub(super) struct NearThresholds {
    /// Place of the head among the run's heads.
    pub(super) head: usize,
    /// The side that the head keeps.
    pub(super) keep: Keep,
    pub(super) thresholds: Vec<NearThreshold>,
}

impl NearThresholds {
    /// Sums a Laplace kernel around each threshold; its width is half of the smaller side. A
    /// document without a score gets nothing. The sum over `documents` is 1 unless all get nothing.
    fn density(&self, documents: &[FrameDocument]) -> Vec<f64> {
        let places = self.places(documents);
        let mut sizes = vec![0.0; places.len()];
        for threshold in &self.thresholds {
            let share = self.share(*threshold, documents);
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

    /// Returns the share of scored documents, 0 to 1, that the head ranks before each document;
    /// equal logits share the middle of their range.
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

    /// Returns the share of the scored `documents` that `threshold` keeps.
    fn share(&self, threshold: NearThreshold, documents: &[FrameDocument]) -> f64 {
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
