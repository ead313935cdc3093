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
mod languages;
pub mod mkc;
mod repair;
mod sample;
mod toxicity;
mod write;

pub use card::{ClassSizes, DatasetCard, SourceCard, SourceFile};
pub use languages::LanguageTable;
pub use mkc::{MkcRequest, MkcVariant, build_mkc};
pub use repair::repair;
pub use toxicity::{ToxicityFormat, ToxicityRequest, build_toxicity};

/// Seed of the choices unless another is asked for.
pub const DEFAULT_SEED: u64 = crate::config::DEFAULT_SEED;
