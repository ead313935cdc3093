//! Markers: small JSON files that say a piece of work is done and what it left behind.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::{RunDir, Shard, Stage};
use crate::error::{Error, Result};
use crate::store::FileStamp;

/// A file that a stage wrote.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartFile {
    /// Path relative to the run directory.
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
    /// Rows with text.
    pub documents: u64,
    /// Embedded chunks.
    pub chunks: u64,
    /// Encoded tokens, `<s>` and `</s>` included.
    pub tokens: u64,
    /// Malformed rows set aside.
    pub rejects: u64,
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
}

impl RunDir {
    fn marker(&self, stage: Stage, key: &str) -> PathBuf {
        self.path("state").join(stage.name()).join(format!("{key}.json"))
    }

    /// The marker of part `index` of `shard`'s embeddings.
    pub fn part_marker(&self, shard: &Shard, index: usize) -> Result<Option<PartMarker>> {
        self.read_json(&self.marker(Stage::Embed, &format!("{}/part-{index:05}", shard.name)))
    }

    /// Marks part `index` of `shard`'s embeddings as done.
    pub fn mark_part(&self, shard: &Shard, index: usize, marker: &PartMarker) -> Result<()> {
        let path = self.marker(Stage::Embed, &format!("{}/part-{index:05}", shard.name));
        self.write_json(&path, marker).map(drop)
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
        self.read_json(&self.marker(stage, &format!("{key}/done")))
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

    /// All markers of a stage whose keys are `<head>/<language>`, by key.
    pub fn markers(&self, stage: Stage) -> Result<Vec<(String, Result<Option<ShardMarker>>)>> {
        let root = self.path("state").join(stage.name());
        let pattern = root.join("*/*/done.json").to_string_lossy().into_owned();
        let found = glob::glob(&pattern).map_err(|e| Error::config("--run", e.to_string()))?;
        let keys = found.flatten().filter_map(|path| {
            let key = path.parent()?.strip_prefix(&root).ok()?;
            Some(key.to_string_lossy().into_owned())
        });
        Ok(keys.map(|key| (key.clone(), self.shard_marker(stage, &key))).collect())
    }

    /// Whether `key` is done in `stage`: marked, and every file it stands for is there in its size.
    pub fn is_done(&self, stage: Stage, key: &str) -> Result<bool> {
        let marker = self.shard_marker(stage, key)?;
        Ok(marker.is_some_and(|marker| marker.files.iter().all(|file| self.is_present(file))))
    }

    fn is_present(&self, file: &PartFile) -> bool {
        fs_err::metadata(self.path(&file.path)).is_ok_and(|found| found.len() == file.stamp.bytes)
    }

    /// Marks `key` as done in `stage`.
    pub fn mark_shard(&self, stage: Stage, key: &str, marker: &ShardMarker) -> Result<()> {
        self.write_json(&self.marker(stage, &format!("{key}/done")), marker).map(drop)
    }
}
