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
//! Modules in the order of that picture. Every stage writes whole files into the run directory
//! ([`run`]) and marks them done after the rename, so a killed run goes on where it stopped and
//! ends with the same bytes.

pub mod config;
pub mod error;
pub mod hub;
pub mod io;
pub mod panics;

pub mod input;
#[cfg(feature = "remote")]
pub mod remote;
#[cfg(not(feature = "remote"))]
#[path = "no_remote.rs"]
pub mod remote;
pub mod tokenize;

pub mod batch;
pub mod encoder;

pub mod fasttext;
pub mod head;
pub mod metrics;
pub mod train;

#[cfg(feature = "datasets")]
pub mod dataset;

pub mod selection;

pub mod export;
pub mod parts;

pub mod cluster;
pub mod progress;
pub mod run;
pub(crate) mod sample;
pub mod stage;

pub mod evaluate;

pub use error::{Error, Result};
