//! Finished stages: once all items of a stage are done, their markers are gathered in one file.
//!
//! With 100,000 shards later stages read that one instead of 100,000. It says nothing that the
//! markers do not say: a stage that finds an item undone again removes it, `verify` does not read it.

use std::collections::{BTreeMap, HashMap};
use std::io::{BufRead, BufReader};
use std::path::PathBuf;

use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use super::marker::{Encoded, ShardMarker};
use super::worker::gone;
use super::{RunDir, Stage};
use crate::error::{Error, Result};
use crate::io::write_atomic;

/// What later stages need to know of an item of work.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default)]
pub struct Summary {
    /// See [`ShardMarker::rows`].
    pub rows: u64,
    /// Number of [`ShardMarker::files`].
    pub num_files: usize,
    /// Bytes of them.
    pub bytes: u64,
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
            bytes: marker.files.iter().map(|file| file.stamp.bytes).sum(),
            counts: marker.counts,
            encoded: marker.encoded,
        }
    }
}

/// A line of the file.
#[derive(Serialize, Deserialize)]
struct Line {
    key: String,
    #[serde(flatten)]
    summary: Summary,
}

impl RunDir {
    fn finished_file(&self, stage: Stage) -> PathBuf {
        self.path("state").join(stage.name()).join("finished.jsonl.zst")
    }

    /// What is known of the items `keys` of `stage`, in their order; `None` for those that are not done.
    /// Where all of them are done, and their files there, this also finishes the stage.
    pub fn summaries(&self, stage: Stage, keys: &[String]) -> Result<Vec<Option<Summary>>> {
        if let Some(finished) = self.finished(stage, keys)? {
            return Ok(finished);
        }
        let summaries = self.read_markers(stage, keys, |key| self.is_done(stage, key))?;
        if !keys.is_empty() && summaries.iter().all(Option::is_some) {
            self.finish(stage, keys.iter().zip(summaries.iter().flatten()))?;
        }
        Ok(summaries)
    }

    /// As [`RunDir::summaries`], by the markers alone, writing nothing.
    pub fn marked(&self, stage: Stage, keys: &[String]) -> Result<Vec<Option<Summary>>> {
        if let Some(finished) = self.finished(stage, keys)? {
            return Ok(finished);
        }
        let done = self.done_keys(stage)?;
        self.read_markers(stage, keys, |key| Ok(done.contains(key)))
    }

    fn read_markers(
        &self,
        stage: Stage,
        keys: &[String],
        is_done: impl Fn(&str) -> Result<bool> + Sync,
    ) -> Result<Vec<Option<Summary>>> {
        let read = |key: &String| {
            let marker = if is_done(key)? { self.shard_marker(stage, key)? } else { None };
            Ok(marker.map(Summary::from))
        };
        keys.par_iter().map(read).collect()
    }

    /// Finishes `stage` if all of `keys` are done; whether they are. Looks only at the names of markers
    /// before it reads them.
    pub fn try_finish(&self, stage: Stage, keys: &[String]) -> Result<bool> {
        if self.finished(stage, keys)?.is_some() {
            return Ok(true);
        }
        let done = self.done_keys(stage)?;
        if !keys.iter().all(|key| done.contains(key)) {
            return Ok(false);
        }
        Ok(self.summaries(stage, keys)?.iter().all(Option::is_some))
    }

    /// Removes the one file of `stage`: something of it is undone.
    pub(super) fn reopen(&self, stage: Stage) -> Result<()> {
        let path = self.finished_file(stage);
        std::fs::remove_file(&path).or_else(gone).map_err(Error::io(&path, "remove"))
    }

    fn finish<'a>(
        &self,
        stage: Stage,
        summaries: impl Iterator<Item = (&'a String, &'a Summary)>,
    ) -> Result<()> {
        let path = self.finished_file(stage);
        let mut lines = Vec::new();
        for (key, summary) in summaries {
            let line = Line { key: key.clone(), summary: summary.clone() };
            serde_json::to_writer(&mut lines, &line)
                .map_err(|e| Error::write(&path, Box::new(e)))?;
            lines.push(b'\n');
        }
        let packed = zstd::encode_all(lines.as_slice(), 0).map_err(Error::io(&path, "compress"))?;
        write_atomic(&path, &packed)?;
        // Nobody needs them any more: whoever asks for an item from here on finds it done.
        self.remove_tree(&format!("state/{}/leases", stage.name()))
    }

    /// The summaries of `keys` from the one file of `stage`; `None` where there is none, a damaged one, or one
    /// of other items.
    fn finished(&self, stage: Stage, keys: &[String]) -> Result<Option<Vec<Option<Summary>>>> {
        let path = self.finished_file(stage);
        let mut by_key = match std::fs::File::open(&path).map(read_finished) {
            Ok(Ok(by_key)) => by_key,
            Ok(Err(error)) => {
                Self::tell_damaged(&path, &Error::decode(&path, "the markers of a stage", error));
                return Ok(None);
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(Error::io(&path, "open")(error)),
        };
        let found: Vec<Option<Summary>> = keys.iter().map(|key| by_key.remove(key)).collect();
        Ok(found.iter().all(Option::is_some).then_some(found))
    }
}

fn read_finished(file: std::fs::File) -> std::io::Result<HashMap<String, Summary>> {
    let line = |line: std::io::Result<String>| {
        let Line { key, summary } = serde_json::from_str(&line?)?;
        Ok((key, summary))
    };
    BufReader::new(zstd::Decoder::new(file)?).lines().map(line).collect()
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
        run.remove_tree("state/embed/done")?;
        let finished: Vec<Summary> =
            run.summaries(Stage::Embed, &keys)?.into_iter().flatten().collect();
        assert_eq!(finished, (0..5).map(|i| Summary::from(marker(i))).collect::<Vec<_>>());
        // A file of other items says nothing.
        let more: Vec<String> = keys.iter().cloned().chain(["x".to_owned()]).collect();
        assert!(run.summaries(Stage::Embed, &more)?.iter().all(Option::is_none));
        // Neither does one that is cut off.
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
