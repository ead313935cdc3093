//! Heads without a file: the score of a row is a column of the input or a random number.

use serde::Serialize;
use twox_hash::XxHash3_64;

use super::DocumentScore;
use super::card::{HeadOf, HeadSpec, ModelCard};
use polysift_base::sample::hash_seed;
use polysift_config::{HeadConfig, HeadKind};

/// A head that scores rows without their texts; its card has a name and a spec without layers.
pub type RowHead = HeadOf<ScoreSource>;

/// Where the score of a row comes from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ScoreSource {
    /// A column of the input, by name.
    Column(String),
    /// The xxh3-64 of the row's id with this seed, divided by 2^64.
    Random(u64),
}

impl RowHead {
    /// Makes the row head called `name` of `config`. The order of a random head follows from its
    /// name and from `seed`, which is the run's.
    pub fn new(name: &str, config: &HeadConfig, seed: u64) -> Self {
        let scorer = match &config.score {
            Some(column) if config.kind == HeadKind::Column => ScoreSource::Column(column.clone()),
            // Every head and every seed of a run gives another order.
            _ => ScoreSource::Random(hash_seed(&[name], seed)),
        };
        let json = serde_json::to_vec(&scorer).unwrap_or_default();
        let spec = HeadSpec { kind: config.kind, ..HeadSpec::default() };
        let spec = spec.configured(config, name);
        let card = ModelCard { head: name.to_owned(), spec, ..ModelCard::default() };
        Self { card, scorer, digest: blake3::hash(&json).to_hex().to_string() }
    }

    /// Returns the column that provides the values for [`RowHead::score`]; `None` for random heads.
    pub fn column(&self) -> Option<&str> {
        match &self.scorer {
            ScoreSource::Column(column) => Some(column),
            ScoreSource::Random(_) => None,
        }
    }

    /// Scores the row `id` with this `value` in the column; `None` if the column is needed and
    /// empty.
    pub fn score(&self, id: &str, value: Option<f32>) -> Option<DocumentScore> {
        let score = match self.scorer {
            ScoreSource::Column(_) => value?,
            // Floats are finer near zero, and low numbers are kept.
            ScoreSource::Random(seed) => {
                XxHash3_64::oneshot_with_seed(seed, id.as_bytes()) as f32 / 2f32.powi(64)
            }
        };
        Some(DocumentScore { logit: score, score })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goldens of the Python package xxhash: the ids `doc-0` to `doc-999` sorted by
    /// `xxh3_64_intdigest(id, seed=xxh3_64_intdigest(b"sample" + struct.pack("<Q", 42)))`.
    #[test]
    fn random_scores_are_those_of_the_published_hash() {
        let config = HeadConfig { kind: HeadKind::Random, ..HeadConfig::default() };
        let head = RowHead::new("sample", &config, 42);
        assert_eq!(head.scorer, ScoreSource::Random(4_724_028_913_651_968_343));
        let score = |i: usize| head.score(&format!("doc-{i}"), None).map_or(f32::NAN, |s| s.score);
        assert!((f64::from(score(0)) - 8_606_003_404_178_797_738.0 / 2f64.powi(64)).abs() < 1e-7);
        let mut order: Vec<usize> = (0..1000).collect();
        order.sort_by(|a, b| score(*a).total_cmp(&score(*b)));
        assert_eq!(order[..3], [118, 822, 690]);
        // The last kept rows at 9.5%, 31.35% and 95%.
        assert_eq!([order[94], order[313], order[949]], [883, 550, 166]);
    }
}
