//! Allow list of sources: hosts, URL prefixes and public suffixes.

use std::collections::HashMap;

use polysift_suffix::{Suffixes, public_suffix};
use serde::Deserialize;

use crate::robots::{DocumentUrl, locate};

/// The sources of MixtureVitae, appendix J.1 and J.2.
const PUBLISHED: &str = include_str!("permissive.toml");

/// A source of usable documents, given by one of `host`, `url` and `suffix`.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct AllowEntry {
    /// A host with its subdomains: `python.org`.
    host: Option<String>,
    /// A host with its subdomains, and a path with all below it: `open.umn.edu/opentextbooks`.
    url: Option<String>,
    /// Consecutive labels in the public suffix of a host: `gov` matches `irs.gov` and `www.gov.uk`,
    /// but not `irs.gov.example.com`.
    suffix: Option<String>,
    license: Option<String>,
    tier: Option<String>,
}

impl AllowEntry {
    /// Returns host and path in the form that parsed URLs have, the path without a trailing `/`,
    /// and the evidence. The path of a whole host is empty, and a suffix has none.
    fn into_source(self) -> Result<(String, Option<String>, Licensed), String> {
        let (kind, written) = match (&self.host, &self.url, &self.suffix) {
            (Some(host), None, None) => ("host", host),
            (None, Some(url), None) => ("url", url),
            (None, None, Some(suffix)) => ("suffix", suffix),
            _ => return Err("needs one of `host`, `url` and `suffix`".to_owned()),
        };
        let is_suffix = kind == "suffix";
        let name = written.strip_prefix('.').filter(|_| is_suffix).unwrap_or(written);
        let (host, path) = parse_host_and_path(name)?;
        let path = match kind {
            "host" if path != "/" => {
                return Err(format!("`{written}` is no host; with a path it is a `url`"));
            }
            "suffix" if path != "/" => return Err(format!("`{written}` is no suffix of hosts")),
            "suffix" => None,
            _ => Some(path.trim_end_matches('/').to_owned()),
        };
        let evidence = format!("{kind}:{written}");
        Ok((host, path, Licensed { license: self.license, tier: self.tier, evidence }))
    }
}

/// Evidence that a document may be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Licensed {
    /// SPDX name of the licence, if known.
    pub license: Option<String>,
    /// Confidence in the licence, such as MixtureVitae's tiers `1`, `2a`, `2b` and `3`.
    pub tier: Option<String>,
    /// One of `host:python.org`, `url:open.umn.edu/opentextbooks`, `suffix:gov`,
    /// `keyword:head:cc-by` or `keyword:tail:cc-by`.
    pub evidence: String,
}

/// Sources of usable documents, keyed by the value they compare.
#[derive(Debug, Default)]
pub struct AllowList {
    /// What documents of each source have as evidence.
    pub(super) sources: Vec<Licensed>,
    /// Paths of each host with their sources, the longest first.
    hosts: HashMap<String, Vec<(String, usize)>>,
    suffixes: HashMap<String, usize>,
}

impl AllowList {
    /// Parses the `[[allow]]` entries of a list in TOML.
    ///
    /// # Errors
    /// Returns a message if this is not such a list; it names the entry by its number, from 1.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut table: toml::Table = toml::from_str(text).map_err(|e| e.to_string())?;
        let entries = match table.remove("allow") {
            Some(toml::Value::Array(entries)) if table.is_empty() => entries,
            _ => return Err("is no list of tables `[[allow]]` and nothing else".to_owned()),
        };
        let mut list = Self::default();
        for (at, entry) in entries.into_iter().enumerate() {
            let entry = entry.try_into::<AllowEntry>().map_err(|e| e.message().to_owned());
            let (host, path, source) = entry
                .and_then(AllowEntry::into_source)
                .map_err(|e| format!("entry {} of the allow list: {e}", at + 1))?;
            // Of equal entries the first counts.
            match path {
                Some(path) => list.hosts.entry(host).or_default().push((path, at)),
                None => _ = list.suffixes.entry(host).or_insert(at),
            }
            list.sources.push(source);
        }
        for paths in list.hosts.values_mut() {
            paths.sort_by_key(|(path, _)| std::cmp::Reverse(path.len()));
        }
        Ok(list)
    }

    /// Returns the list of MixtureVitae's sources, which a test parses.
    pub fn published() -> Result<Self, String> {
        Self::parse(PUBLISHED)
    }

    /// Returns the evidence of the source that a document is from. The longest host wins, then its
    /// longest path; suffixes come last.
    pub(super) fn find(&self, location: &DocumentUrl<'_>) -> Option<&Licensed> {
        let host = &*location.authority.host;
        let path = location.spelling();
        let of_host = |name: &str| {
            let mut paths = self.hosts.get(name)?.iter();
            paths.find(|(start, _)| is_below(&path, start)).map(|(_, source)| *source)
        };
        let at = parents(host).find_map(of_host).or_else(|| self.find_suffix(host))?;
        self.sources.get(at)
    }

    /// Returns the source for labels within the public suffix of `host`: of the labels that begin
    /// leftmost, the longest.
    fn find_suffix(&self, host: &str) -> Option<usize> {
        let suffix = public_suffix(host, Suffixes::Icann)?;
        let starts = |part: &str| {
            let dots = part.rmatch_indices('.').map(|(dot, _)| dot);
            let mut lengths = std::iter::once(part.len()).chain(dots);
            lengths.find_map(|len| self.suffixes.get(&part[..len]).copied())
        };
        parents(suffix).find_map(starts)
    }
}

/// Returns a name and its parent domains: the name without more and more of its first labels.
fn parents(name: &str) -> impl Iterator<Item = &str> {
    std::iter::successors(Some(name), |name| name.split_once('.').map(|(_, rest)| rest))
}

/// Returns true if `path` is `start`, or goes on behind it with `/` or `?`.
fn is_below(path: &str, start: &str) -> bool {
    path.strip_prefix(start).is_some_and(|rest| rest.is_empty() || rest.starts_with(['/', '?']))
}

/// Splits a source, written with or without a scheme, into host and path; refuses a port.
fn parse_host_and_path(written: &str) -> Result<(String, String), String> {
    let wrong = || format!("`{written}` is no host and no URL");
    let is_written_badly = written.contains(|c: char| c.is_whitespace() || "*\"'@".contains(c));
    if written.is_empty() || is_written_badly {
        return Err(wrong());
    }
    let has_scheme = written.contains("://");
    let url = if has_scheme { written.to_owned() } else { format!("http://{written}") };
    let location = locate(&url).map_err(|_| wrong())?;
    if location.authority.port.is_some() {
        return Err(format!("`{written}` has a port; a host counts with every port"));
    }
    Ok((location.authority.host.to_string(), location.spelling().into_owned()))
}
