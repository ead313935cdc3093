//! The run directory: its stages and paths, and how its small files are read and written.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Mutex;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use polysift_base::error::{Error, Result};
use polysift_base::io::{
    check_entries, confine, create_folder, final_name, if_there, is_url, list, open, read_json,
    write_new,
};
use polysift_base::panics::lock;

/// The plan's file name. Its first line holds the settings, each further line a shard.
pub(super) const PLAN: &str = "plan.jsonl.zst";

/// File that holds the format of a run directory: `{"format": 1}`.
const FORMAT_FILE: &str = "format.json";

/// Format of all files of a run directory; raised when older programs would misread something.
const FORMAT: u32 = 1;

#[derive(Debug, Serialize, Deserialize)]
struct RunFormat {
    format: u32,
}

/// Stages in order of their dependencies; a cascade needs heads, so it runs after the train stage.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Stage {
    /// Scores texts cheaply, to drop documents before the other stages.
    Cascade,
    /// Computes embeddings of texts.
    Embed,
    /// Trains heads on labelled samples.
    Train,
    /// Computes scores from embeddings.
    Score,
    /// Applies filters to documents.
    Filter,
    /// Finds near duplicates by their embeddings.
    Deduplicate,
    /// Scores documents near the thresholds again in f32.
    Refine,
    /// Computes exact thresholds from scores.
    Threshold,
    /// Writes the exported shards.
    Export,
}

impl Stage {
    /// All stages, first to last.
    pub const ALL: [Self; 9] = [
        Self::Cascade,
        Self::Embed,
        Self::Train,
        Self::Score,
        Self::Filter,
        Self::Deduplicate,
        Self::Refine,
        Self::Threshold,
        Self::Export,
    ];

    /// Returns the name in paths, flags and reports.
    pub fn name(self) -> &'static str {
        self.name_and_outputs().0
    }

    /// Returns true if the stage's output depends on the output of `other`.
    pub fn depends_on(self, other: Self) -> bool {
        let is_apart = match self {
            Self::Filter => matches!(other, Self::Train | Self::Score),
            Self::Train => other == Self::Cascade,
            _ => false,
        };
        self > other && !is_apart
    }

    /// Returns the folders in the run directory that only this stage writes to.
    pub(super) fn outputs(self) -> &'static [&'static str] {
        self.name_and_outputs().1
    }

    fn name_and_outputs(self) -> (&'static str, &'static [&'static str]) {
        match self {
            Self::Cascade => ("cascade", &["cascade"]),
            Self::Embed => ("embed", &["embeddings", "rejects"]),
            Self::Train => ("train", &["heads"]),
            Self::Score => ("score", &["scores"]),
            Self::Filter => ("filter", &["verdicts", "filters"]),
            Self::Deduplicate => ("deduplicate", &["duplicates"]),
            Self::Refine => ("refine", &["rounds", "refined"]),
            Self::Threshold => ("threshold", &["selection"]),
            Self::Export => ("export", &["export", "removed", "audit"]),
        }
    }
}

impl FromStr for Stage {
    type Err = String;

    fn from_str(name: &str) -> std::result::Result<Self, String> {
        let stage = Self::ALL.into_iter().find(|stage| stage.name() == name);
        stage.ok_or_else(|| {
            let names = Self::ALL.map(Self::name).join(", ");
            format!("`{name}` is no stage; the stages are {names}")
        })
    }
}

/// A run directory that exists.
#[derive(Debug, Clone)]
pub struct RunDir {
    root: PathBuf,
}

/// Returns what was `read` of the marker `path`; a damaged one counts as absent, with one warning.
pub(super) fn if_sound<T>(path: &Path, read: Result<Option<T>>) -> Result<Option<T>> {
    static DAMAGED: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());
    let Err(error @ Error::Decode { .. }) = read else { return read };
    if lock(&DAMAGED).insert(path.to_owned()) {
        tracing::warn!(%error, "a marker is damaged; its unit of work counts as not done");
    }
    Ok(None)
}

impl RunDir {
    /// Opens the run directory `root`, which it makes if needed. [`Error::Config`] for a URL or a
    /// newer format; [`Error::Corrupt`] for links in it.
    pub fn create(root: &Path) -> Result<Self> {
        check_not_url(root)?;
        create_folder(root)?;
        let run = Self { root: root.to_owned() };
        if !run.check_format()? {
            run.check_not_taken()?;
            let text = serde_json::json!(RunFormat { format: FORMAT }).to_string() + "\n";
            write_new(&run.path(FORMAT_FILE), text.as_bytes())?;
        }
        Ok(run)
    }

    /// Refuses a directory that is no run but has folders that `--redo` would remove.
    fn check_not_taken(&self) -> Result<()> {
        let is_taken = |name: &&&str| self.path(name).exists();
        let taken = Stage::ALL.iter().flat_map(|stage| stage.outputs()).find(is_taken);
        // Another process may have begun the run meanwhile.
        let is_run = || [FORMAT_FILE, PLAN, "frozen"].iter().any(|name| self.path(name).exists());
        match taken {
            Some(name) if !is_run() => {
                let reason = format!(
                    "{} has `{name}`, which no run made; name an empty or a new folder",
                    self.root.display()
                );
                Err(Error::config("--run", reason))
            }
            _ => Ok(()),
        }
    }

    /// Opens a run directory as [`RunDir::create`] does; [`Error::Missing`] if there is none.
    pub fn open(root: &Path) -> Result<Self> {
        check_not_url(root)?;
        let exists = |name| root.join(name).try_exists().map_err(Error::io(root, "open"));
        if !exists(PLAN)? && !exists("frozen")? {
            let reason = "is not a run directory (it holds neither a plan nor frozen/)";
            return Err(Error::missing(root, reason));
        }
        let run = Self { root: root.to_owned() };
        run.check_format()?;
        Ok(run)
    }

    /// Refuses formats newer than this program, and links in the directory or in its state, and
    /// confines later access to it. Returns true if there is a format file.
    fn check_format(&self) -> Result<bool> {
        confine(&self.root);
        check_entries(&self.root)?;
        check_entries(&self.path("state"))?;
        // Deeper folders are checked when they are used; leases are links.
        let stages = Stage::ALL.map(Stage::name).into_iter();
        for folder in stages.chain(["workers"]) {
            check_entries(&self.path("state").join(folder))?;
        }
        match self.read_json(&self.path(FORMAT_FILE))? {
            Some(RunFormat { format }) if format > FORMAT => {
                let reason = format!(
                    "{} is of format {format}, which a newer polysift made; this one reads format {FORMAT}",
                    self.root.display()
                );
                Err(Error::config("--run", reason))
            }
            found => Ok(found.is_some()),
        }
    }

    /// Returns the path of the run directory.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Returns a path below the run directory.
    pub fn path(&self, relative: impl AsRef<Path>) -> PathBuf {
        self.root.join(relative)
    }

    /// Lists the files and links below the directory `relative`, relative to it, in no order.
    pub(super) fn list_tree(&self, relative: &str) -> Result<Vec<String>> {
        let root = self.path(relative);
        let (mut files, mut pending) = (Vec::new(), vec![String::new()]);
        while let Some(folder) = pending.pop() {
            for entry in list(&root.join(&folder))? {
                let name = entry.file_name().to_string_lossy().into_owned();
                let name = if folder.is_empty() { name } else { format!("{folder}/{name}") };
                let kind = entry.file_type().map_err(Error::io(&entry.path(), "inspect"));
                match if_there(kind)? {
                    Some(kind) if kind.is_dir() => pending.push(name),
                    Some(_) => files.push(name),
                    None => {}
                }
            }
        }
        Ok(files)
    }

    /// Lists the files of `stage`, below `root` or the run, in the folders whose files all are in
    /// markers; sorted, and relative to the run.
    pub fn stored_files(&self, stage: Stage, root: Option<&Path>) -> Result<Vec<String>> {
        let mut files = Vec::new();
        for folder in stage.outputs().iter().filter(|folder| **folder != "rejects") {
            let folder = root.map_or_else(|| folder.into(), |root| root.join(folder));
            let mut names = self.list_tree(&folder.to_string_lossy())?;
            names.retain(|path| path.rsplit('/').next().and_then(final_name).is_none());
            files.extend(names.into_iter().map(|name| self.relative(&folder.join(name))));
        }
        files.sort();
        Ok(files)
    }

    /// Returns `path` relative to the run directory, for markers and reports; URLs stay unchanged.
    pub fn relative(&self, path: &Path) -> String {
        path.strip_prefix(&self.root).unwrap_or(path).to_string_lossy().into_owned()
    }

    /// Reads a JSON file of the run; returns `None` if it does not exist.
    pub fn read_json<T: DeserializeOwned>(&self, path: &Path) -> Result<Option<T>> {
        read_json(path, "JSON of a run directory")
    }

    /// Reads the marker `path`; `None` if it does not exist, or is damaged ([`if_sound`]).
    pub(super) fn read_marker<T: DeserializeOwned>(&self, path: &Path) -> Result<Option<T>> {
        if_sound(path, self.read_json(path))
    }
}

/// Returns [`Error::Config`] if `root` is a URL.
fn check_not_url(root: &Path) -> Result<()> {
    if root.to_str().is_none_or(|text| !is_url(text)) {
        return Ok(());
    }
    let reason = format!(
        "{} is a URL; a run directory is on a file system that all its processes share",
        root.display()
    );
    Err(Error::config("--run", reason))
}

/// Returns compressed JSON lines of `header` and `items`; `path` is for errors.
pub(super) fn to_json_lines<T: Serialize>(
    path: &Path,
    header: &Value,
    items: impl Iterator<Item = T>,
) -> Result<Vec<u8>> {
    let mut lines = header.to_string().into_bytes();
    for item in items {
        lines.push(b'\n');
        serde_json::to_writer(&mut lines, &item).map_err(|e| Error::write(path, Box::new(e)))?;
    }
    lines.push(b'\n');
    let compress = || {
        let mut compressor = zstd::bulk::Compressor::new(0)?;
        compressor.include_checksum(true)?;
        compressor.compress(&lines)
    };
    compress().map_err(Error::io(path, "compress"))
}

/// Reads header and items from a file of [`to_json_lines`]; [`Error::Decode`] if it is damaged.
pub(super) fn read_json_lines<T: DeserializeOwned>(path: &Path) -> Result<(Value, Vec<T>)> {
    let file = open(path)?;
    let read = || -> std::io::Result<(Value, Vec<T>)> {
        let mut lines = BufReader::new(zstd::Decoder::new(file)?).lines();
        let header = lines.next().transpose()?.unwrap_or_default();
        let items = lines.map(|line| Ok(serde_json::from_str(&line?)?));
        Ok((serde_json::from_str(&header)?, items.collect::<std::io::Result<_>>()?))
    };
    read().map_err(|e| Error::decode(path, "JSON lines of a run directory", e))
}

#[cfg(test)]
impl RunDir {
    pub(super) fn temporary() -> Result<(tempfile::TempDir, Self)> {
        let dir = tempfile::tempdir().map_err(Error::io("temp".as_ref(), "create"))?;
        let run = Self::create(dir.path())?;
        Ok((dir, run))
    }
}
