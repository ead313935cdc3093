//! `[filters]`: rules that remove, flag or change documents without a model.

use serde::{Deserialize, Serialize};

use super::is_language_code;
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

impl FilterKind {
    /// Returns the keys that only filters of this kind take.
    fn keys(self) -> &'static [&'static str] {
        match self {
            Self::Ids => &["lists", "mode"],
            Self::Urls => &["lists", "mode", "url", "suffixes"],
            Self::Robots => {
                &["url", "as_of", "sources", "agents", "unknown", "matching", "suffixes"]
            }
            Self::Decontamination => &["index", "rule", "min_hits", "min_coverage", "min_item"],
            Self::License => {
                &["url", "allow", "keywords", "window", "restrictive", "restrictive_on"]
            }
            Self::Words => &["lists", "max_share"],
            Self::Repetition => &["max_rate", "base64"],
        }
    }
}

/// Whether a filter applies before or after the thresholds are made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(rename_all = "kebab-case")]
pub enum FilterWhen {
    /// Before: rates refer to the documents that the filter leaves.
    #[default]
    Before,
    /// After: rates refer to all documents, and the filter removes some of the selected ones.
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

/// A source of opt-outs: one of `ids`, `domains` and `robots`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
pub struct ConsentSource {
    /// Lists of ids of blocked documents, in the formats of [`FilterKind::Ids`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ids: Option<String>,
    /// Column of a table of ids that is non-empty (a name, a list of agents, `true`) if a document
    /// is blocked. By default all documents of the table are blocked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub blocked_if: Option<String>,
    /// Lists of blocked hosts and registrable domains, as text or with a column `domain`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub domains: Option<String>,
    /// robots.txt files: tables with the columns `domain` and `content` and optionally `protocol`
    /// and `fetched`, or a folder of files named after their hosts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub robots: Option<String>,
}

/// Settings of `[filters.<name>]`; the name is the reason of a removal.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FilterConfig {
    /// Kind of rule that the filter applies.
    pub kind: FilterKind,
    /// Filter before or after the thresholds are made; `after` for decontamination, else `before`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub when: Option<FilterWhen>,
    /// What happens to the documents that the filter matches.
    #[serde(default, skip_serializing_if = "is_default")]
    pub action: FilterAction,
    /// Languages to filter; all if empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub languages: Vec<String>,
    /// Files of ids, hosts, domains or URL prefixes: text with one per line, or Parquet, JSON lines
    /// or CSV with a column `id` or `url`. `{lang}` stands for the language of the documents.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lists: Vec<String>,
    /// Whether listed or unlisted documents are matched.
    #[serde(default, skip_serializing_if = "is_default")]
    pub mode: ListMode,
    /// Column of the input with the URL; `url` by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// Date at which the sources were fetched; it goes into every report.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub as_of: Option<String>,
    /// Sources of opt-outs; a document is blocked if any source blocks it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sources: Vec<ConsentSource>,
    /// Agents that must all be allowed; [`DEFAULT_AGENTS`] by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agents: Option<Vec<String>>,
    /// What happens to documents that no source covers.
    #[serde(default, skip_serializing_if = "is_default")]
    pub unknown: Unknown,
    /// How robots.txt files are interpreted.
    #[serde(default, skip_serializing_if = "is_default")]
    pub matching: Matching,
    /// Which public suffixes are used to find registrable domains.
    #[serde(default, skip_serializing_if = "is_default")]
    pub suffixes: Suffixes,
    /// Path of the index of benchmark items.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub index: Option<String>,
    /// Rule by which a document counts as contaminated.
    #[serde(default, skip_serializing_if = "is_default")]
    pub rule: ContaminationRule,
    /// For [`ContaminationRule::Coverage`]: minimum number of distinct n-grams; default 3.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_hits: Option<usize>,
    /// For [`ContaminationRule::Coverage`]: minimum share of the document's n-grams; default 0.001.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_coverage: Option<f64>,
    /// For [`ContaminationRule::Item`]: minimum share of an item's tokens found; default 0.5.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_item: Option<f64>,
    /// File of allowed sources, see [`parse_allow_list`](polysift_text::rules::parse_allow_list);
    /// MixtureVitae's by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allow: Option<String>,
    /// See [`LicenseOptions::keywords`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keywords: Option<Vec<String>>,
    /// See [`LicenseOptions::window`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub window: Option<usize>,
    /// See [`LicenseOptions::restrictive`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restrictive: Option<Vec<String>>,
    /// See [`LicenseOptions::restrictive_on`].
    #[serde(default, skip_serializing_if = "is_default")]
    pub restrictive_on: RestrictiveOn,
    /// Maximum share of a text's words that are on the lists; 0.2 by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_share: Option<f64>,
    /// Maximum share of a text's sentences that are repeated; 0.75 by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_rate: Option<f64>,
    /// Also match documents with encoded data (base64).
    #[serde(default, skip_serializing_if = "is_default")]
    pub base64: bool,
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

impl FilterConfig {
    const COMMON_KEYS: [&str; 4] = ["kind", "when", "action", "languages"];

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
    ///
    /// # Errors
    /// [`Error::Config`] for a share outside 0 to 1, or a key of another rule.
    pub fn rule(&self, name: &str) -> Result<Rule> {
        let fail =
            |key: &str, reason: &str| Err(Error::config(format!("filters.{name}.{key}"), reason));
        for (key, share) in [("min_coverage", self.min_coverage), ("min_item", self.min_item)] {
            if share.is_some_and(|share| !(0.0..=1.0).contains(&share)) {
                return fail(key, "is no share; 0 to 1 are allowed");
            }
        }
        let is_coverage = self.rule == ContaminationRule::Coverage;
        if (self.min_hits.is_some() || self.min_coverage.is_some()) && !is_coverage {
            return fail("rule", "is not `coverage`, which `min_hits` and `min_coverage` are for");
        }
        if self.min_item.is_some() && self.rule != ContaminationRule::Item {
            return fail("rule", "is not `item`, which `min_item` is for");
        }
        Ok(match self.rule {
            ContaminationRule::Any => Rule::Any,
            ContaminationRule::Coverage => Rule::Coverage {
                min_hits: self.min_hits.unwrap_or(3),
                min_coverage: self.min_coverage.unwrap_or(0.001),
            },
            ContaminationRule::Item => Rule::Item { min_item: self.min_item.unwrap_or(0.5) },
        })
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
        let fail =
            |key: &str, reason: String| Err(Error::config(format!("filters.{name}{key}"), reason));
        if !is_language_code(name) {
            let reason = "a filter's name is made of ASCII letters, digits, `_` and `-`";
            return fail("", reason.to_owned());
        }
        let written =
            toml::Table::try_from(self).map_err(|e| Error::config(name, e.to_string()))?;
        let known = |key: &&String| {
            let keys = Self::COMMON_KEYS.iter().chain(self.kind.keys());
            keys.into_iter().any(|known| known == key)
        };
        if let Some(key) = written.keys().find(|key| !known(key)) {
            let kind = written["kind"].as_str().unwrap_or_default();
            return fail(&format!(".{key}"), format!("is not for filters of the kind `{kind}`"));
        }
        if self.action == FilterAction::Flag && self.when.is_some() {
            return fail(".when", "says nothing of a filter that only flags".to_owned());
        }
        let can_cut = matches!(self.kind, FilterKind::Decontamination | FilterKind::Repetition);
        if self.action == FilterAction::Cut && !can_cut {
            let reason = "is `cut`, which is for decontamination and repetition";
            return fail(".action", reason.to_owned());
        }
        for (key, share) in [(".max_share", self.max_share), (".max_rate", self.max_rate)] {
            if share.is_some_and(|share| !(0.0..=1.0).contains(&share)) {
                return fail(key, "is no share; 0 to 1 are allowed".to_owned());
            }
        }
        match self.kind {
            FilterKind::Decontamination if self.index.is_none() => {
                fail(".index", "is missing; `polysift dataset benchmarks` makes one".to_owned())
            }
            FilterKind::Decontamination => self.rule(name).map(drop),
            FilterKind::Ids | FilterKind::Urls | FilterKind::Words if self.lists.is_empty() => {
                fail(".lists", "is empty; name at least one file".to_owned())
            }
            FilterKind::Ids
            | FilterKind::Urls
            | FilterKind::Words
            | FilterKind::License
            | FilterKind::Repetition => Ok(()),
            FilterKind::Robots if self.as_of.is_none() => {
                fail(".as_of", "is missing; say when the sources were fetched".to_owned())
            }
            FilterKind::Robots if !self.as_of.as_deref().is_some_and(is_date) => {
                fail(".as_of", "is no date, as in 2025-01 or 2025-01-31".to_owned())
            }
            FilterKind::Robots if self.sources.is_empty() => {
                fail(".sources", "is empty; name at least one source".to_owned())
            }
            FilterKind::Robots => {
                let is_one = |source: &ConsentSource| {
                    let [ids, domains, robots] = [&source.ids, &source.domains, &source.robots]
                        .map(Option::is_some)
                        .map(usize::from);
                    ids + domains + robots == 1 && (ids == 1 || source.blocked_if.is_none())
                };
                if !self.sources.iter().all(is_one) {
                    let reason = "has a source that is not one of `ids` (which may have \
                                  `blocked_if`), `domains` and `robots`";
                    return fail(".sources", reason.to_owned());
                }
                self.agents(name).map(drop)
            }
        }
    }
}

/// Returns true if a text is a year, a month or a day, as in 2025-01-31.
fn is_date(text: &str) -> bool {
    let of_digits = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
    let lengths: Vec<usize> = text.split('-').map(str::len).collect();
    [4, 2, 2].starts_with(&lengths) && text.split('-').all(of_digits)
}
