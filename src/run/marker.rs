//! Markers: small JSON files that say an item of work is done and what it left behind.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::worker::gone;
use super::{RunDir, Shard, Stage};
use crate::error::{Error, Result};
use crate::io::is_url;
use crate::io::{FileStamp, stamp};
use crate::parts::{EmbeddingRows, read_embeddings};

/// Folder of the markers of what is done.
const DONE: &str = "done";
/// Folder of the notes of what failed.
const FAILED: &str = "failed";

/// A file that a stage wrote.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartFile {
    /// Path relative to the run directory, or the URL of an object.
    pub path: String,
    /// Rows in it.
    pub rows: u64,
    /// Size and digest.
    #[serde(flatten)]
    pub stamp: FileStamp,
}

/// A part of a shard's embeddings is done.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartMarker {
    /// The embeddings.
    pub file: PartFile,
    /// Row of the input file at which the next part begins.
    pub next_row: u64,
    /// Rows by language.
    pub languages: BTreeMap<String, u64>,
    /// What was encoded for it.
    #[serde(flatten)]
    pub encoded: Encoded,
}

/// What the embed stage encoded of a shard.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Default)]
pub struct Encoded {
    /// Rows with text.
    pub documents: u64,
    /// Embedded chunks.
    pub chunks: u64,
    /// Encoded tokens, `<s>` and `</s>` included.
    pub tokens: u64,
    /// Malformed rows set aside.
    pub rejects: u64,
}

impl Encoded {
    /// Adds `other`.
    pub fn add(&mut self, other: &Self) {
        self.documents += other.documents;
        self.chunks += other.chunks;
        self.tokens += other.tokens;
        self.rejects += other.rejects;
    }
}

/// A shard is done in a stage.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default)]
pub struct ShardMarker {
    /// Rows of the shard that the stage accounted for.
    pub rows: u64,
    /// Files written, in order.
    pub files: Vec<PartFile>,
    /// Rows by what became of them (embed: language; score: `scored`, `null`, `nan`; refine: `refined`,
    /// `unchanged`, and of a round the encoded `tokens`; export: `kept` or the reason).
    pub counts: BTreeMap<String, u64>,
    /// Of the embed stage: what was encoded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub encoded: Option<Encoded>,
}

/// An item of work that cannot be done.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// What is wrong, with its causes.
    pub error: String,
    /// Exit status that it stands for.
    pub exit_code: u8,
}

impl RunDir {
    fn marker(&self, stage: Stage, kind: &str, key: &str) -> PathBuf {
        self.path("state").join(stage.name()).join(kind).join(format!("{key}.json"))
    }

    fn part_file(&self, shard: &Shard, index: usize) -> PathBuf {
        self.marker(Stage::Embed, "parts", &format!("{}/{index:05}", shard.name))
    }

    /// The marker of part `index` of `shard`'s embeddings.
    pub fn part_marker(&self, shard: &Shard, index: usize) -> Result<Option<PartMarker>> {
        self.read_marker(&self.part_file(shard, index))
    }

    /// Marks part `index` of `shard`'s embeddings as done.
    pub fn mark_part(&self, shard: &Shard, index: usize, marker: &PartMarker) -> Result<()> {
        self.write_json(&self.part_file(shard, index), marker)?;
        let saved = self.saved_file(shard, index);
        std::fs::remove_file(&saved).or_else(gone).map_err(Error::io(&saved, "remove"))
    }

    /// Marks `file` as what a stop left of part `index` of `shard`'s embeddings.
    pub(crate) fn mark_saved(&self, shard: &Shard, index: usize, file: &PartFile) -> Result<()> {
        self.write_json(&self.saved_file(shard, index), file).map(drop)
    }

    /// What a stop left of part `index` of `shard`'s embeddings, documents in the order of the input.
    pub(crate) fn saved_part(&self, shard: &Shard, index: usize) -> Result<Option<EmbeddingRows>> {
        let Some(file) = self.read_marker::<PartFile>(&self.saved_file(shard, index))? else {
            return Ok(None);
        };
        let path = self.path(&file.path);
        if !self.is_present(&file) || stamp(&path)? != file.stamp {
            return Ok(None); // of a part that was done since, or damaged: it is encoded again
        }
        read_embeddings(&path).map(Some)
    }

    fn saved_file(&self, shard: &Shard, index: usize) -> PathBuf {
        self.marker(Stage::Embed, "saved", &format!("{}/{index:05}", shard.name))
    }

    /// The markers of the parts of `shard` that are done and there, from the first without a gap.
    pub fn part_markers(&self, shard: &Shard) -> Result<Vec<PartMarker>> {
        let mut parts = Vec::new();
        while let Some(part) = self.part_marker(shard, parts.len())? {
            if !self.is_present(&part.file) {
                break;
            }
            parts.push(part);
        }
        Ok(parts)
    }

    /// The marker of `key` in `stage`: a shard's name, or `<head>/<shard>` for scores.
    pub fn shard_marker(&self, stage: Stage, key: &str) -> Result<Option<ShardMarker>> {
        self.read_marker(&self.marker(stage, DONE, key))
    }

    /// Parts of the embeddings of `shard`, and so of its scores.
    pub fn num_parts(&self, shard: &Shard) -> Result<usize> {
        let embedded = self.shard_marker(Stage::Embed, &shard.name)?;
        Ok(embedded.map_or(0, |marker| marker.files.len()))
    }

    /// Key in [`Stage::Refine`] of a round that is complete; no head has such a name.
    pub fn round_key(round: usize) -> String {
        format!(".rounds/{round:02}")
    }

    /// Key in [`Stage::Refine`] of what a round did in `shard`.
    pub fn round_shard_key(round: usize, shard: &Shard) -> String {
        format!("{}/shards/{}", Self::round_key(round), shard.name)
    }

    /// Keys of `stage` that are marked as done.
    pub fn done_keys(&self, stage: Stage) -> Result<BTreeSet<String>> {
        self.keys(stage, DONE)
    }

    /// Items of `stage` that could not be done when they were tried last.
    pub fn failures(&self, stage: Stage) -> Result<BTreeMap<String, Failure>> {
        let failed = self.keys(stage, FAILED)?.into_iter().filter_map(|key| {
            let read = self.read_marker(&self.marker(stage, FAILED, &key));
            read.map(|failure| Some((key, failure?))).transpose()
        });
        failed.collect()
    }

    fn keys(&self, stage: Stage, kind: &str) -> Result<BTreeSet<String>> {
        let files = self.tree(&format!("state/{}/{kind}", stage.name()))?;
        Ok(files.into_iter().filter_map(|f| Some(f.strip_suffix(".json")?.to_owned())).collect())
    }

    /// Notes that `key` of `stage` cannot be done.
    pub fn mark_failed(&self, stage: Stage, key: &str, failure: &Failure) -> Result<()> {
        self.write_json(&self.marker(stage, FAILED, key), failure).map(drop)
    }

    /// Whether `key` is done in `stage`: marked, and every file it stands for is there in its size.
    pub fn is_done(&self, stage: Stage, key: &str) -> Result<bool> {
        let marker = self.shard_marker(stage, key)?;
        Ok(marker.is_some_and(|marker| marker.files.iter().all(|file| self.is_present(file))))
    }

    /// Whether `file` is there in its size. That an object of a store is, its marker says; asking
    /// for each would take longer than the work that is left.
    fn is_present(&self, file: &PartFile) -> bool {
        is_url(&file.path)
            || fs_err::metadata(self.path(&file.path))
                .is_ok_and(|found| found.len() == file.stamp.bytes)
    }

    /// Marks `key` as done in `stage`.
    pub fn mark_shard(&self, stage: Stage, key: &str, marker: &ShardMarker) -> Result<()> {
        self.write_json(&self.marker(stage, DONE, key), marker)?;
        let failed = self.marker(stage, FAILED, key);
        match fs_err::remove_file(&failed) {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
                Err(Error::io(&failed, "remove")(e))
            }
            _ => Ok(()),
        }
    }
}
