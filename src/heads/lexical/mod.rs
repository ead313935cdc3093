//! A small network over hashed n-grams of token ids, which cheaply imitates an encoder's score.
//!
//! ```text
//! token ids ──1- and 2-grams──▶ TF-IDF, length 1 ──linear──▶ [32] ──ReLU──linear──▶ outputs
//! ```
//!
//! N-grams are known by a hash of 32 bits. Those in only one sample are left out: they say nothing
//! about other texts and would be most of the file. The form is that of Luxical (arXiv 2512.09015),
//! reduced to the prediction of a few numbers. Arithmetic runs on one thread in a fixed order:
//! equal samples and seeds give equal models to the bit.

mod fit;

use std::collections::HashMap;
use std::path::Path;

use safetensors::{Dtype, SafeTensors};

use crate::tensors;
use polysift_base::error::{Error, Result};

pub use fit::fit;

/// Width of the hidden layer.
const WIDTH: usize = 32;
/// Factor of the hash of n-grams: 2^64 divided by the golden ratio, odd.
const MULTIPLIER: u64 = 0x9E37_79B9_7F4A_7C15;

/// A trained network.
#[derive(Debug, Clone, PartialEq)]
pub struct LexicalModel {
    /// `[N]`: the known n-grams, ascending.
    ngrams: Vec<u32>,
    /// `[N]`: their inverse document frequencies.
    idf: Vec<f32>,
    /// `[N, WIDTH]`
    first: Vec<f32>,
    /// `[WIDTH]`
    first_bias: Vec<f32>,
    /// `[outputs, WIDTH]`
    second: Vec<f32>,
    /// `[outputs]`
    second_bias: Vec<f32>,
}

/// N-grams of a text, ascending, with their counts.
pub(crate) type Counts = Vec<(u32, u32)>;

/// Counts the 1- and 2-grams of `ids`.
pub(crate) fn count(ids: &[u32]) -> Counts {
    let hash = |key: u64| (key.wrapping_mul(MULTIPLIER) >> 32) as u32;
    let ones = ids.iter().map(|&id| hash(u64::from(id) + 1));
    let twos = ids.windows(2).map(|pair| hash((u64::from(pair[0]) + 1) << 32 | u64::from(pair[1])));
    let mut ngrams: Vec<u32> = ones.chain(twos).collect();
    ngrams.sort_unstable();
    ngrams.chunk_by(|a, b| a == b).map(|same| (same[0], same.len() as u32)).collect()
}

impl LexicalModel {
    /// Scores a text of these token ids; returns one score per output.
    pub fn score(&self, ids: &[u32]) -> Vec<f32> {
        self.forward(&self.features(&count(ids))).1
    }

    /// Returns the TF-IDF of `counts` as a vector of length 1, by index among the known n-grams.
    fn features(&self, counts: &Counts) -> Vec<(usize, f32)> {
        let weight = |(ngram, times): &(u32, u32)| {
            let at = self.ngrams.binary_search(ngram).ok()?;
            Some((at, (1.0 + (*times as f32).ln()) * self.idf[at]))
        };
        let mut features: Vec<(usize, f32)> = counts.iter().filter_map(weight).collect();
        let square: f32 = features.iter().map(|(_, value)| value * value).sum();
        let scale = if square > 0.0 { 1.0 / square.sqrt() } else { 0.0 };
        for (_, value) in &mut features {
            *value *= scale;
        }
        features
    }

    /// Returns the hidden values after the ReLU, and the outputs.
    fn forward(&self, features: &[(usize, f32)]) -> (Vec<f32>, Vec<f32>) {
        let mut hidden = self.first_bias.clone();
        for &(at, value) in features {
            let row = &self.first[at * WIDTH..][..WIDTH];
            hidden.iter_mut().zip(row).for_each(|(sum, weight)| *sum += value * weight);
        }
        for value in &mut hidden {
            *value = value.max(0.0);
        }
        let output = |(row, bias): (&[f32], &f32)| {
            bias + row.iter().zip(&hidden).map(|(weight, value)| weight * value).sum::<f32>()
        };
        let outputs = self.second.chunks_exact(WIDTH).zip(&self.second_bias).map(output).collect();
        (hidden, outputs)
    }

    pub(crate) fn layer_sizes(&self) -> Vec<usize> {
        vec![self.ngrams.len(), WIDTH, self.second_bias.len()]
    }

    /// Returns a safetensors file with f32 tensors, u32 n-grams, bytes of `others`, and `metadata`.
    ///
    /// # Errors
    /// [`Error::Shape`], which does not happen.
    pub fn to_bytes(
        &self,
        others: &[(&str, &[u8])],
        metadata: Option<HashMap<String, String>>,
    ) -> Result<Vec<u8>> {
        let (ngrams, outputs) = (self.ngrams.len(), self.second_bias.len());
        let floats: [(&str, Vec<usize>, &[f32]); 5] = [
            ("idf", vec![ngrams], &self.idf),
            ("first.weight", vec![ngrams, WIDTH], &self.first),
            ("first.bias", vec![WIDTH], &self.first_bias),
            ("second.weight", vec![outputs, WIDTH], &self.second),
            ("second.bias", vec![outputs], &self.second_bias),
        ];
        let mut tensors = floats.map(tensors::of_floats).to_vec();
        let numbers = self.ngrams.iter().flat_map(|ngram| ngram.to_le_bytes()).collect();
        tensors.push(("ngrams".to_owned(), Dtype::U32, vec![ngrams], numbers));
        let of_bytes = |(name, bytes): &(&str, &[u8])| {
            ((*name).to_owned(), Dtype::U8, vec![bytes.len()], bytes.to_vec())
        };
        tensors.extend(others.iter().map(of_bytes));
        tensors::to_file(&tensors, metadata)
    }

    /// Reads a model from the `bytes` of the file `path`.
    ///
    /// # Errors
    /// [`Error::Model`] if the bytes are not a model.
    pub fn from_bytes(bytes: &[u8], path: &Path) -> Result<Self> {
        let tensors = SafeTensors::deserialize(bytes).map_err(|e| e.to_string());
        tensors.and_then(|tensors| Self::of_tensors(&tensors)).map_err(|e| Error::model(path, e))
    }

    /// Makes a model of the tensors of a file; the error text says what is wrong with it.
    pub(crate) fn of_tensors(tensors: &SafeTensors<'_>) -> Result<Self, String> {
        let values = |name: &str, shape: &[usize]| {
            let tensor = tensors.tensor(name).map_err(|e| e.to_string())?;
            if tensor.dtype() != Dtype::F32 || tensor.shape() != shape {
                let (dtype, found) = (tensor.dtype(), tensor.shape());
                return Err(format!("`{name}` is {dtype:?} {found:?}, not F32 {shape:?}"));
            }
            let (numbers, _) = tensor.data().as_chunks::<4>();
            let values: Vec<f32> = numbers.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect();
            let is_sound = values.iter().all(|value| value.is_finite());
            is_sound.then_some(values).ok_or_else(|| format!("`{name}` is not finite"))
        };
        let outputs = tensors.tensor("second.bias").map_err(|e| e.to_string())?;
        let outputs = outputs.shape().first().copied().unwrap_or_default();
        let ngrams = tensors.tensor("ngrams").map_err(|e| e.to_string())?;
        let (numbers, _) = ngrams.data().as_chunks::<4>();
        let numbers: Vec<u32> = numbers.iter().map(|bytes| u32::from_le_bytes(*bytes)).collect();
        let is_list = ngrams.dtype() == Dtype::U32 && ngrams.shape() == [numbers.len()];
        if !is_list || !numbers.is_sorted_by(|a, b| a < b) {
            return Err("`ngrams` are not ascending numbers".to_owned());
        }
        Ok(Self {
            idf: values("idf", &[numbers.len()])?,
            first: values("first.weight", &[numbers.len(), WIDTH])?,
            first_bias: values("first.bias", &[WIDTH])?,
            second: values("second.weight", &[outputs, WIDTH])?,
            second_bias: values("second.bias", &[outputs])?,
            ngrams: numbers,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use polysift_base::progress::Stop;
    use polysift_config::Loss;

    /// Texts of 30 ids below 100; their scores are the share of ids below 10, less 0.1 and negated.
    fn samples() -> Vec<(Vec<u32>, Vec<f32>)> {
        let mut state = 1u64;
        let mut next = |below: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) % below
        };
        (0..400)
            .map(|_| {
                let most = 20 + next(80);
                let ids: Vec<u32> = (0..30).map(|_| next(most) as u32).collect();
                let low = ids.iter().filter(|id| **id < 10).count() as f32 / 30.0;
                (ids, vec![low - 0.1, -low])
            })
            .collect()
    }

    #[test]
    fn n_grams_are_counted_once_each_whatever_their_order() {
        assert_eq!(count(&[]), []);
        let counts = count(&[7, 7, 7]);
        assert_eq!(counts.iter().map(|(_, times)| *times).sum::<u32>(), 5);
        assert_eq!(counts.len(), 2);
        assert!(count(&[1, 2]).iter().ne(count(&[2, 1]).iter()), "2-grams have an order");
    }

    #[test]
    fn a_student_learns_what_follows_from_the_tokens_and_reads_back_as_it_was_written() -> Result<()>
    {
        let samples = samples();
        let (train, held) = samples.split_at(300);
        let model = fit(train, &[], Loss::SquaredError, 7, &Stop::default())?;
        assert_eq!(model, fit(train, &[], Loss::SquaredError, 7, &Stop::default())?);
        let predicted: Vec<f32> = held.iter().map(|(ids, _)| model.score(ids)[0]).collect();
        let labels: Vec<bool> = held.iter().map(|(_, scores)| scores[0] > 0.15).collect();
        let auc = polysift_base::metrics::roc_auc(&predicted, &labels);
        assert!(auc.is_some_and(|auc| auc > 0.9), "{auc:?}");
        let read = LexicalModel::from_bytes(&model.to_bytes(&[], None)?, "m".as_ref())?;
        assert_eq!(read, model);
        Ok(())
    }

    #[test]
    fn a_file_that_is_none_is_refused() {
        assert!(LexicalModel::from_bytes(b"no model", "m".as_ref()).is_err());
    }
}
