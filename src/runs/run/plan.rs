//! The plan: the shards, frozen before the first document is read, and their assignment to tasks.

use std::collections::{BTreeSet, HashSet};
use std::ops::Range;
use std::path::{Path, PathBuf};

use rayon::prelude::*;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::dir::{PLAN, RunDir, read_json_lines, to_json_lines};
use super::frozen::difference;
use polysift_base::error::{Error, Result};
use polysift_base::io::{is_url, write_atomic, write_new};
use polysift_base::progress::Stop;
use polysift_base::sample::hash_of;
use polysift_data::input::{InputFile, RowGroup};

/// Maximum bytes of a part of a shard's name: file systems allow 255, and derived names are longer.
const MAX_NAME_BYTES: usize = 220;

/// Empty file that marks a run with shards shared by several tasks.
const TASKS: &str = "state/tasks";

/// Number of files inspected concurrently; most of the time is spent waiting for a disk or a store.
const READERS: usize = 32;

const RESTORE: &str = "restore it, or plan again with `polysift plan --redo`";

const MAX_NAMED: usize = 10;

/// An input file, or consecutive row groups of one: the unit of work of most stages.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shard {
    /// Unique name, a relative path without extension; output files are named after it.
    pub name: String,
    /// Path of the input file.
    pub file: PathBuf,
    /// Language code from the path, if the pattern has `{lang}`.
    pub language: Option<String>,
    /// Size in bytes of the file, or of the row groups.
    pub bytes: u64,
    /// Rows of the file, counted from 0; `None` for all rows.
    pub rows: Option<Range<u64>>,
    /// Number of rows, if the format tells it.
    pub num_rows: Option<u64>,
    /// Cheap identity of the file's content (size, first and last 64 KiB).
    pub fingerprint: String,
}

/// All shards of a run, sorted by name.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Plan {
    /// The shards.
    pub shards: Vec<Shard>,
    /// Settings that the plan was made from; null if unknown.
    pub settings: Value,
}

impl Plan {
    /// Plans `files`, which `settings` named, and reads a fingerprint and the row groups of each.
    /// Parquet files larger than `max_shard_bytes` are split between row groups. [`Error::Config`]
    /// if the name of a shard is too long or not unique.
    pub fn new(files: &[InputFile], max_shard_bytes: u64, settings: Value) -> Result<Self> {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(files.len().clamp(1, READERS));
        let pool = pool.build().map_err(|e| Error::config("--threads", e.to_string()))?;
        let of_file = |file: &InputFile| {
            Stop::of_process().check()?;
            Ok(split_file(file, file.fingerprint()?, file.row_groups()?, max_shard_bytes))
        };
        let shards = pool.install(|| files.par_iter().map(of_file).collect::<Result<Vec<_>>>())?;
        let mut shards: Vec<Shard> = shards.into_iter().flatten().collect();
        shards.sort_by(|a, b| a.name.cmp(&b.name));
        let refused = |reason| Err(Error::config("input.files", reason));
        let is_long = |shard: &&Shard| shard.name.split('/').any(|it| it.len() > MAX_NAME_BYTES);
        if let Some(long) = shards.iter().find(is_long) {
            let most = format!("{MAX_NAME_BYTES} bytes; output files add a suffix to it");
            return refused(format!("{} has a name of more than {most}", long.file.display()));
        }
        if let Some([one, other]) = shards.array_windows().find(|[a, b]| a.name == b.name) {
            let (name, one, other) = (&one.name, one.file.display(), other.file.display());
            return refused(format!("{one} and {other}: both become the shard `{name}`"));
        }
        Ok(Self { shards, settings })
    }

    /// Returns the digest of names, rows, languages and fingerprints, not of paths and settings.
    pub fn digest(&self) -> String {
        hash_of(self.shards.iter().flat_map(Shard::identity)).to_hex().to_string()
    }

    /// Returns the size of all shards in bytes.
    pub fn bytes(&self) -> u64 {
        self.shards.iter().map(|s| s.bytes).fold(0, u64::saturating_add)
    }

    /// Returns the number of rows of all shards, if it is known for every shard.
    pub fn num_rows(&self) -> Option<u64> {
        let add = |sum: u64, shard: &Shard| Some(sum.saturating_add(shard.num_rows?));
        self.shards.iter().try_fold(0, add)
    }

    /// Returns the names of the shards.
    pub fn names(&self) -> Vec<String> {
        self.shards.iter().map(|shard| shard.name.clone()).collect()
    }

    /// Returns the indices of the shards, largest first.
    pub fn by_size(&self) -> Vec<usize> {
        let mut places: Vec<usize> = (0..self.shards.len()).collect();
        places.sort_by_key(|&place| std::cmp::Reverse(self.shards[place].bytes));
        places
    }

    /// Returns the task, out of `count`, of each shard: the largest shard goes first, to the task
    /// with the smallest load (Graham's rule: the largest load is at most 4/3 of the optimum).
    pub fn task_of_shards(&self, count: u32) -> Vec<u32> {
        // Tasks beyond the number of shards get no shard.
        let count = count.min(u32::try_from(self.shards.len()).unwrap_or(u32::MAX));
        let mut loads: BTreeSet<(u64, u32)> = (0..count).map(|task| (0, task)).collect();
        let mut tasks = vec![0; self.shards.len()];
        for place in self.by_size() {
            if let Some((load, task)) = loads.pop_first() {
                tasks[place] = task;
                // Even an empty file takes time.
                loads.insert((load.saturating_add(self.shards[place].bytes.max(1)), task));
            }
        }
        tasks
    }

    /// Returns the paths of those `files` that have no shard, whatever their commit on a hub is.
    pub fn unplanned<'a>(&self, files: &'a [InputFile]) -> Vec<&'a Path> {
        let planned: HashSet<_> = self.shards.iter().map(|s| without_commit(&s.file)).collect();
        let paths = files.iter().map(|file| file.path.as_path());
        paths.filter(|path| !planned.contains(&without_commit(path))).collect()
    }

    /// Returns one line for each setting that differs, and for up to ten shards that differ.
    fn differences(&self, other: &Self) -> String {
        let described = |plan: &Self| -> Value {
            let identities = plan.shards.iter().map(Shard::identity);
            let text = |[name, rows, language, fingerprint]: [String; 4]| {
                (name, format!("{fingerprint} {language} {rows}").trim_end().to_owned())
            };
            identities.map(text).collect()
        };
        let settings = difference("input", &self.settings, &other.settings);
        let shards = difference("embed.shards", &described(self), &described(other));
        let more = shards.lines().count().saturating_sub(MAX_NAMED);
        let more = (more > 0).then(|| format!("  and {more} more shards"));
        let lines = settings.lines().chain(shards.lines().take(MAX_NAMED)).chain(more.as_deref());
        lines.collect::<Vec<_>>().join("\n")
    }
}

/// Returns what is before and behind the commit in the URL of a file on a hub, else the path.
fn without_commit(path: &Path) -> (&Path, &str) {
    let url = path.to_str().filter(|path| path.starts_with("hf://"));
    let parts = url.and_then(|url| url.split_once('@'));
    parts
        .map_or((path, ""), |(place, rest)| (place.as_ref(), rest.trim_start_matches(|c| c != '/')))
}

/// Splits `file` between row groups into shards of about equal size, in the order of the rows. It
/// stays whole up to `max_shard_bytes`, or without two row groups.
fn split_file(
    file: &InputFile,
    fingerprint: String,
    groups: Option<Vec<RowGroup>>,
    max_shard_bytes: u64,
) -> Vec<Shard> {
    // A damaged footer may name any sizes.
    let sum = |all: &[RowGroup], of: fn(&RowGroup) -> u64| {
        all.iter().map(of).fold(0, u64::saturating_add)
    };
    let whole = Shard {
        name: file.name.clone(),
        file: file.path.clone(),
        language: file.language.clone(),
        bytes: file.bytes,
        rows: None,
        num_rows: groups.as_ref().map(|groups| sum(groups, |group| group.rows)),
        fingerprint,
    };
    let groups = groups.unwrap_or_default();
    if file.bytes <= max_shard_bytes || groups.len() < 2 {
        return vec![whole];
    }
    // As many shards as needed, of about equal size.
    let bytes = sum(&groups, |group| group.bytes).max(1);
    let count = bytes.div_ceil(max_shard_bytes.max(1));
    let mut ranges: Vec<(Range<u64>, u64)> = Vec::new();
    let (mut seen_bytes, mut row, mut last) = (0u64, 0u64, None);
    for group in groups {
        let middle = u128::from(seen_bytes.saturating_add(group.bytes / 2));
        let place = middle * u128::from(count) / u128::from(bytes);
        match ranges.last_mut() {
            // An empty shard would have the name of the one behind it.
            Some((rows, size)) if last == Some(place) || rows.is_empty() || group.rows == 0 => {
                rows.end = rows.end.saturating_add(group.rows);
                *size = size.saturating_add(group.bytes);
            }
            _ => ranges.push((row..row.saturating_add(group.rows), group.bytes)),
        }
        // An empty group may be where the next shard begins.
        if group.rows > 0 {
            last = Some(place);
        }
        row = row.saturating_add(group.rows);
        seen_bytes = seen_bytes.saturating_add(group.bytes);
    }
    let shard = |(rows, bytes): (Range<u64>, u64)| Shard {
        name: file.name.clone() + &rows_suffix(Some(&rows)),
        bytes,
        num_rows: Some(rows.end - rows.start),
        rows: Some(rows),
        ..whole.clone()
    };
    ranges.into_iter().map(shard).collect()
}

/// Returns the suffix of a shard's name, empty for a whole file; names sort in the order of rows.
fn rows_suffix(rows: Option<&Range<u64>>) -> String {
    rows.map_or_else(String::new, |rows| format!(".{:012}", rows.start))
}

impl Shard {
    /// Returns what equal shards have in common: name, rows, language and fingerprint.
    fn identity(&self) -> [String; 4] {
        let rows = self.rows.as_ref();
        [
            self.name.clone(),
            rows.map_or(String::new(), |rows| format!("rows {}..{}", rows.start, rows.end)),
            self.language.clone().unwrap_or_default(),
            self.fingerprint.clone(),
        ]
    }

    /// Returns the first row of the shard in the file.
    pub fn first_row(&self) -> u64 {
        self.rows.as_ref().map_or(0, |rows| rows.start)
    }

    /// Opens the input file; [`Error::Missing`] if it is gone, [`Error::Corrupt`] if it changed.
    pub fn input(&self) -> Result<InputFile> {
        if !is_url(&self.file.to_string_lossy()) && !self.file.exists() {
            let reason = format!("the input file is gone; {RESTORE}");
            return Err(Error::missing(&self.file, reason));
        }
        // The name of the file prefixes the generated ids of documents.
        let name = self.name.strip_suffix(&rows_suffix(self.rows.as_ref())).unwrap_or(&self.name);
        let file = InputFile::at(&self.file, name.to_owned(), self.language.clone())?;
        if file.fingerprint()? == self.fingerprint {
            Ok(InputFile { rows: self.rows.clone(), ..file })
        } else {
            let reason = format!("the file changed since the run was planned; {RESTORE}");
            Err(Error::corrupt(&self.file, reason))
        }
    }
}

impl RunDir {
    /// Returns true if the run is planned.
    pub fn has_plan(&self) -> bool {
        self.path(PLAN).is_file()
    }

    /// Reads the plan; [`Error::Missing`] if there is none yet.
    pub fn plan(&self) -> Result<Plan> {
        if !self.has_plan() {
            let reason =
                "the run directory holds no plan; run `polysift plan` or `polysift embed` first";
            return Err(Error::missing(self.root(), reason));
        }
        let (mut header, shards) = read_json_lines(&self.path(PLAN))?;
        let settings = header.get_mut("input").map(Value::take).unwrap_or_default();
        Ok(Plan { shards, settings })
    }

    /// Records that several tasks share the shards.
    pub fn share(&self) -> Result<()> {
        write_atomic(&self.path(TASKS), b"").map(drop)
    }

    /// Returns true if [`RunDir::share`] was called.
    pub fn is_shared(&self) -> bool {
        self.path(TASKS).is_file()
    }

    /// Writes `plan`, or checks that the frozen one has equal shards; [`Error::Mismatch`] if not.
    pub fn freeze_plan(&self, plan: &Plan) -> Result<()> {
        if !self.has_plan() {
            let path = self.path(PLAN);
            let header = json!({"input": plan.settings});
            write_new(&path, &to_json_lines(&path, &header, plan.shards.iter())?)?;
        }
        let frozen = self.plan()?;
        if frozen.digest() == plan.digest() {
            return Ok(());
        }
        let hint = "restore the input, choose another run directory, or give `polysift plan --redo` \
                    to plan again and discard all outputs";
        let (path, difference) = (self.root().to_owned(), frozen.differences(plan));
        Err(Error::Mismatch { path, difference, hint: hint.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use proptest::prelude::*;

    use super::*;

    fn shard(name: &str, bytes: u64) -> Shard {
        Shard {
            name: name.to_owned(),
            file: "file".into(),
            language: Some("deu_Latn".into()),
            bytes,
            rows: None,
            num_rows: None,
            fingerprint: "f".into(),
        }
    }

    fn input_file(bytes: u64) -> InputFile {
        InputFile {
            path: "a.parquet".into(),
            name: "a".into(),
            language: None,
            bytes,
            format: polysift_data::input::Format::Parquet,
            version: None,
            rows: None,
        }
    }

    #[test]
    fn sizes_of_a_damaged_footer_do_not_overflow() {
        let group = |rows| RowGroup { rows, bytes: u64::MAX, decoded_bytes: 0 };
        for groups in [[u64::MAX; 3], [1, u64::MAX, u64::MAX], [u64::MAX, 0, 1]] {
            let groups = groups.map(group).to_vec();
            let shards = split_file(&input_file(u64::MAX), "f".into(), Some(groups), 1 << 30);
            let plan = Plan { shards, ..Plan::default() };
            assert_eq!(plan.num_rows(), Some(u64::MAX));
        }
    }

    proptest! {
        #[test]
        fn tasks_are_balanced_and_cover_the_plan(
            sizes in proptest::collection::vec(0u64..1000, 0..200), count in 1u32..40
        ) {
            let shards = sizes.iter().enumerate();
            let shards = shards.map(|(i, &s)| shard(&i.to_string(), s)).collect();
            let plan = Plan { shards, ..Plan::default() };
            let tasks = plan.task_of_shards(count);
            let mut loads = vec![0; count as usize];
            for (task, &size) in tasks.iter().zip(&sizes) {
                loads[*task as usize] += size.max(1);
            }
            let total: u64 = loads.iter().sum();
            let largest = sizes.iter().copied().max().unwrap_or_default();
            // List scheduling guarantees that no task exceeds the mean by more than one shard.
            let limit = total / u64::from(count) + largest + 1;
            prop_assert!(loads.iter().all(|&load| load <= limit), "{:?}", loads);
        }

        #[test]
        fn a_split_file_loses_no_row(
            groups in proptest::collection::vec((0u64..50, 1u64..100), 1..40), limit in 1u64..500
        ) {
            let group = |&(rows, bytes): &(u64, u64)| (rows, if rows == 0 { 0 } else { bytes });
            let groups: Vec<(u64, u64)> = groups.iter().map(group).collect();
            let group = |&(rows, bytes): &(u64, u64)| RowGroup { rows, bytes, decoded_bytes: 0 };
            let row_groups: Vec<RowGroup> = groups.iter().map(group).collect();
            let bytes = groups.iter().map(|(_, bytes)| bytes).sum();
            let num_rows = groups.iter().map(|(rows, _)| rows).sum::<u64>();
            let shards = split_file(&input_file(bytes), "f".into(), Some(row_groups), limit);
            prop_assert_eq!(shards.iter().map(|s| s.bytes).sum::<u64>(), bytes);
            prop_assert_eq!(shards.iter().filter_map(|s| s.num_rows).sum::<u64>(), num_rows);
            let mut next = 0;
            for shard in &shards {
                let rows = shard.rows.clone().unwrap_or(0..num_rows);
                prop_assert_eq!(rows.start, next);
                next = rows.end;
            }
            prop_assert_eq!(next, num_rows);
            let names: HashSet<&str> = shards.iter().map(|shard| shard.name.as_str()).collect();
            prop_assert_eq!(names.len(), shards.len());
            // A shard is larger than the limit by at most one row group.
            for shard in shards.iter().filter(|_| shards.len() > 1) {
                let largest = groups.iter().map(|(_, bytes)| *bytes).max().unwrap_or_default();
                prop_assert!(shard.bytes <= limit + largest, "{} of {}", shard.bytes, limit);
            }
        }
    }

    #[test]
    fn a_new_commit_makes_no_new_files() {
        let of = |path: &str| InputFile {
            path: path.into(),
            name: "a".into(),
            language: None,
            bytes: 1,
            format: polysift_data::input::Format::Parquet,
            version: None,
            rows: None,
        };
        let file = "hf://datasets/o/n@0123/a@1.parquet".into();
        let plan = Plan { shards: vec![Shard { file, ..shard("a", 1) }], ..Plan::default() };
        let files = ["hf://datasets/o/n@4567/a@1.parquet", "hf://datasets/o/n@4567/a@2.parquet"];
        assert_eq!(plan.unplanned(&files.map(of)), [Path::new(files[1])]);
    }

    #[test]
    fn plans_that_differ_name_the_shards() -> Result<()> {
        let (_dir, run) = RunDir::temporary()?;
        let plan = |names: [&str; 2], files: &str| Plan {
            shards: names.map(|name| shard(name, 1)).to_vec(),
            settings: json!({"files": [files]}),
        };
        let (before, mut now) = (plan(["a", "b"], "*"), plan(["a", "c"], "a*"));
        run.freeze_plan(&before)?;
        run.freeze_plan(&before)?;
        assert_eq!(run.plan()?, before);
        now.shards[0].rows = Some(3..9);
        let refused = run.freeze_plan(&now).map_err(|error| error.to_string());
        let message = refused.err().unwrap_or_default();
        for part in [
            "input.files: was [\"*\"], now [\"a*\"]",
            "shards.a: was \"f deu_Latn\", now \"f deu_Latn rows 3..9\"",
            "shards.b",
            "shards.c",
        ] {
            assert!(message.contains(part), "{message}");
        }
        // Plans with the same shards are equal, even if the settings name them differently.
        run.freeze_plan(&Plan { settings: now.settings, ..before })?;
        Ok(())
    }
}
