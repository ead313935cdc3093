//! The run directory: where every stage reads and writes, and how a run knows what is done.
//!
//! ```text
//! RUN/ config.toml                    the resolved settings, for commands that are given only the directory
//!      plan.parquet                   the shards: file or rows of one, language, size, fingerprint
//!      frozen/<stage>.json            settings and digests; a difference is refused
//!      embeddings/<shard>/part-00000.parquet
//!      heads/<head>/<lang>.safetensors
//!      heads/<head>/<lang>.bin        a fastText model, and its card as .json
//!      scores/<head>/<shard>/part-00000.parquet
//!      rounds/<round>/<head>/<shard>/part-00000.parquet   documents scored again in f32
//!      refined/<head>/<shard>/part-00000.parquet          the scores with those in their place
//!      selection/<lang>.json          the exact thresholds; thresholds/<head>.json the same for people
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

mod claims;
mod finished;
mod frozen;
mod heart;
mod identity;
mod lease;
mod marker;
mod plan;
mod plan_file;
mod worker;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use serde::Serialize;
use serde::de::DeserializeOwned;

pub(crate) use claims::{Claims, StageWork};
pub use finished::Summary;
pub use identity::{Identity, Liveness};
pub use marker::{Encoded, Failure, PartFile, PartMarker, ShardMarker};
pub use plan::{Plan, Shard};
pub use worker::Worker;

use crate::error::{Error, Result};
use crate::io::is_url;
use crate::io::{FileStamp, is_temporary, write_atomic};
use crate::panics::lock;

/// Stages in the order in which they depend on each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Stage {
    /// Text to embeddings.
    Embed,
    /// Labelled samples to heads.
    Train,
    /// Embeddings to scores.
    Score,
    /// Documents near the thresholds to scores in f32.
    Refine,
    /// Scores to exact thresholds.
    Threshold,
    /// Everything to the exported shards.
    Export,
}

impl Stage {
    /// All stages, first to last.
    pub const ALL: [Self; 6] =
        [Self::Embed, Self::Train, Self::Score, Self::Refine, Self::Threshold, Self::Export];

    /// Name in paths, flags and reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Embed => "embed",
            Self::Train => "train",
            Self::Score => "score",
            Self::Refine => "refine",
            Self::Threshold => "threshold",
            Self::Export => "export",
        }
    }

    /// The stage of this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|stage| stage.name() == name)
    }

    /// Directories that the stage writes, below the run directory.
    fn outputs(self) -> &'static [&'static str] {
        match self {
            Self::Embed => &["embeddings", "rejects"],
            Self::Train => &["heads"],
            Self::Score => &["scores"],
            Self::Refine => &["rounds", "refined"],
            Self::Threshold => &["selection", "thresholds"],
            Self::Export => &["export", "removed"],
        }
    }
}

/// A run directory that exists.
#[derive(Debug, Clone)]
pub struct RunDir {
    root: PathBuf,
}

/// Markers of which this process said that they are damaged.
static DAMAGED: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());

impl RunDir {
    /// Opens `root`, creating it if needed.
    pub fn create(root: &Path) -> Result<Self> {
        not_a_url(root)?;
        fs_err::create_dir_all(root).map_err(Error::io(root, "create directory"))?;
        Ok(Self { root: root.to_owned() })
    }

    /// Opens an existing run directory for reading.
    pub fn open(root: &Path) -> Result<Self> {
        not_a_url(root)?;
        if [plan::FILE, "frozen"].iter().any(|name| root.join(name).exists()) {
            Ok(Self { root: root.to_owned() })
        } else {
            Err(Error::Missing {
                path: root.display().to_string(),
                reason: "is not a run directory (it holds neither plan.parquet nor frozen/)".into(),
            })
        }
    }

    /// The directory.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// A path below the directory.
    pub fn path(&self, relative: impl AsRef<Path>) -> PathBuf {
        self.root.join(relative)
    }

    /// Part `index` of the embeddings of `shard`.
    pub fn embeddings_part(&self, shard: &Shard, index: usize) -> PathBuf {
        self.path("embeddings").join(&shard.name).join(part_name(index, "parquet"))
    }

    /// Part `index` of the scores of `shard` by `head`.
    pub fn scores_part(&self, head: &str, shard: &Shard, index: usize) -> PathBuf {
        self.path("scores").join(head).join(&shard.name).join(part_name(index, "parquet"))
    }

    /// The documents of `shard` that round `round` of the refine stage scored again with `head`.
    pub fn round_part(&self, round: usize, head: &str, shard: &Shard) -> PathBuf {
        let folder = self.path("rounds").join(format!("{round:02}")).join(head);
        folder.join(&shard.name).join(part_name(0, "parquet"))
    }

    /// Part `index` of the scores of `shard` by `head` after the refine stage.
    pub fn refined_part(&self, head: &str, shard: &Shard, index: usize) -> PathBuf {
        self.path("refined").join(head).join(&shard.name).join(part_name(index, "parquet"))
    }

    /// Lines of `shard` that were set aside while part `index` was read.
    pub fn rejects_part(&self, shard: &Shard, index: usize) -> PathBuf {
        self.path("rejects").join(&shard.name).join(part_name(index, "jsonl"))
    }

    /// The trained head `head` of `language`.
    pub fn head_file(&self, head: &str, language: &str) -> PathBuf {
        self.path("heads").join(head).join(format!("{language}.safetensors"))
    }

    /// The trained fastText model `head` of `language`; its card lies beside it.
    pub fn text_head_file(&self, head: &str, language: &str) -> PathBuf {
        self.path("heads").join(head).join(format!("{language}.bin"))
    }

    /// The thresholds of `language`.
    pub fn selection_file(&self, language: &str) -> PathBuf {
        self.path("selection").join(format!("{language}.json"))
    }

    /// Where a file of a marker is: below the directory, or in a store.
    pub fn located(&self, file: &PartFile) -> PathBuf {
        if is_url(&file.path) { file.path.clone().into() } else { self.path(&file.path) }
    }

    /// Makes the directory `relative`.
    fn create_directory(&self, relative: &str) -> Result<()> {
        let path = self.path(relative);
        fs_err::create_dir_all(&path).map_err(Error::io(&path, "create directory"))
    }

    /// Names in the directory `relative`, none where it does not exist.
    fn names(&self, relative: &str) -> Result<Vec<String>> {
        let path = self.path(relative);
        let entries = match std::fs::read_dir(&path) {
            Ok(entries) => entries,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(Error::io(&path, "list")(error)),
        };
        let name = |entry: std::io::Result<std::fs::DirEntry>| {
            entry.map(|entry| entry.file_name().to_string_lossy().into_owned())
        };
        entries.map(name).collect::<std::io::Result<_>>().map_err(Error::io(&path, "list"))
    }

    /// Paths of the files and links below the directory `relative`, relative to it.
    fn tree(&self, relative: &str) -> Result<Vec<String>> {
        let root = self.path(relative);
        let (mut files, mut pending) = (Vec::new(), vec![String::new()]);
        while let Some(directory) = pending.pop() {
            let path = root.join(&directory);
            let entries = match std::fs::read_dir(&path) {
                Ok(entries) => entries,
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
                Err(error) => return Err(Error::io(&path, "list")(error)),
            };
            for entry in entries {
                let entry = entry.map_err(Error::io(&path, "list"))?;
                let name = entry.file_name().to_string_lossy().into_owned();
                let name = if directory.is_empty() { name } else { format!("{directory}/{name}") };
                let kind = entry.file_type().map_err(Error::io(&path, "inspect"))?;
                if kind.is_dir() { pending.push(name) } else { files.push(name) }
            }
        }
        Ok(files)
    }

    /// Paths of the files that `stage` left, in the folders where each has a marker that stands for it.
    pub fn stored_files(&self, stage: Stage) -> Result<Vec<String>> {
        let mut files = Vec::new();
        for folder in stage.outputs().iter().filter(|folder| **folder != "rejects") {
            let names = self
                .tree(folder)?
                .into_iter()
                .filter(|path| !is_temporary(path.rsplit('/').next().unwrap_or_default()));
            files.extend(names.map(|name| format!("{folder}/{name}")));
        }
        files.sort();
        Ok(files)
    }

    /// `path` relative to the run directory, a URL as it is, for markers and reports.
    pub fn relative(&self, path: &Path) -> String {
        path.strip_prefix(&self.root).unwrap_or(path).to_string_lossy().into_owned()
    }

    /// Reads a JSON file of the run; `None` when it does not exist.
    pub fn read_json<T: DeserializeOwned>(&self, path: &Path) -> Result<Option<T>> {
        match fs_err::read(path) {
            Ok(bytes) => serde_json::from_slice(&bytes)
                .map(Some)
                .map_err(|e| Error::decode(path, "JSON of a run directory", e)),
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(e) => Err(Error::io(path, "read")(e)),
        }
    }

    /// As [`RunDir::read_json`], for a file that says that something is done: of one that is damaged (by a
    /// full disk, a failing one) it is said once, and it counts as not there.
    fn read_marker<T: DeserializeOwned>(&self, path: &Path) -> Result<Option<T>> {
        match self.read_json(path) {
            Err(error @ Error::Decode { .. }) => {
                Self::tell_damaged(path, &error);
                Ok(None)
            }
            other => other,
        }
    }

    /// Says once that the marker `path` is damaged.
    fn tell_damaged(path: &Path, error: &Error) {
        let mut told = lock(&DAMAGED);
        if told.insert(path.to_owned()) {
            tracing::warn!(%error, "a marker is damaged; what it stands for counts as not done");
        }
    }

    /// Writes a JSON file whole.
    pub fn write_json(&self, path: &Path, value: &impl Serialize) -> Result<FileStamp> {
        let mut bytes =
            serde_json::to_vec_pretty(value).map_err(|e| Error::write(path, Box::new(e)))?;
        bytes.push(b'\n');
        write_atomic(path, &bytes)
    }
}

fn not_a_url(root: &Path) -> Result<()> {
    if root.to_str().is_none_or(|text| !is_url(text)) {
        return Ok(());
    }
    let reason = format!(
        "{} is a URL; a run directory is on a file system that all its processes share",
        root.display()
    );
    Err(Error::config("--run", reason))
}

fn part_name(index: usize, extension: &str) -> String {
    format!("part-{index:05}.{extension}")
}

#[cfg(test)]
impl RunDir {
    /// An empty one that lives as long as the directory.
    fn temporary() -> Result<(tempfile::TempDir, Self)> {
        let dir = tempfile::tempdir().map_err(Error::io("temp".as_ref(), "create"))?;
        let run = Self::create(dir.path())?;
        Ok((dir, run))
    }
}
