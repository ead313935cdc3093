//! Patterns of the input: globs with `**` and `{lang}`, matched against the keys of a store or the
//! paths of files below a directory. Names that start with `.` or `_` are skipped unless the
//! pattern's own component starts so.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path, PathBuf};

use polysift_base::error::{Error, Result};
use polysift_base::progress::Stop;
use polysift_config::{LANGUAGE_CODE, is_language_byte};
use polysift_remote::ObjectVersion;

/// Placeholder for the language code.
pub const LANG: &str = "{lang}";

/// Returns true if `pattern` needs matching, rather than naming one path.
pub(super) fn is_pattern(pattern: &str) -> bool {
    pattern.contains(['*', '?', '[']) || pattern.contains(LANG)
}

/// Returns true if directories and globs leave out entries of that name.
pub(super) fn is_hidden(name: &str) -> bool {
    name.starts_with(['.', '_'])
}

/// Returns a numbered series, such as `german/train-*-of-00003`, of which `names` lack a file that
/// `wants` accepts; `None` if all are complete. An interrupted download leaves an incomplete one in
/// the cache of a hub, where no list tells which files belong to it.
pub fn lacking_series(names: &[&str], wants: &dyn Fn(&str) -> bool) -> Option<String> {
    let mut series: BTreeMap<(&str, &str), BTreeMap<&str, &str>> = BTreeMap::new();
    for name in names {
        let Some((before, after)) = name.split_once("-of-") else { continue };
        let start = before.trim_end_matches(|c: char| c.is_ascii_digit());
        let end = after.find(|c: char| !c.is_ascii_digit()).unwrap_or(after.len());
        let found = series.entry((start, &after[..end])).or_default();
        found.insert(&before[start.len()..], after);
    }
    series.into_iter().find_map(|((start, total), found)| {
        let (number, after) = found.first_key_value().filter(|(number, _)| !number.is_empty())?;
        let count = total.parse().ok().filter(|&count: &usize| count > found.len())?;
        let mut numbers =
            (0..count.min(1 << 20)).map(|n| format!("{n:0width$}", width = number.len()));
        let is_lacking = numbers.any(|number| {
            !found.contains_key(&*number) && wants(&format!("{start}{number}-of-{after}"))
        });
        is_lacking.then(|| format!("{start}*-of-{total}"))
    })
}

/// Returns true if `directory` is a run directory.
pub(super) fn holds_run(directory: &Path) -> bool {
    let has = |name: &str| directory.join(name).exists();
    has("state") && (has("plan.jsonl.zst") || has("frozen"))
}

/// A file that a pattern names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MatchedFile {
    /// Path of the file, or URL of the object.
    pub path: PathBuf,
    /// Value of `{lang}`; `None` if the pattern has no `{lang}`.
    pub language: Option<String>,
    /// Version of an object; `None` for a local file.
    pub version: Option<ObjectVersion>,
}

impl MatchedFile {
    /// Creates one whose `language` is empty if there is none.
    pub(super) fn new(path: PathBuf, language: &str, version: Option<ObjectVersion>) -> Self {
        Self { path, language: (!language.is_empty()).then(|| language.to_owned()), version }
    }
}

/// Returns the files below `directory` that match `keys` and whose names `takes` accepts, in byte
/// order of the names. Links are followed; run directories are skipped.
pub(super) fn search(
    directory: &Path,
    keys: &KeyPattern,
    takes: &dyn Fn(&str) -> bool,
) -> Result<Vec<MatchedFile>> {
    let (ancestors, found, skipped) = (Vec::new(), Vec::new(), BTreeMap::new());
    let mut search =
        DirectorySearch { keys, takes, ancestors, found, skipped, nameless: Vec::new() };
    search.search_below(directory, "")?;
    if !search.nameless.is_empty() {
        tracing::warn!(
            directory = %directory.display(),
            "folders whose names are no language codes ({LANGUAGE_CODE}) are left out: {}",
            search.nameless.join(", ")
        );
    }
    if !search.skipped.is_empty() {
        let counts =
            search.skipped.iter().map(|(extension, count)| format!("{count} .{extension}"));
        let counts = counts.collect::<Vec<_>>().join(", ");
        tracing::warn!(
            directory = %directory.display(),
            "files of data in forms that are not read are left out: {counts}"
        );
    }
    Ok(search.found)
}

/// Extensions of files of data that are not read, alone or before `.gz` and `.zst`.
const UNREAD: &str =
    "7z arrow avro br bz2 csv feather jl jsonlines lz4 orc parq parquet pq sz tsv warc xz zip";

/// Returns the extension of `name` if it is one of [`UNREAD`].
fn unread(name: &str) -> Option<&'static str> {
    let name = name.to_lowercase();
    let packed = name.strip_suffix(".gz").or_else(|| name.strip_suffix(".zst"));
    let (_, extension) = packed.unwrap_or(&name).rsplit_once('.')?;
    UNREAD.split(' ').find(|known| *known == extension)
}

struct DirectorySearch<'a> {
    keys: &'a KeyPattern,
    takes: &'a dyn Fn(&str) -> bool,
    /// Directories on the way down. A symbolic link to one of them ends the descent.
    ancestors: Vec<PathBuf>,
    found: Vec<MatchedFile>,
    /// Number of skipped files for each extension of [`UNREAD`].
    skipped: BTreeMap<&'static str, u64>,
    /// Folders in the place of `{lang}` that are no language codes.
    nameless: Vec<String>,
}

impl DirectorySearch<'_> {
    /// Searches `directory`; the keys of its files begin with `prefix`. A run directory is skipped,
    /// because the output of a run is no input unless a folder in it is named.
    fn search_below(&mut self, directory: &Path, prefix: &str) -> Result<()> {
        if holds_run(directory) {
            tracing::info!(directory = %directory.display(), "a run directory is not searched");
            return Ok(());
        }
        let real = std::fs::canonicalize(directory).map_err(Error::io(directory, "resolve"))?;
        if self.ancestors.contains(&real) {
            return Ok(());
        }
        self.ancestors.push(real);
        let mut entries = Vec::new();
        for entry in std::fs::read_dir(directory).map_err(Error::io(directory, "list"))? {
            Stop::of_process().check()?;
            let entry = entry.map_err(Error::io(directory, "list"))?;
            entries.push((entry.file_name().to_string_lossy().into_owned(), entry.path()));
        }
        entries.sort_unstable();
        for (name, path) in entries {
            let key = format!("{prefix}{name}");
            if path.is_dir() {
                let folder = key + "/";
                if self.keys.enters(&folder) {
                    self.search_below(&path, &folder)?;
                } else if self.keys.is_language(prefix) && !is_hidden(&name) {
                    self.nameless.push(name);
                }
            } else if let Some(language) = self.keys.matched(&key) {
                if (self.takes)(&name) {
                    // Shard names are made of file names.
                    if path.to_str().is_none() {
                        let path = path.display().to_string();
                        return Err(Error::config(path, "the name is not UTF-8"));
                    }
                    self.found.push(MatchedFile::new(path, language, None));
                } else if let Some(extension) = unread(&name) {
                    *self.skipped.entry(extension).or_default() += 1;
                }
            }
        }
        self.ancestors.pop();
        Ok(())
    }
}

/// Splits `pattern` into the directory (below `base`) of all matches, and the rest of the pattern.
pub(super) fn split_root(pattern: &str, base: &Path) -> Result<(PathBuf, KeyPattern)> {
    let absolute = base.join(pattern);
    let components: Vec<Component<'_>> = absolute.components().collect();
    // A folder that exists is taken literally, even if its name holds `[` or `*`.
    let mut folder = PathBuf::new();
    let is_literal = |part: &&Component<'_>| {
        folder.push(part);
        !is_pattern(&part.as_os_str().to_string_lossy()) || folder.is_dir()
    };
    let literal = components.iter().take_while(is_literal).count();
    let (root, rest) = components.split_at(literal);
    if rest.contains(&Component::ParentDir) {
        return Err(Error::config(pattern, "`..` cannot follow a wildcard"));
    }
    let rest: PathBuf = rest.iter().collect();
    let keys = rest.to_str().ok_or_else(|| Error::config(pattern, "is not UTF-8"))?;
    Ok((root.iter().collect(), KeyPattern::parse(keys, pattern)?))
}

/// Returns the languages for which a file `template` exists; only `{lang}` is a pattern in it.
pub fn languages_of(template: &str) -> Result<BTreeSet<String>> {
    let base = std::path::absolute(".").map_err(Error::io(Path::new("."), "resolve"))?;
    let (root, keys) = split_root(&glob::Pattern::escape(template), &base)?;
    if !root.is_dir() {
        return Ok(BTreeSet::new());
    }
    let found = search(&root, &keys, &|_| true)?.into_iter();
    let depth = root.components().count() + keys.parts.len();
    let files = found.filter(|file| file.path.components().count() == depth);
    Ok(files.filter_map(|file| file.language).collect())
}

enum PatternPart {
    /// `**`: any number of directories, including none.
    Any,
    /// The globs between the `{lang}`s of a component; a single one if it has no `{lang}`.
    Globs(Vec<glob::Pattern>),
}

impl PatternPart {
    /// Parses a `component` of `pattern`; a malformed glob is [`Error::Config`].
    fn parse(component: &str, pattern: &str) -> Result<Self> {
        if component == "**" {
            return Ok(Self::Any);
        }
        let globs = component.split(LANG).map(glob::Pattern::new).collect::<Result<_, _>>();
        let globs = globs.map_err(|e| {
            let reason = format!(
                "is not a glob: {}; `[[]`, `[*]` and `[?]` stand for `[`, `*` and `?`",
                e.msg
            );
            Error::config(pattern, reason)
        })?;
        Ok(Self::Globs(globs))
    }
}

/// A pattern of keys of a store or of paths below a directory, split at slashes; empty parts count.
/// One that names a folder matches everything in it, and the default everything that is not hidden.
#[derive(Default)]
pub(super) struct KeyPattern {
    /// Prefix of all matches: empty, or folders with a slash at the end.
    pub root: String,
    parts: Vec<PatternPart>,
}

impl KeyPattern {
    /// Parses `key`, which is `pattern` or its rest; errors name `pattern`.
    pub(super) fn parse(key: &str, pattern: &str) -> Result<Self> {
        let key = key.strip_suffix('/').unwrap_or(key);
        let components: Vec<&str> =
            if key.is_empty() { Vec::new() } else { key.split('/').collect() };
        let literal = components.iter().take_while(|part| !is_pattern(part)).count();
        let (root, parts) = components.split_at(literal);
        let root = root.iter().flat_map(|folder| [folder, "/"]).collect();
        let parts =
            parts.iter().map(|part| PatternPart::parse(part, pattern)).collect::<Result<_>>()?;
        Ok(Self { root, parts })
    }

    /// Returns true if a folder in `folder` is named after a language.
    fn is_language(&self, folder: &str) -> bool {
        let parts = &self.parts[..self.parts.len().min(folder.matches('/').count() + 1)];
        let is_any = |part: &PatternPart| matches!(part, PatternPart::Any);
        let Some(PatternPart::Globs(globs)) = parts.last() else { return false };
        globs.len() == 2
            && globs.iter().all(|glob| glob.as_str().is_empty())
            && !parts.iter().any(is_any)
    }

    /// Matches `key`. Returns its language, the longest of several; empty without `{lang}`.
    pub(super) fn matched<'k>(&self, key: &'k str) -> Option<&'k str> {
        let names: Vec<&str> = key.strip_prefix(self.root.as_str())?.split('/').collect();
        match_names(&self.parts, &names, "", false)
    }

    /// Returns true if keys below `folder`, which ends with a slash, may match.
    pub(super) fn enters(&self, folder: &str) -> bool {
        let below = folder.strip_prefix(self.root.as_str()).and_then(|f| f.strip_suffix('/'));
        let Some(below) = below else { return true };
        let names: Vec<&str> = below.split('/').collect();
        match_names(&self.parts, &names, "", true).is_some()
    }
}

/// Returns the first language under which `names` match `parts`. For a folder, a possible match
/// below it is enough. Further names are in a directory that is searched.
fn match_names<'n>(
    parts: &[PatternPart],
    names: &[&'n str],
    language: &'n str,
    is_folder: bool,
) -> Option<&'n str> {
    let Some((part, rest)) = parts.split_first() else {
        return names.iter().all(|name| !is_hidden(name)).then_some(language);
    };
    let Some((name, below)) = names.split_first() else {
        return is_folder.then_some(language);
    };
    match part {
        PatternPart::Any => match_names(rest, names, language, is_folder).or_else(|| {
            let is_searched = (is_folder || !below.is_empty()) && !is_hidden(name);
            is_searched.then(|| match_names(parts, below, language, is_folder)).flatten()
        }),
        // A component that starts with `.` or `_` may match hidden names.
        PatternPart::Globs(globs) if is_hidden(name) && !is_hidden(globs[0].as_str()) => None,
        PatternPart::Globs(globs) => possible_languages(globs, name, language)
            .into_iter()
            .find_map(|found| match_names(rest, below, found, is_folder)),
    }
}

/// Returns the values of `{lang}` under which `name` matches, longest first, or only `bound`, which
/// may be empty, for a match without `{lang}`. A `bound` language must match itself again.
fn possible_languages<'n>(globs: &[glob::Pattern], name: &'n str, bound: &'n str) -> Vec<&'n str> {
    let Some((first, rest)) = globs.split_first() else { return Vec::new() };
    if rest.is_empty() {
        return if first.matches(name) { vec![bound] } else { Vec::new() };
    }
    let mut found = Vec::new();
    let is_start = |&i: &usize| name.is_char_boundary(i) && first.matches(&name[..i]);
    for start in (0..=name.len()).filter(is_start) {
        let longest = name[start..].bytes().take_while(|&b| is_language_byte(b)).count();
        for length in (1..=longest).rev() {
            let (code, tail) = name[start..].split_at(length);
            if bound.is_empty() || bound == code {
                for language in possible_languages(rest, tail, code) {
                    if !found.contains(&language) {
                        found.push(language);
                    }
                }
            }
        }
    }
    found.sort_by_key(|code| std::cmp::Reverse(code.len()));
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matched(component: &str, name: &str, bound: &str) -> Result<Vec<String>> {
        let PatternPart::Globs(globs) = PatternPart::parse(component, component)? else {
            return Ok(Vec::new());
        };
        Ok(possible_languages(&globs, name, bound).into_iter().map(str::to_owned).collect())
    }

    #[test]
    fn a_language_is_the_longest_run_that_fits() -> Result<()> {
        assert_eq!(matched("{lang}", "deu_Latn", "")?, ["deu_Latn"]);
        assert_eq!(matched("train_{lang}.jsonl", "train_deu_Latn.jsonl", "")?, ["deu_Latn"]);
        assert_eq!(matched("{lang}_*", "deu_Latn_001.parquet", "")?, ["deu_Latn", "deu"]);
        assert_eq!(matched("{lang}", "deu Latn", "")?, [""; 0]);
        assert_eq!(matched("{lang}", "日本", "")?, [""; 0]);
        Ok(())
    }

    #[test]
    fn a_bound_language_must_agree() -> Result<()> {
        assert_eq!(matched("{lang}_*", "deu_Latn_001", "deu")?, ["deu"]);
        assert_eq!(matched("{lang}_*", "deu_Latn_001", "fra")?, [""; 0]);
        assert_eq!(matched("{lang}-{lang}", "de-de", "")?, ["de"]);
        assert_eq!(matched("*.parquet", "a.parquet", "fra")?, ["fra"]);
        Ok(())
    }

    #[test]
    fn keys_are_matched_between_their_slashes() -> Result<()> {
        for (pattern, key, language) in [
            ("p/{lang}/**/*.parquet", "p/deu/x/q?.parquet", Some("deu")),
            ("p/{lang}/**/*.parquet", "p/deu//a.parquet", Some("deu")),
            ("p/{lang}/*.parquet", "p/deu//a.parquet", None),
            ("p/*/{lang}.parquet", "p//deu.parquet", Some("deu")),
            ("p//{lang}.parquet", "p/deu.parquet", None),
            ("p//{lang}.parquet", "p//deu.parquet", Some("deu")),
            ("/{lang}.parquet", "/deu.parquet", Some("deu")),
            ("{lang}/q[?].parquet", "deu/qq.parquet", None),
            ("{lang}/q[?].parquet", "deu/q?.parquet", Some("deu")),
            ("{lang}/[[]{*}[*].parquet", "deu/[{x}*.parquet", Some("deu")),
            ("{lang}/", "deu/a/b.parquet", Some("deu")),
        ] {
            let keys = KeyPattern::parse(pattern, pattern)?;
            let found = keys.matched(key).filter(|language| !language.is_empty());
            assert_eq!(found, language, "{pattern} {key}");
        }
        Ok(())
    }

    #[test]
    fn folders_are_entered_where_something_in_them_may_match() -> Result<()> {
        for (pattern, folder, enters) in [
            ("p/{lang}/train/*.parquet", "p/deu/", true),
            ("p/{lang}/train/*.parquet", "p/deu/train/", true),
            ("p/{lang}/train/*.parquet", "p/deu/test/", false),
            ("p/{lang}/train/*.parquet", "p/deu/_train/", false),
            ("p/**/b/*.parquet", "p/x/y/z/", true),
            ("p/**/b/*.parquet", "p/x/.y/", false),
            ("p/*", "p/x/y//z/", true),
            ("", "p/_x/", false),
        ] {
            assert_eq!(KeyPattern::parse(pattern, pattern)?.enters(folder), enters, "{folder}");
        }
        Ok(())
    }

    #[test]
    fn a_broken_glob_names_the_pattern() {
        let error = split_root("data/[.parquet", Path::new("/"));
        assert!(error.is_err_and(|e| e.to_string().contains("data/[.parquet")));
    }

    #[test]
    fn a_series_that_lacks_a_file_is_found() -> Result<()> {
        let all = |names: &[&str]| lacking_series(names, &|_| true);
        assert_eq!(
            all(&["a/train-00000-of-00002-0f.parquet", "a/train-00001-of-00002-9e.parquet"]),
            None
        );
        assert_eq!(all(&["mmlu_DE-DE.csv", "all-of-it.csv", "best-of-10.csv"]), None);
        assert_eq!(all(&["part-1-of-2.csv", "part-2-of-2.csv"]), None);
        let half = ["a/train-00001-of-00002.parquet", "b/train-00000-of-00001.parquet"];
        assert_eq!(all(&half).as_deref(), Some("a/train-*-of-00002"));
        // A pattern may name only some files of a series.
        for (pattern, is_lacking) in
            [("*/train-*", true), ("a/train-0000?-of-*", true), ("a/train-*1-of-*", false)]
        {
            let keys = KeyPattern::parse(pattern, pattern)?;
            let found = lacking_series(&half[..1], &|name| keys.matched(name).is_some());
            assert_eq!(found.is_some(), is_lacking, "{pattern}");
        }
        Ok(())
    }
}
