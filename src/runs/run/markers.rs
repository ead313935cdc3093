//! Markers: small JSON files that record a finished unit and its files.
//!
//! When all units of a stage are done, what later stages need of their markers is gathered in one
//! file, which they read instead of 100,000. The file counts only while each marker exists, a stage
//! that finds a unit undone removes it, and `verify` does not read it.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::{Path, PathBuf};

use rayon::prelude::*;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::dir::{RunDir, Stage, if_sound, read_json_lines, to_json_lines};
use super::plan::Shard;
use polysift_base::error::{Error, Result};
use polysift_base::io::{
    FileStamp, check_confined, if_there, is_url, remove, stamp, write_atomic, write_json,
};
use polysift_config::is_default;
use polysift_data::input::DocumentInfo;
use polysift_data::parts::{EmbeddingRows, MAKE_AGAIN, read_embeddings};

const DONE: &str = "done";
const FAILED: &str = "failed";
/// File with the gathered markers of a finished stage.
const FINISHED: &str = "finished.jsonl.zst";

/// A file that a stage wrote.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartFile {
    /// Path relative to the run directory, or the URL of an object.
    pub path: String,
    /// Number of rows.
    pub rows: u64,
    /// Size and digest.
    #[serde(flatten)]
    pub stamp: FileStamp,
}

/// Marker of a finished part of a shard's embeddings.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartMarker {
    /// File with the embeddings.
    pub file: PartFile,
    /// Row of the input file at which the next part begins.
    pub next_row: u64,
    /// Number of rows by language.
    pub languages: BTreeMap<String, u64>,
    /// Amounts that were encoded for the part.
    #[serde(flatten)]
    pub encoded: Encoded,
}

/// Amounts that the embed stage encoded of a shard.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Default)]
pub struct Encoded {
    /// Rows with text, including those that a cascade dropped.
    pub documents: u64,
    /// Embedded chunks.
    pub chunks: u64,
    /// Encoded tokens, `<s>` and `</s>` included.
    pub tokens: u64,
    /// Malformed rows that were set aside.
    pub rejects: u64,
    /// Rows with text that a cascade dropped.
    #[serde(default, skip_serializing_if = "is_default")]
    pub dropped: u64,
    /// Rows with text for which the input's embeddings column is null.
    #[serde(default, skip_serializing_if = "is_default")]
    pub without_embedding: u64,
}

impl Encoded {
    /// Adds `other`.
    pub fn add(&mut self, other: &Self) {
        self.documents += other.documents;
        self.chunks += other.chunks;
        self.tokens += other.tokens;
        self.rejects += other.rejects;
        self.dropped += other.dropped;
        self.without_embedding += other.without_embedding;
    }
}

/// Amount of text in some documents.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct DocumentAmount {
    /// Number of documents.
    pub documents: u64,
    /// UTF-8 bytes of their texts.
    pub bytes: u64,
    /// Content tokens of the encoder's tokenizer, if they were counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokens: Option<u64>,
}

impl DocumentAmount {
    /// Adds `other`; tokens that were not counted count as 0.
    pub fn add(&mut self, other: Self) {
        self.documents += other.documents;
        self.bytes += other.bytes;
        self.tokens = self.tokens.into_iter().chain(other.tokens).reduce(|a, b| a + b);
    }
}

impl From<DocumentInfo<'_>> for DocumentAmount {
    fn from(document: DocumentInfo<'_>) -> Self {
        Self { documents: 1, bytes: document.num_bytes, tokens: document.num_tokens }
    }
}

/// Marker of a shard that a stage has finished.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default)]
pub struct ShardMarker {
    /// Rows of the shard that the stage accounted for.
    pub rows: u64,
    /// Files written, in order.
    pub files: Vec<PartFile>,
    /// Rows by outcome (embed: language; score: `scored`, `null`, `nan`; refine: `refined`,
    /// `unchanged`, and for a round the encoded `tokens`; export: `kept` or the reason).
    pub counts: BTreeMap<String, u64>,
    /// Amounts that the embed stage encoded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub encoded: Option<Encoded>,
    /// Exported amounts by language (export stage); tokens only count the texts that were read.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub exported: BTreeMap<String, DocumentAmount>,
}

impl ShardMarker {
    /// Adds a file and the outcomes of its rows.
    pub fn add<S: Into<String>>(
        &mut self,
        file: PartFile,
        counts: impl IntoIterator<Item = (S, u64)>,
    ) {
        self.rows += file.rows;
        self.files.push(file);
        for (what, rows) in counts {
            *self.counts.entry(what.into()).or_default() += rows;
        }
    }
}

/// Record of a unit of work that failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// Error message with its causes.
    pub error: String,
    /// Exit status for the error.
    pub exit_code: u8,
}

/// The parts of a marker that later stages need.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default)]
pub struct Summary {
    /// See [`ShardMarker::rows`].
    pub rows: u64,
    /// Number of [`ShardMarker::files`].
    pub num_files: usize,
    /// See [`ShardMarker::counts`].
    pub counts: BTreeMap<String, u64>,
    /// See [`ShardMarker::encoded`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub encoded: Option<Encoded>,
}

impl From<ShardMarker> for Summary {
    fn from(marker: ShardMarker) -> Self {
        Self {
            rows: marker.rows,
            num_files: marker.files.len(),
            counts: marker.counts,
            encoded: marker.encoded,
        }
    }
}

impl RunDir {
    /// Returns the entry of the file `path` in a marker.
    pub fn file(&self, path: &Path, rows: u64, stamp: FileStamp) -> PartFile {
        PartFile { path: self.relative(path), rows, stamp }
    }

    /// Writes a JSON file atomically; returns its entry in a marker, with one row.
    pub fn write_json(&self, path: &Path, value: &impl Serialize) -> Result<PartFile> {
        Ok(self.file(path, 1, write_json(path, value)?))
    }

    /// Returns where a file of a marker is: below the run directory, or a URL.
    pub fn located(&self, file: &PartFile) -> PathBuf {
        if is_url(&file.path) { file.path.clone().into() } else { self.path(&file.path) }
    }

    fn marker_file(&self, stage: Stage, kind: &str, key: &str) -> PathBuf {
        self.path("state").join(stage.name()).join(kind).join(format!("{key}.json"))
    }

    /// Returns the path of a part's marker: `kind` is `parts` if done, `saved` after a stop.
    fn part_marker_file(&self, kind: &str, shard: &Shard, index: usize) -> PathBuf {
        self.marker_file(Stage::Embed, kind, &format!("{}/{index:05}", shard.name))
    }

    /// Marks part `index` of the embeddings of `shard` as done, and no longer as saved by a stop.
    pub fn mark_part(&self, shard: &Shard, index: usize, marker: &PartMarker) -> Result<()> {
        self.write_json(&self.part_marker_file("parts", shard, index), marker)?;
        remove(&self.part_marker_file("saved", shard, index))
    }

    /// Reopens the embeddings of `shard`, to make them again from the documents encoded so far.
    pub fn reopen_embeddings(&self, shard: &Shard) -> Result<()> {
        self.undo(Stage::Embed, &shard.name)?;
        for (index, part) in self.part_markers(shard)?.iter().enumerate() {
            self.mark_saved(shard, index, &part.file)?;
            remove(&self.part_marker_file("parts", shard, index))?;
        }
        Ok(())
    }

    /// Marks `file` as the part `index` of the embeddings of `shard` that a stop saved.
    pub fn mark_saved(&self, shard: &Shard, index: usize, file: &PartFile) -> Result<()> {
        self.write_json(&self.part_marker_file("saved", shard, index), file).map(drop)
    }

    /// Reads the part `index` of the embeddings of `shard` that a stop saved, in input order;
    /// `None` if there is none or its file is not what was saved.
    pub fn saved_part(&self, shard: &Shard, index: usize) -> Result<Option<EmbeddingRows>> {
        let saved = self.read_marker::<PartFile>(&self.part_marker_file("saved", shard, index))?;
        let Some(file) = saved else { return Ok(None) };
        let path = self.path(&file.path);
        if stamp(&path).is_ok_and(|found| found == file.stamp) {
            return read_embeddings(&path).map(Some);
        }
        Ok(None) // superseded by a finished part, or damaged: it is encoded again
    }

    /// Returns the number of documents in [`RunDir::saved_part`] by its marker; reads no part.
    pub fn num_saved(&self, shard: &Shard, index: usize) -> Result<u64> {
        let file = self.read_marker::<PartFile>(&self.part_marker_file("saved", shard, index))?;
        Ok(file.filter(|file| self.is_present(file)).map_or(0, |file| file.rows))
    }

    /// Reads the markers of the finished parts of `shard`, from the first up to the first gap.
    pub fn part_markers(&self, shard: &Shard) -> Result<Vec<PartMarker>> {
        let mut parts = Vec::new();
        loop {
            let path = self.part_marker_file("parts", shard, parts.len());
            match self.read_marker::<PartMarker>(&path)? {
                Some(part) if self.is_present(&part.file) => parts.push(part),
                _ => return Ok(parts),
            }
        }
    }

    /// Reads the marker of `key` in `stage`: a shard's name, or `<head>/<shard>` for scores. `None`
    /// if the unit is not done, or the marker is damaged.
    pub fn shard_marker(&self, stage: Stage, key: &str) -> Result<Option<ShardMarker>> {
        self.read_marker(&self.marker_file(stage, DONE, key))
    }

    /// Reads the marker of `key` in `stage`; [`Error::Missing`] if it is gone or damaged.
    pub fn done(&self, stage: Stage, key: &str) -> Result<ShardMarker> {
        let path = self.marker_file(stage, DONE, key);
        let gone = || Error::missing(path, format!("is gone or damaged; {MAKE_AGAIN}"));
        self.shard_marker(stage, key)?.ok_or_else(gone)
    }

    /// Checks the digest of `file`, which a marker lists; objects in stores are skipped. Returns
    /// [`Error::Corrupt`] if the content differs, [`Error::Missing`] if the file is gone.
    pub fn check_file(&self, file: &PartFile) -> Result<()> {
        if is_url(&file.path) {
            return Ok(());
        }
        let path = self.path(&file.path);
        let gone = || Error::missing(&path, format!("is gone; {MAKE_AGAIN}"));
        if if_there(stamp(&path))?.ok_or_else(gone)? == file.stamp {
            return Ok(());
        }
        let reason = format!("is not what was written; remove the file: {MAKE_AGAIN}");
        Err(Error::corrupt(&path, reason))
    }

    /// Checks the digests of all files of `key` in `stage`.
    pub fn check_files(&self, stage: Stage, key: &str) -> Result<()> {
        self.done(stage, key)?.files.iter().try_for_each(|file| self.check_file(file))
    }

    /// Reads the JSON file `path` of `key` in `stage`, if it exists, and checks its marked digest.
    pub fn read_output<T: DeserializeOwned>(
        &self,
        stage: Stage,
        key: &str,
        path: &Path,
    ) -> Result<Option<T>> {
        let (marker, name) = (self.shard_marker(stage, key)?, self.relative(path));
        let mut files = marker.iter().flat_map(|marker| &marker.files);
        files.find(|file| file.path == name).map_or(Ok(()), |file| self.check_file(file))?;
        self.read_json(path)
    }

    /// Returns the key in [`Stage::Refine`] of a complete round; no head has such a name.
    pub fn round_key(round: usize) -> String {
        format!(".rounds/{round:02}")
    }

    /// Returns the key in [`Stage::Refine`] of a round's work on `shard`.
    pub fn round_shard_key(round: usize, shard: &Shard) -> String {
        format!("{}/shards/{}", Self::round_key(round), shard.name)
    }

    /// Returns the keys of `stage` that are marked as done.
    pub fn done_keys(&self, stage: Stage) -> Result<BTreeSet<String>> {
        self.marked_keys(stage, DONE)
    }

    /// Returns the units of `stage` that failed at the last attempt.
    pub fn failures(&self, stage: Stage) -> Result<BTreeMap<String, Failure>> {
        let failed = self.marked_keys(stage, FAILED)?.into_iter().filter_map(|key| {
            let read = self.read_marker(&self.marker_file(stage, FAILED, &key));
            read.map(|failure| Some((key, failure?))).transpose()
        });
        failed.collect()
    }

    /// Returns the keys with a marker of `kind` in `stage`, by the names of the files.
    fn marked_keys(&self, stage: Stage, kind: &str) -> Result<BTreeSet<String>> {
        let files = self.list_tree(&format!("state/{}/{kind}", stage.name()))?;
        Ok(files.into_iter().filter_map(|f| Some(f.strip_suffix(".json")?.to_owned())).collect())
    }

    /// Records that the unit `key` of `stage` failed.
    pub fn mark_failed(&self, stage: Stage, key: &str, failure: &Failure) -> Result<()> {
        self.write_json(&self.marker_file(stage, FAILED, key), failure).map(drop)
    }

    /// Returns true if `key` is marked as done in `stage` and every file has its recorded size.
    pub fn is_done(&self, stage: Stage, key: &str) -> Result<bool> {
        self.done_marker(stage, key).map(|marker| marker.is_some())
    }

    /// Reads the marker of `key` in `stage`; `None` unless the unit is done ([`RunDir::is_done`]).
    pub fn done_marker(&self, stage: Stage, key: &str) -> Result<Option<ShardMarker>> {
        let marker = self.shard_marker(stage, key)?;
        Ok(marker.filter(|marker| marker.files.iter().all(|file| self.is_present(file))))
    }

    /// Returns true if `file` has its recorded size. For an object in a store the marker is
    /// trusted: asking for each would take longer than the remaining work.
    fn is_present(&self, file: &PartFile) -> bool {
        let path = self.path(&file.path);
        let found = || std::fs::metadata(&path).is_ok_and(|found| found.len() == file.stamp.bytes);
        is_url(&file.path) || (check_confined(&path).is_ok() && found())
    }

    /// Marks `key` as done in `stage`, and no longer as failed.
    pub fn mark_shard(&self, stage: Stage, key: &str, marker: &ShardMarker) -> Result<()> {
        self.write_json(&self.marker_file(stage, DONE, key), marker)?;
        remove(&self.marker_file(stage, FAILED, key))
    }

    /// Forgets that `key` is done in `stage`, so that it is done again.
    pub fn undo(&self, stage: Stage, key: &str) -> Result<()> {
        self.reopen(stage)?;
        remove(&self.marker_file(stage, DONE, key))
    }

    fn finished_file(&self, stage: Stage) -> PathBuf {
        self.path("state").join(stage.name()).join(FINISHED)
    }

    /// Returns summaries of the units `keys` of `stage`, in order, with `None` for unfinished ones.
    /// If all of them are done and their files exist, this also finishes the stage.
    pub fn summaries(&self, stage: Stage, keys: &[String]) -> Result<Vec<Option<Summary>>> {
        if let Some(finished) = self.finished(stage, keys)? {
            return Ok(finished);
        }
        let read = |key: &String| Ok(self.done_marker(stage, key)?.map(Summary::from));
        let summaries: Vec<Option<Summary>> = keys.par_iter().map(read).collect::<Result<_>>()?;
        if !keys.is_empty() && summaries.iter().all(Option::is_some) {
            let path = self.finished_file(stage);
            let items = keys.iter().zip(summaries.iter().flatten());
            write_atomic(&path, &to_json_lines(&path, &json!({"stage": stage}), items)?)?;
            // The leases are no longer needed: whoever asks for a unit now finds it done. Another
            // process may just be making one, which keeps the folder.
            let _ = remove(&self.leases_folder(stage));
        }
        Ok(summaries)
    }

    /// Like [`RunDir::summaries`], but does not look for the files of units and writes nothing.
    pub fn marked(&self, stage: Stage, keys: &[String]) -> Result<Vec<Option<Summary>>> {
        if let Some(finished) = self.finished(stage, keys)? {
            return Ok(finished);
        }
        let done = self.done_keys(stage)?;
        let read = |key: &String| {
            let marker = if done.contains(key) { self.shard_marker(stage, key)? } else { None };
            Ok(marker.map(Summary::from))
        };
        keys.par_iter().map(read).collect()
    }

    /// Finishes `stage` if all of `keys` are done; returns whether they are. Checks names first.
    pub fn try_finish(&self, stage: Stage, keys: &[String]) -> Result<bool> {
        let done = self.done_keys(stage)?;
        Ok(keys.iter().all(|key| done.contains(key))
            && self.summaries(stage, keys)?.iter().all(Option::is_some))
    }

    /// Removes the gathered file of `stage` when a unit is undone; returns whether it existed.
    pub(super) fn reopen(&self, stage: Stage) -> Result<bool> {
        let path = self.finished_file(stage);
        let was_finished = path.exists();
        remove(&path).map(|()| was_finished)
    }

    /// Reads the summaries of `keys` from the gathered file of `stage`. Returns `None` if the file
    /// is missing, damaged or of other units, or if a marker is gone.
    fn finished(&self, stage: Stage, keys: &[String]) -> Result<Option<Vec<Option<Summary>>>> {
        let path = self.finished_file(stage);
        let read = if_sound(&path, if_there(read_json_lines::<(String, Summary)>(&path)))?;
        let Some((_, items)) = read else { return Ok(None) };
        let mut by_key: HashMap<String, Summary> = items.into_iter().collect();
        let done = self.done_keys(stage)?;
        let is_whole = keys.iter().all(|key| by_key.contains_key(key) && done.contains(key));
        Ok(is_whole.then(|| keys.iter().map(|key| by_key.remove(key)).collect()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_finished_stage_says_what_its_markers_say_until_an_item_is_undone() -> Result<()> {
        let (_dir, run) = RunDir::temporary()?;
        let keys: Vec<String> = (0..5).map(|i| format!("deu_Latn/{i}")).collect();
        let marker = |i: u64| {
            let encoded = Some(Encoded { documents: i, ..Encoded::default() });
            let counts = [("deu_Latn".to_owned(), i)].into();
            ShardMarker { rows: i, counts, encoded, ..ShardMarker::default() }
        };
        for (key, i) in keys.iter().zip(0..4) {
            run.mark_shard(Stage::Embed, key, &marker(i))?;
        }
        assert!(!run.try_finish(Stage::Embed, &keys)?);
        let before = run.marked(Stage::Embed, &keys)?;
        assert_eq!((before[3].as_ref().map(|s| s.rows), before[4].is_none()), (Some(3), true));
        run.mark_shard(Stage::Embed, &keys[4], &marker(4))?;
        assert!(run.try_finish(Stage::Embed, &keys)?);
        for key in &keys {
            write_atomic(&run.marker_file(Stage::Embed, DONE, key), b"not read")?;
        }
        let finished: Vec<Summary> =
            run.summaries(Stage::Embed, &keys)?.into_iter().flatten().collect();
        assert_eq!(finished, (0..5).map(|i| Summary::from(marker(i))).collect::<Vec<_>>());
        // A unit without a marker does not count.
        let lost = run.marker_file(Stage::Embed, DONE, &keys[2]);
        std::fs::remove_file(&lost).map_err(Error::io(&lost, "remove"))?;
        assert!(!run.try_finish(Stage::Embed, &keys)?);
        assert!(run.summaries(Stage::Embed, &keys)?[2].is_none());
        run.mark_shard(Stage::Embed, &keys[2], &marker(2))?;
        assert!(run.summaries(Stage::Embed, &keys)?.iter().all(Option::is_some));
        write_atomic(&lost, b"not read")?;
        // A gathered file of other units is ignored.
        let more: Vec<String> = keys.iter().cloned().chain(["x".to_owned()]).collect();
        assert!(run.summaries(Stage::Embed, &more)?.iter().all(Option::is_none));
        // A truncated file is ignored too.
        let file_path = run.finished_file(Stage::Embed);
        let half = std::fs::metadata(&file_path).map(|found| found.len() / 2);
        let file = std::fs::File::options().write(true).open(&file_path);
        file.and_then(|file| file.set_len(half?)).map_err(Error::io(&file_path, "cut"))?;
        assert!(run.summaries(Stage::Embed, &keys)?.iter().all(Option::is_none));
        run.reopen(Stage::Embed)?;
        assert!(run.summaries(Stage::Embed, &keys)?.iter().all(Option::is_none));
        Ok(())
    }
}
