//! Labelled samples made from the sources that the field uses.
//!
//! ```text
//!  mmmlu  include  oasst2  aya_dataset  aya_collection        corpus (FineWeb-2...)
//!     └──────┴────────┴─────────┴─────positives──┘                 │ bottom-k by keyed hash
//!                               │                              negatives
//!                               └──── groups ──▶ splits ◀──────────┘
//!                                                  │
//!                          OUT/<lang>/{train_80,valid_10,test_10}.jsonl, card.json
//! ```
//!
//! Owns what a row of each source means, the choice of samples, the splits and the card that
//! records all of it. Does not embed or train: a head's `train` names the files written here, and
//! their column `split` decides the split there.
//!
//! Invariant: the same files, whatever their order on disk and whatever the number of threads, give
//! the same bytes. Nothing is drawn from a stream of random numbers; every choice ranks the content
//! of rows by a hash keyed with the seed.
//!
//! ```
//! assert_eq!(polysift::dataset::repair("sÃ³lo"), "sólo");
//! ```

mod card;
mod corpus;
mod key;
mod languages;
pub mod mkc;
mod repair;
mod sampler;
mod toxicity;
mod write;

pub use card::{Card, ClassSizes, SourceCard, SourceFile};
pub use languages::{LanguageRow, LanguageTable};
pub use mkc::{MkcRequest, Variant, build_mkc};
pub use repair::repair;
pub use sampler::BottomK;
pub use toxicity::{ToxicityFormat, ToxicityRequest, build_toxicity};

/// Seed of the choices unless another is asked for.
pub const DEFAULT_SEED: u64 = crate::config::DEFAULT_SEED;

/// Whose rules are followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// What the papers describe, done soundly.
    #[default]
    Sound,
    /// What the published scripts do, their mistakes included.
    Reference,
}

/// A sample on its way into a file.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Sample {
    /// Unique within a dataset: the source, and where in it the sample comes from.
    pub id: String,
    /// The text.
    pub text: String,
    /// Folder of the source of a positive, `corpus` for a negative, file of a toxicity sample.
    pub source: String,
    /// Whether it is of the positive (toxic) class.
    pub positive: bool,
    /// What makes it the same sample as another: a hash of its text, or of its place in
    /// [`Mode::Reference`], which drops no duplicates.
    key: u128,
    /// Samples of one group are never separated by a split.
    group: u128,
    /// Whether the group goes through all languages, so that it has to be in one split in all of them.
    is_translated: bool,
}
