//! The run directory: the files that stages read and write, and the record of what is done.
//!
//! `docs/run-directory.md` lists the outputs. The record is:
//!
//! ```text
//! RUN/ plan.jsonl.zst                 the shards: file or rows, language, size, fingerprint
//!      frozen/<stage>.json            settings and digests; a difference is refused
//!      state/<stage>/done/<key>.json  markers, written after the rename of the files they describe
//!      state/embed/parts/<shard>/00000.json               markers of the parts of a shard
//!      state/embed/saved/<shard>/00000.json               the part of a shard that a stop saved
//!      state/export/uploads/                              files on their way to a hub
//!      state/export/columns/<shard>.json                  columns of a shard of JSON lines
//!      state/export/column-digests/<shard>.json           and the digest of that file
//!      state/<stage>/failed/<key>.json                    why a unit of work failed
//!      state/<stage>/finished.jsonl.zst                   all markers of a finished stage
//!      state/<stage>/leases/<key>.0                       the process that works on it
//!      state/workers/<process>                            heartbeats of a live process
//!      state/exclusive/<process>                          the process that has the run for itself
//!      state/shared/                                      leases of work that is no stage
//!      state/tasks                                        empty: several tasks share the shards
//! ```
//!
//! Invariants: an output counts only if its marker exists; files are renamed when complete; no
//! output depends on time, host, threads or processes, so a resumed run ends with the bytes of an
//! undisturbed one. Any number of processes may work in it concurrently, on any machines.

mod claims;
mod dir;
mod exclusive;
mod frozen;
mod heartbeat;
mod identity;
mod lease;
mod markers;
mod paths;
mod plan;
mod worker;

pub use claims::{Claims, StageItems};
pub use dir::{RunDir, Stage};
pub use exclusive::Held;
pub use frozen::difference;
pub use markers::{DocumentAmount, Encoded, Failure, PartFile, PartMarker, ShardMarker, Summary};
pub use plan::{Plan, Shard};
pub use worker::{LiveWorker, ProgressNote, Worker};
