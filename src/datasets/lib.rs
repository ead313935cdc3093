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
//! assert_eq!(polysift_datasets::repair("sÃ³lo"), "sólo");
//! ```

mod benchmarks;
mod card;
mod corpus;
mod languages;
pub mod mkc;
mod repair;
mod sample;
mod toxicity;
mod write;

use clap::Args;

use polysift_config::{DEFAULT_SEED, Mode};

pub use benchmarks::{BenchmarksRequest, build_benchmarks};
pub use card::{ClassSizes, DatasetCard, SourceCard, SourceFile};
pub use languages::LanguageTable;
pub use mkc::{MkcRequest, MkcVariant, build_mkc};
pub use repair::repair;
pub use toxicity::{ToxicityFormat, ToxicityRequest, build_toxicity};

/// How samples of any dataset are chosen.
#[derive(Debug, Clone, Copy, Args)]
pub struct DatasetRules {
    /// default, or published: what the published scripts do, their mistakes included
    #[arg(long, value_enum, default_value = "default")]
    pub mode: Mode,
    /// Seed of all choices
    #[arg(long, default_value_t = DEFAULT_SEED)]
    pub seed: u64,
    /// Rows that cannot be used, per file, before the file fails
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub max_rejects: u64,
}
