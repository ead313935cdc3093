//! fastText classifiers, which score a text by its words without an embedding.
//!
//! The code is our own because the one maintained crate (`fasttext` 0.8.0) predicts other values
//! than the library: on the models and texts of `tests/golden/fasttext` it is off by up to 0.33. It
//! leaves the end of the line out of the n-grams, separates words by other white space and returns
//! nothing for an empty line. It also trains from files only, and trusts the sizes in a file.
//!
//! Probabilities equal the library's within 1e-6. A text's score depends only on the text, and
//! equal samples give equal files. Sizes in a file are checked before memory is allocated.
//!
//! ```
//! use polysift_fasttext::{FastTextModel, TextScratch};
//!
//! let (model, _digest) = FastTextModel::read("../../tests/golden/fasttext/words.bin".as_ref())?;
//! let best = model.best("every human right", &mut TextScratch::default());
//! assert!(best.is_some_and(|(_label, probability)| probability <= 1.0001));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod dictionary;
mod fit;
mod language;
mod matrix;
mod model;
mod settings;
mod source;
mod text;
mod tree;

#[cfg(test)]
mod tests;

pub use fit::fit;
pub use language::LanguageIdentifier;
pub use model::{FastTextModel, TextScratch, is_model};
pub use text::{document_line, sample_line};
