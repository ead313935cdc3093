//! Finds the input files: files, directories and patterns become a sorted list without doubles.
//!
//! Owns which files are inputs. Does not open them beyond the few bytes of the fingerprint.

use std::collections::{HashMap, HashSet};
use std::fmt::Display;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use super::InputFile;
use super::names::{format_of, normalized, shard_names};
use super::pattern::{Ancestors, Match, entries, expand, is_hidden, is_pattern};
use crate::error::{Error, Result};

/// Bytes at each end of a file that make its fingerprint.
const FINGERPRINT_BYTES: u64 = 64 << 10;

const KNOWN_EXTENSIONS: &str =
    ".parquet, or .jsonl, .ndjson, .json with or without .gz, .gzip, .zst, .zstd";

/// Finds the files that `patterns` name, sorted by [`InputFile::name`].
///
/// A pattern is a file, a directory (searched recursively for known extensions; names that start
/// with `.` or `_` are left out) or a glob, where `**` stands for any number of directories and
/// `{lang}` for a path component or a part of one made of `[A-Za-z0-9_-]`, as long as possible
/// and the same wherever it appears. Relative patterns start at `base`. A file that two patterns
/// match is taken once.
///
/// # Errors
/// [`Error::Missing`] when a pattern matches nothing; [`Error::Config`] when a named file has an
/// unknown extension, a pattern is malformed, or two patterns give one file two languages;
/// [`Error::Io`] when a directory or file cannot be read.
pub fn discover(patterns: &[String], base: &Path) -> Result<Vec<InputFile>> {
    let base = std::path::absolute(base).map_err(Error::io(base, "resolve"))?;
    let mut found: Vec<Match> = Vec::new();
    let mut by_identity: HashMap<PathBuf, usize> = HashMap::new();
    for pattern in patterns {
        for file in files_of(pattern, &base)? {
            let identity = identity(&file.path)?;
            let Some(&index) = by_identity.get(&identity) else {
                by_identity.insert(identity, found.len());
                found.push(file);
                continue;
            };
            let known = &mut found[index].language;
            match (&known, &file.language) {
                (Some(a), Some(b)) if a != b => {
                    let path = file.path.display();
                    return Err(Error::config(
                        "input.files",
                        format!("{path}: the patterns give it two languages, {a} and {b}"),
                    ));
                }
                (None, Some(_)) => *known = file.language,
                _ => {}
            }
        }
    }
    let paths: Vec<_> = found.iter().map(|file| normalized(&file.path)).collect();
    let names = shard_names(&paths);
    let mut files = (found.into_iter().zip(names))
        .map(|(file, name)| {
            let name = with_language(name, file.language.as_deref());
            InputFile::at(&file.path, name, file.language)
        })
        .collect::<Result<Vec<_>>>()?;
    files.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(files)
}

/// The name of a shard holds its language, also where all files have the same one.
fn with_language(name: String, language: Option<&str>) -> String {
    match language {
        Some(language) if !name.contains(language) => format!("{language}/{name}"),
        _ => name,
    }
}

/// The input files that one pattern names.
fn files_of(pattern: &str, base: &Path) -> Result<Vec<Match>> {
    if pattern.trim().is_empty() {
        return Err(Error::config("input.files", "holds an empty pattern"));
    }
    let literal = base.join(pattern);
    let missing = |reason: String| Error::Missing { path: pattern.to_owned(), reason };
    // A path that exists is meant as it is, also when it holds `[` or `*`.
    let matches = if literal.exists() {
        vec![Match { path: literal.clone(), language: None }]
    } else if is_pattern(pattern) {
        expand(pattern, base)?
    } else {
        return Err(missing(format!("no such file or directory under {}", base.display())));
    };

    let mut files = Vec::new();
    for matched in matches {
        if matched.path.is_dir() {
            walk(&matched.path, matched.language.as_deref(), &Ancestors::default(), &mut files)?;
        } else if file_format(&matched.path).is_some() {
            files.push(matched);
        } else if matched.path == literal {
            return Err(unknown_extension(&pattern));
        }
    }
    if files.is_empty() {
        return Err(missing(format!("no file there ends in {KNOWN_EXTENSIONS}")));
    }
    // `{lang}_*` can bind one file in several ways; the longest language came first.
    let mut seen = HashSet::new();
    files.retain(|file| seen.insert(file.path.clone()));
    Ok(files)
}

/// All input files below `directory`.
fn walk(
    directory: &Path,
    language: Option<&str>,
    ancestors: &Ancestors,
    files: &mut Vec<Match>,
) -> Result<()> {
    let Some(ancestors) = ancestors.enter(directory)? else { return Ok(()) };
    for (name, path) in entries(directory)? {
        if is_hidden(&name) {
            continue;
        }
        if path.is_dir() {
            walk(&path, language, &ancestors, files)?;
        } else if format_of(&name).is_some() {
            files.push(Match { path, language: language.map(ToOwned::to_owned) });
        }
    }
    Ok(())
}

/// Same for two spellings of one path, different for two links to one file: a hub cache keeps
/// every file as a link, and equal contents under two names are two inputs.
fn identity(path: &Path) -> Result<PathBuf> {
    let directory = path.parent().unwrap_or(Path::new("/"));
    let directory = std::fs::canonicalize(directory).map_err(Error::io(directory, "resolve"))?;
    Ok(directory.join(path.file_name().unwrap_or_default()))
}

fn file_format(path: &Path) -> Option<super::Format> {
    format_of(path.file_name()?.to_str()?).map(|(format, _)| format)
}

impl InputFile {
    /// Describes the file at `path`, to be called `name`.
    ///
    /// # Errors
    /// [`Error::Config`] when the extension is unknown, [`Error::Io`] when it cannot be read.
    pub fn at(path: &Path, name: String, language: Option<String>) -> Result<Self> {
        let format = file_format(path).ok_or_else(|| unknown_extension(&path.display()))?;
        let metadata = std::fs::metadata(path).map_err(Error::io(path, "stat"))?;
        if !metadata.is_file() {
            // Opening a pipe would wait for its other end.
            let path = path.display().to_string();
            return Err(Error::Missing { path, reason: "is not a regular file".into() });
        }
        let bytes = metadata.len();
        let mut file = File::open(path).map_err(Error::io(path, "open"))?;
        let fingerprint = fingerprint(&mut file, bytes).map_err(Error::io(path, "read"))?;
        Ok(Self { path: path.to_owned(), name, language, bytes, format, fingerprint })
    }
}

fn unknown_extension(path: &dyn Display) -> Error {
    Error::config("input.files", format!("{path}: unknown extension; known are {KNOWN_EXTENSIONS}"))
}

fn fingerprint(file: &mut File, bytes: u64) -> std::io::Result<String> {
    let mut hasher = blake3::Hasher::new();
    hasher.update(&bytes.to_le_bytes());
    for start in [0, bytes.saturating_sub(FINGERPRINT_BYTES)] {
        file.seek(SeekFrom::Start(start))?;
        let mut end = Vec::new();
        file.by_ref().take(FINGERPRINT_BYTES).read_to_end(&mut end)?;
        hasher.update(&end);
    }
    Ok(hasher.finalize().to_hex().to_string())
}
