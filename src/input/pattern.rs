//! Patterns of the input: globs with `**` and `{lang}`, matched directory by directory.
//!
//! Owns what a pattern means. Does not decide which files are inputs (that is `discover`).
//! Entries whose names start with `.` or `_` are left out unless the pattern's own component
//! starts so. Directories are visited in byte order of their names, so matches come in a fixed order.

use std::collections::BTreeSet;
use std::path::{Component, Path, PathBuf};

use crate::error::{Error, Result};
use crate::remote::Version;

/// Placeholder of the language code.
pub(crate) const LANG: &str = "{lang}";

/// A path that matched, with what `{lang}` stands for in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Match {
    /// File or directory.
    pub path: PathBuf,
    /// `None` when the pattern has no `{lang}`.
    pub language: Option<String>,
    /// Of an object.
    pub version: Option<Version>,
}

/// Whether `pattern` needs matching, rather than naming one path.
pub(super) fn is_pattern(pattern: &str) -> bool {
    pattern.contains(['*', '?', '[']) || pattern.contains(LANG)
}

/// Whether an entry of that name is left out of directories and globs.
pub(super) fn is_hidden(name: &str) -> bool {
    name.starts_with(['.', '_'])
}

/// Entries of `directory`, sorted by name; names that are not UTF-8 are an error because shard
/// names are made of them.
pub(super) fn entries(directory: &Path) -> Result<Vec<(String, PathBuf)>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(directory).map_err(Error::io(directory, "list"))? {
        let entry = entry.map_err(Error::io(directory, "list"))?;
        let name = entry.file_name().into_string().map_err(|name| {
            Error::config(
                "input.files",
                format!("{}: the name is not UTF-8", directory.join(name).display()),
            )
        })?;
        found.push((name, entry.path()));
    }
    found.sort_unstable();
    Ok(found)
}

/// Whether `directory` is that of a run.
pub(super) fn holds_run(directory: &Path) -> bool {
    let has = |name: &str| directory.join(name).exists();
    has("state") && (has("plan.jsonl.zst") || has("frozen"))
}

/// Directories on the way down, so that a symbolic link to one of them ends the descent.
#[derive(Clone, Default)]
pub(super) struct Ancestors(Vec<PathBuf>);

impl Ancestors {
    /// With `directory` added, or `None` when it is there already (a loop of links), or holds a run:
    /// what a run has written is no input of any, unless a folder in it is named.
    pub(super) fn enter(&self, directory: &Path) -> Result<Option<Self>> {
        if holds_run(directory) {
            tracing::info!(directory = %directory.display(), "a run directory is not searched");
            return Ok(None);
        }
        let real = std::fs::canonicalize(directory).map_err(Error::io(directory, "resolve"))?;
        if self.0.contains(&real) {
            return Ok(None);
        }
        let mut inner = self.clone();
        inner.0.push(real);
        Ok(Some(inner))
    }
}

/// Everything on disk that matches `pattern` (made absolute with `base`), in path order.
pub(super) fn expand(pattern: &str, base: &Path) -> Result<Vec<Match>> {
    let absolute = base.join(pattern);
    let mut root = PathBuf::new();
    let mut parts = Vec::new();
    for component in absolute.components() {
        match component {
            Component::Normal(part) if parts.is_empty() && !is_pattern(&part.to_string_lossy()) => {
                root.push(part);
            }
            Component::Normal(part) => {
                let part = part.to_str().ok_or_else(|| {
                    Error::config("input.files", format!("`{pattern}` is not UTF-8"))
                })?;
                parts.push(Part::parse(part, pattern)?);
            }
            Component::ParentDir if !parts.is_empty() => {
                let reason = format!("`{pattern}`: `..` cannot follow a wildcard");
                return Err(Error::config("input.files", reason));
            }
            other => root.push(other),
        }
    }
    let mut matches = Vec::new();
    if root.exists() {
        descend(&root, &parts, None, &Ancestors::default(), &mut matches)?;
    }
    Ok(matches)
}

/// Languages for which a file of the name `template` is there; `{lang}` is all that is a pattern in it.
pub(crate) fn languages_of(template: &str) -> Result<BTreeSet<String>> {
    let base = std::path::absolute(".").map_err(Error::io(Path::new("."), "resolve"))?;
    let matches = expand(&glob::Pattern::escape(template), &base)?;
    let files = matches.into_iter().filter(|matched| matched.path.is_file());
    Ok(files.filter_map(|file| file.language).collect())
}

/// One component of a pattern.
enum Part {
    /// `**`: any number of directories, also none.
    Any,
    /// The globs between the `{lang}`s of a component; one alone has no `{lang}`.
    Globs {
        globs: Vec<glob::Pattern>,
        /// Starts with `.` or `_`, so hidden names may match.
        hidden: bool,
    },
}

impl Part {
    fn parse(component: &str, pattern: &str) -> Result<Self> {
        if component == "**" {
            return Ok(Self::Any);
        }
        let globs = component.split(LANG).map(glob::Pattern::new).collect::<Result<_, _>>();
        let globs = globs.map_err(|e| {
            let reason = format!(
                "`{pattern}` is not a glob: {}; `[[]`, `[*]` and `[?]` stand for `[`, `*` and `?`",
                e.msg
            );
            Error::config("input.files", reason)
        })?;
        Ok(Self::Globs { globs, hidden: is_hidden(component) })
    }
}

/// A pattern of the keys of a store, matched as [`expand`] would match files of those names. A key
/// is what lies between its slashes, be it nothing.
pub(super) struct KeyPattern {
    /// What all matches begin with: nothing, or folders with a slash at the end.
    pub root: String,
    parts: Vec<Part>,
}

impl KeyPattern {
    /// Parses `key`; `pattern` names it in errors.
    pub(super) fn parse(key: &str, pattern: &str) -> Result<Self> {
        let key = key.strip_suffix('/').unwrap_or(key);
        let components: Vec<&str> =
            if key.is_empty() { Vec::new() } else { key.split('/').collect() };
        let literal = components.iter().take_while(|part| !is_pattern(part)).count();
        let (root, parts) = components.split_at(literal);
        let root = root.iter().flat_map(|folder| [folder, "/"]).collect();
        let parts = parts.iter().map(|part| Part::parse(part, pattern)).collect::<Result<_>>()?;
        Ok(Self { root, parts })
    }

    /// Whether `key` matches, and with which language: the longest.
    pub(super) fn matched<'k>(&self, key: &'k str) -> Option<MatchedKey<'k>> {
        let names: Vec<&str> = key.strip_prefix(self.root.as_str())?.split('/').collect();
        match_names(&self.parts, &names, None)
    }

    /// Whether keys below `folder`, which ends with a slash, may match.
    pub(super) fn enters(&self, folder: &str) -> bool {
        let below = folder.strip_prefix(self.root.as_str()).and_then(|f| f.strip_suffix('/'));
        below.is_none_or(|below| leads_on(&self.parts, &below.split('/').collect::<Vec<_>>(), None))
    }
}

/// A key that matches.
pub(super) struct MatchedKey<'k> {
    /// What `{lang}` stands for.
    pub language: Option<&'k str>,
}

/// The first language under which `names` match `parts`; names that are left over are those of a
/// directory that is searched.
fn match_names<'n>(
    parts: &[Part],
    names: &[&'n str],
    language: Option<&'n str>,
) -> Option<MatchedKey<'n>> {
    let Some((part, rest)) = parts.split_first() else {
        return names.iter().all(|name| !is_hidden(name)).then_some(MatchedKey { language });
    };
    let (name, below) = names.split_first()?;
    match part {
        Part::Any => match_names(rest, names, language).or_else(|| {
            let is_searched = !below.is_empty() && !is_hidden(name);
            is_searched.then(|| match_names(parts, below, language)).flatten()
        }),
        Part::Globs { hidden, .. } if is_hidden(name) && !hidden => None,
        Part::Globs { globs, .. } => languages(globs, name, language)
            .into_iter()
            .find_map(|found| match_names(rest, below, found)),
    }
}

/// Whether something below the folders `names` may match `parts`.
fn leads_on(parts: &[Part], names: &[&str], language: Option<&str>) -> bool {
    let Some((part, rest)) = parts.split_first() else {
        return names.iter().all(|name| !is_hidden(name));
    };
    let Some((name, below)) = names.split_first() else { return true };
    match part {
        Part::Any => {
            leads_on(rest, names, language) || !is_hidden(name) && leads_on(parts, below, language)
        }
        Part::Globs { hidden, .. } if is_hidden(name) && !hidden => false,
        Part::Globs { globs, .. } => {
            languages(globs, name, language).into_iter().any(|found| leads_on(rest, below, found))
        }
    }
}

/// Matches `parts` below `directory`.
fn descend(
    directory: &Path,
    parts: &[Part],
    language: Option<&str>,
    ancestors: &Ancestors,
    matches: &mut Vec<Match>,
) -> Result<()> {
    let Some((part, rest)) = parts.split_first() else {
        let path = directory.to_owned();
        matches.push(Match { path, language: language.map(ToOwned::to_owned), version: None });
        return Ok(());
    };
    if !directory.is_dir() {
        return Ok(());
    }
    let Some(ancestors) = ancestors.enter(directory)? else { return Ok(()) };
    match part {
        Part::Any => {
            // No directory at all; the loop guard must not see the same directory twice.
            descend(directory, rest, language, &Ancestors::default(), matches)?;
            for (name, path) in entries(directory)? {
                if !is_hidden(&name) && path.is_dir() {
                    descend(&path, parts, language, &ancestors, matches)?;
                }
            }
        }
        Part::Globs { globs, hidden } => {
            for (name, path) in entries(directory)? {
                if is_hidden(&name) && !hidden {
                    continue;
                }
                for found in languages(globs, &name, language) {
                    descend(&path, rest, found, &ancestors, matches)?;
                }
            }
        }
    }
    Ok(())
}

/// Values of `{lang}` under which `name` matches, longest first; a single `None` for a match
/// without `{lang}`, nothing for no match. A `bound` language must stand for itself again.
fn languages<'n>(
    globs: &[glob::Pattern],
    name: &'n str,
    bound: Option<&'n str>,
) -> Vec<Option<&'n str>> {
    let Some((first, rest)) = globs.split_first() else { return Vec::new() };
    if rest.is_empty() {
        return if first.matches(name) { vec![bound] } else { Vec::new() };
    }
    let mut found: Vec<Option<&str>> = Vec::new();
    for start in (0..=name.len()).filter(|&i| name.is_char_boundary(i)) {
        if !first.matches(&name[..start]) {
            continue;
        }
        let longest = name[start..].bytes().take_while(|&b| is_language_byte(b)).count();
        for length in (1..=longest).rev() {
            let (code, tail) = name[start..].split_at(length);
            if bound.is_none_or(|bound| bound == code) {
                for language in languages(rest, tail, Some(code)) {
                    if !found.contains(&language) {
                        found.push(language);
                    }
                }
            }
        }
    }
    found.sort_by_key(|code| std::cmp::Reverse(code.map_or(0, str::len)));
    found
}

fn is_language_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-'
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matched(component: &str, name: &str, bound: Option<&str>) -> Result<Vec<String>> {
        let Part::Globs { globs, .. } = Part::parse(component, component)? else {
            return Ok(Vec::new());
        };
        let found = languages(&globs, name, bound);
        Ok(found.into_iter().map(|code| code.unwrap_or("-").to_owned()).collect())
    }

    #[test]
    fn a_language_is_the_longest_run_that_fits() -> Result<()> {
        assert_eq!(matched("{lang}", "deu_Latn", None)?, ["deu_Latn"]);
        assert_eq!(matched("train_{lang}.jsonl", "train_deu_Latn.jsonl", None)?, ["deu_Latn"]);
        assert_eq!(matched("{lang}_*", "deu_Latn_001.parquet", None)?, ["deu_Latn", "deu"]);
        assert_eq!(matched("{lang}", "deu Latn", None)?, [""; 0]);
        assert_eq!(matched("{lang}", "日本", None)?, [""; 0]);
        Ok(())
    }

    #[test]
    fn a_bound_language_must_agree() -> Result<()> {
        assert_eq!(matched("{lang}_*", "deu_Latn_001", Some("deu"))?, ["deu"]);
        assert_eq!(matched("{lang}_*", "deu_Latn_001", Some("fra"))?, [""; 0]);
        assert_eq!(matched("{lang}-{lang}", "de-de", None)?, ["de"]);
        assert_eq!(matched("*.parquet", "a.parquet", Some("fra"))?, ["fra"]);
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
            let found = keys.matched(key).and_then(|matched| matched.language);
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
        let error = expand("data/[.parquet", Path::new("/"));
        assert!(error.is_err_and(|e| e.to_string().contains("data/[.parquet")));
    }
}
