//! fastText classifiers: heads that score a text by its words, without an embedding.
//!
//! Owns fastText's file format in both directions, the way from a text to words, training and
//! scoring. Does not split samples and does not read documents.
//!
//! Own code, since the one maintained crate (`fasttext` 0.8.0) does not predict what the library
//! predicts: on the models and texts of `tests/golden/fasttext` its probabilities are off by up to
//! 0.33. It leaves the end of the line out of the n-grams, separates words by other white space and
//! gives nothing for an empty line. It also trains from files only, and trusts the sizes in a file.
//!
//! Invariants: a model gives the library's probabilities within 1e-5; a text's score depends on the
//! text alone; the same samples give the same file; a damaged file is an error before it is memory.
//!
//! ```
//! use polysift_heads::fasttext::FastTextModel;
//!
//! let (model, _digest) = FastTextModel::read("../../tests/golden/fasttext/words.bin".as_ref())?;
//! let best = &model.predict("every human right")[0];
//! assert!(best.0.starts_with("__label__") && best.1 <= 1.0001);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod dictionary;
mod fit;
mod matrix;
mod model;
mod settings;
mod source;
mod text;

#[cfg(test)]
mod tests;

pub(crate) use fit::Fit;
pub use model::is_model;
pub use model::{FastTextModel, LabelScore, TextScratch};
pub(crate) use text::{document_line, sample_line};
