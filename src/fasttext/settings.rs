//! Settings at the start of a model file, as far as a classifier needs them.

use std::io::{self, Read, Write};

use super::source::{ModelReader, broken};
use polysift_config::FastTextConfig;

/// fastText's `model_name::sup`.
const SUPERVISED: i32 = 3;
/// Maximum plausible length of n-grams; the time of a line is proportional to it.
const LONGEST_NGRAM: i32 = 100;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ModelLoss {
    /// A Huffman tree of the labels with a sigmoid at each fork.
    Hierarchical = 1,
    /// One sigmoid per label, for a model trained by negative sampling.
    NegativeSampling = 2,
    Softmax = 3,
    OneVersusAll = 4,
}

#[derive(Debug, Clone)]
pub struct ModelSettings {
    /// Width of the vectors.
    pub dim: usize,
    /// Length of the longest n-gram of words.
    pub word_ngrams: usize,
    pub(super) loss: ModelLoss,
    /// Number of vectors that n-grams share.
    pub buckets: usize,
    /// Number of characters of the shortest and the longest n-gram within a word; 0 for none.
    pub(super) shortest_subword: usize,
    pub(super) longest_subword: usize,
    /// All settings in the order of the file, which [`Self::write`] writes: also those that only
    /// training and other models use. The fields above are parsed from them and do not change.
    all: ([i32; 12], f64),
}

impl ModelSettings {
    /// Makes settings to train a classifier; those without an effect have fastText's defaults.
    pub(super) fn supervised(config: &FastTextConfig, word_ngrams: usize) -> Self {
        let buckets = if word_ngrams > 1 { config.buckets } else { 0 };
        let number = |value: usize| i32::try_from(value).unwrap_or(i32::MAX);
        let loss = ModelLoss::Softmax;
        let numbers = [
            number(config.dim),
            5, // window
            number(config.epochs),
            number(config.min_count),
            5, // negatives
            number(word_ngrams),
            loss as i32,
            SUPERVISED,
            number(buckets),
            0,   // characters of the shortest n-gram within a word
            0,   // and of the longest
            100, // tokens between updates of the learning rate
        ];
        Self {
            dim: config.dim,
            word_ngrams,
            loss,
            buckets,
            shortest_subword: 0,
            longest_subword: 0,
            all: (numbers, 1e-4),
        }
    }

    /// Reads the settings of a file of this `version` (C++ `Args::load`).
    pub(super) fn read(source: &mut ModelReader<impl Read>, version: i32) -> io::Result<Self> {
        let mut numbers = [0; 12];
        for number in &mut numbers {
            *number = source.read_i32()?;
        }
        if version == 11 {
            numbers[10] = 0; // classifiers had no subwords then
        }
        let [dim, _, _, _, _, word_ngrams, loss, model, buckets, shortest, longest, _] = numbers;
        let threshold = f64::from_le_bytes(source.read_array()?);
        if model != SUPERVISED {
            return broken("is not a classifier (a supervised fastText model)");
        }
        let loss = match loss {
            1 => ModelLoss::Hierarchical,
            2 => ModelLoss::NegativeSampling,
            3 => ModelLoss::Softmax,
            4 => ModelLoss::OneVersusAll,
            other => return broken(format!("has an unknown loss {other}")),
        };
        let within = |name: &str, value: i32, most: i32| match usize::try_from(value) {
            Ok(number) if value <= most => Ok(number),
            _ => broken(format!("has {name} {value}; 0 to {most} are possible")),
        };
        Ok(Self {
            dim: within("the dimension", dim, 1 << 16)?,
            word_ngrams: within("word n-grams of", word_ngrams.max(0), LONGEST_NGRAM)?,
            loss,
            buckets: within("the number of buckets", buckets, i32::MAX)?,
            shortest_subword: within("n-grams of characters of", shortest.max(0), LONGEST_NGRAM)?,
            longest_subword: within("n-grams of characters of", longest.max(0), LONGEST_NGRAM)?,
            all: (numbers, threshold),
        })
    }

    /// Writes the settings (C++ `Args::save`).
    pub(super) fn write(&self, file: &mut impl Write) -> io::Result<()> {
        let (numbers, threshold) = self.all;
        numbers.iter().try_for_each(|number| file.write_all(&number.to_le_bytes()))?;
        file.write_all(&threshold.to_le_bytes())
    }
}
