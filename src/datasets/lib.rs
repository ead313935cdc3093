//! Labelled samples built from established public sources.
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
//! A head's `train` names the files written here, and their column `split` decides the split.
//! The same files give the same bytes, in any order on disk and with any number of threads: every
//! choice ranks rows by a hash of their content, keyed with the seed.
//!
//! ```
//! assert_eq!(polysift_datasets::repair("sÃ³lo"), "sólo");
//! ```

mod benchmarks;
mod card;
mod mkc;
mod repair;
mod toxicity;
mod write;

use clap::Args;

use polysift_config::{DEFAULT_SEED, Mode};

pub use benchmarks::{BenchmarksRequest, build_benchmarks};
pub use card::{ClassSizes, DatasetCard, SourceCard, SourceFile};
pub use mkc::{MkcRequest, MkcVariant, build_mkc};
pub use repair::repair;
pub use toxicity::{ToxicityRequest, build_toxicity};

/// How the samples of any dataset are chosen.
#[derive(Debug, Clone, Copy, Args)]
pub struct DatasetRules {
    /// `default`, or `published`: what the published scripts do, including their mistakes
    #[arg(long, value_enum, default_value = "default")]
    pub mode: Mode,
    /// Seed of all random choices
    #[arg(long, default_value_t = DEFAULT_SEED)]
    pub seed: u64,
    /// Maximum number of unusable rows per file; a file with more fails
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub max_rejects: u64,
}
