//! `[filters]`: rules that remove, flag or change documents without a model.

use serde::{Deserialize, Serialize};

use super::checks::{Wrong, check_keys};
use super::{LANGUAGE_CODE, is_default, is_language_code};
use polysift_base::error::{Error, Result};
use polysift_text::decontamination::Rule;
use polysift_text::robots::{Agents, DEFAULT_AGENTS, Matching, Suffixes};
use polysift_text::rules::{LicenseOptions, RestrictiveOn};

/// Kind of rule that a filter applies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FilterKind {
    /// Lists of document ids.
    Ids,
    /// Lists of hosts, domains and URL prefixes.
    Urls,
    /// Opt-outs: robots.txt rules for agents, and lists of domains and ids derived from them.
    Robots,
    /// N-grams of benchmark items.
    Decontamination,
    /// Evidence that a document may be used: its source, and what its text says.
    License,
    /// Share of the words that are on given lists.
    Words,
    /// Repeated sentences, and encoded data.
    Repetition,
}

/// Keys of filters, by the kinds that they are for.
const KEYS: [(&[FilterKind], &[&str]); 10] = {
    use FilterKind::{Decontamination, Ids, License, Repetition, Robots, Urls, Words};
    [
        (&[], &["kind", "when", "action", "languages"]),
        (&[Ids, Urls, Words], &["lists"]),
        (&[Ids, Urls], &["mode"]),
        (&[Urls, Robots, License], &["url"]),
        (&[Urls, Robots], &["suffixes"]),
        (&[Robots], &["as_of", "sources", "agents", "unknown", "matching"]),
        (&[Decontamination], &["index", "rule", "min_hits", "min_coverage", "min_item"]),
        (&[License], &["allow", "keywords", "window", "restrictive", "restrictive_on"]),
        (&[Words], &["max_share"]),
        (&[Repetition], &["max_rate", "base64"]),
    ]
};

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
    /// A document with nothing left, or more than 10 matches, is removed (GPT-3's rule).
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

impl ConsentSource {
    fn is_one(&self) -> bool {
        let Self { ids, blocked_if, domains, robots } = self;
        let sources = [ids, domains, robots].into_iter().flatten().count();
        sources == 1 && (ids.is_some() || blocked_if.is_none())
    }
}

/// A table `[filters.NAME]` defines a rule that removes, flags or changes documents without a
/// model. Its name is the reason of a removal.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FilterConfig {
    /// Kind of rule that the filter applies.
    pub kind: FilterKind,
    /// Whether the filter applies before or after the thresholds are made. Default: `after` for the
    /// kind `decontamination`, else `before`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub when: Option<FilterWhen>,
    /// What happens to the documents that the filter matches.
    #[serde(default, skip_serializing_if = "is_default")]
    pub action: FilterAction,
    /// Languages whose documents are filtered. Default: all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub languages: Vec<String>,
    /// Files of ids, of hosts, domains and URL prefixes, or of words: text with one per line, or
    /// (not of words) Parquet, JSON lines or CSV with a column `id` or `url`. `{lang}` stands for
    /// the language of the documents. At least one file has to be named.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lists: Vec<String>,
    /// Whether the filter matches the documents on the lists or the others.
    #[serde(default, skip_serializing_if = "is_default")]
    pub mode: ListMode,
    /// Column of the input with the URL of a document. Default: `url`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// Date at which the sources were fetched, as in `2025-01` or `2025-01-31`, which goes into
    /// every report. It has to be set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub as_of: Option<String>,
    /// Sources of opt-outs, at least one. A document is blocked if any source blocks it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sources: Vec<ConsentSource>,
    /// Agents that must all be allowed. Default: the 15 agents that Apertus checks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agents: Option<Vec<String>>,
    /// What happens to documents that no source covers.
    #[serde(default, skip_serializing_if = "is_default")]
    pub unknown: Unknown,
    /// How robots.txt files are read.
    #[serde(default, skip_serializing_if = "is_default")]
    pub matching: Matching,
    /// Which entries of the public suffix list count where registrable domains are found.
    #[serde(default, skip_serializing_if = "is_default")]
    pub suffixes: Suffixes,
    /// File with the index of benchmark items, which `polysift dataset benchmarks` makes. It has to
    /// be set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub index: Option<String>,
    /// When a document counts as contaminated.
    #[serde(default, skip_serializing_if = "is_default")]
    pub rule: ContaminationRule,
    /// For the rule `coverage`: minimum number of distinct n-grams. Default: 3.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_hits: Option<usize>,
    /// For the rule `coverage`: minimum share of the document's own n-grams. Default: 0.001.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_coverage: Option<f64>,
    /// For the rule `item`: minimum share of an item's tokens that the document holds. Default:
    /// 0.5.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_item: Option<f64>,
    /// TOML file of allowed hosts, URLs and suffixes. Default: the sources of MixtureVitae.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allow: Option<String>,
    /// Marks that are evidence if they stand within `window` characters of either end of the text;
    /// case does not count. Default: `cc-by`, `cc-0`, `creative common`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keywords: Option<Vec<String>>,
    /// Number of characters at each end of a text that are searched for keywords. Default: 100.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub window: Option<usize>,
    /// Terms that refuse a document wherever they stand in it. Default: terms such as `all rights
    /// reserved` in many languages.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restrictive: Option<Vec<String>>,
    /// Which documents the restrictive terms refuse.
    #[serde(default, skip_serializing_if = "is_default")]
    pub restrictive_on: RestrictiveOn,
    /// Maximum share of a text's words that are on the lists. Default: 0.2.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_share: Option<f64>,
    /// Maximum share of a text's sentences that are repeated. Default: 0.75.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_rate: Option<f64>,
    /// Also match documents with encoded data (base64).
    #[serde(default, skip_serializing_if = "is_default")]
    pub base64: bool,
}

impl FilterConfig {
    /// Returns true if the removed documents are left out of the thresholds.
    pub fn removes_before(&self) -> bool {
        self.action != FilterAction::Flag && self.when() == FilterWhen::Before
    }

    /// Returns whether the filter removes documents before or after the thresholds are made.
    pub fn when(&self) -> FilterWhen {
        self.when.unwrap_or(match self.kind {
            FilterKind::Decontamination => FilterWhen::After,
            _ => FilterWhen::Before,
        })
    }

    /// Returns true if the filter reads texts.
    pub fn needs_text(&self) -> bool {
        match self.kind {
            FilterKind::Ids | FilterKind::Urls | FilterKind::Robots => false,
            FilterKind::License => self.license_options().needs_text(),
            FilterKind::Decontamination | FilterKind::Words | FilterKind::Repetition => true,
        }
    }

    /// Returns how evidence of a licence is found in texts.
    pub fn license_options(&self) -> LicenseOptions {
        let default = LicenseOptions::default();
        LicenseOptions {
            keywords: self.keywords.clone().unwrap_or(default.keywords),
            window: self.window.unwrap_or(default.window),
            restrictive: self.restrictive.clone().unwrap_or(default.restrictive),
            restrictive_on: self.restrictive_on,
        }
    }

    /// Returns the rule by which a document counts as contaminated.
    pub fn rule(&self) -> Rule {
        match self.rule {
            ContaminationRule::Any => Rule::Any,
            ContaminationRule::Coverage => Rule::Coverage {
                min_hits: self.min_hits.unwrap_or(3),
                min_coverage: self.min_coverage.unwrap_or(0.001),
            },
            ContaminationRule::Item => Rule::Item { min_item: self.min_item.unwrap_or(0.5) },
        }
    }

    /// Returns true if the filter applies to documents of `language`.
    pub fn is_for(&self, language: &str) -> bool {
        self.languages.is_empty() || self.languages.iter().any(|known| known == language)
    }

    /// Returns the URL column of the input, if the filter needs one.
    pub fn url_column(&self) -> Option<&str> {
        let default = match self.kind {
            FilterKind::Urls | FilterKind::Robots | FilterKind::License => Some("url"),
            _ => None,
        };
        self.url.as_deref().or(default)
    }

    /// Returns the agents that the filter `name` checks.
    ///
    /// # Errors
    /// [`Error::Config`] if the list cannot be used.
    pub fn agents(&self, name: &str) -> Result<Agents> {
        let agents = match &self.agents {
            Some(listed) => Agents::new(listed, self.matching),
            None => Agents::new(&DEFAULT_AGENTS, self.matching),
        };
        agents.map_err(|e| Error::config(format!("filters.{name}.agents"), e.to_string()))
    }

    /// Checks what the types cannot express.
    pub fn check(&self, name: &str) -> Result<()> {
        let place = format!("filters.{name}");
        if !is_language_code(name) {
            return Err(Error::config(place, format!("a filter's name is {LANGUAGE_CODE}")));
        }
        check_keys(&place, self, &self.kind, &KEYS)?;
        let wrong = self.wrong_key().or_else(|| self.wrong_rule()).or_else(|| self.wrong_source());
        if let Some((key, reason)) = wrong {
            return Err(Error::config(format!("{place}.{key}"), reason));
        }
        self.agents(name).map(drop)
    }

    fn wrong_key(&self) -> Option<Wrong> {
        let of_lists = [FilterKind::Ids, FilterKind::Urls, FilterKind::Words];
        let can_cut = [FilterKind::Decontamination, FilterKind::Repetition].contains(&self.kind);
        if self.action == FilterAction::Flag && self.when.is_some() {
            return Some(("when", "says nothing of a filter that only flags"));
        }
        if self.action == FilterAction::Cut && !can_cut {
            return Some(("action", "is `cut`, which is for decontamination and repetition"));
        }
        if of_lists.contains(&self.kind) && self.lists.is_empty() {
            return Some(("lists", "is empty; name at least one file"));
        }
        let shares = [
            ("max_share", self.max_share),
            ("max_rate", self.max_rate),
            ("min_coverage", self.min_coverage),
            ("min_item", self.min_item),
        ];
        let is_share = |share: f64| (0.0..=1.0).contains(&share);
        let wrong = shares.into_iter().find(|(_, share)| !share.is_none_or(is_share));
        wrong.map(|(key, _)| (key, "is no share; 0 to 1 are allowed"))
    }

    fn wrong_rule(&self) -> Option<Wrong> {
        if self.kind == FilterKind::Decontamination && self.index.is_none() {
            return Some(("index", "is missing; `polysift dataset benchmarks` makes one"));
        }
        let of_coverage = self.min_hits.is_some() || self.min_coverage.is_some();
        if of_coverage && self.rule != ContaminationRule::Coverage {
            let reason = "is not `coverage`, which `min_hits` and `min_coverage` are for";
            return Some(("rule", reason));
        }
        let of_item = self.min_item.is_some() && self.rule != ContaminationRule::Item;
        of_item.then_some(("rule", "is not `item`, which `min_item` is for"))
    }

    fn wrong_source(&self) -> Option<Wrong> {
        if self.kind != FilterKind::Robots {
            return None;
        }
        Some(match self.as_of.as_deref() {
            None => ("as_of", "is missing; say when the sources were fetched"),
            Some(text) if !is_date(text) => ("as_of", "is no date, as in 2025-01 or 2025-01-31"),
            _ if self.sources.is_empty() => ("sources", "is empty; name at least one source"),
            _ if self.sources.iter().all(ConsentSource::is_one) => return None,
            _ => (
                "sources",
                "has a source that is not one of `ids` (which may have `blocked_if`), `domains` and `robots`",
            ),
        })
    }
}

/// Returns true if a text is a year, a month or a day, as in 2025-01-31.
fn is_date(text: &str) -> bool {
    let of_digits = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
    let lengths: Vec<usize> = text.split('-').map(str::len).collect();
    [4, 2, 2].starts_with(&lengths) && text.split('-').all(of_digits)
}
