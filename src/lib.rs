//! polysift picks the best pretraining text of a web corpus, per language and exactly.
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
//! A fastText head takes a shorter way: it is trained on the texts of its samples, and scores those of
//! the input, read again; neither needs an embedding.
//!
//! Every stage writes whole files into the run directory ([`run`]) and marks them done after the rename,
//! so a killed run continues where it stopped and ends with the same bytes.
//!
//! # Floors
//!
//! A file uses files of its own floor and of those below, and no two files or folders use each other. The
//! program, `cli`, stands on top of the library. `tests/floors.rs` reads this picture and holds the code to it:
//!
//! ```text
//! 5  cli
//! 4  stage  evaluate  dataset  mix
//! 3  run  cluster
//! 2  config  input  parts  tokenize  encoder  fasttext  lexical  head  train  filter  selection  export
//! 1  io  remote  hub  robots  pii  decontamination  rules
//! 0  error  panics  progress  batch  metrics  sample  language
//! ```
//!
//! - 0: what needs nothing else: errors and exit codes, progress and stops, packing, metrics, sampling, names of
//!   languages.
//! - 1: files that appear whole or not at all, object stores, the hub; what a robots.txt says; personal data in
//!   a text; text of benchmarks in it; licences, words and repetition.
//! - 2: settings; readers of documents; part files; encoder, heads and their training; filters; exact selection;
//!   writers of the export. Each can be used without a run.
//! - 3: the run directory, many processes on it, and the schedulers that start them.
//! - 4: the stages, which do not use each other; evaluation; labelled data sets; mixtures.

pub mod batch;
pub mod error;
pub mod language;
pub mod metrics;
pub mod panics;
pub mod progress;
pub(crate) mod sample;

pub mod hub;
pub mod io;
#[cfg(feature = "remote")]
pub mod remote;
#[cfg(not(feature = "remote"))]
#[path = "no_remote.rs"]
pub mod remote;

pub mod decontamination;
pub mod pii;
pub mod robots;
pub mod rules;

pub mod config;
pub mod encoder;
pub mod export;
pub mod fasttext;
pub mod filter;
pub mod head;
pub mod input;
pub mod lexical;
pub mod parts;
pub mod selection;
pub mod tokenize;
pub mod train;

pub mod cluster;
pub mod run;

#[cfg(feature = "datasets")]
pub mod dataset;
pub mod evaluate;
pub mod mix;
pub mod stage;

pub use error::{Error, Result};
