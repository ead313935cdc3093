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
//! Each folder of `src` with a `Cargo.toml` is a crate. This crate re-exports their modules and
//! contains the program (`cli`). A crate depends only on crates below it:
//!
//! ```text
//! cli                              the program: arguments, what is printed
//! datasets  mix  stages  views     labelled data sets; mixtures; what writes a run, what reads it
//! corpus                           a run as data: rows, scores, verdicts, thresholds; filters
//! runs  selection                  the run directory, processes, schedulers; exact thresholds
//! heads                            heads that score, and their training
//! data  encoder                    readers of documents, files of a run, export; text embeddings
//! tokenizer                        texts to input ids
//! config                           settings
//! remote  text                     object stores, hub; robots.txt, PII, decontamination, rules
//! base  suffix                     errors, progress, whole files, metrics; public suffixes
//! ```
//!
//! Inside a crate, files and folders do not depend on each other in circles (`tests/floors.rs`),
//! and no stage uses another. Everything below `runs` can be used without a run.

pub use polysift_base::{batch, error, hub, io, language, metrics, panics, progress};
pub use polysift_config as config;
pub use polysift_corpus as corpus;
pub use polysift_corpus::filter;
pub use polysift_data::{export, input, parts};
#[cfg(feature = "datasets")]
pub use polysift_datasets as dataset;
pub use polysift_encoder as encoder;
pub use polysift_heads::{fasttext, head, train};
pub use polysift_mix as mix;
pub use polysift_remote as remote;
pub use polysift_runs::{cluster, run};
pub use polysift_selection as selection;
pub use polysift_stages as stages;
pub use polysift_text::{decontamination, pii, robots, rules};
pub use polysift_tokenizer as tokenize;
pub use polysift_views as views;

pub use error::{Error, Result};
