//! The run directory: where every stage reads and writes, and how a run knows what is done.
//!
//! ```text
//! RUN/ config.toml                    the resolved settings, for commands that are given only the directory
//!      plan.jsonl.zst                 the shards: file or rows of one, language, size, fingerprint
//!      frozen/<stage>.json            settings and digests; a difference is refused
//!      embeddings/<shard>/part-00000.parquet
//!      heads/<head>/<lang>.safetensors
//!      heads/<head>/<lang>.bin        a fastText model, and its model card as .json
//!      scores/<head>/<shard>/part-00000.parquet
//!      verdicts/<shard>.parquet       documents that filters found
//!      filters/<filter>.json          the same, counted; of each shard in filters/shards/<shard>.json
//!      rounds/<round>/<head>/<shard>/part-00000.parquet   documents scored again in f32
//!      refined/<head>/<shard>/part-00000.parquet          the scores with those in their place
//!      selection/<lang>.json          the exact thresholds, with counts and histograms
//!      export/<shard>.parquet         removed/<reason>/<shard>.parquet
//!      rejects/<shard>/part-00000.jsonl
//!      state/<stage>/done/<key>.json  markers, written after the rename of what they stand for
//!      state/embed/parts/<shard>/00000.json               the same for parts of a shard
//!      state/embed/saved/<shard>/00000.json               what a stop left of a part
//!      state/<stage>/failed/<key>.json                    why an item of work could not be done
//!      state/<stage>/finished.jsonl.zst                     all markers of a finished stage
//!      state/<stage>/leases/<key>.0                       who is at work on it
//!      state/workers/<process>                            who is alive
//! ```
//!
//! Invariants: an output counts only if its marker exists; every file is written whole under a
//! temporary name and renamed; nothing that is kept depends on the time, the host, the number of
//! threads or of processes, so an interrupted and resumed run ends with the bytes of an undisturbed
//! one. Any number of processes on any number of machines may work in it at once.
//!
//! ```
//! use polysift_runs::run::{RunDir, Stage};
//!
//! let folder = tempfile::tempdir()?;
//! let run = RunDir::create(folder.path())?;
//! assert!(!run.has_plan());
//! assert_eq!(run.head_file("quality", "deu_Latn"), run.path("heads/quality/deu_Latn.safetensors"));
//! assert!(run.done_keys(Stage::Embed)?.is_empty());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod claims;
mod dir;
mod frozen;
mod markers;
mod plan;
mod worker;

pub use claims::{Claims, StageItems};
pub use dir::{RunDir, Stage};
pub use frozen::difference;
pub use markers::{DocumentAmount, Encoded, Failure, PartFile, PartMarker, ShardMarker, Summary};
pub use plan::{Plan, Shard};
pub use worker::{LiveWorker, ProgressNote, Worker};
