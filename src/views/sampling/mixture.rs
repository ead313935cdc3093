//! Strategies for choosing documents, and mixtures of them. A strategy spreads its share of a
//! sample over the documents of a frame.

use std::fmt;
use std::str::FromStr;

use serde::{Serialize, Serializer};

use super::clusters::Centres;
use super::draws::Draws;
use super::frame::{Frame, StoredDocuments};
use polysift_base::error::Result;
use polysift_config::{Keep, Rate};
use polysift_selection::RankKey;

/// Number of strata of equal width between the lowest and the highest score.
const SCORE_STRATA: usize = 10;
/// Maximum documents that k-means runs on.
const CLUSTERED_DOCUMENTS: usize = 8192;
const MAX_CLUSTERS: usize = 256;
/// Tolerance for the sum of the shares, which has to be 1.
const SHARE_TOLERANCE: f64 = 1e-9;

/// A strategy for choosing documents of a language.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Strategy {
    /// All documents have the same probability.
    Uniform,
    /// Ten strata of equal width between the lowest and the highest score have equal shares.
    Scores,
    /// Documents near a threshold in the order of the scores are favoured.
    Near,
    /// Documents that heads rank differently are favoured.
    Disagreement,
    /// Clusters of embeddings have equal shares.
    Diverse,
}

impl Strategy {
    /// All strategies.
    pub const ALL: [Self; 5] =
        [Self::Uniform, Self::Scores, Self::Near, Self::Disagreement, Self::Diverse];

    /// Returns the name in flags and rows.
    pub fn name(self) -> &'static str {
        match self {
            Self::Uniform => "uniform",
            Self::Scores => "scores",
            Self::Near => "near",
            Self::Disagreement => "disagreement",
            Self::Diverse => "diverse",
        }
    }

    pub(super) fn needs_scores(self) -> bool {
        matches!(self, Self::Scores | Self::Near | Self::Disagreement)
    }
}

impl Serialize for Strategy {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

/// Strategies with their shares of the sample, which add up to 1.
///
/// ```
/// use polysift_views::sampling::Mixture;
///
/// let mixture: Mixture = "uniform=0.7,near=0.3".parse()?;
/// assert_eq!(mixture.to_string(), "uniform=0.7,near=0.3");
/// assert!("uniform=0.7".parse::<Mixture>().is_err());
/// # Ok::<(), String>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mixture(Vec<(Strategy, Rate)>);

impl Mixture {
    pub(super) fn has(&self, strategy: Strategy) -> bool {
        self.0.iter().any(|(own, _)| *own == strategy)
    }

    pub(super) fn needs_scores(&self) -> bool {
        self.0.iter().any(|(strategy, _)| strategy.needs_scores())
    }

    /// Returns for each document of `features` its size in a sample of `count` documents, and the
    /// strategy that contributes most of it.
    pub(super) fn sizes(
        &self,
        features: &Features<'_>,
        count: usize,
    ) -> Result<Vec<(f64, Strategy)>> {
        let first = self.0.first().map_or(Strategy::Uniform, |(strategy, _)| *strategy);
        let mut sizes = vec![(0.0, first); features.frame.documents.len()];
        let mut largest = vec![0.0; sizes.len()];
        for &(strategy, share) in &self.0 {
            let clusters = (share.as_f64() * count as f64).ceil() as usize;
            let density = normalise(features.density(strategy, clusters)?);
            for ((size, largest), density) in sizes.iter_mut().zip(&mut largest).zip(density) {
                let part = share.as_f64() * density;
                size.0 += part;
                if part > *largest {
                    (*largest, size.1) = (part, strategy);
                }
            }
        }
        Ok(sizes)
    }
}

impl FromStr for Mixture {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut shares: Vec<(Strategy, Rate)> = Vec::new();
        for part in text.split(',') {
            let (name, share) = part.split_once('=').unwrap_or((part, "1"));
            let known = Strategy::ALL.into_iter().find(|strategy| strategy.name() == name);
            let strategy = known.ok_or_else(|| {
                let names = Strategy::ALL.map(Strategy::name).join(", ");
                format!("`{name}` is no strategy; the strategies are {names}")
            })?;
            if shares.iter().any(|(own, _)| *own == strategy) {
                return Err(format!("names `{name}` twice"));
            }
            shares.push((strategy, share.parse()?));
        }
        let sum: f64 = shares.iter().map(|(_, share)| share.as_f64()).sum();
        if (sum - 1.0).abs() > SHARE_TOLERANCE {
            return Err(format!("the shares add up to {sum}, not to 1"));
        }
        Ok(Self(shares))
    }
}

impl fmt::Display for Mixture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shares = self.0.iter().map(|(strategy, share)| format!("{}={share}", strategy.name()));
        f.write_str(&shares.collect::<Vec<_>>().join(","))
    }
}

/// A threshold in the order of a head's documents.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Cut {
    /// The threshold keeps this share of the documents, the best ones.
    Share(f64),
    /// The threshold is a score.
    Score(f64),
}

/// Inputs of the strategies.
pub(super) struct Features<'a> {
    pub(super) stored: &'a StoredDocuments<'a>,
    pub language: &'a str,
    pub(super) frame: &'a Frame,
    /// Heads (places among the run's heads) and kept sides. `disagreement` compares all; `scores`
    /// and `near` use the first. A document without a head's score is ignored for that head.
    pub(super) heads: &'a [(usize, Keep)],
    pub(super) cuts: &'a [Cut],
    pub(super) draws: Draws,
}

impl Features<'_> {
    /// Returns how much of the strategy's share each document gets, up to a factor.
    fn density(&self, strategy: Strategy, clusters: usize) -> Result<Vec<f64>> {
        Ok(match strategy {
            Strategy::Uniform => vec![1.0; self.frame.documents.len()],
            Strategy::Scores => self.score_strata(),
            Strategy::Near => self.near_cuts(),
            Strategy::Disagreement => self.disagreement(),
            Strategy::Diverse => self.clusters(clusters.clamp(1, MAX_CLUSTERS))?,
        })
    }

    /// Returns logit and score of each document by `self.heads[head]`.
    fn scores(&self, head: usize) -> Vec<Option<[f32; 2]>> {
        let place = self.heads.get(head).map(|(place, _)| *place);
        let documents = self.frame.documents.iter();
        documents.map(|document| document.score(place?)).collect()
    }

    /// Returns the share of scored documents, 0 to 1, that `self.heads[head]` ranks before each
    /// document; equal logits share the middle of their range.
    fn places(&self, head: usize) -> Vec<Option<f64>> {
        let scores = self.scores(head);
        let keep = self.heads.get(head).map_or(Keep::Above, |(_, keep)| *keep);
        let key = |i: usize| scores[i].map(|[logit, _]| RankKey::of_logit(logit, keep).logit);
        let mut order: Vec<usize> = (0..scores.len()).filter(|&i| scores[i].is_some()).collect();
        order.sort_by_key(|&i| key(i));
        let mut places = vec![None; scores.len()];
        let mut start = 0;
        for equal in order.chunk_by(|&a, &b| key(a) == key(b)) {
            let middle = start as f64 + equal.len() as f64 / 2.0;
            for &i in equal {
                places[i] = Some(middle / order.len() as f64);
            }
            start += equal.len();
        }
        places
    }

    fn score_strata(&self) -> Vec<f64> {
        let scores = self.scores(0);
        let finite = || scores.iter().flatten().map(|s| f64::from(s[1])).filter(|s| s.is_finite());
        let low = finite().fold(f64::INFINITY, f64::min);
        let width = (finite().fold(f64::NEG_INFINITY, f64::max) - low) / SCORE_STRATA as f64;
        let stratum = |[_, score]: [f32; 2]| {
            // The cast saturates: infinite scores are in the strata at the ends.
            let place = if width > 0.0 { (f64::from(score) - low) / width } else { 0.0 };
            (place as usize).min(SCORE_STRATA - 1)
        };
        shared_equally(&scores.into_iter().map(|s| s.map(stratum)).collect::<Vec<_>>())
    }

    /// Sums a Laplace kernel around each threshold; its width is half of the smaller side.
    fn near_cuts(&self) -> Vec<f64> {
        let (places, scores) = (self.places(0), self.scores(0));
        let keep = self.heads.first().map_or(Keep::Above, |(_, keep)| *keep);
        let share = |cut: &Cut| match *cut {
            Cut::Share(share) => share,
            Cut::Score(cut) => {
                let is_kept = |[_, score]: &&[f32; 2]| match keep {
                    Keep::Above => f64::from(*score) > cut,
                    Keep::Below => f64::from(*score) < cut,
                };
                let all = || scores.iter().flatten();
                all().filter(is_kept).count() as f64 / all().count().max(1) as f64
            }
        };
        let mut sizes = vec![0.0; places.len()];
        for cut in self.cuts.iter().map(share) {
            // At an end of the order there is no smaller side; the width is then a hundredth.
            let width = (cut.min(1.0 - cut) / 2.0).max(0.01);
            let density = |place: Option<f64>| {
                place.map_or(0.0, |place| (-(place - cut).abs() / width).exp())
            };
            let density = normalise(places.iter().copied().map(density).collect());
            sizes.iter_mut().zip(density).for_each(|(size, density)| *size += density);
        }
        sizes
    }

    fn disagreement(&self) -> Vec<f64> {
        let places: Vec<Vec<Option<f64>>> =
            (0..self.heads.len()).map(|head| self.places(head)).collect();
        let spread = |i: usize| {
            let own = || places.iter().filter_map(|head| head[i]);
            let highest = own().fold(f64::NEG_INFINITY, f64::max);
            (highest - own().fold(f64::INFINITY, f64::min)).max(0.0)
        };
        (0..self.frame.documents.len()).map(spread).collect()
    }

    fn clusters(&self, count: usize) -> Result<Vec<f64>> {
        let embeddings = |count, make: &(dyn Fn(&[f32]) -> Vec<f32> + Sync)| {
            self.frame.map_embeddings(self.stored, self.language, count, make)
        };
        let points = embeddings(CLUSTERED_DOCUMENTS, &<[f32]>::to_vec)?;
        let points: Vec<Vec<f32>> = points.into_iter().flatten().collect();
        let centres = Centres::find(&points, count, self.draws);
        let all = self.frame.documents.len();
        let nearest = |point: &[f32]| centres.nearest(point);
        Ok(shared_equally(&self.frame.map_embeddings(self.stored, self.language, all, nearest)?))
    }
}

/// Gives equal shares to the groups, and equal shares to the members of each group.
fn shared_equally(groups: &[Option<usize>]) -> Vec<f64> {
    let num_groups = groups.iter().flatten().max().map_or(0, |last| last + 1);
    let mut counts = vec![0u64; num_groups];
    groups.iter().flatten().for_each(|&group| counts[group] += 1);
    groups.iter().map(|group| group.map_or(0.0, |group| 1.0 / counts[group] as f64)).collect()
}

/// Divides `density` by its sum; zeros if the sum is zero.
fn normalise(mut density: Vec<f64>) -> Vec<f64> {
    let sum: f64 = density.iter().sum();
    if sum > 0.0 {
        for value in &mut density {
            *value /= sum;
        }
    }
    density
}
