//! The run directory: the files that stages read and write, and the record of what is done.
//!
//! ```text
//! RUN/ config.toml                    the resolved settings, for commands given only the run
//!      plan.jsonl.zst                 the shards: file or rows, language, size, fingerprint
//!      frozen/<stage>.json            settings and digests; a difference is refused
//!      embeddings/<shard>/part-00000.parquet
//!      heads/<head>/<lang>.safetensors
//!      heads/<head>/<lang>.bin        a fastText model; its model card is the .json file
//!      scores/<head>/<shard>/part-00000.parquet
//!      verdicts/<shard>.parquet       documents that filters matched
//!      filters/<filter>.json          counts of matches; per shard in filters/shards/<shard>.json
//!      rounds/<round>/<head>/<shard>/part-00000.parquet   documents scored again in f32
//!      refined/<head>/<shard>/part-00000.parquet          all scores, including the f32 ones
//!      selection/<lang>.json          the exact thresholds, with counts and histograms
//!      export/<shard>.parquet         removed/<reason>/<shard>.parquet
//!      rejects/<shard>/part-00000.jsonl
//!      state/<stage>/done/<key>.json  markers, written after the rename of the files they describe
//!      state/embed/parts/<shard>/00000.json               markers of the parts of a shard
//!      state/embed/saved/<shard>/00000.json               the part of a shard that a stop saved
//!      state/export/uploads/                              files on their way to a hub
//!      state/<stage>/failed/<key>.json                    why a unit of work failed
//!      state/<stage>/finished.jsonl.zst                   all markers of a finished stage
//!      state/<stage>/leases/<key>.0                       the process that works on it
//!      state/workers/<process>                            heartbeats of a live process
//! ```
//!
//! Invariants: an output counts only if its marker exists; files are renamed when complete; no
//! output depends on time, host, threads or processes, so a resumed run ends with the bytes of an
//! undisturbed one. Any number of processes may work in it concurrently, on any machines.
//!
//! ```
//! use polysift_runs::run::{RunDir, Stage};
//!
//! let folder = tempfile::tempdir()?;
//! let run = RunDir::create(folder.path())?;
//! assert!(!run.has_plan());
//! let head = run.head_file("quality", "deu_Latn");
//! assert_eq!(head, run.path("heads/quality/deu_Latn.safetensors"));
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
