//! polysift selects the best pretraining text of a web corpus, exactly and per language.
//!
//! ```text
//!  input files ──read──▶ documents ──tokenize──▶ chunks of input_ids ──pack──▶ PackedBatch
//!  (parquet, jsonl)                                                               │
//!                                                                               encode
//!                                                                                 ▼
//!  labelled samples ─(same path)─▶ embeddings ──train──▶ heads          embeddings/<shard>/part
//!                                                          │                      │
//!                                                          └────────score─────────┤
//!                                                                                 ▼
//!                     selection/<lang>.json ◀──exact counts──────── scores/<head>/<shard>/part
//!                                 │                                               │
//!                                 ▼                                               ▼
//!  input files (again) ──all columns, untouched──▶ export ◀──── embeddings, scores by row
//! ```
//!
//! A fastText head needs no embeddings: it is trained on the texts of its samples and scores the
//! texts of the input, which it reads again.
//!
//! Every stage writes whole files into the run directory ([`run`]) and marks them done after the
//! rename, so a killed run continues where it stopped and ends with the same bytes.
//!
//! # Crates
//!
//! Each folder of `src` with a `Cargo.toml` is a crate; the table in `CONTRIBUTING.md` says what
//! each holds. This crate re-exports their modules and contains the program (`cli`). Everything
//! below `runs` in the table can be used without a run.

pub use polysift_base::{batch, error, hub, io, language, metrics, panics, progress};
pub use polysift_config as config;
pub use polysift_corpus as corpus;
pub use polysift_corpus::filter;
pub use polysift_data::{export, input, parts};
#[cfg(feature = "datasets")]
pub use polysift_datasets as dataset;
pub use polysift_encoder as encoder;
pub use polysift_fasttext as fasttext;
pub use polysift_heads::{head, train};
pub use polysift_mix as mix;
pub use polysift_remote as remote;
pub use polysift_runs::{cluster, run};
pub use polysift_selection as selection;
pub use polysift_stages as stages;
pub use polysift_text::{decontamination, pii, robots, rules};
pub use polysift_tokenizer as tokenize;
pub use polysift_views as views;

pub use error::{Error, Result};
