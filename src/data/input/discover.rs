//! Finds the input files: turns files, directories and patterns into a sorted list without
//! duplicates. Names of shards are short, unique, and the same wherever the files are the same.

use std::cell::Cell;
use std::collections::{HashMap, HashSet};
use std::ffi::OsString;
use std::fmt::Display;
use std::path::{Component, Path, PathBuf};

use rayon::prelude::*;

use super::pattern::{
    KeyPattern, LANG, MatchedFile, holds_run, is_pattern, lacking_series, search, split_root,
};
use super::{Compression, Format, InputFile};
use polysift_base::error::{Error, Result};
use polysift_base::io::{file_name, is_url, without_query};
use polysift_remote::{self as remote, Dataset, Location, ObjectVersion};

/// Maximum number of patterns searched in parallel.
const MAX_SEARCHES: usize = 32;
/// Description of a mixture, beside its files of documents.
pub const MIXTURE: &str = "mix.json";
const KNOWN_EXTENSIONS: &str =
    ".parquet, or .jsonl, .ndjson, .json with or without .gz, .gzip, .zst, .zstd";

/// Finds the files that `patterns` name, sorted by [`InputFile::name`].
///
/// A pattern is a file, a directory or a glob. A directory is searched recursively for known
/// extensions, without names that start with `.` or `_`. In a glob `**` matches any number of
/// directories, and `{lang}` matches a path component or a part of one made of `[A-Za-z0-9_-]`, as
/// long as possible and the same wherever it appears. Relative patterns start at `base`. A file
/// that two patterns match is taken once.
///
/// URLs of stores (`s3://`, `gs://`, `az://`, `hf://datasets/OWNER/NAME[@REVISION]`) are patterns
/// of the same kind; `http://` and `https://` name one file each. A revision of a hub is resolved
/// to its current commit; without a network the cache is searched.
///
/// # Errors
/// [`Error::Missing`] if a pattern matches nothing; [`Error::Config`] if a named file has an
/// unknown extension, a pattern is malformed, or two patterns give one file two languages.
pub fn discover(patterns: &[String], base: &Path) -> Result<Vec<InputFile>> {
    let takes = |name: &str| name != MIXTURE && document_format(name).is_some();
    let found = find(patterns, base, &takes)?;
    let names: HashSet<String> = found.iter().map(|(_, name)| name.clone()).collect();
    sort_named(found.into_iter().map(|(file, name)| {
        // A shard's name has the language, even if all have the same, unless the name is taken.
        let own = file.language.as_ref().filter(|language| !name.contains(language.as_str()));
        let long = own.map(|language| format!("{language}/{name}"));
        let name = long.filter(|long| !names.contains(long)).unwrap_or(name);
        let MatchedFile { path, language, version } = file;
        let Some(ObjectVersion { bytes, tag: version }) = version else {
            return InputFile::at(&path, name, language);
        };
        let format = file_format(&path).ok_or_else(|| unknown_extension(&path.display()))?;
        Ok(InputFile { path, name, language, bytes, format, rows: None, version })
    }))
}

/// Collects `files` in the order of their names; returns the first error.
pub(super) fn sort_named(files: impl Iterator<Item = Result<InputFile>>) -> Result<Vec<InputFile>> {
    let mut files = files.collect::<Result<Vec<_>>>()?;
    files.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(files)
}

/// Returns the files that `patterns` name, each once and with a unique name. In a directory only
/// names that satisfy `takes` count.
fn find(
    patterns: &[String],
    base: &Path,
    takes: &(dyn Fn(&str) -> bool + Sync),
) -> Result<Vec<(MatchedFile, String)>> {
    let base = std::path::absolute(base).map_err(Error::io(base, "resolve"))?;
    // Requests to stores run in parallel.
    let num_threads = patterns.len().clamp(1, MAX_SEARCHES);
    let pool = rayon::ThreadPoolBuilder::new().num_threads(num_threads).build();
    let pool = pool.map_err(|e| Error::config("--threads", e.to_string()))?;
    let searched: Vec<Result<Vec<MatchedFile>>> = pool
        .install(|| patterns.par_iter().map(|pattern| find_one(pattern, &base, takes)).collect());
    let mut found: Vec<MatchedFile> = Vec::new();
    let mut by_identity: HashMap<OsString, usize> = HashMap::new();
    for files in searched {
        // Returns the first error in the order of the patterns, whichever occurred first.
        for file in files? {
            let place = *by_identity.entry(identity(&file.path)?).or_insert(found.len());
            let Some(MatchedFile { language: known, .. }) = found.get_mut(place) else {
                found.push(file);
                continue;
            };
            if let (Some(a), Some(b)) = (&known, &file.language)
                && a != b
            {
                let reason = format!("the patterns give it two languages, {a} and {b}");
                return Err(Error::config(file.path.display().to_string(), reason));
            }
            *known = known.take().or(file.language);
        }
    }
    let paths: Vec<_> = found.iter().map(|file| normalized(&naming_path(&file.path))).collect();
    let names = shard_names(&paths);
    Ok(found.into_iter().zip(names).collect())
}

/// Like [`find`] in the working directory, for files that messages call `what`, not for URLs.
pub(super) fn find_local(
    patterns: &[String],
    what: &str,
    takes: &(dyn Fn(&str) -> bool + Sync),
) -> Result<Vec<(MatchedFile, String)>> {
    if let Some(url) = patterns.iter().find(|pattern| is_url(pattern)) {
        let reason = format!("is a URL; {what} are read from files, so download it first");
        return Err(Error::config(url, reason));
    }
    find(patterns, Path::new("."), takes)
}

/// Returns the files or objects that one pattern names, with the errors of [`discover`].
fn find_one(pattern: &str, base: &Path, takes: &dyn Fn(&str) -> bool) -> Result<Vec<MatchedFile>> {
    if pattern.trim().is_empty() {
        return Err(Error::config("a pattern of files", "is empty"));
    }
    if is_url(pattern) {
        return find_objects(pattern, takes);
    }
    let literal = base.join(pattern);
    // A path that exists is taken literally, even if it holds `[` or `*`.
    let (root, keys) = if literal.is_dir() {
        (literal.clone(), KeyPattern::default())
    } else if literal.exists() {
        let name = literal.file_name().and_then(|name| name.to_str());
        if name == Some(MIXTURE) && !takes(MIXTURE) {
            let reason = "describes a mixture and holds no documents; name its folder";
            return Err(Error::config(pattern, reason));
        }
        if !name.is_some_and(takes) {
            return Err(unknown_extension(&pattern));
        }
        return Ok(vec![MatchedFile::new(literal, "", None)]);
    } else if is_pattern(pattern) {
        split_root(pattern, base)?
    } else {
        let reason = format!("no such file or directory under {}", base.display());
        return Err(Error::missing(pattern, reason));
    };
    let found = if root.is_dir() { search(&root, &keys, takes)? } else { Vec::new() };
    if found.is_empty() {
        let reason = if holds_run(&literal) {
            "is a run directory, which is not searched; name a folder in it".to_owned()
        } else if takes("") {
            "no file there has such a name".to_owned()
        } else {
            let csv = if takes("x.csv") { ".csv, " } else { "" };
            format!("no file there ends in {csv}{KNOWN_EXTENSIONS}")
        };
        return Err(Error::missing(pattern, reason));
    }
    Ok(found)
}

/// Returns a key that is equal for two spellings of one path, but not for two links to one file: a
/// hub cache keeps every file as a link, and equal contents under two names are two inputs. URLs
/// are returned unchanged, because every byte of them counts.
fn identity(path: &Path) -> Result<OsString> {
    if url_of(path).is_some() {
        return Ok(path.as_os_str().to_owned());
    }
    let directory = path.parent().unwrap_or(Path::new("/"));
    let directory = std::fs::canonicalize(directory).map_err(Error::io(directory, "resolve"))?;
    Ok(directory.join(path.file_name().unwrap_or_default()).into_os_string())
}

/// Returns the format of a path or URL by its extension; `None` if that is unknown.
fn file_format(path: &Path) -> Option<Format> {
    let name = match url_of(path) {
        Some(url) => file_name(url),
        None => path.file_name()?.to_str()?,
    };
    format_of(name).map(|(format, _)| format)
}

fn url_of(path: &Path) -> Option<&str> {
    path.to_str().filter(|text| is_url(text))
}

/// Returns the absolute path by which a file or object is named: a URL as `/scheme/host/path`.
fn naming_path(path: &Path) -> PathBuf {
    let Some(url) = url_of(path) else { return path.to_owned() };
    let url = without_query(url).replacen("://", "/", 1);
    // Paths cannot have empty components.
    let names = url.split('/').map(|name| if name.is_empty() { "%2F" } else { name });
    PathBuf::from(format!("/{}", names.collect::<Vec<_>>().join("/")))
}

/// Returns the objects that the URL `pattern` names; offline, the files of a hub's cache.
fn find_objects(pattern: &str, takes: &dyn Fn(&str) -> bool) -> Result<Vec<MatchedFile>> {
    let mut location = Location::parse(pattern)?;
    match remote::pin_revision(&location)? {
        Dataset::Online(at_commit) => location = at_commit,
        Dataset::Cached(folder) => return cached(&location, &folder, takes),
    }
    let url = location.url();
    let is_search = if location.can_be_searched() {
        location.key.is_empty() || is_pattern(&location.key)
    } else {
        location.key.contains('*') || location.key.contains(LANG)
    };
    let has_format = document_format(file_name(&url)).is_some();
    if !has_format && !location.can_be_searched() {
        return Err(unknown_extension(&url));
    }
    if !is_search && has_format {
        // The URL may name a folder, except on a web server.
        match stat_object(&url) {
            Err(Error::Missing { .. }) if location.can_be_searched() => {}
            found => return found,
        }
    }
    let keys = KeyPattern::parse(&location.key, &url)?;
    // Number of keys that match but have another extension.
    let others = Cell::new(0);
    let is_input = |key: &str| {
        let is_match = keys.matched(key).is_some();
        let has_format = takes(key.rsplit('/').next().unwrap_or_default());
        others.set(others.get() + usize::from(is_match && !has_format));
        is_match && has_format
    };
    let enters = |folder: &str| keys.enters(folder);
    let found = remote::list(&location.with_key(&*keys.root), &enters, &is_input)?;
    let matched = |(key, version): (String, ObjectVersion)| {
        let path = location.with_key(&*key).url().into();
        Some(MatchedFile::new(path, keys.matched(&key)?, Some(version)))
    };
    let files: Vec<MatchedFile> = found.into_iter().filter_map(matched).collect();
    if !files.is_empty() {
        return Ok(files);
    }
    match others.get() {
        // If the pattern matches nothing, a key that holds `[` or `*` is taken literally.
        0 if is_search && has_format => stat_object(&url),
        0 if !is_search && !has_format && remote::stat(&url).is_ok() => {
            Err(unknown_extension(&url))
        }
        0 => Err(Error::missing(url, "no such object")),
        others => {
            let reason = format!("none of {others} objects ends in {KNOWN_EXTENSIONS}");
            Err(Error::missing(url, reason))
        }
    }
}

/// Finds files in `folder`, a hub's cache. Returns [`Error::Service`] if it lacks some of a series.
fn cached(at: &Location, folder: &Path, takes: &dyn Fn(&str) -> bool) -> Result<Vec<MatchedFile>> {
    let (files, keys) = (find_one(&at.key, folder, takes)?, KeyPattern::parse(&at.key, &at.key)?);
    let names = files.iter().filter_map(|file| file.path.strip_prefix(folder).ok()?.to_str());
    let wants = |name: &str| keys.matched(name).is_some();
    let Some(series) = lacking_series(&names.collect::<Vec<_>>(), &wants) else {
        return Ok(files);
    };
    let reason =
        format!("the cache holds only some of `{series}`; download all, or name some files");
    Err(Error::Service { name: at.url(), reason })
}

/// Asks the store for the object `url`, and returns it alone.
fn stat_object(url: &str) -> Result<Vec<MatchedFile>> {
    Ok(vec![MatchedFile::new(url.into(), "", Some(remote::stat(url)?))])
}

impl InputFile {
    /// Describes the whole file or object at `path`, of the format that its extension names.
    pub fn at(path: &Path, name: String, language: Option<String>) -> Result<Self> {
        let format = file_format(path).ok_or_else(|| unknown_extension(&path.display()))?;
        if let Some(url) = url_of(path) {
            let location = Location::parse(url)?;
            let url = match remote::pin_revision(&location)? {
                Dataset::Online(location) => location.url(),
                Dataset::Cached(folder) => {
                    return Self::at(&folder.join(location.key), name, language);
                }
            };
            let ObjectVersion { bytes, tag: version } = remote::stat(&url)?;
            let path = url.into();
            return Ok(Self { path, name, language, bytes, format, rows: None, version });
        }
        if path.is_symlink() && !path.exists() {
            return Err(Error::missing(path, "is a link to a file that is gone"));
        }
        let metadata = std::fs::metadata(path).map_err(Error::io(path, "stat"))?;
        if !metadata.is_file() {
            // Opening a pipe would wait for its other end.
            return Err(Error::missing(path, "is not a regular file"));
        }
        let (path, bytes) = (path.to_owned(), metadata.len());
        Ok(Self { path, name, language, bytes, format, rows: None, version: None })
    }
}

/// Returns [`Error::Config`] for a `path` whose extension is not that of a file of documents.
pub(super) fn unknown_extension(path: &dyn Display) -> Error {
    let reason = format!("has an unknown extension; known are {KNOWN_EXTENSIONS}");
    Error::config(path.to_string(), reason)
}

/// Returns the format of `file_name`, and the name without extension(s), or `None` if unknown.
pub(super) fn format_of(file_name: &str) -> Option<(Format, &str)> {
    let lower = file_name.to_ascii_lowercase();
    let (inner, compression) = split_compression(&lower);
    let json = [".jsonl", ".ndjson", ".json"].iter().find_map(|e| inner.strip_suffix(e));
    let (stem, format) = if let Some(stem) = json {
        (stem, Format::JsonLines(compression))
    } else if let Some(stem) = inner.strip_suffix(".csv") {
        (stem, Format::Csv(compression))
    } else {
        (lower.strip_suffix(".parquet")?, Format::Parquet)
    };
    (!stem.is_empty()).then(|| (format, &file_name[..stem.len()]))
}

/// Returns the [`format_of`] a file of documents, which CSV cannot hold.
fn document_format(file_name: &str) -> Option<(Format, &str)> {
    format_of(file_name).filter(|(format, _)| !matches!(format, Format::Csv(_)))
}

/// Splits the extension of the compression off a lower-case name.
pub(super) fn split_compression(lower: &str) -> (&str, Compression) {
    [
        (".gz", Compression::Gzip),
        (".gzip", Compression::Gzip),
        (".zst", Compression::Zstd),
        (".zstd", Compression::Zstd),
    ]
    .iter()
    .find_map(|(extension, kind)| Some((lower.strip_suffix(extension)?, *kind)))
    .unwrap_or((lower, Compression::None))
}

/// Removes `.` and `..` from the absolute `path` by its spelling alone; links are not resolved.
pub fn normalized(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for component in path.components() {
        if component == Component::ParentDir {
            plain.pop();
        } else {
            plain.push(component);
        }
    }
    plain
}

/// Returns one name per path (normalized, absolute, distinct, UTF-8): relative to the longest
/// common directory, and without extensions unless names would collide.
fn shard_names(paths: &[PathBuf]) -> Vec<String> {
    let mut parents = paths.iter().filter_map(|path| path.parent());
    let mut common = parents.next().unwrap_or(Path::new("")).to_owned();
    for parent in parents {
        while !parent.starts_with(&common) && common.pop() {}
    }
    let relative =
        |path: &PathBuf| path.strip_prefix(&common).unwrap_or(path).to_string_lossy().into_owned();
    let full: Vec<String> = paths.iter().map(relative).collect();
    let folders: HashSet<&str> =
        full.iter().flat_map(|name| name.match_indices('/').map(|(at, _)| &name[..at])).collect();
    // The outputs of a shard are called after it, and no folder of other outputs may be called so.
    // A lease is called after its shard and a number.
    let numbered: HashSet<&str> = (folders.iter().filter_map(|folder| folder.rsplit_once('.')))
        .filter(|(_, number)| number.bytes().all(|byte| byte.is_ascii_digit()))
        .map(|(name, _)| name)
        .collect();
    let is_folder = |name: &str| {
        numbered.contains(name)
            || [".parquet", ".json"].iter().any(|end| folders.contains(&*format!("{name}{end}")))
    };
    let named = |name: &String| {
        let short = document_format(name).map_or(name.as_str(), |(_, stem)| stem);
        if is_folder(short) { name.clone() } else { short.to_owned() }
    };
    let mut names: Vec<String> = full.iter().map(named).collect();
    // A full name may equal another file's short name (`a.parquet.jsonl`). Full names are distinct.
    loop {
        let mut uses: HashMap<&str, usize> = HashMap::new();
        for name in &names {
            *uses.entry(name).or_default() += 1;
        }
        let clashes = |&i: &usize| uses[names[i].as_str()] > 1 && names[i] != full[i];
        let clashing: Vec<usize> = (0..names.len()).filter(clashes).collect();
        if clashing.is_empty() {
            return names;
        }
        for i in clashing {
            names[i].clone_from(&full[i]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(paths: &[&str]) -> Vec<String> {
        shard_names(&paths.iter().map(PathBuf::from).collect::<Vec<_>>())
    }

    #[test]
    fn formats_are_told_by_extension() {
        let format = |name| document_format(name).map(|(format, _)| format);
        assert_eq!(format("a.parquet"), Some(Format::Parquet));
        assert_eq!(format("a.PARQUET"), Some(Format::Parquet));
        assert_eq!(format("a.jsonl"), Some(Format::JsonLines(Compression::None)));
        assert_eq!(format("a.ndjson.gz"), Some(Format::JsonLines(Compression::Gzip)));
        assert_eq!(format("a.json.zstd"), Some(Format::JsonLines(Compression::Zstd)));
        for unknown in
            ["a.txt", "a.parquet.gz", "a.gz", ".parquet", "parquet", "a.jsonl.bz2", "a.csv"]
        {
            assert_eq!(format(unknown), None, "{unknown}");
        }
    }

    #[test]
    fn names_are_relative_to_the_common_directory() {
        assert_eq!(names(&["/d/x/a.parquet"]), ["a"]);
        assert_eq!(names(&["/d/x/a.parquet", "/d/y/a.jsonl.gz"]), ["x/a", "y/a"]);
        assert_eq!(names(&["/d/xa/a.parquet", "/d/xb/a.parquet"]), ["xa/a", "xb/a"]);
        assert_eq!(names(&["/a.parquet", "/d/b.parquet"]), ["a", "d/b"]);
    }

    #[test]
    fn colliding_names_keep_their_extensions() {
        assert_eq!(names(&["/d/a.jsonl", "/d/a.parquet"]), ["a.jsonl", "a.parquet"]);
        assert_eq!(
            names(&["/d/a.jsonl", "/d/a.parquet", "/d/a.parquet.jsonl"]),
            ["a.jsonl", "a.parquet", "a.parquet.jsonl"]
        );
    }

    #[test]
    fn no_output_is_called_like_a_folder_of_outputs() {
        assert_eq!(names(&["/d/a.jsonl", "/d/a.parquet/b.jsonl"]), ["a.jsonl", "a.parquet/b"]);
        assert_eq!(names(&["/d/a.jsonl", "/d/a.json/b/c.jsonl"]), ["a.jsonl", "a.json/b/c"]);
        assert_eq!(names(&["/d/a.jsonl", "/d/a/b.jsonl"]), ["a", "a/b"]);
    }

    #[test]
    fn dots_are_resolved_by_spelling() {
        assert_eq!(normalized(Path::new("/a/./b/../c")), Path::new("/a/c"));
        assert_eq!(normalized(Path::new("/../a")), Path::new("/a"));
    }
}
