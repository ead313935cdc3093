//! `[filters]`: rules that remove, flag or change documents.

use chrono::NaiveDate;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};

use super::{Wrong, is_default, words};
use polysift_base::error::{Error, Result};
use polysift_text::robots::{Agents, DEFAULT_AGENTS, Matching, Suffixes};
use polysift_text::rules::LicenseConfig;

/// Whether a filter applies before or after the thresholds are made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(rename_all = "kebab-case")]
pub enum FilterWhen {
    /// Rates refer to the documents that the filter leaves.
    #[default]
    Before,
    /// Rates refer to all documents, and the filter removes some of the selected ones.
    After,
}

/// What happens to a document that a filter matches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(rename_all = "kebab-case")]
pub enum FilterAction {
    /// The document is not exported.
    #[default]
    Remove,
    /// The document stays, and a column named after the filter gives the reason.
    Flag,
    /// The match is cut out of the text: for repetition the repeated sentences; for decontamination
    /// the n-grams with 200 characters on each side, and then pieces of fewer than 200 characters.
    /// A document with nothing left is removed, in decontamination also one with more than 10 matches
    /// (GPT-3's rule).
    Cut,
}

/// Rule by which a document counts as contaminated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(rename_all = "kebab-case")]
pub enum ContaminationRule {
    /// The document has an n-gram of the index (FineWeb2-HQ).
    #[default]
    Any,
    /// The document has several n-grams, which make up some share of its own (MixtureVitae).
    Coverage,
    /// The document has some share of one benchmark item.
    Item,
}

/// Which documents a filter with lists matches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(rename_all = "kebab-case")]
pub enum ListMode {
    /// Documents on a list.
    #[default]
    Exclude,
    /// Documents on no list.
    Include,
}

/// What happens to documents with an unreadable URL, or a host without robots.txt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(rename_all = "kebab-case")]
pub enum Unknown {
    /// The filter does not match them: publishers have to opt out.
    #[default]
    Keep,
    /// The filter matches them: publishers have to opt in.
    Remove,
}

/// An entry of `[[filters.NAME.sources]]` is a source of opt-outs: one of `ids`, `domains` and
/// `robots`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
pub struct ConsentSource {
    /// Files of ids of blocked documents: text with one per line, or tables with a column `id`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ids: Option<String>,
    /// Column of a table of `ids` that is not empty (a name, a list of agents, `true`) if a
    /// document is blocked. Default: all documents of the table are blocked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub blocked_if: Option<String>,
    /// Files of blocked hosts and registrable domains: text with one per line, or tables with a
    /// column `domain`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub domains: Option<String>,
    /// Files of robots.txt: tables with the columns `domain` and `content` and optionally
    /// `protocol` and `fetched`, or a folder of files that are named after their hosts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub robots: Option<String>,
}

/// A table `[filters.NAME]` defines a rule that removes, flags or changes documents. Its name is
/// the reason of a removal.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct FilterConfig {
    /// Kind of rule that the filter applies.
    #[serde(flatten)]
    pub kind: FilterKind,
    /// Whether the filter applies before or after the thresholds are made. Default: `after` for the
    /// kind `decontamination`, else `before`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub when: Option<FilterWhen>,
    /// What happens to the documents that the filter matches.
    #[serde(skip_serializing_if = "is_default")]
    pub action: FilterAction,
    /// Languages whose documents are filtered. Default: all.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub languages: Vec<String>,
}

/// Kind of rule that a filter applies, with its keys.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum FilterKind {
    /// Lists of document ids.
    Ids(IdsConfig),
    /// Lists of hosts, domains and URL prefixes.
    Urls(UrlsConfig),
    /// Opt-outs: robots.txt rules for agents, and lists of domains and ids derived from them.
    Robots(RobotsConfig),
    /// N-grams of benchmark items.
    Decontamination(DecontaminationConfig),
    /// Evidence that a document may be used: its source, and what its text says.
    License(LicenseConfig),
    /// Share of the words that are on given lists.
    Words(WordsConfig),
    /// Repeated sentences, and encoded data.
    Repetition(RepetitionConfig),
    /// Embeddings close to the embedding of a better document (near duplicates by meaning).
    Embeddings(EmbeddingsConfig),
}

/// Keys of a table `[filters.NAME]` of the kind `ids`, which finds documents by their ids.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
pub struct IdsConfig {
    /// Files of ids: text with one per line, or Parquet, JSON lines or CSV with a column `id`.
    /// `{lang}` stands for the language of the documents. At least one file has to be named.
    pub lists: Vec<String>,
    /// Whether the filter matches the documents on the lists or the others.
    #[serde(skip_serializing_if = "is_default")]
    pub mode: ListMode,
}

/// Keys of a table `[filters.NAME]` of the kind `urls`, which finds documents by their URLs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
pub struct UrlsConfig {
    /// Files of hosts, domains and URL prefixes: text with one per line, or Parquet, JSON lines or
    /// CSV with a column `url`. `{lang}` stands for the language of the documents. At least one
    /// file has to be named.
    pub lists: Vec<String>,
    /// Whether the filter matches the documents on the lists or the others.
    #[serde(skip_serializing_if = "is_default")]
    pub mode: ListMode,
    /// Column of the input with the URL of a document. Default: `url`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// Which entries of the public suffix list count where registrable domains are found.
    #[serde(skip_serializing_if = "is_default")]
    pub suffixes: Suffixes,
}

/// Keys of a table `[filters.NAME]` of the kind `robots`, which finds documents whose
/// publishers opted out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
pub struct RobotsConfig {
    /// Date at which the sources were fetched, as in `2025-01` or `2025-01-31`, which goes into
    /// every report. It has to be set.
    pub as_of: String,
    /// Sources of opt-outs, at least one. A document is blocked if any source blocks it.
    pub sources: Vec<ConsentSource>,
    /// Column of the input with the URL of a document. Default: `url`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// Agents that must all be allowed. Default: the 15 agents that Apertus checks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agents: Option<Vec<String>>,
    /// What happens to documents that no source covers.
    #[serde(skip_serializing_if = "is_default")]
    pub unknown: Unknown,
    /// How robots.txt files are read.
    #[serde(skip_serializing_if = "is_default")]
    pub matching: Matching,
    /// Which entries of the public suffix list count where registrable domains are found.
    #[serde(skip_serializing_if = "is_default")]
    pub suffixes: Suffixes,
}

/// Keys of a table `[filters.NAME]` of the kind `decontamination`, which finds documents
/// that hold text of benchmarks.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
pub struct DecontaminationConfig {
    /// File with the index of benchmark items, which `polysift dataset benchmarks` makes. It has to
    /// be set.
    pub index: String,
    /// When a document counts as contaminated.
    #[serde(skip_serializing_if = "is_default")]
    pub rule: ContaminationRule,
    /// For the rule `coverage`: minimum number of distinct n-grams. Default: 3.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_hits: Option<usize>,
    /// For the rule `coverage`: minimum share of the document's own n-grams. Default: 0.001.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_coverage: Option<f64>,
    /// For the rule `item`: minimum share of an item's tokens that the document holds. Default:
    /// 0.5.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_item: Option<f64>,
}

/// Keys of a table `[filters.NAME]` of the kind `words`, which finds documents with too
/// many of some words.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
pub struct WordsConfig {
    /// Files of words, text with one per line. `{lang}` stands for the language of the documents.
    /// At least one file has to be named.
    pub lists: Vec<String>,
    /// Maximum share of a text's words that are on the lists. Default: 0.2.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_share: Option<f64>,
}

/// Keys of a table `[filters.NAME]` of the kind `repetition`, which finds documents
/// that repeat themselves.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
pub struct RepetitionConfig {
    /// Maximum share of a text's sentences that are repeated. Default: 0.75.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_rate: Option<f64>,
    /// Also match documents with encoded data (base64).
    #[serde(skip_serializing_if = "is_default")]
    pub base64: bool,
}

/// Keys of a table `[filters.NAME]` of the kind `embeddings`, which finds near duplicates:
/// documents whose embedding is close to the embedding of a better document of their language. A
/// run has at most one such filter.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
pub struct EmbeddingsConfig {
    /// Smallest cosine similarity of near duplicates, above 0 and at most 1. It depends on the
    /// encoder; the guide says how to find it. It has to be set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub similarity: Option<f64>,
    /// Head whose score decides which of two near duplicates is better. Default: the run's only
    /// head; a run with several heads has to set it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub head: Option<String>,
    /// Number of clusters in each language, at most one for 40 documents; only documents of a
    /// cluster are compared. Default: one for every 20,000 documents.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clusters: Option<usize>,
    /// Maximum size of the compared embeddings in memory, in 10^6 bytes. If a language has more,
    /// its embeddings are read several times. Default: 4,000.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_mb: Option<usize>,
}

/// The filter of a run that finds near duplicates.
#[derive(Debug, Clone, Copy)]
pub struct NearFilter<'a> {
    /// Name of the filter.
    pub name: &'a str,
    /// The filter.
    pub filter: &'a FilterConfig,
    /// Its own keys.
    pub embeddings: &'a EmbeddingsConfig,
    /// Name of the head whose score decides which document is better.
    pub head: &'a str,
}

impl<'de> Deserialize<'de> for FilterConfig {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let keys = toml::Table::deserialize(deserializer)?;
        Self::from_keys(keys.clone()).map_err(|error| {
            // An enum with a tag does not tell which of its keys is wrong.
            let is_cured_without = |key: &&String| {
                let mut others = keys.clone();
                others.remove(*key);
                Self::from_keys(others).is_ok()
            };
            let Some(wrong) = keys.keys().find(is_cured_without) else {
                return D::Error::custom(error.message());
            };
            match error.message().strip_prefix(&format!("unknown field `{wrong}`, expected ")) {
                Some(known) => D::Error::custom(format!(
                    "unknown field `{wrong}`, expected one of `kind`, `when`, `action`, `languages` \
                     or, for the kind {}, {}",
                    keys["kind"],
                    known.trim_start_matches("one of ")
                )),
                None => D::Error::custom(format!("`{wrong}`: {}", words::explain(error.message()))),
            }
        })
    }
}

impl FilterConfig {
    /// Reads a table `[filters.NAME]`; serde would not refuse unknown keys of a flattened enum.
    fn from_keys(mut own: toml::Table) -> Result<Self, toml::de::Error> {
        let when = own.remove("when").map(toml::Value::try_into).transpose()?;
        let action = own.remove("action").map(toml::Value::try_into).transpose()?;
        let languages = own.remove("languages").map(toml::Value::try_into).transpose()?;
        let (action, languages) = (action.unwrap_or_default(), languages.unwrap_or_default());
        Ok(Self { kind: own.try_into()?, when, action, languages })
    }

    /// Returns true if the removed documents are left out of the thresholds.
    pub fn removes_before(&self) -> bool {
        self.action != FilterAction::Flag && self.when() == FilterWhen::Before
    }

    /// Returns whether the filter removes documents before or after the thresholds are made.
    pub fn when(&self) -> FilterWhen {
        self.when.unwrap_or(match self.kind {
            FilterKind::Decontamination(_) => FilterWhen::After,
            _ => FilterWhen::Before,
        })
    }

    /// Returns true if the filter reads texts.
    pub fn needs_text(&self) -> bool {
        use FilterKind::{Decontamination, License, Repetition, Words};
        match &self.kind {
            License(license) => license.needs_text(),
            kind => matches!(kind, Decontamination(_) | Words(_) | Repetition(_)),
        }
    }

    /// Returns the keys of a filter that compares the embeddings of documents.
    pub fn embeddings(&self) -> Option<&EmbeddingsConfig> {
        if let FilterKind::Embeddings(embeddings) = &self.kind { Some(embeddings) } else { None }
    }

    /// Returns true if the filter applies to documents of `language`.
    pub fn is_for(&self, language: &str) -> bool {
        self.languages.is_empty() || self.languages.iter().any(|known| known == language)
    }

    /// Returns the files of ids, URLs or words that the filter names.
    pub fn lists(&self) -> &[String] {
        match &self.kind {
            FilterKind::Ids(IdsConfig { lists, .. })
            | FilterKind::Urls(UrlsConfig { lists, .. })
            | FilterKind::Words(WordsConfig { lists, .. }) => lists,
            _ => &[],
        }
    }

    /// Returns the URL column of the input (`url` by default), if the filter needs one.
    pub fn url_column(&self) -> Option<&str> {
        let (FilterKind::Urls(UrlsConfig { url, .. })
        | FilterKind::Robots(RobotsConfig { url, .. })
        | FilterKind::License(LicenseConfig { url, .. })) = &self.kind
        else {
            return None;
        };
        Some(url.as_deref().unwrap_or("url"))
    }

    /// Returns the first key with a value that is not allowed.
    pub(super) fn wrong(&self) -> Option<Wrong> {
        if self.action == FilterAction::Flag && self.when.is_some() {
            return Some(("when", "has no effect on a filter that only flags"));
        }
        if self.action == FilterAction::Cut
            && !matches!(self.kind, FilterKind::Decontamination(_) | FilterKind::Repetition(_))
        {
            return Some(("action", "is `cut`, which is for decontamination and repetition"));
        }
        match &self.kind {
            FilterKind::Ids(_) | FilterKind::Urls(_) | FilterKind::Words(_)
                if self.lists().is_empty() =>
            {
                Some(("lists", "is empty; name at least one file"))
            }
            FilterKind::Words(words) => wrong_share("max_share", words.max_share),
            FilterKind::Robots(robots) => robots.wrong(),
            FilterKind::Decontamination(decontamination) => decontamination.wrong(),
            FilterKind::Repetition(repetition) => wrong_share("max_rate", repetition.max_rate),
            FilterKind::Embeddings(embeddings) => embeddings.wrong(),
            FilterKind::Ids(_) | FilterKind::Urls(_) | FilterKind::License(_) => None,
        }
    }
}

/// Returns what is wrong with `share`, the value of `key`, if it is set.
fn wrong_share(key: &'static str, share: Option<f64>) -> Option<Wrong> {
    let is_share = share.is_none_or(|share| (0.0..=1.0).contains(&share));
    (!is_share).then_some((key, "is no share; 0 to 1 are allowed"))
}

impl EmbeddingsConfig {
    fn wrong(&self) -> Option<Wrong> {
        let Some(similarity) = self.similarity else {
            return Some(("similarity", "is missing; the guide says how to find it"));
        };
        if !(similarity > 0.0 && similarity <= 1.0) {
            return Some(("similarity", "is no similarity; above 0 to 1 is allowed"));
        }
        let numbers = [("clusters", self.clusters), ("memory_mb", self.memory_mb)];
        let zero = numbers.into_iter().find(|(_, number)| *number == Some(0));
        zero.map(|(key, _)| (key, "is 0; at least 1 is needed"))
    }
}

impl DecontaminationConfig {
    fn wrong(&self) -> Option<Wrong> {
        let of_coverage = self.min_hits.is_some() || self.min_coverage.is_some();
        if self.index.is_empty() {
            Some(("index", "is missing; `polysift dataset benchmarks` makes one"))
        } else if of_coverage && self.rule != ContaminationRule::Coverage {
            Some(("rule", "is not `coverage`, which `min_hits` and `min_coverage` are for"))
        } else if self.min_item.is_some() && self.rule != ContaminationRule::Item {
            Some(("rule", "is not `item`, which `min_item` is for"))
        } else {
            wrong_share("min_coverage", self.min_coverage)
                .or_else(|| wrong_share("min_item", self.min_item))
        }
    }
}

impl RobotsConfig {
    /// Returns the agents that the filter `name` checks; [`Error::Config`] if they are unusable.
    pub fn agents(&self, name: &str) -> Result<Agents> {
        let agents = match &self.agents {
            Some(listed) => Agents::new(listed, self.matching),
            None => Agents::new(&DEFAULT_AGENTS, self.matching),
        };
        agents.map_err(|e| Error::config(format!("filters.{name}.agents"), e))
    }

    fn wrong(&self) -> Option<Wrong> {
        let is_valid = |ConsentSource { ids, blocked_if, domains, robots }: &ConsentSource| {
            let sources = [ids, domains, robots].into_iter().flatten().count();
            sources == 1 && (ids.is_some() || blocked_if.is_none())
        };
        Some(match &*self.as_of {
            "" => ("as_of", "is missing; say when the sources were fetched"),
            text if !is_date(text) => ("as_of", "is no date, as in 2025-01 or 2025-01-31"),
            _ if self.sources.is_empty() => ("sources", "is empty; name at least one source"),
            _ if self.sources.iter().all(is_valid) => return None,
            _ => (
                "sources",
                "has a source that is not one of `ids` (which may have `blocked_if`), `domains` and `robots`",
            ),
        })
    }
}

/// Returns true if a text is a year, a month or a day, as in 2025-01-31.
fn is_date(text: &str) -> bool {
    // The first day of a year or a month stands for it.
    let is_day = ["", "-01", "-01-01"].iter().any(|rest| {
        let day = format!("{text}{rest}");
        // The parser takes spaces and missing zeros.
        NaiveDate::parse_from_str(&day, "%Y-%m-%d").is_ok_and(|date| date.to_string() == day)
    });
    is_day && text.starts_with(|first: char| first.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_those_of_the_calendar() {
        for date in ["2025", "2025-01", "2024-02-29"] {
            assert!(is_date(date), "{date}");
        }
        for other in [
            "",
            "25",
            "2025-13",
            "2025-02-29",
            "2025- 1- 1",
            "2025-1-1",
            "+202",
            "-2025",
            "+12025-01",
            "2025-01-01-01",
        ] {
            assert!(!is_date(other), "{other}");
        }
    }
}
