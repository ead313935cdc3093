//! Filter by consent with hindsight: finds documents from hosts that forbid agents to fetch them
//! today, whatever the date of the crawl.
//!
//! # Source
//! The Swiss AI Initiative: Apertus (2025), section 3.1.1: a document is removed if the robots.txt
//! of January 2025 forbids at least one of some agents to fetch its URL, and stays without a file.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use chrono::{DateTime, NaiveDate, NaiveTime};
use rayon::prelude::*;

use super::document::{
    AgentVerdict, Filter, FilteredDocument, Finding, RobotsVerdict, Verdict, judge_by_language,
};
use super::strings::{LanguageStrings, ListFormat, ListedStrings, NO_ENTRY, id_list};
use super::urls::{UNREADABLE_URL, listed_domain, url_key};
use polysift_base::error::{Error, Result};
use polysift_base::io::read;
use polysift_base::progress::Stop;
use polysift_config::{RobotsConfig, Unknown};
use polysift_data::input::{
    ColumnKind, ColumnRequest, InputFile, is_table, list_files, read_table,
};
use polysift_text::robots::{
    Agents, DocumentUrl, Robots, Suffixes, line_text, locate, registrable_domain,
};

const NO_ROBOTS: &str = "no-robots-file";
const HAS_ROBOTS: &str = "robots-file";
/// Columns of robots.txt tables: host and file, and optionally the scheme and time of the fetch.
const DOMAIN: &str = "domain";
const CONTENT: &str = "content";
const PROTOCOL: &str = "protocol";
const FETCHED: &str = "fetched";
const BATCH_FILES: usize = 4096;

/// Finds documents by the robots.txt of their hosts, by lists of domains and by lists of ids.
#[derive(Debug)]
pub(super) struct ConsentFilter {
    ids: Vec<ListedStrings>,
    domains: Option<ListedStrings>,
    robots: Option<RobotsSource>,
    unknown: Unknown,
    suffixes: Suffixes,
}

impl ConsentFilter {
    /// Finds the lists and robots.txt files of the sources; [`Filter::prepare`] reads the latter.
    pub(super) fn open(name: &str, config: &RobotsConfig) -> Result<Self> {
        let sources = &config.sources;
        let ids = sources.iter().filter_map(|source| Some((source.ids.clone()?, source)));
        let ids = ids
            .map(|(path, source)| ListedStrings::open(&[path], id_list(source.blocked_if.clone())));
        let domains: Vec<String> = sources.iter().filter_map(|s| s.domains.clone()).collect();
        let format = ListFormat { column: DOMAIN, blocked_if: None, key: domain_key };
        let has_domains = !domains.is_empty();
        Ok(Self {
            ids: ids.collect::<Result<_>>()?,
            domains: has_domains.then(|| ListedStrings::open(&domains, format)).transpose()?,
            robots: RobotsSource::open(name, config)?,
            unknown: config.unknown,
            suffixes: config.suffixes,
        })
    }

    /// Judges a document by its URL: by the listed `domains`, then by the robots.txt of its host.
    fn judge_url(&self, url: Option<&str>, domains: Option<&LanguageStrings>) -> Verdict {
        let unknown = |note: &'static str, host: Option<String>| Verdict {
            finding: (self.unknown == Unknown::Remove)
                .then(|| Finding { host, ..Finding::of(note) }),
            ..Verdict::noted(note)
        };
        let Some(location) = url.and_then(|url| locate(url).ok()) else {
            return unknown(UNREADABLE_URL, None);
        };
        let host = &*location.authority.host;
        let found = |reason: &'static str, details: Vec<String>, note| Verdict {
            note,
            ..Verdict::of(Finding { details, host: Some(host.to_owned()), ..Finding::of(reason) })
        };
        let domain = domains.and_then(|listed| listed_domain(host, self.suffixes, listed));
        if let Some(domain) = domain {
            return found("domain", vec![domain.to_owned()], None);
        }
        let Some(source) = &self.robots else {
            // Without a source of files, only the lack of one is noted.
            return match self.unknown {
                Unknown::Remove => unknown(NO_ROBOTS, Some(host.to_owned())),
                Unknown::Keep => Verdict::default(),
            };
        };
        let robots =
            robots_authorities(&location).find_map(|authority| source.files.get(&authority));
        let Some(robots) = robots else {
            return unknown(NO_ROBOTS, Some(host.to_owned()));
        };
        let blocked = robots.blocked(location.path(source.agents.matching()));
        if blocked == 0 {
            return Verdict::noted(HAS_ROBOTS);
        }
        let agents = source.agents.labels_of(blocked).map(str::to_owned).collect();
        found("robots", agents, Some(HAS_ROBOTS))
    }
}

impl Filter for ConsentFilter {
    fn files(&self) -> Vec<&Path> {
        let lists = self.ids.iter().chain(&self.domains).flat_map(ListedStrings::files);
        let robots = self.robots.iter().flat_map(|source| &source.paths);
        lists.chain(robots.map(PathBuf::as_path)).collect()
    }

    // Must not run on a thread that others wait for.
    fn prepare(&mut self, stop: &Stop) -> Result<()> {
        let Some(source) = &mut self.robots else { return Ok(()) };
        source.files = source.read_all(stop)?;
        Ok(())
    }

    fn judge(&self, documents: &[FilteredDocument<'_>], stop: &Stop) -> Result<Vec<Verdict>> {
        judge_by_language(documents, |language| {
            let ids = self.ids.iter().map(|lists| lists.for_language(language, stop));
            let ids: Vec<LanguageStrings> = ids.collect::<Result<_>>()?;
            let domains = self
                .domains
                .as_ref()
                .map(|lists| lists.for_language(language, stop))
                .transpose()?;
            Ok(move |document: &FilteredDocument<'_>| {
                if ids.iter().any(|listed| listed.contains(document.id)) {
                    return Verdict::of(Finding::of("id"));
                }
                self.judge_url(document.url, domains.as_ref())
            })
        })
    }

    fn explain(&self, url: &str, stop: &Stop) -> Result<Option<RobotsVerdict>> {
        let Some(source) = &self.robots else { return Ok(None) };
        let location = locate(url).map_err(|error| Error::config(url, error))?;
        let authorities: Vec<String> = robots_authorities(&location).collect();
        let mut files: BTreeMap<String, (Option<f64>, String)> = BTreeMap::new();
        source.for_each_file(stop, &mut |authority, _, content, fetched| {
            let before = files.get(&authority);
            let is_latest = before.is_none_or(|(before, _)| *before < fetched);
            if is_latest && authorities.contains(&authority) {
                files.insert(authority, (fetched, content.to_owned()));
            }
            Ok(())
        })?;
        let content = authorities.iter().find_map(|authority| Some(files.remove(authority)?.1));
        let agents = &source.agents;
        let path = location.path(agents.matching());
        let robots = content.as_ref().map(|text| Robots::parse(text.as_bytes(), agents));
        let blocked = robots.as_ref().map_or(0, |robots| robots.blocked(path));
        let line = |agent: usize| {
            let number = robots.as_ref()?.deciding_line(agent, path)?;
            let text = line_text(content.as_ref()?.as_bytes(), agents.matching(), number)?;
            Some(format!("line {number}: {text}"))
        };
        let agent = |(i, label): (usize, &String)| AgentVerdict {
            agent: label.clone(),
            is_blocked: blocked >> i & 1 == 1,
            line: line(i),
        };
        Ok(Some(RobotsVerdict {
            url: url.to_owned(),
            has_robots_file: content.is_some(),
            agents: agents.labels().iter().enumerate().map(agent).collect(),
        }))
    }
}

#[derive(Debug)]
struct RobotsSource {
    /// Tables, and files named after their hosts.
    paths: Vec<PathBuf>,
    agents: Agents,
    /// Parsed files by authority, from [`ConsentFilter::prepare`]; equal rules are stored once.
    files: HashMap<String, Arc<Robots>>,
}

/// Takes the authority, path, content and time of the fetch (a larger number is later) of a
/// robots.txt file; returns the reason if it cannot be used.
type TakeFile<'a> = dyn FnMut(String, &Path, &str, Option<f64>) -> Result<(), String> + 'a;

impl RobotsSource {
    /// Finds the files of the sources; `None` if no source has robots.txt files.
    fn open(name: &str, config: &RobotsConfig) -> Result<Option<Self>> {
        let patterns: Vec<String> =
            config.sources.iter().filter_map(|source| source.robots.clone()).collect();
        if patterns.is_empty() {
            return Ok(None);
        }
        let agents = config.agents(name)?;
        let files = list_files(&patterns, &robots_columns())?;
        let paths = files.into_iter().map(|list| list.path).collect();
        Ok(Some(Self { paths, agents, files: HashMap::new() }))
    }

    /// Reads every robots.txt of the sources and passes it to `each`, in the order of the sources;
    /// several may be of one host. A reason that `each` returns becomes an error with file and row.
    fn for_each_file(&self, stop: &Stop, each: &mut TakeFile<'_>) -> Result<()> {
        // A number cannot be compared with a date.
        let mut are_numbers = None;
        for path in &self.paths {
            stop.check()?;
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            if is_table(&name) {
                let table = InputFile::at(path, path.display().to_string(), None)?;
                let mut is_empty = true;
                read_table(&table, &robots_columns(), None, stop, &mut |row| {
                    is_empty = false;
                    let Some(content) = row.text(CONTENT) else { return Ok(()) };
                    let authority = authority_of(row.required_text(DOMAIN)?, row.text(PROTOCOL))?;
                    let fetched = row.text(FETCHED).map(|text| {
                        let (time, is_number) = parse_time(text)?;
                        if *are_numbers.get_or_insert(is_number) != is_number {
                            return Err(format!(
                                "`{FETCHED}` is `{text}`; numbers and dates are mixed"
                            ));
                        }
                        Ok(time)
                    });
                    let fetched = fetched.transpose()?;
                    each(authority, path, content, fetched)
                })?;
                if is_empty {
                    return Err(Error::corrupt(path, NO_ENTRY));
                }
                continue;
            }
            let bytes = read(path)?;
            let host = name.strip_suffix(".txt").unwrap_or(&name);
            let content = &String::from_utf8_lossy(&bytes);
            let reason = authority_of(host, None).and_then(|authority| {
                let port = host.rsplit_once(':').filter(|(_, port)| port.parse::<u16>().is_ok());
                let bare = port.map_or(host, |(bare, _)| bare).to_ascii_lowercase();
                let is_known = registrable_domain(&bare, Suffixes::Icann).is_some();
                if !is_known && host.parse::<IpAddr>().is_err() && bare != "localhost" {
                    return Err("is not a table, and its name is not a host".to_owned());
                }
                each(authority, path, content, None)
            });
            reason.map_err(|reason| Error::corrupt(path, reason))?;
        }
        Ok(())
    }

    /// Reads all files and parses the latest of each authority; [`Error::Corrupt`] if that is
    /// unclear.
    fn read_all(&self, stop: &Stop) -> Result<HashMap<String, Arc<Robots>>> {
        let mut files: HashMap<String, RobotsFile> = HashMap::new();
        let mut distinct: HashSet<Arc<Robots>> = HashSet::new();
        let mut pending: Vec<(String, String)> = Vec::new();
        let mut parse = |pending: &mut Vec<_>, files: &mut HashMap<String, RobotsFile>| {
            let parsed: Vec<(String, Robots)> = (pending.par_drain(..))
                .map(|(authority, content): (_, String)| {
                    (authority, Robots::parse(content.as_bytes(), &self.agents).compacted())
                })
                .collect();
            for (authority, rules) in parsed {
                let rules = Arc::new(rules);
                distinct.insert(Arc::clone(&rules)); // does nothing if it has equal rules
                if let Some(file) = files.get_mut(&authority) {
                    file.rules = distinct.get(&rules).cloned();
                }
            }
        };
        self.for_each_file(stop, &mut |authority, path, content, fetched| {
            let hash = twox_hash::XxHash3_128::oneshot(content.as_bytes());
            if let Some(before) = files.get_mut(&authority) {
                if fetched == before.fetched && hash != before.hash {
                    before.other = Some(path.to_owned());
                }
                if fetched <= before.fetched {
                    return Ok(());
                }
            }
            let file = RobotsFile { fetched, hash, other: None, rules: None };
            files.insert(authority.clone(), file);
            pending.push((authority, content.to_owned()));
            if pending.len() == BATCH_FILES {
                parse(&mut pending, &mut files);
            }
            Ok(())
        })?;
        parse(&mut pending, &mut files);
        let ambiguous = files.iter().filter_map(|(own, file)| Some((own, file.other.as_ref()?)));
        if let Some((authority, path)) = ambiguous.min() {
            let reason = format!(
                "{authority} has two files, and nothing says which was fetched last (`{FETCHED}`)"
            );
            return Err(Error::corrupt(path, reason));
        }
        let rules = |(authority, file): (_, RobotsFile)| Some((authority, file.rules?));
        Ok(files.into_iter().filter_map(rules).collect())
    }
}

fn robots_columns() -> [ColumnRequest; 4] {
    [
        ColumnRequest::new(DOMAIN, ColumnKind::Text, true),
        ColumnRequest::new(CONTENT, ColumnKind::LossyText, true),
        ColumnRequest::new(PROTOCOL, ColumnKind::Text, false),
        ColumnRequest::new(FETCHED, ColumnKind::Scalar, false),
    ]
}

/// Parses a time: four digits are a year; another number is returned as it is, with true; a year,
/// month, date or time becomes microseconds since 1970 (UTC without a zone).
fn parse_time(text: &str) -> Result<(f64, bool), String> {
    let is_year = text.len() == "2025".len() && text.bytes().all(|byte| byte.is_ascii_digit());
    let number = text.parse().ok().filter(|number: &f64| number.is_finite() && !is_year);
    if let Some(number) = number {
        return Ok((number, true));
    }
    let day = match text.len() {
        4 => format!("{text}-01-01"),
        7 => format!("{text}-01"),
        _ => text.to_owned(),
    };
    let time = day.replacen(' ', "T", 1);
    let with_zone = DateTime::parse_from_str(&time, "%Y-%m-%dT%H:%M:%S%.f%#z");
    let time = with_zone.map(|time| time.naive_utc()).or_else(|_| time.parse());
    let time = time.or_else(|_| day.parse::<NaiveDate>().map(|day| day.and_time(NaiveTime::MIN)));
    time.map(|time| (time.and_utc().timestamp_micros() as f64, false)).map_err(|_| {
        format!(
            "`{FETCHED}` is `{text}`; a date as in 2025-01-31, a time of RFC 3339 or a number is needed"
        )
    })
}

/// Returns the key of a listed domain ([`url_key`]), or why a list of domains cannot have `entry`.
fn domain_key(entry: &str) -> Result<Cow<'_, str>, String> {
    let key = url_key(entry)?;
    if key.contains(['/', '?']) {
        return Err(format!("`{entry}` has a path; `kind = \"urls\"` is for those"));
    }
    Ok(key)
}

/// Returns the authority of `host`, which may be a URL; https unless it is known to be http.
fn authority_of(host: &str, protocol: Option<&str>) -> Result<String, String> {
    let protocol = protocol.map(|protocol| protocol.trim_end_matches("://").trim_end_matches(':'));
    let scheme = match protocol.map(str::to_ascii_lowercase).as_deref() {
        Some("http") => "http",
        Some("https") => "https",
        Some(other) => return Err(format!("`{PROTOCOL}` is `{other}`, not http or https")),
        None if host.ends_with(":80") => "http",
        None => "https",
    };
    let url = match host.split_once("://") {
        Some(_) if protocol.is_none() => host.to_owned(),
        Some((_, rest)) => format!("{scheme}://{rest}"),
        None => format!("{scheme}://{host}"),
    };
    let location = locate(&url).map_err(|error| format!("`{host}` is no host: {error}"))?;
    Ok(location.authority.to_string())
}

/// Returns where to look for the robots.txt of `location`; the first that exists counts.
fn robots_authorities(location: &DocumentUrl<'_>) -> impl Iterator<Item = String> {
    let other = if location.authority.scheme == "http" { "https" } else { "http" };
    let mut authority = location.authority.clone();
    let own = authority.to_string();
    authority.scheme = other;
    [own].into_iter().chain(std::iter::once_with(move || authority.to_string()))
}

/// The robots.txt of an authority while the sources are read.
struct RobotsFile {
    fetched: Option<f64>,
    hash: u128,
    /// The file with another text of the same time.
    other: Option<PathBuf>,
    /// `None` until the file is parsed.
    rules: Option<Arc<Robots>>,
}
